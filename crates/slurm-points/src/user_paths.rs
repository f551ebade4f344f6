//! Users that have their own paths. The choice is sticky and bounded over time, because in Graphite
//! a path is a file that stays.
//!
//! The top `users` of a round have paths for the next day. Within any 30 days at most five times as
//! many users get paths; the last fifth is reserved for heavy users. A path belongs to one uid for
//! as long as it is remembered. Pure: the moment, the users' numbers and names, and their ranking
//! are arguments.

use std::collections::BTreeMap;

use carbon_wire::path;
use serde::{Deserialize, Serialize};

use crate::levels::OTHER;

/// Number of users that may have paths at most: slurmctld's table of RPCs by user has as many rows.
pub const MOST_USERS: usize = 200;

/// Time that a user keeps paths after the last round in which the user was among the first, s.
const STICKY: i64 = DAY;

/// Time that a path counts against the bound, s: 30 days from its last point, and a day for what
/// was forgotten in a crash.
const REMEMBERED: i64 = STICKY + 31 * DAY;

/// Time after which the memory is written if nothing has changed but the moments at which users
/// were last among the first, s.
const KEPT_EVERY: i64 = 3600;

const DAY: i64 = 86_400;

/// Factor for the setting `users`: within 30 days at most `BUDGET * users` users get paths.
const BUDGET: usize = 5;
/// Factor for the setting `users`: after `FREELY * users` users only heavy ones get paths.
const FREELY: usize = 4;

/// Users that always have paths once a round has them, and do not count against the bound.
const ALWAYS: [&str; 2] = ["root", "slurm"];

/// A user of a round, who may get paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) uid: u32,
    pub(crate) name: Option<&'a str>,
    /// Whether the name is still being looked up.
    pub(crate) looking_up: bool,
    /// Rank of the user in the round: the users with the highest ranks are the first. `None` if it
    /// is 0 or not known.
    pub(crate) rank: Option<(u64, u64)>,
    /// Whether this user gets a path although most of the bound is used up.
    pub(crate) is_heavy: bool,
}

/// The paths that users were given recently. It decides who has paths now.
#[derive(Debug)]
pub(crate) struct UserPaths {
    users: usize,
    /// The state of each path, by uid and path component.
    known: BTreeMap<(u32, String), PathState>,
    /// Whether a change is not written yet that cannot wait: another path, or one whose user was
    /// away.
    fresh: bool,
    /// Whether later moments are not written yet.
    moved: bool,
    /// Moment at which the memory was last written, Unix seconds.
    kept: i64,
    /// The timestamp of the last round, Unix seconds.
    now: i64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PathState {
    /// Moment at which the user was last among the first, Unix seconds.
    top: i64,
    /// Whether the user's name is known. A path made of the uid does not show that.
    named: bool,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct SavedPath {
    uid: u32,
    path: String,
    #[serde(flatten)]
    state: PathState,
}

impl UserPaths {
    /// Continues with the remembered `entries`. In each round `users` users are the first.
    pub(crate) fn new(users: usize, mut entries: Vec<SavedPath>) -> Self {
        let users = users.min(MOST_USERS);
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.state.top));
        entries.truncate(BUDGET * MOST_USERS + ALWAYS.len());
        let known = BTreeMap::new();
        let mut paths =
            Self { users, known, fresh: false, moved: false, kept: i64::MIN, now: i64::MIN };
        for SavedPath { uid, path, state } in entries {
            if is_possible(&path, uid) && !paths.is_taken(&path, uid) {
                paths.known.insert((uid, path), state);
            }
        }
        paths
    }

    /// Takes the users of a round: gives paths to the first, and takes them from those whose time
    /// is up.
    pub(crate) fn update(&mut self, now: i64, candidates: &[Candidate<'_>]) {
        self.now = now;
        let count = self.known.len();
        // A moment in the future comes from a clock that was wrong.
        self.known.values_mut().for_each(|known| known.top = known.top.min(now));
        self.known.retain(|_, known| now.saturating_sub(known.top) < REMEMBERED);
        self.fresh |= self.known.len() < count;

        // By uid, so that root is the user with uid 0.
        for user in candidates {
            let path = (!user.looking_up).then(|| wanted_path(user)).filter(|path| is_always(path));
            if let Some(path) = path.filter(|path| !self.is_taken(path, user.uid)) {
                self.note(user, path, now);
            }
        }
        let mut first: Vec<&Candidate<'_>> = candidates
            .iter()
            .filter(|user| {
                user.rank.is_some() && !self.find(user).is_some_and(|(path, _)| is_always(path))
            })
            .collect();
        first.sort_by_key(|user| (std::cmp::Reverse(user.rank), user.uid));
        for user in first.into_iter().take(self.users) {
            let path = self.find(user).map(|(path, _)| path.to_owned());
            if let Some(path) = path.or_else(|| self.new_path(user)) {
                self.note(user, path, now);
            }
        }
    }

    /// The path component of a user who has paths now.
    pub(crate) fn member(&self, user: &Candidate<'_>) -> Option<&str> {
        self.find(user)
            .filter(|(path, known)| is_always(path) || self.now.saturating_sub(known.top) < STICKY)
            .map(|(path, _)| path)
    }

    /// Whether enough has changed for the memory to be written.
    pub(crate) const fn is_due(&self) -> bool {
        self.fresh || (self.moved && self.now.saturating_sub(self.kept) >= KEPT_EVERY)
    }

    /// The memory to write, which counts as written from now on.
    pub(crate) fn write(&mut self) -> Vec<SavedPath> {
        self.fresh = false;
        self.moved = false;
        self.kept = self.now;
        let known = self.known.iter();
        known
            .map(|((uid, path), state)| SavedPath { uid: *uid, path: path.clone(), state: *state })
            .collect()
    }

    fn note(&mut self, user: &Candidate<'_>, path: String, now: i64) {
        let key = (user.uid, path);
        let before = self.known.get(&key).copied();
        let named = user.name.is_some() || before.is_some_and(|before| before.named);
        let was_away = |before: PathState| now.saturating_sub(before.top) >= KEPT_EVERY;
        self.fresh |= before.is_none_or(|before| before.named != named || was_away(before));
        self.moved |= before.is_some_and(|before| before.top != now);
        self.known.insert(key, PathState { top: now, named });
    }

    /// Returns the path component of a user who gets paths for the first time; `None` if the bound
    /// is used up, or while the name is being looked up.
    fn new_path(&self, user: &Candidate<'_>) -> Option<String> {
        let given = self.known.keys().filter(|(_, path)| !is_always(path)).count();
        let room = given < FREELY * self.users || (given < BUDGET * self.users && user.is_heavy);
        if user.looking_up || !room {
            return None;
        }
        // Of two uids with one name, the second gets a path made of its uid.
        Some(wanted_path(user))
            .filter(|path| !self.is_taken(path, user.uid))
            .or_else(|| Some(uid_path(user.uid)))
    }

    /// The path of a user, found by the name, or the latest one while the name is not known.
    fn find(&self, user: &Candidate<'_>) -> Option<(&str, &PathState)> {
        let mut his = self
            .known
            .range((user.uid, String::new())..)
            .take_while(|((uid, _), _)| *uid == user.uid);
        let found = match &user.name {
            None => his.max_by_key(|(_, known)| (known.top, known.named)),
            Some(_) => {
                let wanted = wanted_path(user);
                his.find(|((_, path), known)| *path == wanted || (known.named && is_uid_path(path)))
            }
        };
        found.map(|((_, path), known)| (path.as_str(), known))
    }

    fn is_taken(&self, path: &str, by_other_than: u32) -> bool {
        self.known.keys().any(|(uid, known)| known == path && *uid != by_other_than)
    }
}

fn is_always(path: &str) -> bool {
    ALWAYS.contains(&path)
}

/// Returns the path component that a user should have. Another user may have it already.
fn wanted_path(user: &Candidate<'_>) -> String {
    match user.name {
        Some(name) if is_uid_path(name) || name == OTHER => path::marked(name),
        Some(name) => path::component(name).into_owned(),
        None if user.uid == 0 => "root".to_owned(),
        None => uid_path(user.uid),
    }
}

fn uid_path(uid: u32) -> String {
    format!("uid_{uid}")
}

/// Whether a path component looks like one made of a uid, which no name may become.
fn is_uid_path(path: &str) -> bool {
    path.strip_prefix("uid_")
        .is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a remembered path can have been given to this uid.
fn is_possible(path: &str, uid: u32) -> bool {
    path::check(path).is_ok()
        && !path.contains('.')
        && (!is_uid_path(path) || path == uid_path(uid))
}
