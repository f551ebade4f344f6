/* The floor of what the reader asks: the same calls, whose replies are freed. `surveys ROUNDS`:
 * what a full survey asks for, with the same flags; `jobs ROUNDS CLUSTER SINCE UNTIL`: jobs that
 * ended; `associations ROUNDS`: all associations and QOS. Prints CPU and wall in µs, and the
 * most memory in KiB. */
#include <slurm/slurm.h>
#include <slurm/slurmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double microseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static void check(int failed, const char *what)
{
	if (failed) {
		slurm_perror(what);
		exit(1);
	}
}

static void surveys(void)
{
	job_info_msg_t *jobs = NULL;
	node_info_msg_t *nodes = NULL;
	partition_info_msg_t *partitions = NULL;

	check(slurm_load_node(0, &nodes, SHOW_ALL | SHOW_DETAIL | SHOW_MIXED | SHOW_LOCAL | SHOW_FUTURE) ||
	      slurm_load_partitions(0, &partitions, SHOW_ALL | SHOW_LOCAL) ||
	      slurm_load_jobs(0, &jobs, SHOW_ALL | SHOW_LOCAL), "surveys");
	slurm_free_job_info_msg(jobs);
	slurm_free_partition_info_msg(partitions);
	slurm_free_node_info_msg(nodes);
}

static void jobs(char **words)
{
	static char *states[] = { "3", "4", "5", "6", "7", "8", "9", "10", "11", "1024" };
	slurmdb_job_cond_t condition = { 0 };
	void *connection = slurmdb_connection_get(NULL);
	List list;

	condition.cluster_list = slurm_list_create(NULL);
	slurm_list_append(condition.cluster_list, words[0]);
	condition.state_list = slurm_list_create(NULL);
	for (size_t i = 0; i < sizeof states / sizeof *states; i++)
		slurm_list_append(condition.state_list, states[i]);
	condition.flags = JOBCOND_FLAG_DUP | JOBCOND_FLAG_NO_STEP | JOBCOND_FLAG_NO_TRUNC;
	condition.db_flags = SLURMDB_JOB_FLAG_NOTSET;
	condition.usage_start = atoll(words[1]);
	condition.usage_end = atoll(words[2]);
	list = slurmdb_jobs_get(connection, &condition);
	check(!list, "jobs");
	slurm_list_destroy(list);
	slurm_list_destroy(condition.cluster_list);
	slurm_list_destroy(condition.state_list);
	slurmdb_connection_close(&connection);
}

static void associations(void)
{
	assoc_mgr_info_request_msg_t request = { 0 };
	assoc_mgr_info_msg_t *reply = NULL;

	request.flags = ASSOC_MGR_INFO_FLAG_ASSOC | ASSOC_MGR_INFO_FLAG_QOS;
	check(slurm_load_assoc_mgr_info(&request, &reply), "associations");
	slurm_free_assoc_mgr_info_msg(reply);
}

int main(int argc, char **argv)
{
	char what = argc > 2 ? *argv[1] : 0;
	struct rusage usage;

	slurm_init(NULL);
	for (int rounds = what ? atoi(argv[2]) : 0; rounds > 0; rounds--) {
		double cpu = microseconds(CLOCK_PROCESS_CPUTIME_ID), wall = microseconds(CLOCK_MONOTONIC);

		what == 's' ? surveys() : what == 'j' ? jobs(argv + 3) : associations();
		cpu = microseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
		wall = microseconds(CLOCK_MONOTONIC) - wall;
		getrusage(RUSAGE_SELF, &usage);
		printf("%.0f %.0f %ld\n", cpu, wall, usage.ru_maxrss);
		fflush(stdout);
		if (what != 's')
			usleep(200000);
	}
	return 0;
}
