/* What bindgen reads: libslurm's public headers, and what libslurm exports but declares nowhere. */

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

/* Exported by every release, declared in no installed header. */
void slurm_free_stats_response_msg(stats_info_response_msg_t *msg);
