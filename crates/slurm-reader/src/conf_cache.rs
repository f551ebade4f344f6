//! slurmctld's configuration as last reported, and when it is requested again.
//!
//! PrivateData may be set at any time, and a reduced reply must not be mistaken for a complete one.
//! So every reply that PrivateData may reduce is requested right after the configuration. If the
//! configuration has not changed, the answer is only a return code. That answer is not accepted
//! where the daemon does not accept "unchanged" either, because slurmctld's clock may have been set
//! back. A failed attempt is remembered, so that not every request of a round asks slurmctld
//! whether it is back.

use std::time::{Duration, Instant};

use slurm_snapshot::{Request, Role, Visibility};

use crate::calls::CallError;
use crate::conf::Conf;
use crate::rpcs::Rpcs;

/// Age from which on the configuration is requested again: less than the time between surveys, and
/// enough for the requests of one survey.
const FRESH: Duration = Duration::from_secs(1);

/// Time to wait before another attempt after slurmctld did not answer.
const RETRIED: Duration = Duration::from_secs(5);

/// The longest pause between two requests for ClusterName.
const SELDOM: Duration = Duration::from_secs(300);

/// Age from which on slurmctld is asked again whether this user is an operator. That is in
/// slurmdbd's records, and can change while slurm.conf does not.
const OPERATOR_AGE: Duration = Duration::from_secs(60);

/// slurmctld's configuration, as far as it is known.
pub(crate) struct ConfCache {
    conf: Option<Conf>,
    /// ClusterName of libslurm's own configuration; `None` if it has none.
    own_cluster: Option<String>,
    /// Moment from which on slurmctld may be asked for ClusterName again, and the length of the
    /// pause until then.
    next_request: Option<(Instant, Duration)>,
    /// Moment at which slurmctld last sent the configuration or called it unchanged; `None` after a
    /// failure.
    confirmed_at: Option<Instant>,
    /// Moment at which slurmctld last sent the configuration; `None` after a failure.
    sent_at: Option<Instant>,
    /// The last failure of a request for the configuration, and when it ended.
    failed: Option<(CallError, Instant)>,
    /// The last answer to whether this user is an operator, and when it came. The answer is `None`
    /// if slurmctld did not say.
    operator: Option<(Option<bool>, Instant)>,
    clock: fn() -> Instant,
}

impl ConfCache {
    /// A cache that knows only libslurm's own configuration.
    pub(crate) fn new(own_cluster: Option<String>, clock: fn() -> Instant) -> Self {
        Self {
            conf: None,
            own_cluster,
            next_request: None,
            confirmed_at: None,
            sent_at: None,
            failed: None,
            operator: None,
            clock,
        }
    }

    /// Returns ClusterName, from libslurm's own configuration or else from slurmctld; `None` if
    /// neither has it.
    pub(crate) fn cluster(&self) -> Option<String> {
        let reported = || self.conf.as_ref().and_then(|conf| conf.cluster.clone());
        self.own_cluster.clone().or_else(reported)
    }

    /// Asks slurmctld for ClusterName if it is not known. It keeps asking, with longer and longer
    /// pauses, because slurmctld needs its locks to answer.
    pub(crate) fn learn_cluster(&mut self, rpcs: &mut impl Rpcs) -> Result<(), CallError> {
        let waits = self.next_request.is_some_and(|(at, _)| (self.clock)() < at);
        if waits || self.cluster().is_some() {
            return Ok(());
        }
        let result = self.request(rpcs, true);
        let pause =
            self.next_request.map_or(RETRIED, |(_, pause)| pause.saturating_mul(2).min(SELDOM));
        self.next_request = (self.clock)().checked_add(pause).map(|at| (at, pause));
        result
    }

    /// Requests the configuration from slurmctld: `whole`, or only if it has changed.
    fn request(&mut self, rpcs: &mut impl Rpcs, whole: bool) -> Result<(), CallError> {
        let since = self.conf.as_ref().filter(|_| !whole).map_or(0, |conf| conf.last_update);
        match rpcs.conf(since) {
            Ok(Some(conf)) => {
                // Sent again as it was, it is no reason to ask slurmdbd again.
                let same = whole && self.conf.as_ref().is_some_and(|old| old.is_same(&conf));
                self.operator = self.operator.filter(|_| same);
                self.conf = Some(conf);
                self.sent_at = Some((self.clock)());
            }
            Ok(None) => {}
            Err(error) => {
                self.confirmed_at = None;
                self.sent_at = None;
                // Counted from the end: a failure may take longer than it is remembered.
                self.failed = Some((error.clone(), (self.clock)()));
                return Err(error);
            }
        }
        self.confirmed_at = Some((self.clock)());
        Ok(())
    }

    /// Returns the part that the reply to this request may lack; `None` if slurm.conf's PrivateData
    /// cannot reduce the reply. Nobody could use the reply without knowing it, so it is requested
    /// first. Like the reply, the configuration is requested whole if the request has no `since`;
    /// for a reply that can never be called unchanged, it is enough that the configuration was
    /// confirmed a moment ago for another reply. slurmdbd has its own PrivateData, which is
    /// requested with the reply.
    pub(crate) fn visibility(
        &mut self,
        rpcs: &mut impl Rpcs,
        request: &Request,
    ) -> Result<Option<Visibility>, CallError> {
        let row = request.reply.row();
        let is_whole = request.since.is_none();
        if row.role == Role::Accounting || row.private.is_empty() {
            return Ok(None);
        }
        let read_at = if is_whole && row.unchanged { self.sent_at } else { self.confirmed_at };
        if read_at.is_none_or(|at| self.age(at) >= FRESH) {
            if let Some((error, at)) = &self.failed
                && self.age(*at) < RETRIED
            {
                return Err(error.clone());
            }
            self.request(rpcs, is_whole)?;
        }
        let Some(conf) = &self.conf else { return Ok(None) };
        let mut visibility = conf.visibility.clone();
        if conf.depends_on_slurmdbd() {
            visibility.privileged = self.operator(rpcs);
        }
        Ok(Some(visibility))
    }

    /// Whether there are associations, as far as is known. Without slurmdbd,
    /// `slurm_load_assoc_mgr_info` may crash slurmctld, because the list that it walks may be NULL
    /// (in 24.05 `assoc_mgr_init` returns before it creates one).
    pub(crate) fn has_associations(&self) -> bool {
        self.conf.as_ref().is_some_and(|conf| conf.slurmdbd)
    }

    fn operator(&mut self, rpcs: &mut impl Rpcs) -> Option<bool> {
        if let Some((answer, at)) = self.operator {
            let most = if answer.is_some() { OPERATOR_AGE } else { RETRIED };
            if self.age(at) < most {
                return answer;
            }
        }
        let answer = rpcs.operator();
        self.operator = Some((answer, (self.clock)()));
        answer
    }

    fn age(&self, at: Instant) -> Duration {
        (self.clock)().saturating_duration_since(at)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use slurm_snapshot::{Reading, ReplyKind, ReplyOptions};

    use super::*;

    thread_local! {
        static START: Instant = Instant::now();
        static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    fn clock() -> Instant {
        START.with(|start| *start + PASSED.get())
    }

    fn pass(time: Duration) {
        PASSED.set(PASSED.get() + time);
    }

    /// A slurmctld whose PrivateData changes.
    #[derive(Default)]
    struct Changing {
        private: Vec<String>,
        changed: i64,
        down: bool,
        slurmdbd: bool,
        operator: Option<bool>,
        requests: u32,
        sent: u32,
        operator_requests: u32,
    }

    impl Rpcs for Changing {
        fn begin_own(&mut self) -> Result<(), CallError> {
            unreachable!()
        }

        fn end_own(&mut self, _: bool) {}

        fn own_cluster(&mut self) -> Option<String> {
            None
        }

        fn conf(&mut self, since: i64) -> Result<Option<Conf>, CallError> {
            self.requests += 1;
            if self.down {
                pass(Duration::from_secs(10));
                return Err(CallError {
                    call: "slurm_load_ctl_conf",
                    errno: 5004,
                    text: "timeout".into(),
                });
            }
            if since > self.changed {
                return Ok(None);
            }
            self.sent += 1;
            let privileged = if self.slurmdbd { None } else { Some(false) };
            let visibility = Visibility { private: self.private.clone(), privileged };
            let last_update = self.changed + 1;
            let cluster = Some("sandbox".to_owned());
            Ok(Some(Conf {
                last_update,
                cluster,
                visibility,
                slurmdbd: self.slurmdbd,
                limits: false,
            }))
        }

        fn operator(&mut self) -> Option<bool> {
            self.operator_requests += 1;
            self.operator
        }

        fn load(&mut self, _: &Request, _: &mut Reading) -> Result<(), CallError> {
            unreachable!()
        }
    }

    #[test]
    fn the_clusters_name_is_asked_for_until_slurmctld_tells_it_and_ever_less_often() {
        let (mut conf_cache, mut slurmctld) =
            (ConfCache::new(None, clock), Changing { down: true, ..Changing::default() });
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let before = slurmctld.requests;
            let start = clock();
            while slurmctld.requests == before {
                pass(Duration::from_secs(1));
                let _ = conf_cache.learn_cluster(&mut slurmctld);
            }
            // Minus the ten seconds that the request takes.
            pauses.push((clock() - start).as_secs() - 10);
        }
        assert_eq!(pauses, [1, 5, 10, 20, 40, 80, 160, 300, 300, 300]);
        slurmctld.down = false;
        pass(SELDOM);
        conf_cache.learn_cluster(&mut slurmctld).unwrap();
        assert_eq!(conf_cache.cluster().as_deref(), Some("sandbox"));
        pass(SELDOM);
        conf_cache.learn_cluster(&mut slurmctld).unwrap();
        assert_eq!(slurmctld.requests, 11, "not again");
    }

    fn request(reply: ReplyKind, since: Option<i64>) -> Request {
        Request { since, ..Request::new(reply, ReplyOptions::default()) }
    }

    fn hides_jobs(conf_cache: &mut ConfCache, slurmctld: &mut Changing) -> bool {
        let request = request(ReplyKind::Jobs, Some(5));
        conf_cache.visibility(slurmctld, &request).unwrap().unwrap().may_hide("jobs")
    }

    #[test]
    fn private_data_that_is_set_between_two_surveys_is_known_at_the_second() {
        let mut conf_cache = ConfCache::new(None, clock);
        let mut slurmctld = Changing::default();
        assert!(!hides_jobs(&mut conf_cache, &mut slurmctld));
        slurmctld.private = vec!["jobs".into()];
        slurmctld.changed += 5;
        pass(Duration::from_secs(2));
        assert!(hides_jobs(&mut conf_cache, &mut slurmctld));
    }

    #[test]
    fn a_round_of_surveys_asks_once_and_an_unchanged_configuration_is_not_sent_again() {
        let mut conf_cache = ConfCache::new(None, clock);
        let mut slurmctld = Changing::default();
        for round in 1..=5 {
            for _ in 0..3 {
                hides_jobs(&mut conf_cache, &mut slurmctld);
                pass(Duration::from_millis(200));
            }
            assert_eq!((slurmctld.requests, slurmctld.sent), (round, 1));
            pass(Duration::from_millis(1400));
        }
    }

    #[test]
    fn a_slurmctld_that_does_not_answer_is_not_waited_for_by_each_request() {
        let mut conf_cache = ConfCache::new(None, clock);
        let mut slurmctld = Changing::default();
        assert!(!hides_jobs(&mut conf_cache, &mut slurmctld));
        pass(FRESH);
        slurmctld.down = true;
        for _ in 0..3 {
            let error = conf_cache
                .visibility(&mut slurmctld, &request(ReplyKind::Jobs, Some(5)))
                .unwrap_err();
            assert_eq!((error.call, error.errno), ("slurm_load_ctl_conf", 5004));
        }
        assert_eq!(slurmctld.requests, 2);
        slurmctld.down = false;
        pass(RETRIED);
        assert!(!hides_jobs(&mut conf_cache, &mut slurmctld));
        assert_eq!(slurmctld.requests, 3);
    }

    /// slurmctld's clock is behind the configuration that is known, and so is the time of the
    /// change.
    #[test]
    fn private_data_that_is_set_after_slurmctlds_clock_went_back_is_known_to_a_whole_request() {
        let mut slurmctld = Changing {
            changed: 5000,
            slurmdbd: true,
            operator: Some(false),
            ..Changing::default()
        };
        let mut conf_cache = ConfCache::new(None, clock);
        assert!(!hides_jobs(&mut conf_cache, &mut slurmctld));
        slurmctld.private = vec!["jobs".into()];
        slurmctld.changed = 4000;
        pass(FRESH);
        assert!(!hides_jobs(&mut conf_cache, &mut slurmctld), "slurmctld calls it unchanged");
        let mut whole = |pause| {
            pass(pause);
            conf_cache
                .visibility(&mut slurmctld, &request(ReplyKind::Jobs, None))
                .unwrap()
                .unwrap()
                .may_hide("jobs")
        };
        assert!(whole(Duration::ZERO), "although it has just been confirmed");
        assert!((0..3).all(|_| whole(Duration::from_millis(200))));
        assert!(whole(FRESH));
        assert_eq!(
            (slurmctld.sent, slurmctld.operator_requests),
            (3, 1),
            "once a round, and slurmdbd less often"
        );
        let before = slurmctld.requests;
        let associations = request(ReplyKind::Associations, None);
        conf_cache.visibility(&mut slurmctld, &associations).unwrap();
        assert_eq!(slurmctld.requests, before, "a round asks once");
        pass(FRESH);
        conf_cache.visibility(&mut slurmctld, &associations).unwrap();
        assert_eq!(slurmctld.sent, 4, "whole, where no other reply asks");
    }

    #[test]
    fn slurmdbd_is_asked_on_a_change_and_once_a_minute_and_sooner_where_it_did_not_say() {
        let private = vec!["jobs".to_owned()];
        let mut slurmctld = Changing { private, slurmdbd: true, ..Changing::default() };
        let mut conf_cache = ConfCache::new(None, clock);
        assert!(hides_jobs(&mut conf_cache, &mut slurmctld), "unknown is not to be relied on");
        slurmctld.operator = Some(true);
        pass(RETRIED);
        for _ in 0..10 {
            assert!(!hides_jobs(&mut conf_cache, &mut slurmctld));
            pass(Duration::from_secs(5));
        }
        assert_eq!((slurmctld.operator_requests, slurmctld.sent), (2, 1));
        slurmctld.operator = Some(false);
        pass(Duration::from_secs(10));
        assert!(hides_jobs(&mut conf_cache, &mut slurmctld));
        slurmctld.operator = Some(true);
        slurmctld.changed += 5;
        pass(FRESH);
        assert!(!hides_jobs(&mut conf_cache, &mut slurmctld));
        assert_eq!(slurmctld.operator_requests, 4);
    }
}
