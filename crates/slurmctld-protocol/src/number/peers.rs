//! Who answers in slurmctld's place, when, and for how long: as soon as slurmctld answers again,
//! there is a reading. A bound against lines in its log had outlived its cause: a wrong key for a
//! minute and a half was an hour without a reading, and a restart of this program did not help.

use super::tests::{START, Slurmctld, read_again};
use super::*;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// slurmctld, to credentials of another key or clock.
    OtherKey,
    /// A proxy of root's or elsewhere, or whoever can reset connections elsewhere.
    Closes,
    /// One whose server speaks HTTP.
    SpeaksHttp,
    /// Another user's program on this host, who closes before anybody knows whose it is.
    ClosesHere,
    /// Another user's program on this host, that is recognized.
    Imposter,
    Nobody,
    Silent,
}

impl Peer {
    const ALL: [Self; 7] = [
        Self::OtherKey,
        Self::Closes,
        Self::SpeaksHttp,
        Self::ClosesHere,
        Self::Imposter,
        Self::Nobody,
        Self::Silent,
    ];

    /// Makes one request to this peer instead of to slurmctld.
    fn ask(self, slurmctld: &mut Slurmctld, numbers: &mut Numbers, now: i64) {
        let how = match self {
            Self::OtherKey => {
                slurmctld.has_our_key = false;
                assert_eq!(slurmctld.ask(numbers, now), None);
                slurmctld.has_our_key = true;
                return;
            }
            Self::Closes => Ok(Refusal::Closed),
            Self::SpeaksHttp => Ok(Refusal::Http),
            Self::ClosesHere | Self::Nobody => Err(true),
            Self::Imposter | Self::Silent => Err(false),
        };
        numbers.begin_tick(now);
        while let Some(number) = numbers.next(now) {
            match how {
                Ok(how) => numbers.refuse(number, how, now),
                Err(is_away) => return numbers.interrupt(is_away),
            }
        }
    }

    fn refuses(self) -> bool {
        matches!(self, Self::OtherKey | Self::Closes | Self::SpeaksHttp)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// At the first start of this program, so that no number is proved.
    First,
    /// While it has readings.
    Later,
    /// Then this program starts again in the middle.
    WithAStart,
    /// slurmctld starts again at the end.
    DuringARestart,
    /// After five resets by command, each of which was a refusal.
    AfterResets,
}

/// Seconds for which a peer answers in slurmctld's place, and the interval of ticks, seconds.
const TIMES: [(i64, i64); 17] = [
    (1, 1),
    (1, 30),
    (8, 1),
    (8, 2),
    (8, 30),
    (106, 1),
    (106, 2),
    (106, 30),
    (106, 60),
    (301, 1),
    (301, 2),
    (301, 30),
    (301, 60),
    (1000, 1),
    (1000, 30),
    (7200, 30),
    (7200, 60),
];

#[test]
fn once_slurmctld_answers_again_there_is_a_reading_whoever_answered_for_however_long() {
    let whens =
        [When::First, When::Later, When::WithAStart, When::DuringARestart, When::AfterResets];
    let mut cases = 0;
    for own in 36..=48 {
        for (peer, when) in Peer::ALL.into_iter().flat_map(|peer| whens.map(|when| (peer, when))) {
            for (seconds, interval) in TIMES {
                let case = format!("{own}: {peer:?} {when:?} for {seconds} s at {interval} s");
                let back = seconds_to_reading(own, peer, when, seconds, interval);
                let most = match when {
                    When::First if peer.refuses() => FIRST_PAUSE.max(interval) + 5,
                    _ if seconds > LONG && peer.refuses() => LONG_PAUSE.max(interval) + 5,
                    _ => interval + 5,
                };
                assert!(back <= most, "{case}: {back} s, more than {most}");
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 13 * 7 * 5 * TIMES.len());
}

/// Returns the seconds from the moment at which slurmctld answers again to the first reading.
fn seconds_to_reading(own: u16, peer: Peer, when: When, seconds: i64, interval: i64) -> i64 {
    let mut slurmctld = Slurmctld::new(own);
    let mut numbers = Numbers::default();
    let mut now = START;
    if when != When::First {
        slurmctld.ask(&mut numbers, now);
    }
    if when == When::AfterResets {
        for _ in 0..5 {
            now += 30;
            slurmctld.started = now;
            slurmctld.ask(&mut numbers, now);
        }
    }
    let end = now + seconds;
    while now + interval < end {
        now += interval;
        peer.ask(&mut slurmctld, &mut numbers, now);
        if when == When::WithAStart && now - interval < START + seconds / 2 {
            numbers = read_again(&numbers);
        }
    }
    if when == When::DuringARestart {
        slurmctld.started = end;
    }
    loop {
        now += interval;
        if slurmctld.ask(&mut numbers, now).is_some() {
            let highest = slurmctld.ask(&mut numbers, now + interval);
            assert_eq!(highest, Some(own.min(NEWEST)), "{own}: {peer:?} {when:?} {seconds}");
            return now - end;
        }
        assert!(now - end < 2 * HOUR, "{own}: {peer:?} {when:?} {seconds} s: no reading at all");
    }
}
