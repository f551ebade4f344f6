//! `nodes`, counted while the answer is read. Only what a node adds to a tally is kept, unless each node is requested.
//!
//! slurmrestd's state is a list of words. It is converted to libslurm's number, and then to the one word that sinfo
//! shows and slurmrestd does not report.

use std::collections::BTreeMap;

use slurm_snapshot::{Memory, NODE_STATES, NodeRow, NodeTally, Release, Shares, gres};

use super::Payload;
use super::item::{Item, LONGEST_NAME};

/// slurm.conf can have no more nodes: `MAX_SLURM_NODES`.
const MOST_NODES: u64 = 65_536;

/// The most bytes, approximately, for the names of partitions, states, flags and GPU types.
const MOST_FOLDED: usize = 2 << 20;

/// Bytes of an entry in addition to its name.
const NAME_COST: usize = 300;

/// Bytes of a flag of a row in addition to its name.
const ENTRY: usize = 48;

/// Characters of a reason that are kept.
const LONGEST_REASON: usize = 256;

const BASE: u32 = 0xf;
const DOWN: u32 = 1;
const IDLE: u32 = 2;
const ALLOCATED: u32 = 3;
const MIXED: u32 = 5;
const FUTURE: u32 = 6;

const fn bit(number: u32) -> u32 {
    1 << number
}

const RESERVED: u32 = bit(5);
const DRAIN: u32 = bit(9);
const COMPLETING: u32 = bit(10);
const NO_RESPOND: u32 = bit(11);
const POWERED_DOWN: u32 = bit(12);
const FAIL: u32 = bit(13);
const POWERING_UP: u32 = bit(14);
const MAINT: u32 = bit(15);
const REBOOT_REQUESTED: u32 = bit(16);
const POWERING_DOWN: u32 = bit(18);
const REBOOT_ISSUED: u32 = bit(20);
const PLANNED: u32 = bit(21);
const INVALID_REG: u32 = bit(22);
const POWER_DOWN: u32 = bit(23);
const BLOCKED: u32 = bit(27);

/// Flags: slurmrestd's word, the bit, and our word if it is different.
const FLAGS: [(&str, u32, Option<&str>); 25] = [
    ("PERFCTRS", 4, Some("bit_4")),
    ("EXTERNAL", 4, Some("bit_4")),
    ("RESERVED", 5, None),
    ("UNDRAIN", 6, None),
    ("CLOUD", 7, None),
    ("RESUME", 8, Some("bit_8")),
    ("DRAIN", 9, None),
    ("COMPLETING", 10, None),
    ("NOT_RESPONDING", 11, None),
    ("POWERED_DOWN", 12, None),
    ("FAIL", 13, None),
    ("POWERING_UP", 14, None),
    ("MAINTENANCE", 15, None),
    ("REBOOT_REQUESTED", 16, None),
    ("REBOOT_CANCELED", 17, Some("reboot_cancel")),
    ("POWERING_DOWN", 18, None),
    ("DYNAMIC_FUTURE", 19, None),
    ("REBOOT_ISSUED", 20, None),
    ("PLANNED", 21, None),
    ("INVALID_REG", 22, None),
    ("POWER_DOWN", 23, None),
    ("POWER_UP", 24, None),
    ("POWER_DRAIN", 25, None),
    ("DYNAMIC_NORM", 26, None),
    ("BLOCKED", 27, None),
];

/// Words for two flags at once, each of which is listed by itself too.
const PAIRS: [&str; 2] = ["POWER_DOWN_ASAP", "POWER_DOWN_FORCE"];

/// The release from which a failing node with jobs on part of it is shown as failing.
const FAILING_WHILE_MIXED: Release = Release::new(25, 11);

/// The answer to `nodes`.
#[derive(Debug)]
pub(crate) struct NodesAnswer {
    release: Release,
    rows: bool,
    pub(crate) nodes: slurm_snapshot::Nodes,
    /// The nodes of each partition.
    pub(crate) members: BTreeMap<String, PartitionNodes>,
    names: usize,
}

/// The nodes of a partition, added up.
#[derive(Debug, Default)]
pub(crate) struct PartitionNodes {
    pub(crate) total: NodeTally,
    pub(crate) states: BTreeMap<String, NodeTally>,
    pub(crate) gpus: BTreeMap<String, Shares>,
}

impl NodesAnswer {
    pub(crate) fn new(release: Release, rows: bool) -> Self {
        let nodes = slurm_snapshot::Nodes::default();
        Self { release, rows, nodes, members: BTreeMap::new(), names: 0 }
    }
}

impl Payload for NodesAnswer {
    const NAME: &'static str = "nodes";
    const MOST_NAMES: usize = 16 << 20;

    fn needs(&self, name: &str) -> bool {
        const ALWAYS: [&str; 14] = [
            "name",
            "state",
            "state_flags",
            "cpus",
            "effective_cpus",
            "alloc_cpus",
            "real_memory",
            "alloc_memory",
            "free_memory",
            "free_mem",
            "gres",
            "gres_used",
            "partitions",
            "reason_changed_at",
        ];
        ALWAYS.contains(&name) || (self.rows && matches!(name, "cpu_load" | "reason"))
    }

    fn item(&mut self, _: &str, node: Item<'_>) -> Result<(), String> {
        let nodes = &mut self.nodes;
        nodes.records = nodes.records.saturating_add(1);
        if nodes.records > MOST_NODES {
            return Err("there are more nodes than Slurm can have".to_owned());
        }
        let name = node.name("name")?;
        if name.is_empty() {
            nodes.blank = nodes.blank.saturating_add(1);
            return Ok(());
        }
        let words = state_words(node)?;
        let state = state_of(&words)?;
        if state & BASE == FUTURE {
            // They should not be in this answer, and how many there are is not known.
            return Ok(());
        }
        let (Some(cpus), Some(alloc_cpus)) = (node.number("cpus")?, node.number("alloc_cpus")?) else {
            return Err("the node has no CPUs: this version of the API does not report them".to_owned());
        };
        let usable = state & BASE != DOWN && state & DRAIN == 0;
        let has_jobs = matches!(state & BASE, ALLOCATED | MIXED) || state & COMPLETING != 0;
        let cpus = node.number("effective_cpus")?.filter(|&cpus| cpus > 0).unwrap_or(cpus);
        let (gres, used) =
            (node.text("gres").unwrap_or_default(), node.text("gres_used").unwrap_or_default());
        let (by_type, unparsed) = gres::shares_by_type(gres.as_bytes(), used.as_bytes(), usable);
        nodes.unparsed = nodes.unparsed.saturating_add(unparsed);
        if by_type.iter().any(|(kind, _)| kind.len() > LONGEST_NAME) {
            return Err(format!("the name of a GPU type has more than {LONGEST_NAME} bytes"));
        }
        let mut gpus = Shares::default();
        for (kind, shares) in &by_type {
            gpus.add(*shares);
            named(&mut nodes.gpus, kind, &mut self.names).add(*shares);
        }
        // Up to v0.0.38 the first name, later the second.
        let free = node.value64("free_memory")?.or(node.value64("free_mem")?);
        let tally = NodeTally {
            nodes: Shares::new(has_jobs.into(), 1, usable),
            cpus: Shares::new(alloc_cpus, cpus, usable),
            gpus,
            memory: Memory {
                real: node.value64("real_memory")?.unwrap_or(0),
                allocated: node.value64("alloc_memory")?.unwrap_or(0),
                free: free.unwrap_or(0),
            },
        };
        let (word, base, flags) =
            (state_word(state, self.release), base_word(state), flags_of(&words, state));
        let reason_time = node.moment("reason_changed_at")?;
        // A drained node that goes down keeps its reason, and with it the time.
        if state & DRAIN != 0 {
            nodes.drain_since.extend(reason_time);
        } else if state & BASE == DOWN {
            nodes.down_since.extend(reason_time);
        }
        nodes.total.add(&tally);
        named(&mut nodes.states, &word, &mut self.names).add(&tally);
        named(&mut nodes.base_states, &base, &mut self.names).add(&tally);
        for flag in &flags {
            named(&mut nodes.flags, flag, &mut self.names).add(&tally);
        }
        for partition in node.words("partitions")? {
            let member = named(&mut self.members, partition, &mut self.names);
            member.total.add(&tally);
            named(&mut member.states, &word, &mut self.names).add(&tally);
            for (kind, shares) in &by_type {
                named(&mut member.gpus, kind, &mut self.names).add(*shares);
            }
            bounded(self.names)?;
        }
        bounded(self.names)?;
        if self.rows {
            let reason = node.text("reason").unwrap_or_default();
            let reason: String = reason.chars().take(LONGEST_REASON).collect();
            node.charge(flags.iter().fold(reason.len(), |sum, flag| sum.saturating_add(flag.len() + ENTRY)))?;
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            nodes.rows.push(NodeRow {
                name,
                state: word,
                base_state: base,
                flags,
                tally,
                cpu_load: node.value32("cpu_load")?,
                reason_time: reason_time.filter(|_| reason.is_some()),
                reason,
            });
        }
        Ok(())
    }

    fn end(&mut self, last_update: i64) -> Result<(), String> {
        self.nodes.last_update = last_update;
        self.nodes.drain_since.sort_unstable();
        self.nodes.down_since.sort_unstable();
        Ok(())
    }
}

/// The entry with this name, whose cost is counted.
fn named<'a, T: Default>(map: &'a mut BTreeMap<String, T>, name: &str, cost: &mut usize) -> &'a mut T {
    if !map.contains_key(name) {
        *cost = cost.saturating_add(name.len()).saturating_add(NAME_COST);
        map.insert(name.to_owned(), T::default());
    }
    map.entry(name.to_owned()).or_default()
}

fn bounded(cost: usize) -> Result<(), String> {
    if cost > MOST_FOLDED {
        return Err("there are more partitions, states and GPU types than in any cluster".to_owned());
    }
    Ok(())
}

/// The words of a node's state: the base state and, from v0.0.39 on, its flags, which are a member of their own before.
fn state_words(node: Item<'_>) -> Result<Vec<&str>, String> {
    let lists = [node.words("state")?, node.words("state_flags")?].concat();
    Ok(lists.iter().flat_map(|words| words.split('+')).collect())
}

fn is(word: &str, known: &str) -> bool {
    word.eq_ignore_ascii_case(known)
}

/// libslurm's number for a state.
fn state_of(words: &[&str]) -> Result<u32, String> {
    let base = words.iter().find_map(|word| NODE_STATES.iter().position(|base| is(word, base)));
    let base = base.and_then(|base| u32::try_from(base).ok()).ok_or("the node has an unknown state")?;
    let flags = words.iter().filter_map(|word| FLAGS.iter().find(|(flag, ..)| is(word, flag)));
    Ok(flags.fold(base, |state, (_, number, _)| state | bit(*number)))
}

/// The flags of a state in our words. A flag that is not in this table keeps slurmrestd's word.
fn flags_of(words: &[&str], state: u32) -> Vec<String> {
    let mut flags: Vec<String> = Vec::new();
    let mut set = 0;
    for (word, number, ours) in FLAGS {
        if state & bit(number) & !set != 0 {
            set |= bit(number);
            flags.push(ours.map_or_else(|| word.to_ascii_lowercase(), str::to_owned));
        }
    }
    let is_known = |word: &str| {
        NODE_STATES.iter().any(|base| is(word, base))
            || PAIRS.iter().any(|pair| is(word, pair))
            || FLAGS.iter().any(|(flag, ..)| is(word, flag))
    };
    // 22.05 writes "?" for a flag that it has no word for.
    let unknown = words.iter().filter(|word| !is_known(word) && !["INVALID", "?"].contains(*word));
    flags.extend(unknown.map(|word| word.to_ascii_lowercase()));
    flags
}

fn base_word(state: u32) -> String {
    let word = usize::try_from(state & BASE).ok().and_then(|base| NODE_STATES.get(base));
    word.map_or_else(|| format!("state_{}", state & BASE), |word| (*word).to_owned())
}

/// The one word that sinfo's `%T` shows, in lower case and without its suffix.
fn state_word(state: u32, release: Release) -> String {
    let has = |flags: u32| state & flags != 0;
    let base = state & BASE;
    let works = matches!(base, ALLOCATED | MIXED);
    let suffixed = has(MAINT
        | POWERING_UP
        | POWERING_DOWN
        | POWERED_DOWN
        | POWER_DOWN
        | NO_RESPOND
        | REBOOT_REQUESTED
        | REBOOT_ISSUED);
    let word = if has(INVALID_REG) {
        "inval"
    } else if has(MAINT) && !has(DRAIN) && !works && base != DOWN {
        "maint"
    } else if has(REBOOT_REQUESTED | REBOOT_ISSUED) && !works {
        "reboot"
    } else if has(DRAIN) {
        if has(COMPLETING) || works { "draining" } else { "drained" }
    } else if has(FAIL) {
        let fails = base == ALLOCATED || (base == MIXED && release >= FAILING_WHILE_MIXED);
        if has(COMPLETING) || fails { "failing" } else { "fail" }
    } else if has(COMPLETING) && base != DOWN && base != ALLOCATED {
        "completing"
    } else if base == IDLE && !suffixed && has(RESERVED) {
        "reserved"
    } else if base == IDLE && !suffixed && has(BLOCKED) {
        "blocked"
    } else if base == IDLE && !suffixed && has(PLANNED) {
        "planned"
    } else {
        return base_word(state);
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_of_sinfo_is_made_of_slurmrestds_list() {
        for (state, flags, word) in [
            (IDLE, 0, "idle"),
            (IDLE, DRAIN, "drained"),
            (ALLOCATED, DRAIN, "draining"),
            (IDLE, DRAIN | COMPLETING, "draining"),
            (IDLE, MAINT, "maint"),
            (DOWN, MAINT, "down"),
            (IDLE, MAINT | DRAIN, "drained"),
            (IDLE, REBOOT_ISSUED, "reboot"),
            (MIXED, REBOOT_REQUESTED, "mixed"),
            (IDLE, FAIL, "fail"),
            (ALLOCATED, FAIL, "failing"),
            (MIXED, FAIL, "fail"),
            (IDLE, COMPLETING, "completing"),
            (ALLOCATED, COMPLETING, "allocated"),
            (DOWN, COMPLETING, "down"),
            (IDLE, RESERVED, "reserved"),
            (IDLE, PLANNED, "planned"),
            (IDLE, PLANNED | NO_RESPOND, "idle"),
            (MIXED, PLANNED, "mixed"),
            (IDLE, INVALID_REG, "inval"),
            (IDLE, POWERED_DOWN, "idle"),
            (0, 0, "unknown"),
        ] {
            assert_eq!(state_word(state | flags, Release::new(22, 5)), word, "{state} {flags:#x}");
        }
        assert_eq!(state_word(MIXED | FAIL, Release::new(26, 5)), "failing");
    }
}
