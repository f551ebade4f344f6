/* The compiled part of the ctypes loop: one slurm_get_statistics, copied out for Python with both RPC tables. */
#include <slurm/slurm.h>

void slurm_free_stats_response_msg(stats_info_response_msg_t *msg);

/* Rows of the RPC tables: type or user, count, time. Returns how many, or -1. */
int get_statistics(unsigned long *figure, unsigned long (*row)[3], int most)
{
	stats_info_request_msg_t request = { .command_id = STAT_COMMAND_GET };
	stats_info_response_msg_t *reply = NULL;
	int rows = 0;

	if (slurm_get_statistics(&reply, &request) || !reply)
		return -1;
#define COPY(member) *figure++ = reply->member
	COPY(req_time), COPY(req_time_start), COPY(server_thread_count), COPY(agent_queue_size), COPY(agent_count);
	COPY(agent_thread_count), COPY(dbd_agent_queue_size), COPY(jobs_submitted), COPY(jobs_started);
	COPY(jobs_completed), COPY(jobs_canceled), COPY(jobs_failed), COPY(jobs_pending), COPY(jobs_running);
	COPY(schedule_cycle_max), COPY(schedule_cycle_last), COPY(schedule_cycle_sum), COPY(schedule_cycle_counter);
	COPY(schedule_cycle_depth), COPY(schedule_queue_len), COPY(bf_backfilled_jobs), COPY(bf_last_backfilled_jobs);
	COPY(bf_cycle_counter), COPY(bf_cycle_sum), COPY(bf_cycle_last), COPY(bf_cycle_max), COPY(bf_last_depth);
	COPY(bf_last_depth_try), COPY(bf_depth_sum), COPY(bf_depth_try_sum), COPY(bf_queue_len), COPY(bf_queue_len_sum);
	for (unsigned int i = 0; i < reply->rpc_type_size && rows < most; i++, rows++) {
		row[rows][0] = reply->rpc_type_id[i];
		row[rows][1] = reply->rpc_type_cnt[i];
		row[rows][2] = reply->rpc_type_time[i];
	}
	for (unsigned int i = 0; i < reply->rpc_user_size && rows < most; i++, rows++) {
		row[rows][0] = reply->rpc_user_id[i];
		row[rows][1] = reply->rpc_user_cnt[i];
		row[rows][2] = reply->rpc_user_time[i];
	}
	slurm_free_stats_response_msg(reply);
	return rows;
}
