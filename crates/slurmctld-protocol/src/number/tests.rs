//! Numbers against slurmctlds of every release, with right and wrong keys, outages, upgrades and
//! downgrades.

use proptest::prelude::*;

use super::*;

/// A moment that is not around midnight UTC.
pub(super) const START: i64 = 1_700_000_000 - 1_700_000_000 % DAY + 10 * HOUR;

/// A slurmctld: how it answers, and what it has refused.
#[derive(Clone)]
pub(super) struct Slurmctld {
    pub(super) own: u16,
    pub(super) has_our_key: bool,
    pub(super) started: i64,
    /// Its refusals: moment, number, and lines that were written into its log.
    pub(super) refused: Vec<(i64, u16, u32)>,
}

/// Statistics of one that has counted since then.
fn counting_since(started: i64) -> Statistics {
    Statistics { req_time_start: started, ..Statistics::default() }
}

/// As after a restart of this program.
pub(super) fn read_again(numbers: &Numbers) -> Numbers {
    let text = serde_json::to_string(&numbers.found).unwrap();
    let found: Found = serde_json::from_str(&text).unwrap();
    assert!(found.is_plausible());
    found.into()
}

impl Slurmctld {
    pub(super) fn new(own: u16) -> Self {
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
    pub(super) fn ask(&mut self, numbers: &mut Numbers, now: i64) -> Option<u16> {
        let mut found = None;
        let mut asked = Vec::new();
        numbers.begin_tick(now);
        while let Some(number) = numbers.next(now) {
            assert!((OLDEST..=NEWEST).contains(&number));
            assert!(!asked.contains(&number), "{number} is asked twice in one request: {asked:?}");
            asked.push(number);
            match self.answer(number) {
                Ok(()) => {
                    numbers.accept(number, &counting_since(self.started));
                    found = Some(number);
                }
                Err(how) => {
                    let lines = match how {
                        Refusal::Closed => 3,
                        Refusal::Code => 2,
                        Refusal::Http => 1,
                    };
                    self.refused.push((now, number, lines));
                    numbers.refuse(number, how, now);
                }
            }
        }
        found
    }

    /// The most refusals of other numbers than this in any hour.
    fn worst_hour(&self, proved: Option<u16>) -> usize {
        let times = || {
            let searched = self.refused.iter().filter(|(_, number, _)| Some(*number) != proved);
            searched.map(|(at, ..)| *at)
        };
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
        let lines: u32 = slurmctld.refused.iter().map(|(.., lines)| lines).sum();
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
        assert_eq!(slurmctld.ask(&mut read_again(&numbers), START + 1), Some(own.min(NEWEST)));
        assert_eq!(slurmctld.refused.len(), 0);
    }
}

/// Seen as a refused connection, or not seen at all.
#[test]
fn a_restart_into_any_other_release_is_followed_at_once_or_in_the_third_tick() {
    for (before, after, is_seen) in (36..=48)
        .flat_map(|before| (36..=48).map(move |after| (before, after)))
        .flat_map(|(before, after)| [false, true].map(|is_seen| (before, after, is_seen)))
    {
        let mut numbers = Numbers::default();
        Slurmctld::new(before).ask(&mut numbers, START);
        let later = START + 2 * HOUR;
        let mut slurmctld = Slurmctld { started: later - 5, ..Slurmctld::new(after) };
        if is_seen {
            numbers.begin_tick(later - 1);
            numbers.interrupt(true);
        }
        let highest = Some(after.min(NEWEST));
        let found = (0..=9).find(|tick| slurmctld.ask(&mut numbers, later + tick) == highest);
        let expected = if is_seen { 0..=0 } else { 0..=i64::from(STRIKES) - 1 };
        assert!(
            found.is_some_and(|tick| expected.contains(&tick)),
            "{before} to {after}: {found:?}"
        );
        // Up to the highest number again, which is one refusal more.
        assert!(slurmctld.refused.len() <= MOST, "{before} to {after}: {:?}", slurmctld.refused);
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

/// slurmctld keeps its RPCs over `sdiag --reset`, which is the first of them afterwards. Each cost a
/// refused request, and five of them an hour without a reading.
#[test]
fn a_reset_by_command_is_no_restart_and_costs_no_refusal_but_a_restart_does() {
    for own in 36..=45 {
        let mut slurmctld = Slurmctld::new(own);
        let mut numbers = Numbers::default();
        slurmctld.ask(&mut numbers, START);
        let busy = |started| Statistics {
            schedule_cycle_last: 85,
            bf_table_size: Some(1),
            job_states_ts: Some(started - 9),
            ..counting_since(started)
        };
        numbers.begin_tick(START);
        numbers.accept(own, &busy(START));
        let ask = |numbers: &mut Numbers, statistics: &Statistics| {
            numbers.begin_tick(statistics.req_time_start);
            // Anything that is known to be possible is tried first.
            assert_eq!(numbers.next(START), Some(own));
            numbers.accept(own, statistics);
            numbers.next(START)
        };
        for reset in 1..=10 {
            assert_eq!(ask(&mut numbers, &busy(START + reset)), None, "{own}");
        }
        let restart = Statistics { schedule_cycle_last: 0, ..busy(START + 11) };
        assert_eq!(
            ask(&mut numbers, &restart),
            Some(own + 1),
            "{own}: another release may be there"
        );
        numbers.refuse(own + 1, Refusal::Closed, START);
        // Nor is it a reset if a connection was refused before.
        numbers.interrupt(true);
        assert_eq!(ask(&mut numbers, &busy(START + 12)), Some(own + 1), "{own}");
    }
}

/// The proved number is asked as sdiag by cron would be, and others sparingly.
#[test]
fn a_wrong_key_is_no_flood() {
    for own in 36..=48 {
        let mut slurmctld = Slurmctld::new(own);
        let mut numbers = Numbers::default();
        slurmctld.ask(&mut numbers, START - 2 * HOUR);
        slurmctld.refused.clear();
        slurmctld.has_our_key = false;
        let proved = numbers.found.proved;
        for tick in 0..10 * HOUR {
            assert_eq!(slurmctld.ask(&mut numbers, START + tick), None);
        }
        // Six, then one every ten minutes.
        let worst = slurmctld.worst_hour(proved);
        assert!(worst <= MOST + 6, "{own}: {worst}");
        // Of those that answer with a code none refuses 42, so that it is the key.
        assert_eq!(worst == 0, own == 42, "{own}: {worst}");
        let of_proved = slurmctld.refused.iter().filter(|(_, number, _)| Some(*number) == proved);
        let expected = LONG + (10 * HOUR - LONG) / LONG_PAUSE;
        assert_eq!(i64::try_from(of_proved.count()).unwrap(), expected, "{own}");
        // A daemon that crashes each minute, or a command by cron, does not search each time.
        let (searched, mut again) = (slurmctld.refused.len(), 0);
        for minute in 0..60 {
            let mut reader = read_again(&numbers);
            slurmctld.ask(&mut reader, START + 10 * HOUR + minute * 60);
            numbers = read_again(&reader);
            again += 1;
        }
        let more = slurmctld.refused.len() - searched - again;
        assert!(more <= 7, "{own}: {more} of other numbers by {again} starts");
    }
}

/// The number that most releases accept is none of 20.11 to 22.05, so that it alone, once a minute,
/// would never find them.
#[test]
fn a_wrong_key_at_a_first_start_is_one_search_a_minute() {
    for own in 36..=48 {
        let mut slurmctld = Slurmctld { has_our_key: false, ..Slurmctld::new(own) };
        let mut numbers = Numbers::default();
        for tick in 0..HOUR {
            assert_eq!(slurmctld.ask(&mut numbers, START + tick), None);
        }
        let worst = slurmctld.worst_hour(None);
        assert!((60..=MOST + 3 * 60).contains(&worst), "{own}: {worst}");
        slurmctld.has_our_key = true;
        let later = START + HOUR;
        let back = (0..).find(|tick| slurmctld.ask(&mut numbers, later + tick).is_some());
        assert!(back.unwrap() <= 60, "{own}: {back:?}");
        assert_eq!(slurmctld.ask(&mut numbers, later + 60), Some(own.min(NEWEST)), "{own}");
    }
}

/// The counter-example to a search after the first refusal: 22.05 writes three lines for each.
#[test]
fn a_munged_that_is_restarted_on_the_controllers_host_costs_no_search() {
    for own in 36..=48 {
        let mut slurmctld = Slurmctld::new(own);
        let mut numbers = Numbers::default();
        slurmctld.ask(&mut numbers, START);
        slurmctld.refused.clear();
        slurmctld.has_our_key = false;
        for tick in 1..3 {
            slurmctld.ask(&mut numbers, START + tick);
        }
        assert_eq!(slurmctld.refused.len(), 2, "{own}: the same number twice");
        slurmctld.has_our_key = true;
        assert_eq!(slurmctld.ask(&mut numbers, START + 3), Some(own.min(NEWEST)), "{own}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Tick(i64),
    Key(bool),
    Release(u16),
    Away(bool),
    ReaderStarts,
    ClockJumps(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => prop_oneof![Just(1), Just(30), 1..5000_i64].prop_map(Event::Tick),
        1 => any::<bool>().prop_map(Event::Key),
        1 => (36..=48_u16).prop_map(Event::Release),
        1 => any::<bool>().prop_map(Event::Away),
        1 => Just(Event::ReaderStarts),
        1 => (-100_000..100_000_i64).prop_map(Event::ClockJumps),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens in whatever order: while nothing is accepted, searches are few, and when all
    /// is well the next reading comes within 15 s, or a minute while no number is proved, or with
    /// the search's own pauses if it is another release; then the highest number is spoken.
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
                    if let Some(proved) = numbers.found.proved {
                        // Six, one every ten minutes, and those of a row that has just begun.
                        let worst = row.worst_hour(Some(proved));
                        prop_assert!(worst <= MOST + 6, "{:?}", row.refused);
                    } else {
                        row.refused.clear();
                    }
                }
                Event::Key(has) => slurmctld.has_our_key = has,
                Event::Release(own) => (slurmctld.own, slurmctld.started) = (own, now),
                Event::Away(is_refused) => numbers.interrupt(is_refused),
                Event::ReaderStarts => numbers = read_again(&numbers),
                Event::ClockJumps(seconds) => {
                    now += seconds;
                    row.refused.clear();
                }
            }
        }
        slurmctld.has_our_key = true;
        // A start that is not taken for midnight.
        slurmctld.started = now - now.rem_euclid(DAY) + 5 * HOUR;
        let is_proved = numbers.found.proved.is_some_and(|number| slurmctld.answer(number).is_ok());
        let limit = match numbers.found.proved {
            Some(_) if is_proved => LONG_PAUSE,
            None => FIRST_PAUSE,
            Some(_) => 3 * SEARCH_PAUSE,
        };
        let back = (1..).find(|tick| slurmctld.ask(&mut numbers, now + tick).is_some()).unwrap();
        prop_assert!(back <= limit, "{back} s: {numbers:?}");
        now += back;
        for _ in 0..HOUR / 30 {
            now += 30;
            slurmctld.ask(&mut numbers, now);
        }
        prop_assert_eq!(slurmctld.ask(&mut numbers, now), Some(slurmctld.own.min(NEWEST)));
    }
}
