//! Slurm's names for states and reasons, from libslurm itself, so that they match squeue and sinfo
//! in every release.
//!
//! A number for which Slurm has no word becomes `other`. Otherwise each number that somebody sends
//! would get a path of its own.

use slurm_snapshot::JOB_STATES;

use crate::calls::{job_state_word, node_state_word, reason_word};

/// `JOB_STATE_BASE`: the bits of a job's state that are the base state.
const JOB_BASE: u32 = 0xff;

/// `JOB_POWER_UP_NODE`: the flag of a job whose nodes are booting.
pub(crate) const JOB_POWER_UP_NODE: u32 = 1 << 18;
/// `JOB_REVOKED`: the flag of a job that another cluster of the federation has.
const JOB_REVOKED: u32 = 1 << 19;

/// The number of a job's base state: 0 is pending.
pub(crate) const fn job_base(state: u32) -> u32 {
    state & JOB_BASE
}

/// Returns the word for the base state of a job that has not ended; `None` if it has ended, or if
/// another cluster has it.
pub(crate) fn unfinished(state: u32) -> Option<&'static str> {
    let is_here = state & JOB_REVOKED == 0;
    let base = JOB_STATES.into_iter().take(3).nth(job_base(state) as usize);
    base.filter(|_| is_here)
}

/// Whether a job waits on this cluster.
pub(crate) const fn is_waiting(state: u32) -> bool {
    job_base(state) == 0 && state & JOB_REVOKED == 0
}

/// Whether a pending job waits for a burst buffer, by its reason.
pub(crate) const fn waits_for_burst_buffer(reason: u32) -> bool {
    matches!(reason, slurm_sys::WAIT_BURST_BUFFER_RESOURCE | slurm_sys::WAIT_BURST_BUFFER_STAGING)
}

/// A job's state as squeue's `%T` shows it, in lower case.
pub(crate) fn job_state(state: u32) -> String {
    plain_word(job_state_word(state))
}

/// A node's state as sinfo's `%T` shows it, in lower case and without the suffix.
pub(crate) fn node_state(state: u32) -> String {
    plain_word(node_state_word(state))
}

/// Returns a state's word in lower case and without its suffix (`*`, `~`, `#`, `-` …): the flags
/// have the same information.
fn plain_word(word: Option<String>) -> String {
    let mut word = word.unwrap_or_default().to_ascii_lowercase();
    let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(word.len());
    word.truncate(end);
    if word.is_empty() { OTHER.to_owned() } else { word }
}

/// The reason why a job is pending, as scontrol writes it.
pub(crate) fn reason(number: u32) -> String {
    // If a reason has no word, some releases write the number, and others one word for all of them.
    let word =
        reason_word(number).filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()));
    let word = word.filter(|word| reason_word(NO_REASON).as_ref() != Some(word));
    word.unwrap_or_else(|| OTHER.to_owned())
}

/// The name of a value for which libslurm has no word.
const OTHER: &str = "other";

/// Number of a reason that no release has: libslurm's word for it is its word for any unknown
/// reason.
const NO_REASON: u32 = u32::MAX >> 1;

#[cfg(test)]
mod tests {
    use slurm_snapshot::{NODE_STATES, NodeState, Release};

    use super::*;
    use crate::version;

    #[test]
    fn states_are_the_words_of_squeue_and_sinfo() {
        for (state, word) in [
            (0, "pending"),
            (1, "running"),
            (0x8003, "completing"),
            (0x4001, "configuring"),
            (11, "out_of_memory"),
        ] {
            assert_eq!(job_state(state), word);
        }
        for (state, word) in [
            (2, "idle"),
            (0x202, "drained"),
            (0x203, "draining"),
            (0x802, "idle"),
            (1, "down"),
            (5, "mixed"),
        ] {
            assert_eq!(node_state(state), word);
        }
    }

    const fn of_node(number: u32) -> NodeState {
        NodeState { number, release: version::built_for() }
    }

    /// The rule for readers without libslurm, with every base state and every two flags.
    #[test]
    fn the_word_that_is_made_of_a_nodes_flags_is_libslurms() {
        // 20.11 has other flags and words; slurmrestd is read from 22.05 on.
        if version::built_for() < Release::new(21, 8) {
            return;
        }
        // Not in every release: a word for the base state error; for UNDRAIN, REBOOT_CANCEL and the
        // two DYNAMIC where they are alone; BLOCKED. RESUME is in no node's state.
        let unknown = |bit: &u32| matches!(bit, 6 | 8 | 17 | 19 | 26);
        let bits = (5..27).filter(|bit| !unknown(bit));
        let two = bits.clone().flat_map(|one| bits.clone().map(move |other| (one, other)));
        for base in [0, 1, 2, 3, 5, 6] {
            for (one, other) in two.clone() {
                let state = base | 1 << one | 1 << other;
                assert_eq!(of_node(state).word(), node_state(state), "{state:#x}");
            }
        }
    }

    #[test]
    fn the_base_states_are_libslurms_too() {
        for (number, word) in (0..).zip(JOB_STATES) {
            assert_eq!(job_state(number), word);
        }
        // libslurm has no word for the one that no release uses.
        for (number, word) in (0..).zip(NODE_STATES).filter(|(_, word)| *word != "error") {
            assert_eq!(node_state(number), word);
        }
    }

    #[test]
    fn what_has_no_word_is_one_word() {
        assert_eq!([job_state(77), node_state(9), of_node(9).base_word()], ["other"; 3]);
    }

    #[test]
    fn reasons_are_words_and_any_number_is_safe() {
        for (number, word) in
            [(0, "None"), (1, "Priority"), (2, "Dependency"), (3, "Resources"), (9, "BeginTime")]
        {
            assert_eq!(reason(number), word);
        }
        for number in [0xffff, u32::MAX, 1 << 31, 100_000] {
            assert_eq!(reason(number), "other");
        }
    }
}
