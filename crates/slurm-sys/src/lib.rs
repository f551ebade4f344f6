//! libslurm's C interface, as bindgen reads it from the installed headers; the only bindgen of the workspace.
//!
//! Everything here is generated and has the layout of one release, [`RELEASE`]: a library of another release gives
//! silently shifted numbers. Who may call what, and who frees what, is slurm-reader's knowledge.

#[allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    unreachable_pub,
    clippy::allow_attributes_without_reason,
    clippy::indexing_slicing,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "generated: the names are C's, slurm.h documents them, and which lints they hit is the header's affair"
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::{
    SLURM_SUCCESS, SLURMDB_ADMIN_OPERATOR, SLURMDB_ADMIN_SUPER_USER, STAT_COMMAND_GET, STAT_COMMAND_RESET,
    assoc_mgr_info_msg_t, assoc_mgr_info_request_msg_t, job_info_msg_t, license_info_msg_t, node_info_msg_t,
    node_info_t, partition_info_msg_t, partition_info_t, reserve_info_msg_t, reserve_info_t,
    slurm_api_version, slurm_bit_set_count, slurm_conf_lock, slurm_conf_t, slurm_conf_unlock,
    slurm_free_assoc_mgr_info_msg, slurm_free_job_info_msg, slurm_free_license_info_msg,
    slurm_free_node_info_msg, slurm_free_partition_info_msg, slurm_free_reservation_info_msg,
    slurm_free_stats_response_msg, slurm_get_statistics, slurm_init, slurm_job_info_t,
    slurm_job_state_string, slurm_license_info_t, slurm_list_append, slurm_list_create, slurm_list_destroy,
    slurm_list_iterator_create, slurm_list_iterator_destroy, slurm_list_next, slurm_load_assoc_mgr_info,
    slurm_load_ctl_conf, slurm_load_jobs, slurm_load_licenses, slurm_load_node, slurm_load_partitions,
    slurm_load_reservations, slurm_node_state_string, slurm_ping, slurm_reset_statistics, slurm_strerror,
    slurmdb_user_rec_t, stats_info_request_msg_t, stats_info_response_msg_t,
};

// RELEASE, and `slurm_free_conf` under whatever name this release has for it.
include!(concat!(env!("OUT_DIR"), "/release.rs"));
