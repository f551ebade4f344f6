/* The floor: what one slurm_get_statistics a second costs from bare C. It wakes on the whole
 * second, as the daemon does. */
#include <slurm/slurm.h>
#include <time.h>

void slurm_free_stats_response_msg(stats_info_response_msg_t *msg);

int main(void)
{
	struct timespec next;

	slurm_init(NULL);
	clock_gettime(CLOCK_REALTIME, &next);
	next.tv_nsec = 0;
	for (;;) {
		stats_info_request_msg_t request = { .command_id = STAT_COMMAND_GET };
		stats_info_response_msg_t *reply = NULL;

		next.tv_sec++;
		clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &next, NULL);
		if (!slurm_get_statistics(&reply, &request) && reply)
			slurm_free_stats_response_msg(reply);
	}
}
