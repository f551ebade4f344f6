/* The floor: what one paced slurm_get_statistics costs from bare C, and nothing else. */
#include <slurm/slurm.h>
#include <time.h>

void slurm_free_stats_response_msg(stats_info_response_msg_t *msg);

int main(void)
{
	struct timespec next;

	slurm_init(NULL);
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		stats_info_request_msg_t request = { .command_id = STAT_COMMAND_GET };
		stats_info_response_msg_t *reply = NULL;

		if (!slurm_get_statistics(&reply, &request) && reply)
			slurm_free_stats_response_msg(reply);
		next.tv_sec++;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
}
