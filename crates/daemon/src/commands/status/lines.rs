//! The daemon's status as lines for a person, each with a mark.

use std::time::Duration;

use carbon::{Dropped, Status};
use size::Size;

use crate::clock;
use crate::commands::{Mark, number};
use crate::status::{DestinationEntry, QueueEntry, ReaderEntry, StatusDocument};

/// Time for which one tick may stay the oldest unsent one before that is a problem, unless
/// `--patience` is longer.
const STANDS_STILL: Duration = Duration::from_secs(600);

/// A line of `status` about one thing, its subject.
#[derive(Debug)]
pub(super) struct StatusLine {
    pub(super) mark: Mark,
    pub(super) subject: String,
    pub(super) text: String,
}

/// The present moment, and how long something may be not OK.
#[derive(Clone, Copy)]
struct Judge {
    now: i64,
    patience: Duration,
}

impl Judge {
    /// Returns the mark of something that has not been OK since the moment `since`, Unix seconds.
    fn mark(self, since: i64) -> Mark {
        if self.age(since) > self.patience { Mark::Wrong } else { Mark::Note }
    }

    /// Returns the time since the moment `since`. It is zero for a moment in the future, which
    /// there is after the clock was set back.
    fn age(self, since: i64) -> Duration {
        Duration::from_secs(u64::try_from(self.now.saturating_sub(since)).unwrap_or(0))
    }

    /// Says since when, and for how long: "since 2026-11-22 08:00:00 (2h 3m 1s)".
    fn since(self, since: i64) -> String {
        format!("since {} ({})", moment(since), humantime::format_duration(self.age(since)))
    }
}

/// The lines about `document`, judged by `patience`.
pub(super) fn lines(document: &StatusDocument, patience: Duration) -> Vec<StatusLine> {
    let judge = Judge { now: document.now, patience };
    let StatusDocument { version, pid, started, .. } = document;
    let line = |subject: &str, (mark, text): (Mark, String)| StatusLine {
        mark,
        subject: subject.to_owned(),
        text,
    };
    let file = document.config.as_ref().map(|file| file.display().to_string());
    let file = file.unwrap_or_else(|| "flags and defaults only".to_owned());
    let configuration = match &document.refused {
        None => (Mark::Good, file),
        Some(refused) => {
            // Each problem begins with the file, which is in this line already.
            let why = refused.why.replace(&format!("{file}: "), "").replace('\n', "; ");
            let at = moment(refused.at);
            (
                Mark::Note,
                format!("{file}, as it was before the reload of {at}, which was refused: {why}"),
            )
        }
    };
    let mut lines = vec![
        line(
            "daemon",
            (Mark::Good, format!("{version}, process {pid}, {}", judge.since(*started))),
        ),
        line("configuration", configuration),
        line("last tick", last_tick(document, judge)),
        line("slurmctld", slurmctld(document, judge)),
    ];
    let named = |to: &DestinationEntry| match &to.name {
        name if *name == to.address => name.clone(),
        name => format!("{name} ({})", to.address),
    };
    lines.extend(
        document.destinations.iter().map(|to| line(&named(to), destination(to, document, judge))),
    );
    lines.push(line("queue", queue(&document.queue, *started, judge)));
    if let Some(since) = document.finished_behind_since {
        let text = "not counted: no round could read all of them from slurmdbd; see the log";
        lines.push(line("finished jobs", (Mark::Note, format!("{text}; {}", judge.since(since)))));
    }
    lines.extend(document.readers.iter().map(|entry| line("reader", reader(entry))));
    lines
}

fn last_tick(document: &StatusDocument, judge: Judge) -> (Mark, String) {
    let every = format!("one every {} s", document.interval);
    let Some(last) = document.last_tick else {
        return (judge.mark(document.started), format!("none yet; {every}"));
    };
    let age = judge.age(last);
    let mark = if age > judge.patience { Mark::Wrong } else { Mark::Good };
    (mark, format!("{}, {} ago; {every}", moment(last), humantime::format_duration(age)))
}

fn slurmctld(document: &StatusDocument, judge: Judge) -> (Mark, String) {
    let StatusDocument { slurmctld: entry, started, interval, .. } = document;
    let since = entry.since.unwrap_or(*started);
    let started = *started;
    // A request may take as long as [slurm] timeout, and until then its outcome is not known.
    let two_ticks = Duration::from_secs(u64::from(*interval).saturating_mul(2));
    let late = entry.last_answer.filter(|&last| judge.age(last) > two_ticks);
    if let (Some(true), Some(last)) = (entry.answers, late) {
        let ago = humantime::format_duration(judge.age(last));
        let text = format!("has not answered the last request yet; the last answer {ago} ago");
        return (judge.mark(last), text);
    }
    let cluster =
        entry.cluster.as_ref().map_or_else(String::new, |cluster| format!(", cluster {cluster}"));
    match entry.answers {
        Some(true) if entry.nameless => {
            let text =
                "but the cluster's name, which the prefix needs, is not known: nothing is sent";
            (judge.mark(since), format!("answers {}, {text}", judge.since(since)))
        }
        Some(true) if entry.standby => (
            Mark::Good,
            format!(
                "standby {}{cluster}: a controller before this host's is active",
                judge.since(since)
            ),
        ),
        Some(true) => (Mark::Good, format!("answers {}{cluster}", judge.since(since))),
        Some(false) => {
            let error = entry.error.as_deref().unwrap_or_default();
            (judge.mark(since), format!("does not answer {}: {error}", judge.since(since)))
        }
        None => (judge.mark(started), "no reading yet".to_owned()),
    }
}

fn destination(to: &DestinationEntry, document: &StatusDocument, judge: Judge) -> (Mark, String) {
    let DestinationEntry { error, status, .. } = to;
    let (waiting, why) = judge_waiting(status, document, judge);
    let (mark, state) = match (status.connected, status.in_doubt) {
        _ if status.not_carbon => (Mark::Wrong, "what answers is not Carbon: it sends data;"),
        (true, false) => (waiting, "connected"),
        (true, true) => (judge.mark(status.since), "has not shown that it reads"),
        // A peer that accepts and closes at once is connected every now and then; what waits tells
        // how long it has been so.
        (false, _) => (
            judge.mark(status.waits_since.map_or(status.since, |waits| waits.min(status.since))),
            "not connected",
        ),
    };
    let mut text = format!("{state} {}", judge.since(status.since));
    if let Some(error) = error.as_ref().filter(|_| !status.connected && !status.not_carbon) {
        text += &format!(": {error}");
    }
    if let Some(oldest) = status.oldest_unsent {
        let ticks = number(status.unsent.ticks, "tick", "ticks");
        let points = status.unsent.points;
        text += &format!(
            "; {ticks} not sent yet ({points} points), the oldest from {}{why}",
            moment(oldest)
        );
    }
    if status.again.ticks > 0 {
        text += &format!("; {} to be sent again", number(status.again.ticks, "tick", "ticks"));
    }
    let sent = status.held.saturating_sub(status.unsent.ticks).saturating_sub(status.again.ticks);
    if sent > 0 {
        text += &format!(
            "; {} for resend_window",
            number(sent, "sent tick is kept", "sent ticks are kept")
        );
    }
    // Withdrawn points are another daemon's, so they are no loss.
    let Dropped { full, age, damaged, .. } = status.dropped;
    for (points, what) in [
        (full.saturating_add(age).saturating_add(damaged), "lost"),
        (status.unproved, "sent, not known to be read and not sent again"),
    ] {
        if points > 0 {
            text += &format!("; {points} points {what} since the daemon's start");
        }
    }
    (mark, text)
}

/// Judges ticks that wait to be sent for the first time, although the receiver reads. Returns the
/// reason with the mark.
fn judge_waiting(status: &Status, document: &StatusDocument, judge: Judge) -> (Mark, String) {
    let two_ticks = Duration::from_secs(u64::from(document.interval).saturating_mul(2));
    let oldest = status
        .oldest_unsent
        .filter(|_| status.connected)
        .map(|oldest| judge.age(oldest))
        .unwrap_or_default();
    if oldest <= two_ticks + Duration::from_secs(60) {
        return (Mark::Good, String::new());
    }
    let max_age = Duration::from_secs(document.queue.max_age);
    if max_age > Duration::ZERO && oldest > max_age / 4 * 3 {
        let max_age = humantime::format_duration(max_age);
        return (Mark::Wrong, format!(", which is lost when it is {max_age} old"));
    }
    let stands = judge.age(status.oldest_since);
    if stands > judge.patience.max(STANDS_STILL) {
        return (
            Mark::Wrong,
            format!(", which has been the oldest for {}", humantime::format_duration(stands)),
        );
    }
    (Mark::Note, String::new())
}

fn queue(entry: &QueueEntry, started: i64, judge: Judge) -> (Mark, String) {
    let max_age = humantime::format_duration(Duration::from_secs(entry.max_age));
    let limits = format!("at most {} and {max_age}", Size::from_bytes(entry.max_bytes));
    let memory = Size::from_bytes(entry.status.memory_bytes);
    let (mark, mut text) = match entry.dir.as_ref().map(|dir| dir.display()) {
        None => (Mark::Good, format!("in memory, {memory}; {limits}; lost at a restart")),
        Some(dir) if entry.status.durable => {
            (Mark::Good, format!("{dir}, {}; {limits}", Size::from_bytes(entry.status.file_bytes)))
        }
        Some(dir) => {
            let since = entry.status.durable_since.unwrap_or(started);
            let when = judge.since(since);
            let why = entry.status.error.as_deref().unwrap_or("the disk does not answer");
            let text =
                format!("in memory, {memory}; {limits}; {dir} cannot be written {when}: {why}");
            (judge.mark(since), text)
        }
    };
    if entry.status.window_short {
        text += "; max_bytes is too small for resend_window";
    }
    (mark, text)
}

/// Returns the mark and the text of the line about a reader. A reader that is being replaced is no
/// failure. Whether slurmctld answers is said in slurmctld's own line.
fn reader(entry: &ReaderEntry) -> (Mark, String) {
    let release =
        entry.release.as_ref().map_or_else(String::new, |release| format!(", Slurm {release}"));
    let restarts = match entry.restarts {
        0 => String::new(),
        many => format!(", started again {}", number(many, "time", "times")),
    };
    let kind = entry.kind.as_deref().filter(|kind| *kind != "libslurm");
    let role =
        format!("{}{}", entry.role, kind.map_or_else(String::new, |kind| format!(", {kind}")));
    match entry.pid {
        _ if kind == Some("native") && entry.role != "statistics" => {
            (Mark::Wrong, format!("{role}: it can read only the statistics"))
        }
        _ if kind == Some("native") => (Mark::Good, format!("{role}, in the daemon's process")),
        Some(pid) => (Mark::Good, format!("{role}{release}, process {pid}{restarts}")),
        None => (Mark::Note, format!("{role}: none now{restarts}")),
    }
}

fn moment(unix: i64) -> String {
    clock::local(unix, "%Y-%m-%d %H:%M:%S%:z")
}

#[cfg(test)]
mod tests {
    use carbon::QueueStatus;

    use super::*;
    use crate::status::{RefusedEntry, SlurmctldEntry};

    fn document() -> StatusDocument {
        let slurmctld =
            SlurmctldEntry { answers: Some(true), since: Some(0), ..SlurmctldEntry::default() };
        StatusDocument {
            now: 1000,
            interval: 30,
            last_tick: Some(990),
            slurmctld,
            ..StatusDocument::default()
        }
    }

    fn with(change: impl FnOnce(&mut StatusDocument)) -> Vec<StatusLine> {
        let mut document = document();
        change(&mut document);
        lines(&document, Duration::from_secs(90))
    }

    fn not_good(lines: Vec<StatusLine>) -> Vec<(String, Mark)> {
        let lines = lines.into_iter().filter(|line| line.mark != Mark::Good);
        lines.map(|line| (line.subject, line.mark)).collect()
    }

    fn text(lines: &[StatusLine], subject: &str) -> String {
        lines.iter().find(|line| line.subject == subject).unwrap().text.clone()
    }

    fn carbon(status: Status) -> DestinationEntry {
        let name = "a".to_owned();
        let address = "a".to_owned();
        DestinationEntry { name, address, error: None, status }
    }

    fn disk(since: Option<i64>) -> QueueEntry {
        let status = QueueStatus { durable_since: since, ..QueueStatus::default() };
        QueueEntry { dir: Some("/q".into()), status, ..QueueEntry::default() }
    }

    #[test]
    fn what_is_not_ok_has_a_note_until_patience_and_is_wrong_after_it() {
        type Change = fn(&mut StatusDocument, i64);
        let cases: [(&str, &[&str], Change); 9] = [
            ("away", &["a"], |d, since| {
                d.destinations = vec![carbon(Status { since, ..Status::default() })]
            }),
            // It reads no more than one that is away.
            ("in doubt", &["a"], |d, since| {
                d.destinations = vec![carbon(Status {
                    connected: true,
                    in_doubt: true,
                    since,
                    ..Status::default()
                })];
            }),
            // A load balancer without a backend: each connection ends after a moment, and nothing
            // is delivered.
            ("accepts and closes at once", &["a"], |d, oldest| {
                d.destinations = vec![carbon(Status {
                    since: 999,
                    waits_since: Some(oldest),
                    ..Status::default()
                })];
            }),
            ("a young daemon", &["last tick", "slurmctld"], |d, started| {
                d.started = started;
                d.last_tick = None;
                d.slurmctld = SlurmctldEntry::default();
            }),
            ("a disk that was never there", &["queue"], |d, started| {
                d.started = started;
                d.queue = disk(None);
            }),
            // A daemon that has been up for a week is not failed by a disk that does not answer for
            // a second.
            ("a disk that is away", &["queue"], |d, since| d.queue = disk(Some(since))),
            // A request to a slurmctld that hangs may take as long as `[slurm] timeout`. Until then
            // it was said to answer.
            ("a late answer", &["slurmctld"], |d, last| d.slurmctld.last_answer = Some(last)),
            ("a late answer of a standby", &["slurmctld"], |d, last| {
                d.slurmctld.last_answer = Some(last);
                d.slurmctld.standby = true;
            }),
            // A health check must not call it OK that nothing is ever sent.
            ("without the name that the prefix needs", &["slurmctld"], |d, since| {
                d.slurmctld.nameless = true;
                d.slurmctld.since = Some(since);
            }),
        ];
        for (what, subjects, change) in cases {
            for (since, mark) in [(910, Mark::Note), (909, Mark::Wrong)] {
                let expected: Vec<_> =
                    subjects.iter().map(|subject| ((*subject).to_owned(), mark)).collect();
                assert_eq!(not_good(with(|document| change(document, since))), expected, "{what}");
            }
        }
    }

    /// A receiver that is too slow, and one whose ticks the queue's disk does not return, were OK
    /// for hours.
    #[test]
    fn ticks_that_wait_are_judged_although_there_is_a_connection() {
        let mark = |oldest: i64, since: i64, patience: u64| {
            let to = carbon(Status {
                connected: true,
                oldest_unsent: Some(oldest),
                oldest_since: since,
                ..Status::default()
            });
            let mut document =
                StatusDocument { now: 100_000, last_tick: Some(100_000), ..document() };
            document.queue.max_age = 12 * 3600;
            document.destinations = vec![to];
            let lines = lines(&document, Duration::from_secs(patience));
            lines.iter().find(|line| line.subject.starts_with('a')).unwrap().mark
        };
        // Two intervals of 30 s and a minute.
        assert_eq!(mark(99_880, 99_000, 90), Mark::Good);
        assert_eq!(mark(99_879, 99_400, 90), Mark::Note);
        assert_eq!(mark(99_879, 99_399, 90), Mark::Wrong);
        assert_eq!(mark(99_879, 99_399, 3600), Mark::Note);
        // It moves on, but not fast enough: nine of twelve hours.
        assert_eq!(mark(67_600, 99_999, 90), Mark::Note);
        assert_eq!(mark(67_599, 99_999, 90), Mark::Wrong);
    }

    /// Guards against a line such as "carbon not connected since", which leads to no host and to no
    /// reason.
    #[test]
    fn a_carbon_that_is_away_is_named_with_its_address_and_the_last_error() {
        let to = |name: &str, connected| DestinationEntry {
            name: name.to_owned(),
            address: "c1:2004".to_owned(),
            error: Some("connection refused".to_owned()),
            status: Status { connected, ..Status::default() },
        };
        let lines =
            with(|d| d.destinations = vec![to("a", false), to("b", true), to("c1:2004", false)]);
        assert!(text(&lines, "a (c1:2004)").ends_with("): connection refused"), "{lines:?}");
        assert!(!text(&lines, "b (c1:2004)").contains("refused"), "{lines:?}");
        assert!(text(&lines, "c1:2004").starts_with("not connected since "), "{lines:?}");
    }

    #[test]
    fn a_clock_that_was_set_back_a_standby_and_a_request_under_way_for_two_intervals_are_ok() {
        assert_eq!(not_good(with(|d| d.last_tick = Some(5000))), []);
        let standby = with(|d| (d.slurmctld.standby, d.slurmctld.last_answer) = (true, Some(940)));
        assert!(text(&standby, "slurmctld").starts_with("standby since "));
        assert_eq!(not_good(standby), []);
        let late = with(|d| d.slurmctld.last_answer = Some(939));
        assert!(text(&late, "slurmctld").contains("the last answer 1m 1s ago"));
        assert_eq!(not_good(late), [("slurmctld".to_owned(), Mark::Note)]);
    }

    #[test]
    fn why_nothing_is_on_disk_and_why_a_reload_was_refused_is_said_once() {
        let why = "/etc/a.toml: line 1: interval: bad\n/etc/a.toml: line 2: prefx: no such key"
            .to_owned();
        let full = "/q/queue-1.log: No space left on device";
        let lines = with(|d| {
            d.config = Some("/etc/a.toml".into());
            d.refused = Some(RefusedEntry { at: 0, why });
            d.queue = disk(Some(990));
            d.queue.status.error = Some(full.into());
        });
        let refused = text(&lines, "configuration");
        assert!(
            refused.ends_with(": line 1: interval: bad; line 2: prefx: no such key"),
            "{refused}"
        );
        assert_eq!(refused.matches("/etc/a.toml").count(), 1);
        assert!(text(&lines, "queue").ends_with(&format!(": {full}")), "{}", text(&lines, "queue"));
    }

    #[test]
    fn what_is_lost_is_said_as_long_as_the_daemon_runs() {
        let to = carbon(Status {
            connected: true,
            dropped: Dropped { full: 4, age: 2, damaged: 1, withdrawn: 9 },
            unproved: 3,
            ..Status::default()
        });
        let lines = with(|d| d.destinations = vec![to]);
        let text = text(&lines, "a");
        assert_eq!(not_good(lines), []);
        assert!(
            text.contains("; 7 points lost since")
                && text.contains("; 3 points sent, not known to be read"),
            "{text}"
        );
    }
}
