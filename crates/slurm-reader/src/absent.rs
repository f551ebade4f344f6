//! Tests that a number which slurmctld does not know is never published as 0. Every number of a
//! reply that it may not know is set to each of C's values for that, one at a time.
//!
//! The trap is `unwrap_or(0)` in a conversion. Free memory of a node that has not registered, and
//! licences and reservations whose numbers were not known, were 0. States, which are always known,
//! and a node's CPUs, which slurm.conf has, are not tested here.

use std::time::Duration;

use serde_json::Value;
use slurm_snapshot::{PublishedJobs, ReplyOptions, Statistics, numbers_of_statistics};
use slurm_sys::{
    job_info_msg_t, license_info_msg_t, node_info_t, partition_info_msg_t, partition_info_t,
    reserve_info_msg_t, reserve_info_t, slurm_job_info_t, slurm_license_info_t,
    slurmdb_assoc_rec_t, slurmdb_assoc_usage, stats_info_response_msg_t,
};

use crate::unpacked::made;
use crate::{associations, jobs, lists, nodes, partitions, stats};

#[path = "../../../tests/invented.rs"]
mod figures;

/// The values that C has in one type of number for what is not known or has no limit.
trait Unknown: Copy + 'static {
    const VALUES: &'static [Self];
}

impl Unknown for u16 {
    const VALUES: &'static [Self] = &[0xfffe, 0xffff];
}

impl Unknown for u32 {
    const VALUES: &'static [Self] = &[0xffff_fffe, 0xffff_ffff];
}

impl Unknown for u64 {
    const VALUES: &'static [Self] = &[0xffff_ffff_ffff_fffe, 0xffff_ffff_ffff_ffff];
}

impl Unknown for i64 {
    const VALUES: &'static [Self] = &[0xffff_fffe, 0];
}

/// A `long double`, in which `NO_VAL` and `NO_VAL64` are exact.
#[cfg(target_arch = "x86_64")]
impl Unknown for u128 {
    const VALUES: &'static [Self] = &[
        0x401e << 64 | 0xffff_fffe_0000_0000,
        0x403e << 64 | 0xffff_ffff_ffff_fffe,
        0x7fff << 64 | 1 << 63,
    ];
}

/// The number 2 as a `long double`.
#[cfg(target_arch = "x86_64")]
const TWO: u128 = 0x4000 << 64 | 1 << 63;

impl Unknown for f64 {
    const VALUES: &'static [Self] = &[4_294_967_294.0, f64::INFINITY];
}

/// Sets each member in turn, and looks at what becomes of the record.
macro_rules! sweep {
    ($record:expr, $figures:expr; $($member:ident)+) => {{
        let before = $figures(&$record);
        $(for &unknown in Unknown::VALUES {
            let mut record = $record;
            record.$member = unknown;
            let invented = figures::invented(&before, &$figures(&record));
            assert!(invented.is_empty(), "{}: {invented:#?}", stringify!($member));
        })+
    }};
}

#[test]
fn what_is_not_known_of_a_node_is_no_zero() {
    let record = node_info_t {
        name: c"n1".as_ptr().cast_mut(),
        node_state: 0x202,
        cpus: 8,
        real_memory: 2000,
        free_mem: 100,
        cpu_load: 150,
        boot_time: 5,
        slurmd_start_time: 6,
        reason_time: 7,
        ..Default::default()
    };
    let figures = |record: &node_info_t| {
        serde_json::to_value(nodes::tests::counted(&mut [*record], true).nodes).unwrap()
    };
    sweep!(record, figures; real_memory free_mem cpu_load boot_time slurmd_start_time reason_time);
    #[cfg(slurm_ge_2505)]
    sweep!(node_info_t { alloc_memory: 9, ..record }, figures; alloc_memory);
}

#[test]
fn what_is_not_known_of_a_job_is_no_zero() {
    let known = slurm_job_info_t {
        num_cpus: 2,
        num_nodes: 1,
        num_tasks: 2,
        priority: 3,
        sockets_per_node: 2,
        tres_per_node: c"gpu:1".as_ptr().cast_mut(),
        tres_req_str: c"mem=100M".as_ptr().cast_mut(),
        submit_time: 50,
        eligible_time: 60,
        start_time: 900,
        ..Default::default()
    };
    let counted = |records: &mut [slurm_job_info_t]| {
        let record_count = records.len().try_into().unwrap();
        let job_array = records.as_mut_ptr();
        let mut reply = job_info_msg_t { record_count, job_array, ..Default::default() };
        // Not above: that would be all members of 20.11.
        reply.last_update = 100;
        let options = ReplyOptions { users: true, ..ReplyOptions::default() };
        let published = PublishedJobs { started_since: Some(1), ..PublishedJobs::default() };
        let counted = jobs::from_reply(made(&reply), Duration::ZERO, options, Some(published));
        serde_json::to_value(counted).unwrap()
    };
    let alone = |record: &slurm_job_info_t| counted(&mut [*record]);
    sweep!(known, alone; num_cpus num_nodes num_tasks sockets_per_node priority submit_time
        eligible_time);
    // A job without a start has no plan, so that 0 jobs have one.
    let with_another = |record: &slurm_job_info_t| counted(&mut [known, *record]);
    sweep!(known, with_another; start_time);
}

#[test]
fn what_is_not_known_of_a_licence_is_no_zero() {
    let record = slurm_license_info_t {
        name: c"a".as_ptr().cast_mut(),
        total: 9,
        in_use: 2,
        available: 4,
        reserved: 3,
        ..Default::default()
    };
    let figures = |record: &slurm_license_info_t| {
        let mut records = [*record];
        let reply =
            license_info_msg_t { last_update: 1, num_lic: 1, lic_array: records.as_mut_ptr() };
        serde_json::to_value(lists::licenses(made(&reply))).unwrap()
    };
    sweep!(record, figures; total in_use available reserved);
    #[cfg(slurm_ge_2302)]
    sweep!(slurm_license_info_t { remote: 1, last_consumed: 5, last_deficit: 6, ..record }, figures;
        last_consumed last_deficit);
}

#[test]
fn what_is_not_known_of_a_reservation_is_no_zero() {
    let record = reserve_info_t {
        node_cnt: 2,
        core_cnt: 4,
        start_time: 5,
        end_time: 9,
        ..Default::default()
    };
    let figures = |record: &reserve_info_t| {
        let mut records = [*record];
        let reply = reserve_info_msg_t {
            last_update: 1,
            record_count: 1,
            reservation_array: records.as_mut_ptr(),
        };
        serde_json::to_value(lists::reservations(made(&reply))).unwrap()
    };
    sweep!(record, figures; node_cnt core_cnt start_time end_time);
}

fn association(record: &slurmdb_assoc_rec_t, usage: &slurmdb_assoc_usage) -> Value {
    let mut usage = *usage;
    let record = slurmdb_assoc_rec_t { usage: &raw mut usage, ..*record };
    let record = made(&record);
    let names = ["cpu".to_owned()];
    let seen = associations::association(record, record.usage().unwrap(), &names, true);
    serde_json::to_value(seen).unwrap()
}

#[test]
fn what_is_not_known_of_an_association_is_no_zero() {
    let mut tres = [7_u64];
    let usage = slurmdb_assoc_usage {
        tres_cnt: 1,
        fs_factor: 0.5,
        level_shares: 4,
        shares_norm: 0.25,
        grp_used_wall: 8.0,
        used_jobs: 1,
        used_submit_jobs: 2,
        grp_used_tres: tres.as_mut_ptr(),
        ..Default::default()
    };
    let record = slurmdb_assoc_rec_t {
        acct: c"physics".as_ptr().cast_mut(),
        user: c"ann".as_ptr().cast_mut(),
        uid: 1,
        shares_raw: 3,
        grp_jobs: 4,
        grp_submit_jobs: 5,
        grp_wall: 6,
        max_jobs: 7,
        max_submit_jobs: 8,
        max_wall_pj: 9,
        ..Default::default()
    };
    sweep!(record, |record| association(record, &usage); uid shares_raw grp_jobs grp_submit_jobs
        grp_wall max_jobs max_submit_jobs max_wall_pj);
    sweep!(usage, |usage| association(&record, usage); fs_factor level_shares shares_norm
        grp_used_wall used_jobs used_submit_jobs);
    let before = association(&record, &usage);
    for &unknown in u64::VALUES {
        let mut tres = [unknown];
        for usage in [
            slurmdb_assoc_usage { grp_used_tres: tres.as_mut_ptr(), ..usage },
            slurmdb_assoc_usage { grp_used_tres_run_secs: tres.as_mut_ptr(), ..usage },
        ] {
            let invented = figures::invented(&before, &association(&record, &usage));
            assert!(invented.is_empty(), "{invented:#?}");
        }
    }
    #[cfg(target_arch = "x86_64")]
    {
        let mut raw = [TWO];
        let usage = slurmdb_assoc_usage {
            usage_raw: TWO,
            usage_norm: TWO,
            usage_efctv: TWO,
            level_fs: TWO,
            usage_tres_raw: raw.as_mut_ptr(),
            ..usage
        };
        sweep!(usage, |usage| association(&record, usage); usage_raw usage_norm usage_efctv
            level_fs);
        let before = association(&record, &usage);
        assert_eq!(before["use_and_limits"][13]["cpu"][1], 2, "{before}");
        for &unknown in u128::VALUES {
            let mut raw = [unknown];
            let usage = slurmdb_assoc_usage { usage_tres_raw: raw.as_mut_ptr(), ..usage };
            let invented = figures::invented(&before, &association(&record, &usage));
            assert!(invented.is_empty(), "{invented:#?}");
        }
    }
}

/// A partition whose state is not known is neither up nor anything else.
#[test]
fn what_is_not_known_of_a_partition_is_no_zero() {
    let mut indexes = [0, 0, -1];
    let record = partition_info_t {
        name: c"debug".as_ptr().cast_mut(),
        state_up: 3,
        node_inx: indexes.as_mut_ptr(),
        ..Default::default()
    };
    let node = node_info_t {
        name: c"n1".as_ptr().cast_mut(),
        node_state: 2,
        cpus: 8,
        ..Default::default()
    };
    let counted = nodes::tests::counted(&mut [node], true);
    let figures = |record: &partition_info_t| {
        let mut records = [*record];
        let reply = partition_info_msg_t {
            last_update: 1,
            record_count: 1,
            partition_array: records.as_mut_ptr(),
        };
        let mut all = partitions::from_reply(made(&reply), &counted).partitions;
        let partition = all.remove(0);
        // The daemon publishes each state as 0 or 1.
        let is = |state: &str| (!partition.state.is_empty()).then_some(partition.state == state);
        let states = ["up", "down", "drain", "inactive"].map(|state| is(state).map(u8::from));
        serde_json::json!([states, serde_json::to_value(&partition).unwrap()])
    };
    assert_eq!(figures(&record)[0], serde_json::json!([1, 0, 0, 0]));
    sweep!(record, figures; state_up);
}

/// Sets each number of the statistics. All are known before: a 0 would hide one that is invented.
macro_rules! sweep_statistics {
    (($record:ident, $figures:ident) $($read:ident { $($member:ident $(= $api:ident)?)+ })+) => {{
        $($(if $record.$member == 0 {
            $record.$member = 9;
        })+)+
        sweep!($record, $figures; $($($member)+)+);
        [$($(stringify!($member),)+)+]
    }};
}

#[test]
fn what_is_not_known_of_the_statistics_is_no_zero() {
    let mut record = stats_info_response_msg_t {
        req_time: 100,
        req_time_start: 50,
        job_states_ts: 90,
        jobs_pending: 3,
        jobs_running: 4,
        bf_when_last_cycle: 80,
        bf_cycle_counter: 2,
        schedule_cycle_counter: 2,
        ..Default::default()
    };
    let figures = |record: &stats_info_response_msg_t| {
        let statistics = stats::from_reply(made(record), true);
        let jobs = [statistics.jobs_pending(), statistics.jobs_running()];
        serde_json::json!([jobs, serde_json::to_value(&statistics).unwrap()])
    };
    let swept = numbers_of_statistics! { sweep_statistics! (record, figures) };
    let all = serde_json::to_value(Statistics::default()).unwrap();
    let mut others: Vec<&str> = all.as_object().unwrap().keys().map(String::as_str).collect();
    others.retain(|name| !swept.contains(name));
    others.sort_unstable();
    let known =
        "bf_active bf_exit means req_time req_time_start rpc rpc_queue_enabled schedule_exit";
    assert_eq!(others.join(" "), known, "sweep a number that a release lacks by itself");
}
