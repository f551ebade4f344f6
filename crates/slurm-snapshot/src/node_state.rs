//! The meaning of a node's state, by sinfo's rules: how it counts, and which words it has. The same
//! for every reader.
//!
//! A state is libslurm's number: a base state, and flags by bit. slurmrestd's words are made into
//! it.

pub(crate) mod service;

use self::service::changes_power;
use crate::gres::NodeGres;
use crate::known::KnownSum;
use crate::nodes::{Memory, NodeRow, NodeTally, Nodes, OutNode, Scarcest};
use crate::release::Release;
use crate::shares::Shares;
use crate::sums::{add_to, one_more};

/// Base states of a node in lower case, by number: the same in every release.
pub const NODE_STATES: [&str; 7] =
    ["unknown", "down", "idle", "allocated", "error", "mixed", "future"];

const BASE: u32 = 0xf;
const UNKNOWN: u32 = 0;
const DOWN: u32 = 1;
const IDLE: u32 = 2;
const ALLOCATED: u32 = 3;
const MIXED: u32 = 5;
const FUTURE: u32 = 6;

/// Declares a node's flags: the bit and the word of each.
macro_rules! flags {
    ($($flag:ident = $bit:literal $word:literal;)+) => {
        $(const $flag: u32 = 1 << $bit;)+
        const FLAGS: &[(u32, &str)] = &[$(($flag.trailing_zeros(), $word)),+];
    };
}

flags! {
    EXTERNAL = 4 "external";
    RESERVED = 5 "reserved";
    UNDRAIN = 6 "undrain";
    CLOUD = 7 "cloud";
    DRAIN = 9 "drain";
    COMPLETING = 10 "completing";
    NO_RESPOND = 11 "not_responding";
    POWERED_DOWN = 12 "powered_down";
    FAIL = 13 "fail";
    POWERING_UP = 14 "powering_up";
    MAINT = 15 "maintenance";
    REBOOT_REQUESTED = 16 "reboot_requested";
    REBOOT_CANCEL = 17 "reboot_cancel";
    POWERING_DOWN = 18 "powering_down";
    DYNAMIC_FUTURE = 19 "dynamic_future";
    REBOOT_ISSUED = 20 "reboot_issued";
    PLANNED = 21 "planned";
    INVALID_REG = 22 "invalid_reg";
    POWER_DOWN = 23 "power_down";
    POWER_UP = 24 "power_up";
    POWER_DRAIN = 25 "power_drain";
    DYNAMIC_NORM = 26 "dynamic_norm";
    BLOCKED = 27 "blocked";
}

/// Flags that sinfo shows instead of the base state of a node that has not reported, if it has no
/// other.
const SHOWN_ALONE: u32 = CLOUD | POWERED_DOWN | POWERING_UP | POWERING_DOWN | POWER_DOWN | POWER_UP;

/// The first release in which bit 4 of a state is a node's flag. Before, it is about a performance
/// counter.
const EXTERNAL_SINCE: Release = Release::new(25, 5);

/// The release from which a failing node with jobs on part of it is shown as failing.
const FAILING_WHILE_MIXED: Release = Release::new(25, 11);

/// Unit in which shares of a node's resources are added up: so many of it are the whole.
const MILLION: u64 = 1_000_000;

/// The state of a node in a release.
#[derive(Clone, Copy, Debug)]
pub struct NodeState {
    /// libslurm's number of the state: base state and flags.
    pub number: u32,
    /// The release whose number it is. Some bits and words have changed between releases.
    pub release: Release,
}

/// Returns the bit of a flag, by its word in any case; `None` if no flag has this word.
pub fn node_flag(word: &str) -> Option<u32> {
    FLAGS.iter().find(|(_, known)| known.eq_ignore_ascii_case(word)).map(|(bit, _)| *bit)
}

impl NodeState {
    const fn base(self) -> u32 {
        self.number & BASE
    }

    const fn has(self, flags: u32) -> bool {
        self.number & flags != 0
    }

    const fn is_working(self) -> bool {
        is_working(self.base())
    }

    /// Whether the node is only configured (FUTURE): then it counts in no total.
    pub const fn is_future(self) -> bool {
        self.base() == FUTURE
    }

    /// Whether jobs may use the node: it is neither down nor drained. As in sinfo, a node that has
    /// not reported its state yet, and one that is failing or reserved, may be used.
    pub const fn is_usable(self) -> bool {
        self.base() != DOWN && !self.has(DRAIN)
    }

    /// Returns the word for the base state; `other` if there is none.
    pub fn base_word(self) -> String {
        let word = usize::try_from(self.base()).ok().and_then(|base| NODE_STATES.get(base));
        word.map_or("other", |word| word).to_owned()
    }

    /// Returns the words for the flags; `other` for those that have none.
    pub fn flags(self) -> Vec<String> {
        flag_words(self.number & !BASE, |bit| {
            let is_known = bit != 4 || self.release >= EXTERNAL_SINCE;
            FLAGS.iter().find(|(known, _)| is_known && *known == bit).map(|(_, word)| *word)
        })
    }

    /// The one word that sinfo's `%T` shows, in lower case and without its suffix, for a reader
    /// that has no libslurm to ask.
    pub fn word(self) -> String {
        let has = |flags| self.has(flags);
        let base = self.base();
        let works = self.is_working();
        let has_suffix =
            has(MAINT | POWERING_UP | POWERING_DOWN | POWERED_DOWN | POWER_DOWN | NO_RESPOND)
                || has(REBOOT_REQUESTED | REBOOT_ISSUED);
        let is_plain = base == IDLE && !has_suffix;
        let word = if has(INVALID_REG) {
            "inval"
        } else if has(MAINT) && !has(DRAIN) && !works && base != DOWN {
            "maint"
        } else if has(REBOOT_REQUESTED | REBOOT_ISSUED) && !works {
            "reboot"
        } else if has(DRAIN) {
            if has(COMPLETING) || works { "draining" } else { "drained" }
        } else if has(FAIL) {
            let fails = base == ALLOCATED || (base == MIXED && self.release >= FAILING_WHILE_MIXED);
            if has(COMPLETING) || fails { "failing" } else { "fail" }
        } else if has(COMPLETING) && base != DOWN && base != ALLOCATED {
            "completing"
        } else if is_plain && has(RESERVED) {
            "reserved"
        } else if is_plain && has(BLOCKED) {
            "blocked"
        } else if is_plain && has(PLANNED) {
            "planned"
        } else if base == UNKNOWN && has(SHOWN_ALONE) && self.number.is_power_of_two() {
            return self.flags().concat();
        } else {
            return self.base_word();
        };
        word.to_owned()
    }
}

/// The facts about a node that a reader has found.
#[derive(Debug)]
pub struct FoundNode {
    /// The node's state, by which everything else counts.
    pub state: NodeState,
    /// sinfo's word for the state.
    pub word: String,
    /// The words of the state's flags.
    pub flags: Vec<String>,
    /// Number of CPUs that jobs hold, and of all CPUs that they may hold.
    pub cpus: [u64; 2],
    /// The node's memory, MiB.
    pub memory: Memory,
    /// The node's GPUs and shards.
    pub gres: NodeGres,
    /// The node's load average × 100; `None` if the node has not reported it.
    pub cpu_load: Option<u32>,
    /// Moment at which the node got its reason, Unix seconds; `None` without a reason.
    pub reason_time: Option<i64>,
    /// The release of the node's slurmd; empty if the node has not registered since slurmctld was
    /// started.
    pub slurmd: String,
}

impl FoundNode {
    /// Returns the node counted as one, with its resources. As in sinfo, a node on which a job only
    /// completes is allocated, although its CPUs are not.
    fn tally(&self) -> NodeTally {
        let (state, [allocated, cpus]) = (self.state, self.cpus);
        let has_jobs = state.is_working() || state.has(COMPLETING);
        let mut gpus = Shares::default();
        self.gres.gpus.iter().for_each(|(_, shares)| gpus.add(*shares));
        NodeTally {
            nodes: Shares::new(has_jobs.into(), 1, state.is_usable()),
            cpus: Shares::new(allocated, cpus, state.is_usable()),
            gpus,
            memory: self.memory,
        }
    }

    /// Returns the node as a row by itself.
    pub fn row(&self, name: String) -> NodeRow {
        let [drain, not_responding] = [DRAIN, NO_RESPOND].map(|flag| self.state.has(flag));
        NodeRow {
            name,
            down: self.state.base() == DOWN,
            drain,
            not_responding,
            tally: self.tally(),
            cpu_load: self.cpu_load,
        }
    }

    /// Returns the node as one of those that are out; `None` if it is not out.
    pub fn out(&self, name: &str) -> Option<OutNode> {
        let has = |flags| self.state.has(flags);
        let node = OutNode {
            name: String::new(),
            down: self.state.base() == DOWN,
            drain: has(DRAIN) && !has(POWER_DOWN | POWERING_DOWN | POWER_DRAIN),
            fail: has(FAIL),
            not_responding: has(NO_RESPOND) && !changes_power(self.state.number),
            since: self.reason_time,
        };
        let is_out = node.down || node.drain || node.fail || node.not_responding;
        is_out.then(|| OutNode { name: name.to_owned(), ..node })
    }
}

impl Nodes {
    /// Adds a node to all counts, and returns its tally.
    pub fn add(&mut self, node: &FoundNode) -> NodeTally {
        let tally = node.tally();
        add_to(&mut self.unparsed, node.gres.unparsed);
        self.total.add(&tally);
        self.states.entry(node.word.clone()).or_default().add(&tally);
        for flag in &node.flags {
            self.flags.entry(flag.clone()).or_default().add(&tally);
        }
        node.gres.add_to(&mut self.gpus, &mut self.shards);
        self.cpu_load.add(KnownSum::new(node.cpu_load.map(u64::from)));
        if node.state.is_usable() {
            self.scarcest.add(&tally);
        }
        if node.state.has(MAINT) {
            self.maintenance.add(&tally);
        } else if node.state.has(RESERVED) {
            self.reserved.add(&tally);
        }
        let release = match node.slurmd.as_str() {
            "" => "unknown",
            text if is_release(text) => text,
            _ => "other",
        };
        one_more(self.slurmds.entry(release.to_owned()).or_default());
        // A drained node that goes down keeps its reason, and the reason's time.
        if node.state.has(DRAIN) {
            self.drain_since.extend(node.reason_time);
        } else if node.state.base() == DOWN {
            self.down_since.extend(node.reason_time);
        }
        tally
    }

    /// Sorts the moments since which nodes are drained or down. Called after the last node.
    pub fn sort_times(&mut self) {
        self.drain_since.sort_unstable();
        self.down_since.sort_unstable();
    }
}

impl Scarcest {
    /// Adds the greatest share in use of a node that jobs may use.
    fn add(&mut self, tally: &NodeTally) {
        let memory = tally.memory.allocated.value().zip(tally.memory.real.value());
        let parts = [
            Some((tally.cpus.allocated, tally.cpus.total)),
            Some((tally.gpus.allocated, tally.gpus.total)),
            memory,
        ];
        let share = |(used, all): (u64, u64)| used.saturating_mul(MILLION).checked_div(all);
        let greatest = parts.into_iter().flatten().filter_map(share).max().unwrap_or(0);
        one_more(&mut self.nodes);
        add_to(&mut self.millionths, greatest.min(MILLION));
    }
}

/// Whether a text is a release of Slurm, such as `22.05.8` or `24.11.0-0rc1`. A node's slurmd sends
/// it, and may send anything.
fn is_release(text: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    text.len() <= 24
        && text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(is_legal)
}

const fn is_working(base: u32) -> bool {
    matches!(base, ALLOCATED | MIXED)
}

/// Returns the words of the bits that are set; `other`, once and last, for all bits without a word.
pub fn flag_words(bits: u32, word: impl Fn(u32) -> Option<&'static str>) -> Vec<String> {
    let set = (0..u32::BITS).filter(|bit| bits & (1 << bit) != 0);
    let mut words: Vec<&str> = set.map(|bit| word(bit).unwrap_or("other")).collect();
    words.sort_by_key(|word| *word == "other");
    words.dedup();
    words.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(number: u32) -> NodeState {
        NodeState { number, release: Release::new(22, 5) }
    }

    #[test]
    fn the_word_is_sinfos() {
        for (number, word) in [
            (IDLE, "idle"),
            (IDLE | DRAIN, "drained"),
            (ALLOCATED | DRAIN, "draining"),
            (IDLE | DRAIN | COMPLETING, "draining"),
            (IDLE | MAINT, "maint"),
            (DOWN | MAINT, "down"),
            (IDLE | MAINT | DRAIN, "drained"),
            (IDLE | REBOOT_ISSUED, "reboot"),
            (MIXED | REBOOT_REQUESTED, "mixed"),
            (IDLE | FAIL, "fail"),
            (ALLOCATED | FAIL, "failing"),
            (MIXED | FAIL, "fail"),
            (IDLE | COMPLETING, "completing"),
            (ALLOCATED | COMPLETING, "allocated"),
            (DOWN | COMPLETING, "down"),
            (IDLE | RESERVED, "reserved"),
            (IDLE | PLANNED, "planned"),
            (IDLE | PLANNED | NO_RESPOND, "idle"),
            (MIXED | PLANNED, "mixed"),
            (IDLE | INVALID_REG, "inval"),
            (IDLE | POWERED_DOWN, "idle"),
            (UNKNOWN, "unknown"),
            (CLOUD, "cloud"),
            (CLOUD | POWERED_DOWN, "unknown"),
        ] {
            assert_eq!(state(number).word(), word, "{number:#x}");
        }
        let newer = NodeState { number: MIXED | FAIL, release: Release::new(26, 5) };
        assert_eq!(newer.word(), "failing");
    }

    fn found(number: u32) -> FoundNode {
        let state = state(number);
        FoundNode {
            state,
            word: state.word(),
            flags: state.flags(),
            cpus: [0, 8],
            memory: Memory::default(),
            gres: NodeGres::parse(b"gpu:1", b"gpu:0", state.is_usable()),
            cpu_load: None,
            reason_time: Some(9),
            slurmd: "22.05.8".to_owned(),
        }
    }

    #[test]
    fn only_drained_and_down_nodes_are_neither_allocated_nor_idle() {
        // Base states unknown, down, idle, error; unknown and error, both drained; not responding;
        // failing.
        for (number, idle) in
            [(0, 1), (1, 0), (2, 1), (4, 1), (0x200, 0), (0x204, 0), (0x800, 1), (0x2002, 1)]
        {
            let total = found(number).tally();
            assert_eq!((total.nodes.idle, total.nodes.other), (idle, 1 - idle), "{number:#x}");
            assert_eq!((total.cpus.idle, total.gpus.idle), (8 * idle, idle), "{number:#x}");
        }
    }

    #[test]
    fn a_node_that_only_completes_is_allocated_and_its_cpus_are_not() {
        let total = found(IDLE | COMPLETING).tally();
        assert_eq!((total.nodes.allocated, total.cpus.allocated, total.cpus.idle), (1, 0, 8));
    }

    #[test]
    fn since_when_a_drained_node_is_down_nobody_knows() {
        let mut nodes = Nodes::default();
        nodes.add(&found(DOWN | DRAIN));
        assert_eq!((&nodes.drain_since[..], &nodes.down_since[..]), (&[9][..], &[][..]));
        nodes.add(&found(DOWN));
        assert_eq!((nodes.drain_since.len(), nodes.down_since.len()), (1, 1));
    }

    #[test]
    fn a_node_in_maintenance_is_not_among_those_that_are_reserved_otherwise() {
        let mut nodes = Nodes::default();
        for number in
            [IDLE, IDLE | RESERVED, ALLOCATED | RESERVED, IDLE | RESERVED | MAINT, DOWN | RESERVED]
        {
            nodes.add(&found(number));
        }
        assert_eq!(nodes.reserved.nodes, Shares { allocated: 1, idle: 1, other: 1, total: 3 });
        assert_eq!(nodes.reserved.cpus.total, 24);
        assert_eq!(nodes.maintenance.nodes, Shares { allocated: 0, idle: 1, other: 0, total: 1 });
    }

    /// A node that power saving turns off would take a name from one that is broken.
    #[test]
    fn only_nodes_that_are_out_are_named() {
        let named = |number| found(number).out("n1").is_some();
        for number in [DOWN, IDLE | DRAIN, MIXED | DRAIN, IDLE | FAIL, MIXED | NO_RESPOND, 0x1001] {
            assert!(named(number), "{number:#x}");
        }
        for number in [
            IDLE,
            MIXED,
            IDLE | MAINT,
            IDLE | POWERED_DOWN,
            IDLE | POWERING_UP | NO_RESPOND,
            IDLE | DRAIN | POWER_DRAIN,
            IDLE | PLANNED,
        ] {
            assert!(!named(number), "{number:#x}");
        }
        let node = found(DOWN | DRAIN | NO_RESPOND).out("n1").unwrap();
        assert_eq!(
            (node.down, node.drain, node.fail, node.not_responding),
            (true, true, false, true)
        );
        assert_eq!((node.name.as_str(), node.since), ("n1", Some(9)));
    }

    /// Jobs waited while 60 % of the CPUs were in use: the memory was full.
    #[test]
    fn a_node_is_as_full_as_what_it_has_least_of() {
        let known = |number| KnownSum::new(Some(number));
        let node = |cpu, memory, state: u32| FoundNode {
            cpus: [cpu, 8],
            memory: Memory { real: known(100), allocated: memory, free: known(0) },
            ..found(state)
        };
        let mut nodes = Nodes::default();
        nodes.add(&node(4, known(100), MIXED));
        nodes.add(&node(2, known(10), MIXED));
        nodes.add(&node(2, KnownSum::new(None), MIXED));
        nodes.add(&node(8, known(100), MIXED | DRAIN));
        assert_eq!(nodes.scarcest, Scarcest { nodes: 3, millionths: 1_500_000 });
    }

    /// The text comes from the node.
    #[test]
    fn what_is_no_release_is_other() {
        let mut nodes = Nodes::default();
        for slurmd in [
            "22.05.8",
            "22.05.8",
            "24.11.0-0rc1",
            "",
            "a.b",
            "24.11.0 ",
            "1.2.3.4.5.6.7.8.9.10.11.12.13",
        ] {
            nodes.add(&FoundNode { slurmd: slurmd.to_owned(), ..found(IDLE) });
        }
        let seen: Vec<_> =
            nodes.slurmds.iter().map(|(release, nodes)| (release.as_str(), *nodes)).collect();
        assert_eq!(seen, [("22.05.8", 2), ("24.11.0-0rc1", 1), ("other", 3), ("unknown", 1)]);
    }

    #[test]
    fn a_flag_that_came_with_a_release_has_its_word_from_it_on_and_every_word_its_bit() {
        let flags = |release| NodeState { number: IDLE | 1 << 4 | 1 << 31, release }.flags();
        assert_eq!(flags(Release::new(24, 11)), ["other"]);
        assert_eq!(flags(Release::new(25, 5)), ["external", "other"]);
        for &(bit, word) in FLAGS {
            assert_eq!((node_flag(&word.to_uppercase()), word.contains(' ')), (Some(bit), false));
        }
    }
}
