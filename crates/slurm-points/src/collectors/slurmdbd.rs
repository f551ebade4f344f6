//! `slurm_slurmdbd`: slurmdbd's own statistics, as `sacctmgr show stats` prints them. A slow
//! slurmdbd makes slurmctld slow.

use slurm_snapshot::{DbdRollup, DbdStatistics, Reply, ReplyKind, ReplyOptions, dbd_rpc_name};

use super::{Begin, Collect, Collector, Start};
use crate::derive::{self, Tables, seconds_since, whole_seconds};
use crate::levels::Names::{Closed, Ranked};
use crate::levels::{Name, OTHER, Table};
use crate::named_paths::Points;
use crate::replies::SurveyReplies;
use crate::rpc_metrics::{
    CallsRow, MEMBERS, OthersTables, RpcHistory, RpcLevels, Since, push_types, rpc_metrics,
};
use crate::settings::{Setting, Value};

pub(super) const COLLECTOR: Collector = Collector {
    name: "slurmdbd",
    comment: "\
slurmdbd's statistics of itself, its RPCs and roll-ups: slurm_slurmdbd. slurmdbd gives them only
to administrators: `sacctmgr modify user NAME set adminlevel=admin`, or run the daemon as
SlurmUser.",
    settings: &[Setting {
        key: "users",
        default: Value::Users(0),
        comment: "Publish the top N users by RPC time of an interval, as in rpc_stats; 0 for none, \
            at most 200.",
    }],
    levels: &[LEVELS],
    replies: &[ReplyKind::Slurmdbd],
    start: Start::Survey(|Begin { interval, settings, .. }| {
        let interval = settings.interval(*interval);
        Box::new(Slurmdbd { interval, history: RpcHistory::new(settings) })
    }),
};

levels! {
    LEVELS:
    TYPE: Level<Table<CallsRow>, 1> = ("slurm_slurmdbd.type.<type>", [Closed], CALLS,
        "RPCs that slurmdbd has served for all its clusters, by message type, as `sacctmgr show \
         stats` has them: `[collectors.slurmdbd]`. Unknown types are one sum, `other`; the \
         reader's own are `DBD_GET_STATS`. slurmdbd gives them only to administrators. Across its \
         restart or `sacctmgr clear stats` the interval has no figures. If the mean of \
         `DBD_SEND_MULT_MSG`, `DBD_JOB_COMPLETE` or `DBD_STEP_COMPLETE` grows, look at the \
         database.");
    ALL_TYPES: Level<Table<CallsRow>, 0> = ("slurm_slurmdbd.total", [], TOTAL, "All message types \
        together.");
    USER: Level<Table<CallsRow>, 1> = ("slurm_slurmdbd.user.<user>", [Ranked], CALLS,
        "By user, if `users` in `[collectors.slurmdbd]` is above 0, limited as in \
         `slurm_rpc_stats.user.<user>`.");
    OTHERS: Level<OthersTables, 0> = ("slurm_slurmdbd.others", [], (CALLS, MEMBERS),
        "All users without paths.");
    ROLLUP: Level<Table<Period>, 1> = ("slurm_slurmdbd.rollup.<period>", [Closed], OF_ROLLUP,
        "The roll-ups of this cluster, by `hour`, `day` and `month`, since slurmdbd's start or \
         `sacctmgr clear stats`; a period that was not rolled up since then has only `age`. \
         slurmdbd counts a failed roll-up too: its log has the error.");
}

const RPC_LEVELS: RpcLevels =
    RpcLevels { type_: &TYPE, total: &ALL_TYPES, user: &USER, others: &OTHERS };

struct Slurmdbd {
    /// Seconds between two rounds.
    interval: u32,
    history: RpcHistory,
}

/// The roll-ups of hours, days or months, and the seconds since the end of the last one that was
/// rolled up; `None` if not known.
type Period = (DbdRollup, Option<u64>);

rpc_metrics! {
    "RPCs served since slurmdbd's start or sacctmgr clear stats",
    "mean time of one of those, truncated: sacctmgr's ave_time",
    "share of the time that slurmdbd spent on all RPCs in the interval"
}

metrics! {
    OF_ROLLUP: Period =
        average("last_cycle", "µs", |(rollup, _)| rollup.last, "how long the last one took; no \
            point before the second one"),
        max("max_cycle", "µs", |(rollup, _)| rollup.max, "how long the longest one took; no point \
            before the second one"),
        average("mean_cycle", "µs", |(rollup, _)| rollup.total.map(|total|
            total / rollup.count.max(1)),
            "sacctmgr's mean, truncated: `total_time` divided by `total_cycles`"),
        last("total_time", "µs", |(rollup, _)| rollup.total, "total time of all of them"),
        last("total_cycles", "count", |(rollup, _)| Some(rollup.count).filter(|cycles| *cycles > 0),
            "roll-ups without the first; no point before the second"),
        max("age", "s", |(_, age)| *age,
            "time since the end of the last period that was rolled up; for `hour` above two hours, \
             slurmdbd or its database hangs");
}

impl Collect<SurveyReplies> for Slurmdbd {
    fn options(&self) -> ReplyOptions {
        ReplyOptions { users: self.history.has_users, ..ReplyOptions::default() }
    }

    fn collect(&mut self, _: i64, replies: &SurveyReplies, points: &mut Points<'_>) {
        let Some(reading) = replies.reading(ReplyKind::Slurmdbd) else { return };
        let Some(Reply::Slurmdbd(statistics)) = &reading.reply else { return };
        let DbdStatistics { since, types, users, rollups } = &**statistics;
        let tables = Tables::from_rows(types, users);
        let growth = self.history.growth(&tables, |before| {
            // Otherwise slurmdbd has reset its counters.
            let is_same =
                |reply: &Reply| matches!(reply, Reply::Slurmdbd(before) if before.since == *since);
            before.reply.as_ref().filter(|reply| is_same(reply))?;
            derive::seconds_between(before, reading, self.interval).map(Since::Reading)
        });
        push_types(&RPC_LEVELS, type_name, &tables, growth.as_ref(), points);
        let users = (users.as_slice(), &tables);
        self.history.push_users(&RPC_LEVELS, users, growth.as_ref(), points);
        for (period, rollup) in rollups {
            let age = rollup.end.map(|end| seconds_since(end, whole_seconds(reading.time)));
            points.push(&ROLLUP, [Name::new(period)], &(rollup.clone(), age));
        }
        self.history.keep(reading, tables);
        // Across a reset there is no interval in which a user who is absent did nothing.
        if growth.is_some() {
            points.end_round();
        }
    }
}

fn type_name(id: u32) -> &'static str {
    dbd_rpc_name(id).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use carbon_wire::Batch;
    use slurm_snapshot::{Reading, RpcType, RpcUser};

    use super::super::SurveyCollector;
    use super::super::tests::started;
    use super::*;
    use crate::collecting::Running;

    const START: i64 = 1_700_000_000;

    fn statistics(since: i64, count: u32) -> DbdStatistics {
        let user = |id, name: &str| RpcUser {
            id,
            name: Some(name.to_owned()),
            count,
            time: u64::from(count) * 10,
            ..RpcUser::default()
        };
        DbdStatistics {
            since,
            types: vec![
                RpcType { id: 1489, count, time: u64::from(count) * 15, queue: None },
                RpcType { id: 1999, count: 1, time: 5, queue: None },
            ],
            users: vec![user(7, "ann"), user(8, "bob")],
            ..DbdStatistics::default()
        }
    }

    fn round(
        collector: &mut Running<SurveyCollector>,
        minute: u32,
        reply: DbdStatistics,
    ) -> Vec<String> {
        let reading = Reading {
            time: f64::from(minute) * 60.0 + 1_700_000_000.5,
            reply: Some(Reply::Slurmdbd(Box::new(reply))),
            ..Reading::default()
        };
        let mut replies = SurveyReplies::default();
        replies.insert(ReplyKind::Slurmdbd, Arc::new(reading));
        let timestamp = START + i64::from(minute) * 60;
        let mut batch = Batch::new(timestamp);
        collector.collect(timestamp, &replies, "c", &mut batch);
        let lines = carbon_wire::lines(&batch);
        lines.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect()
    }

    fn has(lines: &[String], line: &str) -> bool {
        let line = format!("c.slurm_slurmdbd.{line}");
        lines.contains(&line)
    }

    #[test]
    fn what_has_grown_is_of_the_interval_and_nothing_is_across_a_restart_of_slurmdbd() {
        let mut collector = started(&COLLECTOR, &[]);
        let lines = round(&mut collector, 0, statistics(5, 10));
        assert!(has(&lines, "type.DBD_GET_STATS.gauge-count 10"), "{lines:#?}");
        assert!(has(&lines, "type.other.gauge-mean_time 5"));
        assert!(
            !lines.iter().any(|line| line.contains("calls_per_minute") || line.contains(".user."))
        );
        let lines = round(&mut collector, 1, statistics(5, 40));
        assert!(has(&lines, "type.DBD_GET_STATS.gauge-calls_per_minute 30"), "{lines:#?}");
        assert!(has(&lines, "type.other.gauge-calls_per_minute 0"));
        assert!(has(&lines, "total.gauge-interval_mean_time 15"));
        let lines = round(&mut collector, 2, statistics(6, 60));
        assert!(has(&lines, "total.gauge-count 61"));
        assert!(
            !lines.iter().any(|line| line.contains("calls_per_minute")),
            "its counters were reset"
        );
    }

    #[test]
    fn users_with_paths_and_the_others_are_the_whole_table() {
        let mut collector = started(&COLLECTOR, &[("users", Value::Users(1))]);
        assert!(collector.collector.options().users);
        round(&mut collector, 0, statistics(5, 10));
        let lines = round(&mut collector, 1, statistics(5, 40));
        assert!(has(&lines, "user.ann.gauge-count 40"), "{lines:#?}");
        assert!(has(&lines, "others.gauge-count 40") && has(&lines, "others.gauge-members 1"));
    }

    #[test]
    fn of_a_first_roll_up_no_figure_is_made_up_and_one_that_hangs_grows_old() {
        let hour = DbdRollup { total: Some(700), end: Some(START - 3600), ..DbdRollup::default() };
        let month = DbdRollup { end: Some(START - 86_400), ..DbdRollup::default() };
        let rollups = [("hour".to_owned(), hour), ("month".to_owned(), month)].into();
        let mut collector = started(&COLLECTOR, &[]);
        let lines = round(
            &mut collector,
            0,
            DbdStatistics { since: 5, rollups, ..DbdStatistics::default() },
        );
        let rollup = |period: &str| -> Vec<&str> {
            let start = format!("c.slurm_slurmdbd.rollup.{period}.gauge-");
            lines.iter().filter_map(|line| line.strip_prefix(&start)).collect()
        };
        assert_eq!(rollup("hour"), ["mean_cycle 700", "total_time 700", "age 3600"]);
        assert_eq!(rollup("month"), ["age 86400"]);
        assert_eq!(rollup("day"), [""; 0]);
    }
}
