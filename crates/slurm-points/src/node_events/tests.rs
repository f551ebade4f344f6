//! Node events: each rule of docs/development/node-events.md, and a simulation whose truth is the
//! script that it plays.

use std::collections::BTreeMap;

use proptest::prelude::*;
use slurm_snapshot::{NodeMark, Nodes, Partition, Partitions};

use super::counts::{ClassCounts, EventCounts};
use super::*;

const EVERY: u32 = 10;

const UNKNOWN: u32 = 0;
const DOWN: u32 = 1;
const IDLE: u32 = 2;
const ALLOCATED: u32 = 3;
const DRAIN: u32 = 0x200;
const SILENT: u32 = 0x800;
const POWERED_DOWN: u32 = 0x1000;
const FAIL: u32 = 0x2000;
const POWERING_UP: u32 = 0x4000;
const MAINT: u32 = 0x8000;
const REBOOT_ISSUED: u32 = 0x10_0000;

const DRAINED: usize = 0;
const REBOOT: usize = 1;
const FAILED: usize = 2;
const DEAD: usize = 3;

fn mark(name: &str, state: u32) -> NodeMark {
    NodeMark { name: name.to_owned(), state, ..NodeMark::default() }
}

fn nodes(marks: Vec<NodeMark>) -> Nodes {
    Nodes { marks, ..Nodes::default() }
}

/// Rounds one after another, and what all of them counted.
struct Rounds {
    events: NodeEvents,
    now: i64,
    sum: EventCounts,
}

impl Rounds {
    fn new() -> Self {
        Self { events: NodeEvents::new(EVERY, None), now: 1_000_000, sum: EventCounts::default() }
    }

    /// A round `seconds` after the last one.
    fn after(&mut self, seconds: i64, nodes: &Nodes) -> EventCounts {
        self.now += seconds;
        let (round, all) = self.events.round(self.now, nodes).total;
        self.sum.add(&round);
        let of_rounds = EventCounts { classes: all.classes.map(without_longest), ..all };
        assert_eq!(
            of_rounds,
            EventCounts { classes: self.sum.classes.map(without_longest), ..self.sum }
        );
        round
    }

    /// Rounds in time, in which one node has these states.
    fn states(&mut self, states: &[u32]) -> EventCounts {
        for &state in states {
            self.after(i64::from(EVERY), &nodes(vec![mark("n", state)]));
        }
        self.sum
    }

    /// The daemon stops and starts again.
    fn restart(&mut self) {
        let memory = self.events.changed_memory().expect("a round was the last event");
        self.events = NodeEvents::new(EVERY, Some(&memory));
        assert_eq!(self.events.changed_memory(), None, "nothing is new");
    }
}

fn without_longest(class: ClassCounts) -> ClassCounts {
    ClassCounts { longest: 0, ..class }
}

fn class(reached: u64, ended: u64, timed: u64, seconds: u64, node_seconds: u64) -> ClassCounts {
    ClassCounts { reached, ended, timed, seconds, longest: seconds, node_seconds }
}

#[test]
fn a_node_that_is_drained_goes_down_and_is_resumed_has_one_outage_and_it_is_down() {
    let sum = Rounds::new().states(&[IDLE, IDLE | DRAIN, DOWN | DRAIN, IDLE | DRAIN, IDLE]);
    assert_eq!((sum.begun, sum.ended(), sum.removed), (1, 1, 0));
    assert_eq!(sum.classes[DRAINED], class(1, 0, 0, 0, 20), "no end of its own, but its time");
    assert_eq!(sum.classes[DEAD], class(1, 1, 1, 30, 10));
}

#[test]
fn what_is_no_outage_begins_none() {
    let states = [
        IDLE | MAINT,
        ALLOCATED | DRAIN,
        IDLE | POWERED_DOWN,
        IDLE | POWERING_UP,
        ALLOCATED | FAIL,
    ];
    let sum =
        Rounds::new().states(&[&[IDLE], &states[..], &[UNKNOWN, IDLE | SILENT, IDLE]].concat());
    assert_eq!(sum, EventCounts::default());
}

#[test]
fn a_cloud_node_that_was_not_resumed_is_down_although_it_is_off() {
    let sum = Rounds::new().states(&[
        IDLE | POWERED_DOWN,
        IDLE | POWERING_UP,
        DOWN | POWERED_DOWN,
        DOWN | POWERING_UP,
        IDLE | POWERED_DOWN,
    ]);
    assert_eq!(
        (sum.begun, sum.classes[DEAD]),
        (1, class(1, 1, 1, 20, 20)),
        "powering up ends nothing"
    );
}

#[test]
fn an_outage_that_was_there_first_counts_when_it_ends_and_without_its_time() {
    let sum = Rounds::new().states(&[DOWN, DOWN, IDLE]);
    assert_eq!((sum.begun, sum.classes[DEAD]), (0, class(0, 1, 0, 0, 20)));
    let undecided = Rounds::new().states(&[UNKNOWN, UNKNOWN, DOWN, IDLE]);
    assert_eq!(
        (undecided.begun, undecided.classes[DEAD]),
        (0, class(0, 1, 0, 0, 10)),
        "slurmctld did not know either"
    );
}

#[test]
fn after_slurmctlds_restart_unknown_changes_nothing() {
    let sum = Rounds::new().states(&[IDLE, DOWN, UNKNOWN, DOWN, UNKNOWN, IDLE]);
    assert_eq!((sum.begun, sum.classes[DEAD]), (1, class(1, 1, 1, 40, 40)));
}

#[test]
fn a_silent_node_counts_as_down_after_a_minute_of_silence() {
    let sum = Rounds::new().states(&[[IDLE].as_slice(), &[IDLE | SILENT; 6], &[IDLE]].concat());
    assert_eq!(sum, EventCounts::default(), "50 s");
    let sum =
        Rounds::new().states(&[[IDLE].as_slice(), &[ALLOCATED | SILENT; 8], &[ALLOCATED]].concat());
    assert_eq!((sum.begun, sum.classes[DEAD]), (1, class(1, 1, 1, 20, 20)));
}

#[test]
fn what_began_or_ended_while_nobody_looked_counts_without_its_time() {
    let reply = |first, second| nodes(vec![mark("a", first), mark("b", second), mark("c", DOWN)]);
    let mut rounds = Rounds::new();
    rounds.after(10, &reply(IDLE, IDLE));
    rounds.after(10, &reply(DOWN, IDLE));
    let late = rounds.after(20, &reply(DOWN, IDLE));
    assert_eq!(
        (late.unknown_seconds, late.classes[DEAD].node_seconds),
        (0, 40),
        "one round was left out"
    );
    let gap = rounds.after(21, &reply(IDLE, DOWN));
    assert_eq!((gap.unknown_seconds, gap.begun, gap.classes[DEAD]), (21, 1, class(1, 1, 0, 0, 0)));
    let end = rounds.after(10, &reply(IDLE, IDLE));
    assert_eq!(end.classes[DEAD], class(0, 1, 0, 0, 20), "b's beginning is not known");
    let across = rounds.states(&[]);
    assert_eq!((across.begun, across.ended()), (2, 2));
}

#[test]
fn an_outage_that_outlasts_a_gap_keeps_its_beginning() {
    let mut rounds = Rounds::new();
    let down = nodes(vec![mark("a", DOWN)]);
    rounds.after(10, &nodes(vec![mark("a", IDLE)]));
    rounds.after(10, &down);
    rounds.restart();
    rounds.after(500, &down);
    let end = rounds.after(10, &nodes(vec![mark("a", IDLE)]));
    assert_eq!((end.classes[DEAD], rounds.sum.unknown_seconds), (class(0, 1, 1, 510, 10), 500));
}

#[test]
fn a_clock_that_is_set_back_makes_no_time_and_no_negative_one() {
    let mut rounds = Rounds::new();
    let down = nodes(vec![mark("a", DOWN)]);
    rounds.after(10, &nodes(vec![mark("a", IDLE)]));
    rounds.after(10, &down);
    let back = rounds.after(-3600, &down);
    assert_eq!(back, EventCounts::default());
    rounds.after(10, &down);
    let end = rounds.after(10, &nodes(vec![mark("a", IDLE)]));
    assert_eq!(end.classes[DEAD], class(0, 1, 0, 0, 10), "its beginning is in the future");
}

#[test]
fn a_node_that_vanishes_has_not_returned_and_a_new_name_is_a_new_node() {
    let mut rounds = Rounds::new();
    rounds.after(10, &nodes(vec![mark("a", IDLE), mark("b", IDLE)]));
    rounds.after(10, &nodes(vec![mark("a", DOWN), mark("b", IDLE)]));
    let renamed = rounds.after(10, &nodes(vec![mark("b", IDLE), mark("c", DOWN)]));
    assert_eq!((renamed.removed, renamed.begun, renamed.ended()), (1, 0, 0));
    assert_eq!(renamed.classes[DEAD].node_seconds, 0, "when it vanished is not known");
    let gone = rounds.after(10, &nodes(vec![mark("c", IDLE)]));
    assert_eq!((gone.removed, gone.ended(), gone.begun), (0, 1, 0));
    let back = rounds.after(10, &nodes(vec![mark("a", DOWN), mark("c", IDLE)]));
    assert_eq!((back.begun, back.removed), (0, 0), "it is new again");
}

#[test]
fn the_same_reply_again_is_time_in_which_nothing_changed() {
    let mut rounds = Rounds::new();
    let kept = nodes(vec![mark("a", IDLE | DRAIN)]);
    let seconds: Vec<u64> =
        (0..4).map(|_| rounds.after(10, &kept).classes[DRAINED].node_seconds).collect();
    assert_eq!(seconds, [0, 10, 10, 10]);
}

/// The other host's daemon has counted it, with `follow`; and an alert about the last minutes would
/// be wrong after a weekend.
#[test]
fn what_happened_in_a_long_absence_is_not_counted_and_an_outage_that_was_there_is_as_at_the_start()
{
    let reply = |[a, b]: [u32; 2]| nodes(vec![mark("a", a), mark("b", b)]);
    for is_restarted in [false, true] {
        let mut rounds = Rounds::new();
        rounds.after(10, &reply([IDLE, DOWN]));
        rounds.after(10, &reply([IDLE, DOWN]));
        if is_restarted {
            rounds.restart();
        }
        let back = rounds.after(700, &reply([DOWN, IDLE]));
        assert_eq!((back.begun, back.ended(), back.unknown_seconds), (0, 0, 700));
        let end = rounds.after(10, &reply([IDLE, IDLE]));
        assert_eq!((end.classes[DEAD], end.begun), (class(0, 1, 0, 0, 10), 0));
    }
}

/// `max_duty` may stretch every round: then nothing would ever have a time.
#[test]
fn rounds_that_are_always_late_are_no_gaps() {
    let mut rounds = Rounds::new();
    let down = nodes(vec![mark("a", DOWN)]);
    let seen: Vec<_> = (0..6).map(|_| rounds.after(45, &down).classes[DEAD].node_seconds).collect();
    assert_eq!(seen, [0, 0, 0, 45, 45, 45]);
    let end = rounds.after(45, &nodes(vec![mark("a", IDLE)]));
    assert_eq!((end.ended(), rounds.sum.unknown_seconds), (1, 90));
}

#[test]
fn what_happened_while_the_daemon_was_away_counts_when_it_is_back() {
    let reply = |[a, b, c]: [u32; 3]| nodes(vec![mark("a", a), mark("b", b), mark("c", c)]);
    for (away, timed) in [(10, 1), (500, 0)] {
        let mut rounds = Rounds::new();
        rounds.after(10, &reply([IDLE, IDLE, DOWN]));
        rounds.after(10, &reply([IDLE, DOWN, DOWN]));
        rounds.restart();
        let back = rounds.after(away, &reply([DOWN, IDLE, IDLE]));
        assert_eq!(
            (back.begun, back.ended(), back.classes[DEAD].timed),
            (1, 2, timed),
            "after {away} s"
        );
    }
}

fn started(state: u32, slurmd: i64, boot: i64) -> Nodes {
    let moment = |at: i64| Some(at).filter(|at| *at > 0);
    nodes(vec![NodeMark {
        boot_time: moment(boot),
        slurmd_start_time: moment(slurmd),
        ..mark("n", state)
    }])
}

/// Each as slurmctld has it: state, slurmd's start, boot; 0 is not known.
fn starts(seen: &[(u32, i64, i64)]) -> (u64, u64) {
    let mut rounds = Rounds::new();
    for &(state, slurmd, boot) in seen {
        rounds.after(10, &started(state, slurmd, boot));
    }
    (rounds.sum.slurmd_restarts, rounds.sum.reboots)
}

#[test]
fn a_reboot_is_slurmds_new_start_in_a_machine_that_was_booted_since_its_last() {
    assert_eq!(
        starts(&[(IDLE, 5000, 4900), (IDLE, 5000, 4902), (IDLE, 7000, 4899)]),
        (1, 0),
        "slurmd alone"
    );
    assert_eq!(starts(&[(IDLE, 5000, 4900), (IDLE, 7000, 6900)]), (1, 1));
    // The machine takes three minutes to boot, and slurmctld shows the old moments until slurmd
    // registers.
    assert_eq!(starts(&[(IDLE, 5000, 4900), (DOWN, 5000, 4900), (IDLE, 7000, 6820)]), (1, 1));
    let none = [
        (IDLE, 5000, 4900),
        (UNKNOWN, 0, 0),
        (IDLE, 5000, 4901),
        (UNKNOWN, 0, 0),
        (IDLE, 7000, 6900),
    ];
    assert_eq!(starts(&none), (1, 1), "slurmctld was restarted");
    let saved = [
        (IDLE, 5000, 4900),
        (IDLE | POWERED_DOWN, 5000, 4900),
        (IDLE, 7000, 6900),
        (IDLE, 7000, 6901),
    ];
    assert_eq!(starts(&saved), (0, 0), "power saving boots nodes all day");
    assert_eq!(starts(&[(IDLE, 0, 0), (IDLE, 7000, 6900)]), (0, 0), "a new node");
}

/// Counted by "boot_time has changed", these were thousands.
#[test]
fn registrations_and_a_clock_that_is_set_are_no_reboots() {
    let mut seen: Vec<(u32, i64, i64)> = (0..99).map(|n| (IDLE, 5000, 4900 + n % 3)).collect();
    seen.extend((0..99).map(|n| (IDLE, 5000, 5500 + n % 3)));
    seen.push((IDLE, 20_000, 5500));
    assert_eq!(starts(&seen), (1, 0));
    // Between two registrations, of which the second is that of a new slurmd.
    assert_eq!(starts(&[(IDLE, 9000, 4900), (IDLE, 20_000, 8500)]), (1, 0));
}

#[test]
fn a_node_counts_in_each_of_its_partitions_and_once_in_all() {
    let partition =
        |name: &str, members| Partition { name: name.to_owned(), members, ..Partition::default() };
    let reply = |state| {
        let partitions = vec![
            partition("all", vec![(0, 2)]),
            partition("ends", vec![(0, 0), (2, 2)]),
            partition("middle", vec![(1, 1)]),
            partition("odd", vec![(9, 3), (7, 9)]),
        ];
        let marks = vec![mark("a", state), mark("b", IDLE), mark("c", state)];
        Nodes { partitions: Some(Partitions { last_update: 1, partitions }), ..nodes(marks) }
    };
    let mut events = NodeEvents::new(EVERY, None);
    events.round(10, &reply(IDLE));
    events.round(20, &reply(DOWN));
    let replies = reply(IDLE);
    let round = events.round(40, &replies);
    let found: BTreeMap<&str, (u64, u64, u64)> = round
        .partitions
        .iter()
        .map(|(name, (now, all))| {
            (*name, (now.classes[DEAD].seconds, all.begun, all.classes[DEAD].node_seconds))
        })
        .collect();
    let expected =
        [("all", (40, 2, 40)), ("ends", (40, 2, 40)), ("middle", (0, 0, 0)), ("odd", (0, 0, 0))];
    assert_eq!(found, expected.into());
    assert_eq!((round.total.1.begun, round.total.0.classes[DEAD].longest), (2, 20));
}

#[test]
fn a_memory_that_cannot_be_read_is_none() {
    for text in [
        "",
        "[]",
        "{\"nodes\":3}",
        "\0",
        r#"{"nodes":{"n":{"outage":{"since":5,"worst":9,"now":9}}}}"#,
    ] {
        assert_eq!(NodeEvents::new(EVERY, Some(text)).memory, Memory::default());
    }
}

/// A state in which a node can be for a while, and the class of the outage: `None` in service.
const PHASES: [(u32, Option<usize>); 11] = [
    (IDLE, None),
    (ALLOCATED, None),
    (ALLOCATED | DRAIN, None),
    (IDLE | MAINT, None),
    (IDLE | POWERED_DOWN, None),
    (IDLE | DRAIN, Some(DRAINED)),
    (DOWN | REBOOT_ISSUED, Some(REBOOT)),
    (IDLE | FAIL, Some(FAILED)),
    (DOWN, Some(DEAD)),
    (DOWN | DRAIN, Some(DEAD)),
    (DOWN | POWERED_DOWN, Some(DEAD)),
];

/// The script: phase and length, s; the first is in service.
fn script() -> impl Strategy<Value = Vec<(usize, i64)>> {
    prop::collection::vec((0..PHASES.len(), 21..200_i64), 1..25)
        .prop_map(|phases| [&[(0, 30)], &phases[..], &[(0, 50)]].concat())
}

/// Counts the outages of the script to the second: begun; of each class reached, ended, seconds and
/// node-seconds.
fn truth(script: &[(usize, i64)]) -> (u64, [(u64, u64, i64, i64); 4]) {
    let mut begun = 0;
    let mut classes = [(0, 0, 0, 0); 4];
    let mut outage = None::<(usize, i64)>;
    for &(phase, length) in script {
        match (PHASES[phase].1, &mut outage) {
            (None, None) => {}
            (None, Some((worst, lasted))) => {
                classes[*worst].1 += 1;
                classes[*worst].2 += *lasted;
                outage = None;
            }
            (Some(class), None) => {
                begun += 1;
                classes[class].0 += 1;
                outage = Some((class, length));
            }
            (Some(class), Some((worst, lasted))) => {
                classes[class].0 += u64::from(class > *worst);
                *worst = class.max(*worst);
                *lasted += length;
            }
        }
        if let Some(class) = PHASES[phase].1 {
            classes[class].3 += length;
        }
    }
    (begun, classes)
}

fn phase_at(script: &[(usize, i64)], at: i64) -> u32 {
    let mut end = 0;
    let phase = script.iter().find(|(_, length)| {
        end += length;
        at < end
    });
    PHASES[phase.map_or(0, |(phase, _)| *phase)].0
}

proptest! {
    /// Each phase lasts longer than two rounds. Rounds are left out, the daemon starts again, and
    /// slurmctld forgets: all that changes no count, and times by no more than two rounds for each
    /// phase.
    #[test]
    fn any_script_is_counted_as_it_was_played(
        scripts in prop::collection::vec(script(), 1..4),
        rounds in prop::collection::vec((any::<bool>(), prop::bool::weighted(0.1)), 600),
    ) {
        let length = scripts.iter().map(|script| script.iter().map(|(_, length)|
            length).sum::<i64>()).max().unwrap();
        let mut run = Rounds::new();
        let mut left_out = false;
        let mut waited = 0;
        let end = length / i64::from(EVERY) + 3;
        for (round, (leaves_out, restarts)) in (0..end).zip(rounds.into_iter().cycle()) {
            waited += i64::from(EVERY);
            left_out = leaves_out && !left_out && round > 0 && round + 1 < end;
            if left_out {
                continue;
            }
            let marks = scripts.iter().enumerate();
            let at = round * i64::from(EVERY);
            let marks = marks.map(|(node, script)| mark(&format!("n{node}"), phase_at(script, at)));
            run.after(std::mem::take(&mut waited), &nodes(marks.collect()));
            if restarts {
                run.restart();
            }
        }
        let (sum, all) = (run.sum, scripts.iter().map(|script| truth(script)));
        let mut begun = 0;
        let mut expected = [(0, 0, 0, 0); 4];
        for (more, classes) in all {
            begun += more;
            for (class, more) in expected.iter_mut().zip(classes) {
                *class = (class.0 + more.0, class.1 + more.1, class.2 + more.2, class.3 + more.3);
            }
        }
        prop_assert_eq!((sum.begun, sum.removed, sum.unknown_seconds), (begun, 0, 0));
        let phases: usize = scripts.iter().map(Vec::len).sum();
        let slack = i64::try_from(phases).unwrap() * 2 * i64::from(EVERY);
        for (class, (reached, ended, seconds, node_seconds)) in sum.classes.iter().zip(expected) {
            prop_assert_eq!((class.reached, class.ended, class.timed), (reached, ended, ended));
            prop_assert!((i64::try_from(class.seconds).unwrap() - seconds).abs() <= slack);
            prop_assert!((i64::try_from(class.node_seconds).unwrap() - node_seconds).abs() <= slack);
        }
        let total = |of: fn(&ClassCounts) -> u64| sum.classes.iter().map(of).sum::<u64>();
        prop_assert_eq!(total(|class| class.seconds), total(|class| class.node_seconds), "every \
            outage has ended");
    }

    #[test]
    fn any_reply_in_any_order_overflows_nothing(
        seen in prop::collection::vec(
            (any::<i64>(), prop::collection::vec(("[ab]", any::<u32>(), any::<Option<i64>>(),
                any::<Option<i64>>()), 0..4)), 0..30),
    ) {
        let mut events = NodeEvents::new(EVERY, None);
        for (now, marks) in seen {
            let marks = marks.into_iter().map(|(name, state, boot_time, slurmd_start_time)|
                NodeMark { name, state, boot_time, slurmd_start_time }).collect();
            events.round(now, &nodes(marks));
            let again = NodeEvents::new(EVERY, events.changed_memory().as_deref()).memory;
            let out = |memory: &Memory| memory.nodes.values().filter(|node|
                node.outage.is_some()).count();
            prop_assert_eq!((out(&again), again.total.begun), (out(&events.memory),
                events.memory.total.begun));
        }
    }
}
