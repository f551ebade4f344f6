/* Preloaded into one program: its wall clock and its monotonic clock are ahead of the host's by the two numbers of
 * seconds in the file CLOCK_AHEAD.
 *
 * When they change, every timer of the program fires at once, as timers on a wall clock that is set do
 * (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET). */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static atomic_long wall_ahead, monotonic_ahead;
static char file[4096];

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = (int)syscall(SYS_clock_gettime, clock, now);
    if (done == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += wall_ahead;
    if (done == 0 && clock == CLOCK_MONOTONIC)
        now->tv_sec += monotonic_ahead;
    return done;
}

static void wake(void) {
    struct itimerspec at_once = {.it_value = {.tv_nsec = 1}};
    DIR *descriptors = opendir("/proc/self/fd");
    struct dirent *entry;
    while (descriptors && (entry = readdir(descriptors))) {
        char path[300], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "[timerfd]"))
            timerfd_settime(atoi(entry->d_name), 0, &at_once, NULL);
    }
    if (descriptors)
        closedir(descriptors);
}

static void *watch(void *unused) {
    struct timespec pause = {.tv_nsec = 10000000};
    for (;; nanosleep(&pause, NULL)) {
        long wall = 0, monotonic = 0;
        FILE *text = fopen(file, "r");
        if (!text)
            continue;
        int is_whole = fscanf(text, "%ld %ld", &wall, &monotonic) == 2;
        fclose(text);
        if (!is_whole)
            continue;
        int is_new = atomic_exchange(&monotonic_ahead, monotonic) != monotonic;
        if (atomic_exchange(&wall_ahead, wall) != wall || is_new)
            wake();
    }
    return unused;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    snprintf(file, sizeof file, "%s", getenv("CLOCK_AHEAD") ? getenv("CLOCK_AHEAD") : "");
    /* Not for its readers. */
    unsetenv("LD_PRELOAD");
    pthread_create(&thread, NULL, watch, NULL);
}
