//! Parses sdiag's output, for comparison in the live tests.

use std::collections::BTreeMap;

/// The figures of one run of sdiag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sdiag {
    /// Figures by section and label, in sdiag's words without units and colons. Lines above the
    /// first section have the section "". A time is in seconds since the epoch.
    pub figures: BTreeMap<(String, String), i64>,
    /// "Remote Procedure Call statistics by message type".
    pub by_type: Vec<RpcRow>,
    /// "Remote Procedure Call statistics by user".
    pub by_user: Vec<RpcRow>,
}

/// One row of a table of remote procedure calls; times in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcRow {
    /// The message type or the user.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// `count:`
    pub count: u64,
    /// `ave_time:`
    pub average: u64,
    /// `total_time:`
    pub total: u64,
    /// `queued:`, `cycle_last:`, `cycle_max:` and `dropped:`, if RPCs are queued (24.05 and later).
    pub queue: Option<[u64; 4]>,
}

/// Sections of sdiag's text that have labels in common.
pub mod section {
    /// The lines above the first heading.
    pub const TOP: &str = "";
    /// The main scheduler.
    pub const MAIN: &str = "Main schedule statistics";
    /// The backfill scheduler.
    pub const BACKFILL: &str = "Backfilling stats";
    /// The heading of the reasons why main cycles ended (23.11 and later).
    pub const MAIN_EXIT: &str = "Main scheduler exit";
    /// The heading of the reasons why backfill cycles ended (23.11 and later).
    pub const BACKFILL_EXIT: &str = "Backfill exit";
    /// Messages that wait for an agent.
    pub const PENDING: &str = "Pending RPC statistics";
}

impl Sdiag {
    /// Parses sdiag's text; unknown lines are ignored.
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut section = String::new();
        for line in text.lines() {
            if let Some(row) = RpcRow::parse(line) {
                let by_user = section.ends_with("by user");
                if by_user { &mut found.by_user } else { &mut found.by_type }.push(row);
            } else if let Some((label, value)) = figure(line) {
                // "Latency …" comes after the sections and belongs to none.
                let here = if line.starts_with('\t') { section.clone() } else { String::new() };
                found.figures.insert((here, label.to_owned()), value);
            } else if !line.starts_with('\t') && !line.is_empty() {
                let heading = line.split(" (").next().unwrap_or(line);
                heading.trim_end_matches(':').clone_into(&mut section);
            }
        }
        found
    }

    /// A figure; `None` if sdiag prints no such line.
    pub fn get(&self, section: &str, label: &str) -> Option<i64> {
        self.figures.get(&(section.to_owned(), label.to_owned())).copied()
    }
}

impl RpcRow {
    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = line.trim().split_once(" (")?;
        let (id, rest) = rest.split_once(')')?;
        let figure = |label| rest.split_once(label)?.1.split_whitespace().next()?.parse().ok();
        Some(Self {
            name: name.trim().to_owned(),
            id: id.trim().parse().ok()?,
            count: figure("count:")?,
            average: figure("ave_time:")?,
            total: figure("total_time:")?,
            queue: ["queued:", "cycle_last:", "cycle_max:", "dropped:"]
                .into_iter()
                .map(figure)
                .collect::<Option<Vec<_>>>()
                .and_then(|columns| columns.try_into().ok()),
        })
    }
}

fn figure(line: &str) -> Option<(&str, i64)> {
    // A time: "Last cycle when: Sat Nov 21 07:17:27 2026 (1795245447)".
    let time = line.strip_suffix(')').and_then(|line| line.rsplit_once('('));
    if let Some((words, seconds)) = time
        && let Ok(seconds) = seconds.parse()
    {
        let heads = ["sdiag output at", "Data since"];
        let head = heads.into_iter().find(|head| words.starts_with(head));
        return Some((
            head.or_else(|| words.split_once(": ").map(|split| split.0.trim()))?,
            seconds,
        ));
    }
    let (label, value) = line.rsplit_once(':')?;
    Some((label.trim(), value.split_whitespace().next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Sdiag, section};

    const TEXT: &str = "\
*******************************************************
sdiag output at Sat Nov 21 07:17:27 2026 (1795245447)
Data since      Sat Nov 21 07:17:26 2026 (1795245446)
*******************************************************
Server thread count:  3
DBD Agent queue size: 0

Job states ts:  Sat Nov 21 07:17:26 2026 (1795245446)

Main schedule statistics (microseconds):
\tLast cycle:   56

Backfilling stats
\tTotal backfilled jobs (since last slurm start): 2
\tLast cycle when: Sat Nov 21 07:17:27 2026 (1795245447)
\tLast cycle: 782
\tDepth Mean (try depth): 4

Latency for 1000 calls to gettimeofday(): 23 microseconds

Remote Procedure Call statistics by message type
\tREQUEST_PARTITION_INFO                  ( 2009) count:2      ave_time:328    total_time:656

\tREQUEST_NODE_INFO                       ( 2007) count:1      ave_time:5      total_time:5            queued:1      \
cycle_last:2      cycle_max:3      dropped:4

Remote Procedure Call statistics by user
\troot            (       0) count:7      ave_time:410    total_time:2871

Pending RPC statistics
\tNo pending RPCs
";

    #[test]
    fn every_line_is_read() {
        let sdiag = Sdiag::parse(TEXT);
        for (section, label, value) in [
            (section::TOP, "sdiag output at", 1_795_245_447),
            (section::TOP, "Data since", 1_795_245_446),
            (section::TOP, "Server thread count", 3),
            (section::TOP, "Job states ts", 1_795_245_446),
            (section::MAIN, "Last cycle", 56),
            (section::BACKFILL, "Total backfilled jobs (since last slurm start)", 2),
            (section::BACKFILL, "Last cycle when", 1_795_245_447),
            (section::BACKFILL, "Last cycle", 782),
            (section::BACKFILL, "Depth Mean (try depth)", 4),
            (section::TOP, "Latency for 1000 calls to gettimeofday()", 23),
        ] {
            assert_eq!(sdiag.get(section, label), Some(value), "{section}/{label}");
        }
        assert_eq!(sdiag.figures.len(), 11);
        assert_eq!((sdiag.by_type.len(), sdiag.by_user.len()), (2, 1));
        assert_eq!((sdiag.by_type[0].id, sdiag.by_type[0].total), (2009, 656));
        assert_eq!([sdiag.by_type[0].queue, sdiag.by_type[1].queue], [None, Some([1, 2, 3, 4])]);
        assert_eq!((sdiag.by_user[0].name.as_str(), sdiag.by_user[0].count), ("root", 7));
    }
}
