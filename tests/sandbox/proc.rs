//! Processes and ports according to /proc, and signals by process id.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// Sends a signal.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process has the id 0")?;
    kill_process(raw, signal).with_context(|| format!("{signal:?} to process {pid}"))
}

/// Whether the process exists and is not a zombie.
#[must_use]
pub fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// A field of /proc/PID/stat, counted from the state.
fn stat(pid: u32, field: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is in parentheses and may contain parentheses.
    Some(stat.rsplit_once(") ")?.1.split(' ').nth(field)?.to_owned())
}

/// The one-letter state in /proc/PID/stat: R, S, D, T (stopped), Z (zombie).
pub fn state(pid: u32) -> Option<char> {
    stat(pid, 0)?.chars().next()
}

/// The ids of a process's children, such as a daemon's readers.
pub fn children(pid: u32) -> Vec<u32> {
    all().filter(|&child| parent(child) == Some(pid)).collect()
}

/// The id of a process's parent.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid, 1)?.parse().ok()
}

/// The CPU time that a process has used, in ticks of 10 ms.
pub fn cpu_ticks(pid: u32) -> Option<u64> {
    // User and system time.
    [11, 12].into_iter().map(|field| stat(pid, field)?.parse::<u64>().ok()).sum()
}

/// The resident memory of a process in KiB.
pub fn rss_kib(pid: u32) -> Option<u64> {
    memory_kib(pid, "VmRSS:")
}

/// The most that its resident memory has been, in KiB.
pub fn peak_kib(pid: u32) -> Option<u64> {
    memory_kib(pid, "VmHWM:")
}

fn memory_kib(pid: u32, line: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|text| text.strip_prefix(line))?
        .trim()
        .strip_suffix(" kB")?
        .parse()
        .ok()
}

/// Targets of the descriptors of a process, such as `socket:[INODE]`.
pub fn links(pid: u32) -> Vec<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

/// Number of TCP connections of a process that are being made or are open at both ends. The kernel
/// may list one several times, if others come while its table is read.
pub fn connections(pid: u32) -> usize {
    let sockets: HashSet<String> = links(pid).into_iter().collect();
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let open = ["01", "02"].contains(fields.get(3)?);
        open.then_some(format!("socket:[{}]", fields.get(9)?))
    };
    let open: HashSet<String> = tcp_tables().flatten().filter_map(|line| inode(&line)).collect();
    sockets.intersection(&open).count()
}

/// Whether something listens on this TCP port. It is read from the kernel, so the program's log
/// shows nothing.
#[must_use]
pub fn listening(port: u16) -> bool {
    let end = format!(":{port:04X}");
    // Sockets that listen come first. What follows may be thousands of closed ones, and takes
    // milliseconds.
    let is_it = |line: String| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (*fields.get(3)? == "0A").then(|| fields.get(1).is_some_and(|local| local.ends_with(&end)))
    };
    tcp_tables().any(|lines| lines.map_while(is_it).any(|found| found))
}

/// The lines of the tables of IPv4 and of IPv6.
fn tcp_tables() -> impl Iterator<Item = impl Iterator<Item = String>> {
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().filter_map(|table| File::open(table).ok());
    tables.map(|table| BufReader::new(table).lines().map_while(Result::ok).skip(1))
}

/// The ids of all processes.
pub(crate) fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

pub(crate) fn has_environment(pid: u32, mark: &str) -> bool {
    let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
}

/// The links in a process's `fd` that mean a Unix socket below this folder.
pub(crate) fn unix_sockets(folder: &Path) -> Vec<String> {
    let below = format!("{}/", folder.display());
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [.., inode, path] = fields.as_slice() else { return None };
        path.starts_with(&below).then(|| format!("socket:[{inode}]"))
    };
    table.lines().filter_map(inode).collect()
}

/// Whether the process has one of these sockets: slurmstepd of 24.11 wipes its whole environment,
/// and listens on one.
pub(crate) fn has_socket(pid: u32, sockets: &[String]) -> bool {
    !sockets.is_empty() && links(pid).iter().any(|link| sockets.contains(link))
}

/// Whether the process sees a mount on this folder, or below it, that this process does not.
pub(crate) fn has_mount(pid: u32, folder: &Path) -> bool {
    let sees = |pid: &str| {
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        mounts.contains(&folder.display().to_string())
    };
    sees(&pid.to_string()) && !sees("self")
}
