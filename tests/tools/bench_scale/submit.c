/* Submits separate jobs to the partition that starts none of them, or starts as many as the other one takes. */
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	static char *environment[] = { "PATH=/usr/bin:/bin", NULL };
	long jobs;

	if (argc != 3)
		return 64;
	slurm_init(NULL);
	for (jobs = atol(argv[2]); jobs > 0; jobs--) {
		job_desc_msg_t job;
		submit_response_msg_t *reply = NULL;

		slurm_init_job_desc_msg(&job);
		job.name = "scale";
		job.partition = argv[1];
		job.script = "#!/bin/sh\nsleep 86400\n";
		job.work_dir = "/";
		job.std_out = "/dev/null";
		job.std_err = "/dev/null";
		job.environment = environment;
		job.env_size = 1;
		job.user_id = getuid();
		job.group_id = getgid();
		job.min_nodes = 1;
		job.max_nodes = 1;
		job.num_tasks = 1;
		job.min_cpus = 1;
		job.time_limit = 1440;
		if (slurm_submit_batch_job(&job, &reply)) {
			perror("slurm_submit_batch_job");
			return 1;
		}
		slurm_free_submit_response_response_msg(reply);
	}
	return 0;
}
