//! Which users have paths of their own: sticky, and bounded over time, because in Graphite a path is a file for ever.
//!
//! The first `users` of a round have paths for a day from then on. At most five times as many have paths within any 30 days;
//! the last fifth is kept for heavy users. A path belongs to one uid for as long as it is remembered. Pure: knows the moment, the users' numbers and names, and how they rank.

use std::collections::BTreeMap;

use carbon::path;
use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// slurmctld's table of RPCs has no more rows.
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

/// A user in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) uid: u32,
    pub(crate) name: Option<&'a str>,
    /// Whether there is a name is not known yet.
    pub(crate) looking_up: bool,
    /// The first are those with the highest; `None` where that is nothing or not known.
    pub(crate) rank: Option<(u64, u64)>,
    /// Whether this user gets a path although most of the bound is used up.
    pub(crate) is_heavy: bool,
}

/// Every path that was given to a user lately.
#[derive(Debug)]
pub(crate) struct UserPaths {
    users: usize,
    /// By uid and path.
    known: BTreeMap<(u32, String), PathState>,
    /// Not kept yet: whether by path, or only when somebody was last among the first.
    fresh: bool,
    moved: bool,
    kept: i64,
    /// Of the last round.
    now: i64,
}

#[derive(Clone, Copy, Debug)]
struct PathState {
    /// Unix seconds when he was last among the first.
    top: i64,
    /// Whether he has a name; a path of his number does not tell.
    named: bool,
}

/// The memory's form.
#[derive(Serialize, Deserialize)]
struct Saved {
    users: Vec<SavedPath>,
}

#[derive(Serialize, Deserialize)]
struct SavedPath {
    uid: u32,
    path: String,
    named: bool,
    top: i64,
}

impl UserPaths {
    /// Where these settings give users paths of their own.
    pub(crate) fn of(settings: &Settings, memory: Option<&str>) -> Option<Self> {
        settings.users().filter(|users| *users > 0).map(|users| Self::new(users, memory))
    }

    /// `memory` that is not one, or not of use any more, is none.
    fn new(users: usize, memory: Option<&str>) -> Self {
        let users = users.min(MOST_USERS);
        let memory = memory.and_then(|text| serde_json::from_str::<Saved>(text).ok());
        let mut entries = memory.map(|memory| memory.users).unwrap_or_default();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.top));
        entries.truncate(BUDGET * MOST_USERS + ALWAYS.len());
        let known = BTreeMap::new();
        let mut paths = Self { users, known, fresh: false, moved: false, kept: i64::MIN, now: i64::MIN };
        for SavedPath { uid, path, named, top } in entries {
            if is_possible(&path, uid) && !paths.is_taken(&path, uid) {
                paths.known.insert((uid, path), PathState { top, named });
            }
        }
        paths
    }

    /// A round is over: who was among the first of it, and whose time is up.
    pub(crate) fn update(&mut self, now: i64, candidates: &[Candidate<'_>]) {
        self.now = now;
        let count = self.known.len();
        // A moment that is still to come was taken from a clock that went wrong.
        self.known.values_mut().for_each(|known| known.top = known.top.min(now));
        self.known.retain(|_, known| now.saturating_sub(known.top) < REMEMBERED);
        self.fresh |= self.known.len() < count;

        // By uid, so that root is the one whom the machine calls so.
        for user in candidates {
            let path = (!user.looking_up).then(|| wanted_path(user)).filter(|path| is_always(path));
            if let Some(path) = path.filter(|path| !self.is_taken(path, user.uid)) {
                self.note(user, path, now);
            }
        }
        let mut first: Vec<&Candidate<'_>> = candidates
            .iter()
            .filter(|user| user.rank.is_some() && !self.path(user).is_some_and(is_always))
            .collect();
        first.sort_by_key(|user| (std::cmp::Reverse(user.rank), user.uid));
        for user in first.into_iter().take(self.users) {
            let path = self.find(user).map(|(path, _)| path.to_owned());
            if let Some(path) = path.or_else(|| self.new_path(user)) {
                self.note(user, path, now);
            }
        }
    }

    /// The path's component of a user who has one of his own.
    pub(crate) fn member(&self, user: &Candidate<'_>) -> Option<&str> {
        self.find(user)
            .filter(|(path, known)| is_always(path) || self.now.saturating_sub(known.top) < STICKY)
            .map(|(path, _)| path)
    }

    /// What must be remembered, where something has changed that is worth it.
    pub(crate) fn changed_memory(&mut self) -> Option<String> {
        let due = self.fresh || (self.moved && self.now.saturating_sub(self.kept) >= KEPT_EVERY);
        if !due {
            return None;
        }
        (self.fresh, self.moved, self.kept) = (false, false, self.now);
        let entry = |((uid, path), known): (&(u32, String), &PathState)| SavedPath {
            uid: *uid,
            path: path.clone(),
            named: known.named,
            top: known.top,
        };
        serde_json::to_string(&Saved { users: self.known.iter().map(entry).collect() }).ok()
    }

    fn note(&mut self, user: &Candidate<'_>, path: String, now: i64) {
        let key = (user.uid, path);
        let before = self.known.get(&key).copied();
        let named = user.name.is_some() || before.is_some_and(|before| before.named);
        self.fresh |= before.is_none_or(|before| before.named != named);
        self.moved |= before.is_some_and(|before| before.top != now);
        self.known.insert(key, PathState { top: now, named });
    }

    /// A newcomer's, where there is room for one.
    fn new_path(&self, user: &Candidate<'_>) -> Option<String> {
        let given = self.known.keys().filter(|(_, path)| !is_always(path)).count();
        let room = given < FREELY * self.users || (given < BUDGET * self.users && user.is_heavy);
        if user.looking_up || !room {
            return None;
        }
        // Two uids of one name are two: the one who comes second goes by his number.
        Some(wanted_path(user))
            .filter(|path| !self.is_taken(path, user.uid))
            .or_else(|| Some(uid_path(user.uid)))
    }

    fn path(&self, user: &Candidate<'_>) -> Option<&str> {
        self.find(user).map(|(path, _)| path)
    }

    /// What is known of a user: by his name, or whatever it was last as long as that is not to be had.
    fn find(&self, user: &Candidate<'_>) -> Option<(&str, &PathState)> {
        let mut his =
            self.known.range((user.uid, String::new())..).take_while(|((uid, _), _)| *uid == user.uid);
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

/// What a user goes by, unless that is another's already.
fn wanted_path(user: &Candidate<'_>) -> String {
    match user.name {
        Some(name) if is_uid_path(name) => path::marked(name),
        Some(name) => path::component(name).into_owned(),
        None if user.uid == 0 => "root".to_owned(),
        None => uid_path(user.uid),
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
