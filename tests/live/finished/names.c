/* Preloaded into a reader: the name service hangs for user 2, or fails for user 3, while the file HANGS or FAILS
 * exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

int getpwuid_r(uid_t id, struct passwd *user, char *text, size_t size, struct passwd **found) {
    while (id == 2 && access(getenv("HANGS"), F_OK) == 0)
        usleep(100000);
    *found = NULL;
    if (id == 3 && access(getenv("FAILS"), F_OK) == 0)
        return EIO;
    __typeof__(&getpwuid_r) next = dlsym(RTLD_NEXT, "getpwuid_r");
    return next(id, user, text, size, found);
}
