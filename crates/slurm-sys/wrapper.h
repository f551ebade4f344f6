/* What bindgen reads: libslurm's public headers, and what libslurm exports but declares nowhere. */

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>

/* Exported by every release, declared in no installed header. */
void slurm_free_stats_response_msg(stats_info_response_msg_t *msg);
int slurm_bit_set_count(void *bitmap);
size_t slurm_xsize(void *item);
char *slurm_job_state_string(uint32_t state);
char *slurm_node_state_string(uint32_t state);
#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(24, 5, 0)
char *slurm_job_reason_string(uint32_t reason);
#else
const char *slurm_job_state_reason_string(uint32_t reason);
#endif
slurm_conf_t *slurm_conf_lock(void);
void slurm_conf_unlock(void);

/* A list has another type in each of some releases; this is its pointer in all of them. */
typedef __typeof__(((slurmdb_job_cond_t *) 0)->cluster_list) slurm_list_pointer;
