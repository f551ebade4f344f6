//! User names, which a separate thread looks up and remembers.
//!
//! A lookup may ask a directory server and block for a long time or for ever, so answers to the
//! daemon never wait for one. Only a reader's first reading waits a moment, so that `stats` and
//! `once`, which read once, have names. "Not answered yet" is different from "no such user": in the
//! first case the daemon must not make a path. A known name stays until another replaces it,
//! whatever fails or is deleted in the meantime.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{Uid, User};
use slurm_snapshot::RpcUser;

/// Time after which a name is looked up again.
const REMEMBERED: Duration = Duration::from_secs(600);

/// Time after which a failed lookup is repeated.
const RETRIED: Duration = Duration::from_secs(30);

/// Time that the first reading waits for the names in it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Number of remembered users above which those are forgotten whom the present reading lacks. On no
/// cluster so many have jobs at a time.
const MOST: usize = 65_536;

/// The result of a lookup: the name of a user, or `None` if there is no such user. An error says
/// that it cannot be known now.
pub type NameLookup = Result<Option<String>, Errno>;

/// Asks the host's name services for the name of the user with this number.
///
/// # Errors
/// The name services do not answer.
pub fn host(id: u32) -> NameLookup {
    match User::from_uid(Uid::from_raw(id)) {
        // Some name services return this, although POSIX requires success without a result.
        Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
        user => Ok(user?.map(|user| user.name)),
    }
}

/// The number of a user, by its name or number; `None`: this host does not know it.
#[must_use]
pub fn number(user: &str) -> Option<u32> {
    let named = || User::from_name(user).ok().flatten().map(|user| user.uid.as_raw());
    user.parse().ok().or_else(named)
}

/// A user in a reply: the id; the name, if there is one; and whether it is still being looked up.
pub type UserRow<'a> = (u32, &'a mut Option<String>, &'a mut bool);

/// Returns what names need of a user in the RPC tables.
pub const fn rpc_user(user: &mut RpcUser) -> UserRow<'_> {
    (user.id, &mut user.name, &mut user.looking_up)
}

/// The user names that are known, and those that are being looked up.
#[derive(Debug)]
pub struct UserNames {
    known: HashMap<u32, KnownUser>,
    look_up: fn(u32) -> NameLookup,
    helper: Option<Helper>,
    /// Number of lookups under way.
    pending: usize,
    patience: Duration,
}

#[derive(Debug, Default)]
struct KnownUser {
    /// The answer of the last lookup that had one: a name, or that there is no such user. `None`
    /// until there is an answer.
    answer: Option<Option<String>>,
    is_pending: bool,
    /// Moment from which the user is looked up again; `None`: at once.
    due: Option<Instant>,
}

#[derive(Debug)]
struct Helper {
    ids: Sender<u32>,
    found: Receiver<(u32, NameLookup)>,
}

impl UserNames {
    /// Makes a memory without names. The thread starts with the first lookup.
    #[must_use]
    pub fn new(look_up: fn(u32) -> NameLookup) -> Self {
        Self { known: HashMap::new(), look_up, helper: None, pending: 0, patience: PATIENCE }
    }

    /// Returns the time for which a reading may wait for names. It is 0 after the first call,
    /// because a reader waits once in its life.
    pub const fn take_patience(&mut self) -> Duration {
        std::mem::replace(&mut self.patience, Duration::ZERO)
    }

    /// Starts looking up those of these users that are due. Returns whether a lookup is under way.
    pub fn look_up(&mut self, mut ids: impl Iterator<Item = u32>, now: Instant) -> bool {
        self.receive(Duration::ZERO, now);
        // If the thread cannot be started, perhaps for lack of memory, the next reading tries
        // again.
        let _ = ids.try_for_each(|id| self.request(id, now));
        self.pending > 0
    }

    /// Gives `users` the names that are known, and starts looking up the others.
    pub fn give_names<'a>(&mut self, users: impl Iterator<Item = UserRow<'a>>, now: Instant) {
        let users: Vec<UserRow<'a>> = users.collect();
        self.look_up(users.iter().map(|(id, ..)| *id), now);
        let patience = self.take_patience();
        self.receive(patience, now);
        let mut present: Vec<u32> = users.iter().map(|(id, ..)| *id).collect();
        for (id, name, looking_up) in users {
            let answer = self.known.get(&id).and_then(|known| known.answer.clone());
            *looking_up = answer.is_none();
            *name = answer.flatten();
        }
        if self.known.len() > MOST {
            present.sort_unstable();
            self.known.retain(|id, _| present.binary_search(id).is_ok());
        }
    }

    fn request(&mut self, id: u32, now: Instant) -> io::Result<()> {
        let known = self.known.entry(id).or_default();
        if known.is_pending || known.due.is_some_and(|due| now < due) {
            return Ok(());
        }
        let helper = match self.helper.take() {
            Some(helper) => helper,
            None => start(self.look_up)?,
        };
        known.is_pending = self.helper.insert(helper).ids.send(id).is_ok();
        self.pending += usize::from(known.is_pending);
        Ok(())
    }

    /// Takes the answers that there are, and waits for the others for `patience` at most.
    fn receive(&mut self, patience: Duration, now: Instant) {
        let begin = Instant::now();
        while let (Some(helper), 1..) = (&self.helper, self.pending) {
            let left = patience.saturating_sub(begin.elapsed());
            let Ok((id, found)) = helper.found.recv_timeout(left) else { return };
            self.pending = self.pending.saturating_sub(1);
            let Some(known) = self.known.get_mut(&id) else { continue };
            known.is_pending = false;
            known.due = now.checked_add(if found.is_ok() { REMEMBERED } else { RETRIED });
            if let Ok(name) = found
                && (name.is_some() || known.answer.is_none())
            {
                known.answer = Some(name);
            }
        }
    }
}

/// Starts the thread that looks up names. It ends with its channel or with the process; nobody
/// waits for it.
fn start(look_up: fn(u32) -> NameLookup) -> io::Result<Helper> {
    let (ids, requests) = mpsc::channel();
    let (answers, found) = mpsc::channel();
    thread::Builder::new().name("names".to_owned()).spawn(move || {
        while let Ok(id) = requests.recv() {
            if answers.send((id, look_up(id))).is_err() {
                return;
            }
        }
    })?;
    Ok(Helper { ids, found })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// A name service that answers only when released.
    struct Slow {
        open: Mutex<bool>,
        changed: Condvar,
    }

    impl Slow {
        const fn new() -> Self {
            Self { open: Mutex::new(false), changed: Condvar::new() }
        }

        fn pass(&self) {
            let mut open = self.open.lock().unwrap();
            while !*open {
                open = self.changed.wait(open).unwrap();
            }
        }

        fn let_go(&self) {
            *self.open.lock().unwrap() = true;
            self.changed.notify_all();
        }
    }

    fn row(id: u32) -> RpcUser {
        RpcUser { id, ..RpcUser::default() }
    }

    /// (name, still being looked up) of user `id` in the next reading.
    fn next_name(names: &mut UserNames, id: u32, now: Instant) -> (Option<String>, bool) {
        let mut users = [row(id)];
        names.give_names(users.iter_mut().map(rpc_user), now);
        let [user] = users;
        (user.name, user.looking_up)
    }

    /// Waits until the thread has answered.
    fn settled(names: &mut UserNames, id: u32, now: Instant) -> Option<String> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(10) {
            names.receive(Duration::ZERO, now);
            if names.pending == 0 {
                return next_name(names, id, now).0;
            }
            thread::yield_now();
        }
        panic!("no response");
    }

    #[test]
    fn root_has_a_name_everywhere_and_the_first_reading_has_it() {
        let mut names = UserNames::new(host);
        // This host's name services are not what is tested here.
        names.patience = Duration::from_secs(60);
        let mut users = [row(0), row(u32::MAX - 7)];
        names.give_names(users.iter_mut().map(rpc_user), Instant::now());
        assert_eq!(
            users.map(|user| (user.name, user.looking_up)),
            [(Some("root".into()), false), (None, false)]
        );
    }

    #[test]
    fn a_slow_name_service_delays_the_first_reading_by_its_patience_and_no_other() {
        const WAIT: Duration = Duration::from_secs(3);
        static SLOW: Slow = Slow::new();
        let mut names = UserNames::new(|_| {
            SLOW.pass();
            Ok(Some("ann".into()))
        });
        // Longer than a busy machine may take if nothing waits.
        assert_eq!(std::mem::replace(&mut names.patience, WAIT), Duration::from_millis(500));
        let now = Instant::now();
        let timed = |names: &mut UserNames, id| {
            let begin = Instant::now();
            (next_name(names, id, now), begin.elapsed())
        };
        let (first, took) = timed(&mut names, 7);
        assert_eq!(first, (None, true), "not asked for long enough is not: no such user");
        assert!(took >= WAIT && took < WAIT * 10, "{took:?}");
        for id in [7, 8, 9] {
            let (later, took) = timed(&mut names, id);
            assert_eq!(later, (None, true));
            assert!(took < WAIT - PATIENCE, "{took:?}");
        }
        SLOW.let_go();
        assert_eq!(settled(&mut names, 7, now).as_deref(), Some("ann"));
        assert_eq!(next_name(&mut names, 7, now), (Some("ann".into()), false));
    }

    #[test]
    fn a_name_is_asked_for_again_after_ten_minutes_and_kept_when_nobody_answers_or_knows() {
        static LOOKUPS: AtomicU32 = AtomicU32::new(0);
        let mut names = UserNames::new(|_| match LOOKUPS.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Errno::EAGAIN),
            1 => Ok(Some("ann".into())),
            2 => Err(Errno::EAGAIN),
            3 => Ok(None),
            _ => Ok(Some("bob".into())),
        });
        let mut now = Instant::now();
        let mut after = |names: &mut UserNames, more: Duration| {
            now += more;
            next_name(names, 7, now);
            settled(names, 7, now)
        };
        assert_eq!(after(&mut names, Duration::ZERO), None);
        assert_eq!(after(&mut names, RETRIED / 2), None, "not tried at every tick");
        assert_eq!(LOOKUPS.load(Ordering::Relaxed), 1);
        assert_eq!(after(&mut names, RETRIED).as_deref(), Some("ann"));
        assert_eq!(after(&mut names, REMEMBERED / 2).as_deref(), Some("ann"));
        assert_eq!(LOOKUPS.load(Ordering::Relaxed), 2);
        assert_eq!(after(&mut names, REMEMBERED).as_deref(), Some("ann"), "nobody answers");
        assert_eq!(after(&mut names, RETRIED).as_deref(), Some("ann"), "nobody knows him any more");
        assert_eq!(after(&mut names, REMEMBERED).as_deref(), Some("bob"));
        assert_eq!(LOOKUPS.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn a_user_of_whom_nobody_could_be_asked_is_not_one_without_a_name() {
        let mut names = UserNames::new(|_| Err(Errno::EAGAIN));
        assert_eq!(next_name(&mut names, 7, Instant::now()), (None, true));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut names = UserNames::new(|_| Ok(None));
        let now = Instant::now();
        for first in (0..20_000).step_by(200) {
            let mut users: Vec<RpcUser> = (first..first + 200).map(row).collect();
            names.give_names(users.iter_mut().map(rpc_user), now);
            assert!(names.known.len() <= MOST);
        }
    }
}
