//! Runs bindgen over wrapper.h with an allow-list: what slurm-reader calls, and nothing else.
//!
//! bindgen sees only Slurm's headers, through a symbolic link: if it saw the whole `/usr/include` of another release's
//! chroot, two libcs would mix.

use std::fs;
use std::panic;
use std::path::Path;

const FUNCTIONS: &[&str] = &[
    "slurm_api_version",
    "slurm_bit_set_count",
    "slurm_conf_lock",
    "slurm_conf_unlock",
    "slurm_free_assoc_mgr_info_msg",
    "slurm_free_conf",
    "slurm_free_ctl_conf",
    "slurm_free_job_info_msg",
    "slurm_free_license_info_msg",
    "slurm_free_node_info_msg",
    "slurm_free_partition_info_msg",
    "slurm_free_reservation_info_msg",
    "slurm_free_stats_response_msg",
    "slurm_get_select_nodeinfo",
    "slurm_get_statistics",
    "slurm_init",
    "slurm_job_state_string",
    "slurm_list_append",
    "slurm_list_create",
    "slurm_list_destroy",
    "slurm_list_iterator_create",
    "slurm_list_iterator_destroy",
    "slurm_list_next",
    "slurm_load_assoc_mgr_info",
    "slurm_load_ctl_conf",
    "slurm_load_jobs",
    "slurm_load_licenses",
    "slurm_load_node",
    "slurm_load_partitions",
    "slurm_load_reservations",
    "slurm_node_state_string",
    "slurm_ping",
    "slurm_reset_statistics",
    "slurm_strerror",
    "slurmdb_config_get",
    "slurmdb_connection_close",
    "slurmdb_connection_get",
    "slurmdb_destroy_stats_rec",
    "slurmdb_get_stats",
    "slurmdb_init_tres_cond",
    "slurmdb_jobs_get",
    "slurmdb_qos_get",
    "slurmdb_tres_get",
    "slurmdb_users_get",
];
const TYPES: &[&str] = &[
    "job_state_reason",
    "slurm_list_pointer",
    "slurm_selected_step_t",
    "slurmdb_admin_level_t",
    "slurmdb_assoc_rec_t",
    "slurmdb_job_rec_t",
    "slurmdb_qos_rec_t",
    "slurmdb_rollup_stats_t",
    "slurmdb_rpc_obj_t",
    "slurmdb_step_rec_t",
    "slurmdb_tres_rec_t",
    "slurmdb_user_rec_t",
];
const CONSTANTS: &[&str] = &["SLURM_SUCCESS", "STAT_COMMAND_GET", "STAT_COMMAND_RESET"];

/// What the headers call a thing whose name does not follow from their release.
pub(crate) struct HeaderNames {
    /// The function that frees a `slurm_conf_t`: `slurm_free_ctl_conf` up to 24.11, `slurm_free_conf` in 26.05.
    pub(crate) conf_free: &'static str,
    /// Whether a node's allocation is read by `slurm_get_select_nodeinfo`, as up to 24.11, or from members of
    /// `node_info_t`, as in 26.05.
    pub(crate) select_nodeinfo: bool,
}

/// Writes `bindings.rs` into `out`.
pub(crate) fn generate(include: &Path, out: &Path) -> Result<HeaderNames, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let wrapper = root.join("wrapper.h");
    println!("cargo::rerun-if-changed={}", wrapper.display());
    println!("cargo::rerun-if-changed={}", root.join("build").display());
    println!("cargo::rerun-if-changed={}", include.join("slurm").display());

    let only_slurm = out.join("include");
    link_headers(include, &only_slurm).map_err(|error| format!("{}: {error}", only_slurm.display()))?;
    load_libclang()?;

    let mut builder = bindgen::Builder::default()
        .header(wrapper.display().to_string())
        .clang_arg(format!("-I{}", only_slurm.display()))
        .allowlist_recursively(true)
        .generate_comments(false)
        .prepend_enum_name(false)
        .derive_default(true);
    for function in FUNCTIONS {
        builder = builder.allowlist_function(function);
    }
    for name in TYPES {
        builder = builder.allowlist_type(name);
    }
    for constant in CONSTANTS {
        builder = builder.allowlist_var(constant);
    }
    let bindings =
        builder.generate().map_err(|error| format!("bindgen, on {}: {error}", include.display()))?;
    let text = bindings.to_string();
    fs::write(out.join("bindings.rs"), &text).map_err(|error| format!("bindings.rs: {error}"))?;
    let has = |name: &str| text.contains(&format!("fn {name}("));
    let conf_free = ["slurm_free_conf", "slurm_free_ctl_conf"]
        .into_iter()
        .find(|name| has(name))
        .ok_or_else(|| format!("{} declares no function that frees a slurm_conf_t", include.display()))?;
    Ok(HeaderNames { conf_free, select_nodeinfo: has("slurm_get_select_nodeinfo") })
}

fn link_headers(include: &Path, only_slurm: &Path) -> std::io::Result<()> {
    fs::create_dir_all(only_slurm)?;
    let link = only_slurm.join("slurm");
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link)?;
    }
    std::os::unix::fs::symlink(fs::canonicalize(include.join("slurm"))?, link)
}

/// Checks for libclang first, and says what to install, because bindgen panics without it.
fn load_libclang() -> Result<(), String> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let loaded = panic::catch_unwind(bindgen::clang_version);
    panic::set_hook(hook);
    loaded.map(|_| ()).map_err(|_| {
        "libclang was not found, which bindgen reads libslurm's headers with\n\
         Debian, Ubuntu: install libclang-dev. RHEL, Rocky, Alma: install clang-devel.\n\
         Elsewhere: set LIBCLANG_PATH to the folder that contains libclang.so.\n\
         The daemon alone needs none of it: cargo build -p slurm-graphite"
            .to_owned()
    })
}
