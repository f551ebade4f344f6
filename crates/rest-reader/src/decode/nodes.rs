//! `nodes`, counted while the answer is read. Only what a node adds to a tally is kept, unless each
//! node is requested.
//!
//! slurmrestd's state is a list of words, which is made into libslurm's number.

use std::collections::BTreeMap;

use slurm_snapshot::gres::NodeGres;
use slurm_snapshot::{
    FeatureCounter, FoundNode, KnownSum, Memory, NODE_STATES, NodeMark, NodeState, Partition,
    Release, ReplyOptions, Shards, Shares, node_flag, one_more, short_name, tres,
};

use super::Payload;
use super::item::Item;

/// Number of nodes that slurm.conf can have at most: `MAX_SLURM_NODES`.
const MOST_NODES: u64 = 65_536;

/// Bytes that a partition, a state or GPU type in it, or a flag takes in memory besides its name,
/// on average: a map has room for eleven with its first entry.
const NAME_COST: usize = 1200;

/// Bytes that the mark of a node, or the entry of a node that is out, takes in memory besides the
/// name. A range of nodes takes fewer.
const ENTRY: usize = 48;

/// slurmrestd's words for flags that slurm-snapshot calls otherwise, each with the number of its
/// bit.
const OTHER_WORDS: [(&str, u32); 3] = [("PERFCTRS", 4), ("RESUME", 8), ("REBOOT_CANCELED", 17)];

const NO_CPUS: &str = "the node has no CPUs: this version of the API does not report them";

/// Words for two flags at once, each of which is listed by itself too.
const PAIRS: [&str; 2] = ["POWER_DOWN_ASAP", "POWER_DOWN_FORCE"];

/// The answer to `nodes`.
#[derive(Debug)]
pub(crate) struct NodesAnswer {
    release: Release,
    options: ReplyOptions,
    features: FeatureCounter,
    pub(crate) nodes: slurm_snapshot::Nodes,
    /// The sums of each partition's nodes, and nothing else of partitions.
    pub(crate) partitions: BTreeMap<String, Partition>,
}

impl NodesAnswer {
    pub(crate) fn new(release: Release, options: ReplyOptions) -> Self {
        let nodes = slurm_snapshot::Nodes::default();
        let features = FeatureCounter::default();
        Self { release, options, features, nodes, partitions: BTreeMap::new() }
    }
}

impl Payload for NodesAnswer {
    const NAME: &'static str = "nodes";
    const READ: &'static [&'static str] = words![
        name state state_flags cpus effective_cpus alloc_cpus real_memory alloc_memory free_memory
        free_mem gres gres_used partitions tres reason_changed_at version slurmd_version cpu_load
        boot_time slurmd_start_time active_features
    ];
    const MOST_NAMES: usize = 20 << 20;

    fn item(&mut self, _: &str, node: Item<'_>) -> Result<(), String> {
        let nodes = &mut self.nodes;
        one_more(&mut nodes.records);
        if nodes.records > MOST_NODES {
            return Err("there are more nodes than Slurm can have".to_owned());
        }
        let name = node.name("name")?;
        if name.is_empty() {
            one_more(&mut nodes.blank);
            return Ok(());
        }
        let words = state_words(node)?;
        let state = NodeState { number: state_number(&words)?, release: self.release };
        if state.is_future() {
            // They should not be in this answer, and how many there are is not known.
            return Ok(());
        }
        let found = found(node, state, &words)?;
        found.flags.iter().try_for_each(|flag| charge(node, &mut nodes.flags, flag))?;
        let gres = &found.gres;
        charge_gres(node, gres, &mut nodes.gpus, &mut nodes.shards)?;
        let tally = nodes.add(&found);
        for name in node.words("partitions")? {
            let name = short_name(name);
            charge(node, &mut self.partitions, &name)?;
            let partition = self.partitions.entry(name.into_owned()).or_default();
            charge(node, &mut partition.states, &found.word)?;
            charge_gres(node, gres, &mut partition.gpus, &mut partition.shards)?;
            partition.add(&found.word, &tally, gres);
            if self.options.marks {
                let ranges = partition.members.len();
                partition.add_member(nodes.marks.len());
                node.charge(if partition.members.len() > ranges { ENTRY } else { 0 })?;
            }
        }
        if self.options.features {
            self.features.add(node.words("active_features")?.join(",").as_bytes(), &tally);
        }
        if let Some(out) = found.out(&name) {
            node.charge(name.len().saturating_add(ENTRY))?;
            nodes.out.push(out);
        }
        if self.options.marks {
            node.charge(name.len().saturating_add(ENTRY))?;
            nodes.marks.push(NodeMark {
                name: name.clone(),
                state: state.number,
                boot_time: node.moment("boot_time")?,
                slurmd_start_time: node.moment("slurmd_start_time")?,
            });
        }
        if self.options.rows {
            nodes.rows.push(found.row(name));
        }
        Ok(())
    }

    fn end_answer(&mut self, last_update: i64) -> Result<(), String> {
        self.nodes.last_update = last_update;
        self.nodes.sort_times();
        self.nodes.features = self.options.features.then(|| self.features.finish());
        Ok(())
    }
}

/// The figures of a node that are counted.
fn found(node: Item<'_>, state: NodeState, words: &[&str]) -> Result<FoundNode, String> {
    let (Some(cpus), Some(alloc_cpus)) = (node.number("cpus")?, node.number("alloc_cpus")?) else {
        return Err(NO_CPUS.to_owned());
    };
    let cpus = match node.number("effective_cpus")? {
        Some(0) => cpus,
        Some(effective) => effective,
        // v0.0.38 has them only there.
        None => node.text("tres").and_then(|tres| tres::cpus(tres.as_bytes())).ok_or(NO_CPUS)?,
    };
    let (gres, used) =
        (node.text("gres").unwrap_or_default(), node.text("gres_used").unwrap_or_default());
    // Up to v0.0.38 the first name, later the second.
    let free = node.value("free_memory")?.or(node.value("free_mem")?);
    let slurmd = node.text("slurmd_version").or_else(|| node.text("version"));
    Ok(FoundNode {
        state,
        word: state.word(),
        flags: flags(words, state),
        cpus: [alloc_cpus, cpus],
        memory: Memory {
            real: KnownSum::new(node.value("real_memory")?),
            allocated: KnownSum::new(node.value("alloc_memory")?),
            free: KnownSum::new(free),
        },
        gres: NodeGres::parse(gres.as_bytes(), used.as_bytes(), state.is_usable()),
        cpu_load: node.value("cpu_load")?,
        reason_time: node.moment("reason_changed_at")?,
        slurmd: slurmd.unwrap_or_default().into_owned(),
    })
}

/// Makes an entry with this name if the map has none yet, and counts its bytes in memory.
fn charge<T: Default>(
    node: Item<'_>,
    map: &mut BTreeMap<String, T>,
    name: &str,
) -> Result<(), String> {
    if !map.contains_key(name) {
        node.charge(name.len().saturating_add(NAME_COST))?;
        map.insert(name.to_owned(), T::default());
    }
    Ok(())
}

/// Makes the entries for the types of a node's GPUs and shards, and counts their bytes in memory.
fn charge_gres(
    node: Item<'_>,
    gres: &NodeGres,
    gpus: &mut BTreeMap<String, Shares>,
    shards: &mut BTreeMap<String, Shards>,
) -> Result<(), String> {
    gres.gpus.iter().try_for_each(|(kind, _)| charge(node, gpus, kind))?;
    gres.shards.iter().try_for_each(|(kind, _)| charge(node, shards, kind))
}

/// Returns the words of a node's state: the base state and its flags. The flags are a member of
/// their own up to v0.0.38.
fn state_words(node: Item<'_>) -> Result<Vec<&str>, String> {
    let lists = [node.words("state")?, node.words("state_flags")?].concat();
    Ok(lists.iter().flat_map(|words| words.split('+')).collect())
}

fn base_of(word: &str) -> Option<usize> {
    NODE_STATES.iter().position(|base| word.eq_ignore_ascii_case(base))
}

/// Returns the number of a flag's bit; `None` for a word that is no flag.
fn bit_of(word: &str) -> Option<u32> {
    let other = OTHER_WORDS.iter().find(|(other, _)| word.eq_ignore_ascii_case(other));
    node_flag(word).or(other.map(|(_, bit)| *bit))
}

/// libslurm's number for a state.
fn state_number(words: &[&str]) -> Result<u32, String> {
    let base = words.iter().find_map(|word| base_of(word));
    let base =
        base.and_then(|base| u32::try_from(base).ok()).ok_or("the node has an unknown state")?;
    Ok(words.iter().filter_map(|word| bit_of(word)).fold(base, |state, bit| state | 1 << bit))
}

/// Returns the flags of a state. Words that are not known here become one flag, `other`.
fn flags(words: &[&str], state: NodeState) -> Vec<String> {
    let is_pair = |word: &str| PAIRS.iter().any(|pair| word.eq_ignore_ascii_case(pair));
    // 22.05 writes "?" for a flag that it has no word for.
    let is_known = |word: &str| {
        base_of(word).is_some()
            || bit_of(word).is_some()
            || is_pair(word)
            || ["INVALID", "?"].contains(&word)
    };
    let mut flags = state.flags();
    if words.iter().any(|word| !is_known(word)) && !flags.iter().any(|flag| flag == "other") {
        flags.push("other".to_owned());
    }
    flags
}
