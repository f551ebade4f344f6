//! Numbers against slurmctlds of every release, with right and wrong keys, outages, upgrades and
//! downgrades.

use proptest::prelude::*;

use super::*;

/// A moment that is not around midnight UTC.
const START: i64 = 1_700_000_000 - 1_700_000_000 % DAY + 10 * HOUR;

/// A slurmctld: how it answers, and what it has refused.
#[derive(Clone)]
struct Slurmctld {
    own: u16,
    has_our_key: bool,
    started: i64,
    /// When it refused, and how many lines that wrote into its log.
    refused: Vec<(i64, u32)>,
}

impl Slurmctld {
    fn new(own: u16) -> Self {
        Self { own, has_our_key: true, started: START, refused: Vec::new() }
    }

    /// Measured on 20.11, 22.05, 24.11 and 26.05; the releases between answer alike, in Slurm's
    /// source.
    fn answer(&self, number: u16) -> Result<(), Refusal> {
        let three_before = [42, 43, 44, 45, 46, 47, 48].contains(&self.own);
        let lowest = self.own - if three_before { 3 } else { 2 };
        let is_known = (lowest..=self.own).contains(&number);
        match self.own {
            ..=41 if is_known && self.has_our_key => Ok(()),
            ..=41 => Err(Refusal::Closed),
            44.. if !is_known => Err(Refusal::Http),
            _ if is_known && self.has_our_key => Ok(()),
            _ => Err(Refusal::Code),
        }
    }

    /// One request of the daemon, as cluster.rs makes it. Returns the number of the reading.
    fn ask(&mut self, numbers: &mut Numbers, now: i64) -> Option<u16> {
        let mut found = None;
        for _ in 0..20 {
            let Ok(number) = numbers.next(now) else { return found };
            if found == Some(number) {
                return found;
            }
            assert!((OLDEST..=NEWEST).contains(&number));
            match self.answer(number) {
                Ok(()) => {
                    numbers.accept(number, self.started);
                    found = Some(number);
                }
                Err(how) => {
                    let lines = match how {
                        Refusal::Closed => 3,
                        Refusal::Code => 2,
                        Refusal::Http => 1,
                    };
                    self.refused.push((now, lines));
                    numbers.refuse(number, how, now);
                }
            }
        }
        panic!("a request without end");
    }

    /// The most refusals in any hour.
    fn worst_hour(&self) -> usize {
        let times = || self.refused.iter().map(|(at, _)| *at);
        times()
            .map(|from| times().filter(|at| (from..from + HOUR).contains(at)).count())
            .max()
            .unwrap_or(0)
    }
}

#[test]
fn the_first_request_finds_the_highest_number_with_at_most_six_lines() {
    for own in 36..=48 {
        let mut slurmctld = Slurmctld::new(own);
        let mut numbers = Numbers::default();
        assert_eq!(slurmctld.ask(&mut numbers, START), Some(own.min(NEWEST)), "{own}");
        let lines: u32 = slurmctld.refused.iter().map(|(_, lines)| lines).sum();
        assert!(lines <= 6, "{own}: {lines} lines");
        let refusals = slurmctld.refused.len();
        for tick in 0..10_000 {
            assert_eq!(slurmctld.ask(&mut numbers, START + tick), Some(own.min(NEWEST)));
        }
        assert_eq!(slurmctld.refused.len(), refusals, "{own}: nothing is tried twice");
    }
}

#[test]
fn a_reader_that_starts_again_tries_nothing_again() {
    for own in 36..=48 {
        let mut slurmctld = Slurmctld::new(own);
        let mut numbers = Numbers::default();
        slurmctld.ask(&mut numbers, START);
        slurmctld.refused.clear();
        let text = serde_json::to_string(&numbers).unwrap();
        let mut again: Numbers = serde_json::from_str(&text).unwrap();
        assert_eq!(slurmctld.ask(&mut again, START + 1), Some(own.min(NEWEST)));
        assert_eq!(slurmctld.refused.len(), 0);
    }
}

#[test]
fn a_restart_into_any_other_release_is_followed() {
    for before in 36..=48 {
        for after in 36..=48 {
            let mut slurmctld = Slurmctld::new(before);
            let mut numbers = Numbers::default();
            slurmctld.ask(&mut numbers, START);
            let later = START + 2 * HOUR;
            let mut slurmctld = Slurmctld { started: later - 5, ..Slurmctld::new(after) };
            // A release that does not know the number before costs the minute after which others
            // are tried.
            let found = (0..=62).find_map(|tick| {
                slurmctld
                    .ask(&mut numbers, later + tick)
                    .filter(|number| *number == after.min(NEWEST))
            });
            assert!(found.is_some(), "{before} to {after}: {numbers:?}");
            assert!(slurmctld.refused.len() <= MOST, "{before} to {after}");
        }
    }
}

#[test]
fn an_upgrade_that_slurm_allows_loses_no_reading() {
    for before in 36..=47_u16 {
        for after in before + 1..=(before + 2).min(48) {
            let mut slurmctld = Slurmctld::new(before);
            let mut numbers = Numbers::default();
            slurmctld.ask(&mut numbers, START);
            let mut slurmctld = Slurmctld { started: START + 500, ..Slurmctld::new(after) };
            assert_eq!(
                slurmctld.ask(&mut numbers, START + 600),
                Some(after.min(NEWEST)),
                "{before} to {after}"
            );
        }
    }
}

/// As slurmctld 22.05 was seen to do.
#[test]
fn a_slurmctld_that_does_not_say_yet_since_when_it_counts_costs_one_refusal() {
    let mut slurmctld = Slurmctld::new(38);
    let mut numbers = Numbers::default();
    slurmctld.started = 0;
    slurmctld.ask(&mut numbers, START);
    slurmctld.refused.clear();
    for started in [0, START, 0, START] {
        slurmctld.started = started;
        assert_eq!(slurmctld.ask(&mut numbers, START + 1), Some(38));
    }
    // Once it says so, it may be another in the place of the one that did not.
    assert_eq!(slurmctld.refused.len(), 1);
}

/// slurmctld had accepted a lower number when it did not say yet since when it counts, and the
/// reader stayed with that.
#[test]
fn an_upgrade_of_a_slurmctld_that_was_asked_in_its_first_moment_alone_is_seen() {
    let mut older = Slurmctld::new(42);
    let mut newer = Slurmctld::new(45);
    older.started = 0;
    newer.started = START + 600;
    let mut numbers = Numbers::default();
    assert_eq!(older.ask(&mut numbers, START), Some(42));
    assert_eq!(newer.ask(&mut numbers, START + 700), Some(45));
}

#[test]
fn midnight_is_no_restart() {
    let mut slurmctld = Slurmctld::new(38);
    let mut numbers = Numbers::default();
    slurmctld.ask(&mut numbers, START);
    slurmctld.refused.clear();
    let midnight = START - START % DAY + DAY;
    slurmctld.started = midnight + 3;
    for tick in 0..100 {
        assert_eq!(slurmctld.ask(&mut numbers, midnight + 3 + tick), Some(38));
    }
    assert_eq!(slurmctld.refused.len(), 0);
}

#[test]
fn a_wrong_key_is_no_flood_and_is_noticed_within_the_pauses_when_it_is_put_right() {
    for own in 36..=48 {
        for is_known in [false, true] {
            let mut slurmctld = Slurmctld::new(own);
            let mut numbers = Numbers::default();
            if is_known {
                slurmctld.ask(&mut numbers, START - 2 * HOUR);
                slurmctld.refused.clear();
            }
            slurmctld.has_our_key = false;
            for tick in (0..10 * HOUR).step_by(7) {
                assert_eq!(slurmctld.ask(&mut numbers, START + tick), None);
            }
            assert!(slurmctld.worst_hour() <= MOST, "{own}: {}", slurmctld.worst_hour());
            slurmctld.has_our_key = true;
            let back =
                (0..).find(|tick| slurmctld.ask(&mut numbers, START + 10 * HOUR + tick).is_some());
            assert!(back.unwrap() <= HOUR, "{own}");
        }
    }
}

/// The counter-example to six *lines* an hour: 22.05 writes three for each refusal.
#[test]
fn a_munged_that_is_restarted_on_the_controllers_host_costs_a_minute_and_no_search() {
    for own in 36..=48 {
        let mut slurmctld = Slurmctld::new(own);
        let mut numbers = Numbers::default();
        slurmctld.ask(&mut numbers, START);
        slurmctld.refused.clear();
        slurmctld.has_our_key = false;
        for tick in 0..5 {
            slurmctld.ask(&mut numbers, START + tick);
        }
        assert_eq!(slurmctld.refused.len(), 2, "{own}: the same number twice");
        slurmctld.has_our_key = true;
        let back =
            (5..).find(|tick| slurmctld.ask(&mut numbers, START + tick) == Some(own.min(NEWEST)));
        assert_eq!(back, Some(60), "{own}");
    }
}

#[test]
fn one_connection_that_is_closed_costs_no_reading() {
    let mut slurmctld = Slurmctld::new(38);
    let mut numbers = Numbers::default();
    slurmctld.ask(&mut numbers, START);
    for tick in 0..1000 {
        let number = numbers.next(START + tick).unwrap();
        numbers.refuse(number, Refusal::Closed, START + tick);
        assert_eq!(slurmctld.ask(&mut numbers, START + tick), Some(38));
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Tick(i64),
    Key(bool),
    Release(u16),
    Away,
    ReaderStarts,
    ClockJumps(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => prop_oneof![Just(1), Just(30), 1..5000_i64].prop_map(Event::Tick),
        1 => any::<bool>().prop_map(Event::Key),
        1 => (36..=48_u16).prop_map(Event::Release),
        1 => Just(Event::Away),
        1 => Just(Event::ReaderStarts),
        1 => (-100_000..100_000_i64).prop_map(Event::ClockJumps),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens in whatever order: while nothing is accepted there are no more than six
    /// refusals in an hour, and two hours after all is well the highest number is spoken.
    #[test]
    fn no_order_of_events_floods_slurmctld_or_is_final(events in prop::collection::vec(event(),
        1..80)) {
        let mut slurmctld = Slurmctld::new(38);
        let mut numbers = Numbers::default();
        let mut now = START;
        // Refusals since something was accepted or the clock jumped.
        let mut row = Slurmctld::new(38);
        for event in events {
            match event {
                Event::Tick(seconds) => {
                    now += seconds;
                    slurmctld.refused.clear();
                    let found = slurmctld.ask(&mut numbers, now);
                    row.refused.append(&mut slurmctld.refused);
                    if found.is_some() {
                        row.refused.clear();
                    }
                    prop_assert!(row.worst_hour() <= MOST, "{:?}", row.refused);
                }
                Event::Key(has) => slurmctld.has_our_key = has,
                Event::Release(own) => (slurmctld.own, slurmctld.started) = (own, now),
                Event::Away => numbers.interrupt(),
                Event::ReaderStarts => {
                    numbers = serde_json::from_str(&serde_json::to_string(&numbers).unwrap()).unwrap();
                }
                Event::ClockJumps(seconds) => {
                    now += seconds;
                    row.refused.clear();
                }
            }
        }
        slurmctld.has_our_key = true;
        // A start that is not taken for midnight.
        slurmctld.started = now - now.rem_euclid(DAY) + 5 * HOUR;
        for _ in 0..(3 * HOUR) / 30 {
            now += 30;
            slurmctld.ask(&mut numbers, now);
        }
        prop_assert_eq!(slurmctld.ask(&mut numbers, now), Some(slurmctld.own.min(NEWEST)));
    }
}
