/* The floor: the replies that a full survey asks for, with the same flags, loaded and freed from bare C. Prints CPU
 * and wall in µs, and the most memory in KiB. */
#include <slurm/slurm.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double since(const struct timespec *before)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - before->tv_sec) * 1e6 + (now.tv_nsec - before->tv_nsec) / 1e3;
}

static double cpu(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec +
		usage.ru_stime.tv_usec;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1;
	struct rusage usage;

	slurm_init(NULL);
	while (rounds-- > 0) {
		job_info_msg_t *jobs = NULL;
		node_info_msg_t *nodes = NULL;
		partition_info_msg_t *partitions = NULL;
		struct timespec before;
		double spent = cpu();
		unsigned records;

		clock_gettime(CLOCK_MONOTONIC, &before);
		if (slurm_load_node(0, &nodes, SHOW_ALL | SHOW_DETAIL | SHOW_MIXED | SHOW_LOCAL | SHOW_FUTURE) ||
		    slurm_load_partitions(0, &partitions, SHOW_ALL | SHOW_LOCAL) ||
		    slurm_load_jobs(0, &jobs, SHOW_ALL | SHOW_LOCAL)) {
			slurm_perror("floor");
			return 1;
		}
		records = jobs->record_count;
		slurm_free_job_info_msg(jobs);
		slurm_free_partition_info_msg(partitions);
		slurm_free_node_info_msg(nodes);
		getrusage(RUSAGE_SELF, &usage);
		printf("%u %.0f %.0f %ld\n", records, cpu() - spent, since(&before), usage.ru_maxrss);
		fflush(stdout);
	}
	return 0;
}
