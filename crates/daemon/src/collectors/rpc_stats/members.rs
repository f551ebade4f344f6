//! Which users have paths of their own: sticky, and bounded over time, because in Graphite a path is a file for ever.
//!
//! Whoever is among the first `users` of an interval is a member for a day from then on. At most five times as many have
//! paths within any 30 days; the last fifth is kept for those who keep slurmctld busy. A path belongs to one uid for as
//! long as it is remembered. Knows no reading but the moment, the users' numbers and names, and what they cost.

use std::collections::BTreeMap;

use carbon::path;
use serde::{Deserialize, Serialize};
use slurm_snapshot::RpcUser;

use super::growth::Calls;

/// slurmctld's table has no more rows.
pub(crate) const MOST_USERS: usize = 200;

/// How long one stays a member after an interval among the first.
const STICKY: i64 = DAY;

/// How long a path counts against the bound after that: 30 days from its last point, and a day for what a crash may
/// have forgotten.
const REMEMBERED: i64 = STICKY + 31 * DAY;

/// How often a mere "was among the first again" is kept.
const KEPT_EVERY: i64 = 3600;

const DAY: i64 = 86_400;

/// How many times `users` may have paths within 30 days, and how many of them for little.
const BUDGET: usize = 5;
const FREELY: usize = 4;

/// They have paths always, once they are in the table, and count for nothing.
const ALWAYS: [&str; 2] = ["root", "slurm"];

/// A user in an interval.
pub(super) struct Candidate<'a> {
    pub(super) user: &'a RpcUser,
    /// What his RPCs of the interval took; `None` where that is not known.
    pub(super) grown: Option<Calls>,
}

/// Every path that was given to a user lately.
#[derive(Debug)]
pub(super) struct Members {
    users: usize,
    /// By uid and path.
    known: BTreeMap<(u32, String), Known>,
    /// Not kept yet: whether by path, or only when somebody was last among the first.
    fresh: bool,
    moved: bool,
    kept: i64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    /// Unix seconds when he was last among the first.
    top: i64,
    /// Whether he has a name; a path of his number does not tell.
    named: bool,
}

/// The memory's form.
#[derive(Serialize, Deserialize)]
struct Memory {
    users: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    uid: u32,
    path: String,
    named: bool,
    top: i64,
}

impl Members {
    /// `memory` that is not one, or not of use any more, is none.
    pub(super) fn new(users: usize, memory: Option<&str>) -> Self {
        let users = users.min(MOST_USERS);
        let memory = memory.and_then(|text| serde_json::from_str::<Memory>(text).ok());
        let mut entries = memory.map(|memory| memory.users).unwrap_or_default();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.top));
        entries.truncate(BUDGET * MOST_USERS + ALWAYS.len());
        let mut members = Self { users, known: BTreeMap::new(), fresh: false, moved: false, kept: i64::MIN };
        for Entry { uid, path, named, top } in entries {
            if is_possible(&path, uid) && !members.is_taken(&path, uid) {
                members.known.insert((uid, path), Known { top, named });
            }
        }
        members
    }

    /// An interval is over: who was among the first of it, and whose time is up. `seconds` is its length.
    pub(super) fn update(&mut self, now: i64, seconds: Option<f64>, candidates: &[Candidate<'_>]) {
        let count = self.known.len();
        // A moment that is still to come was taken from a clock that went wrong.
        self.known.values_mut().for_each(|known| known.top = known.top.min(now));
        self.known.retain(|_, known| now.saturating_sub(known.top) < REMEMBERED);
        self.fresh |= self.known.len() < count;

        // By uid, so that root is the one whom the machine calls so.
        for Candidate { user, .. } in candidates {
            let path = (!user.looking_up).then(|| wanted_path(user)).filter(|path| is_always(path));
            if let Some(path) = path.filter(|path| !self.is_taken(path, user.id)) {
                self.note(user, path, now);
            }
        }
        let mut first: Vec<(Calls, &RpcUser)> = candidates
            .iter()
            .filter_map(|candidate| Some((candidate.grown.filter(|grown| grown.time > 0)?, candidate.user)))
            .filter(|(_, user)| !self.path(user).is_some_and(is_always))
            .collect();
        first.sort_by_key(|&(grown, user)| (std::cmp::Reverse(grown), user.id));
        for (grown, user) in first.into_iter().take(self.users) {
            let path = self.find(user).map(|(path, _)| path.to_owned());
            if let Some(path) = path.or_else(|| self.new_path(user, grown, seconds)) {
                self.note(user, path, now);
            }
        }
    }

    /// The path's component of a user who has one of his own.
    pub(super) fn member(&self, user: &RpcUser, now: i64) -> Option<&str> {
        self.find(user)
            .filter(|(path, known)| is_always(path) || now.saturating_sub(known.top) < STICKY)
            .map(|(path, _)| path)
    }

    /// What must be remembered, where something has changed that is worth it.
    pub(super) fn changed_memory(&mut self, now: i64) -> Option<String> {
        let due = self.fresh || (self.moved && now.saturating_sub(self.kept) >= KEPT_EVERY);
        if !due {
            return None;
        }
        (self.fresh, self.moved, self.kept) = (false, false, now);
        let entry = |((uid, path), known): (&(u32, String), &Known)| Entry {
            uid: *uid,
            path: path.clone(),
            named: known.named,
            top: known.top,
        };
        serde_json::to_string(&Memory { users: self.known.iter().map(entry).collect() }).ok()
    }

    fn note(&mut self, user: &RpcUser, path: String, now: i64) {
        let key = (user.id, path);
        let before = self.known.get(&key).copied();
        let named = user.name.is_some() || before.is_some_and(|before| before.named);
        self.fresh |= before.is_none_or(|before| before.named != named);
        self.moved |= before.is_some_and(|before| before.top != now);
        self.known.insert(key, Known { top: now, named });
    }

    /// A newcomer's, where there is room for one.
    fn new_path(&self, user: &RpcUser, grown: Calls, seconds: Option<f64>) -> Option<String> {
        let given = self.known.keys().filter(|(_, path)| !is_always(path)).count();
        let room = given < FREELY * self.users
            || (given < BUDGET * self.users && seconds.is_some_and(|seconds| is_busy(grown, seconds)));
        if user.looking_up || !room {
            return None;
        }
        // Two uids of one name are two: the one who comes second goes by his number.
        Some(wanted_path(user))
            .filter(|path| !self.is_taken(path, user.id))
            .or_else(|| Some(uid_path(user.id)))
    }

    fn path(&self, user: &RpcUser) -> Option<&str> {
        self.find(user).map(|(path, _)| path)
    }

    /// What is known of a user: by his name, or whatever it was last as long as that is not to be had.
    fn find(&self, user: &RpcUser) -> Option<(&str, &Known)> {
        let mut his =
            self.known.range((user.id, String::new())..).take_while(|((uid, _), _)| *uid == user.id);
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

/// Whether he alone keeps a thread of slurmctld at work for a tenth of the time.
fn is_busy(grown: Calls, seconds: f64) -> bool {
    std::time::Duration::from_micros(grown.time).as_secs_f64() >= seconds / 10.0
}

fn is_always(path: &str) -> bool {
    ALWAYS.contains(&path)
}

/// What a user goes by, unless that is another's already.
fn wanted_path(user: &RpcUser) -> String {
    match user.name.as_deref() {
        Some(name) if is_uid_path(name) => path::marked(name),
        Some(name) => path::component(name).into_owned(),
        None if user.id == 0 => "root".to_owned(),
        None => uid_path(user.id),
    }
}

fn uid_path(uid: u32) -> String {
    format!("uid_{uid}")
}

/// Whether it looks like a number's path, which no name may become.
fn is_uid_path(path: &str) -> bool {
    path.strip_prefix("uid_").is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a memory's path can have been given.
fn is_possible(path: &str, uid: u32) -> bool {
    path::check(path).is_ok() && !path.contains('.') && (!is_uid_path(path) || path == uid_path(uid))
}
