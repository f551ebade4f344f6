//! User names, looked up on the reader's host and remembered for ten minutes.
//!
//! A lookup may ask a directory server and block for as long as that does; the daemon's deadline covers it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

const REMEMBERED: Duration = Duration::from_secs(600);

/// More users than have jobs on any cluster at a time.
const MOST: usize = 65_536;

/// A memory of user names.
#[derive(Debug, Default)]
pub(crate) struct UserNames {
    known: HashMap<u32, (Instant, Option<String>)>,
}

impl UserNames {
    /// The name of user `id`; `None` where this host knows no such user.
    pub(crate) fn name(&mut self, id: u32, now: Instant) -> Option<String> {
        self.name_from(id, now, |id| match User::from_uid(Uid::from_raw(id)) {
            Ok(user) => Ok(user.map(|user| user.name)),
            Err(errno) => Err(errno),
        })
    }

    /// The same, by `look_up`; when that fails, the name last known stays.
    fn name_from<E>(
        &mut self,
        id: u32,
        now: Instant,
        look_up: impl FnOnce(u32) -> Result<Option<String>, E>,
    ) -> Option<String> {
        let last = match self.known.get(&id) {
            Some((since, name)) if now.saturating_duration_since(*since) < REMEMBERED => return name.clone(),
            Some((_, name)) => name.clone(),
            None => None,
        };
        let name = look_up(id).unwrap_or(last);
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert(id, (now, name.clone()));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_everywhere() {
        let mut names = UserNames::default();
        assert_eq!(names.name(0, Instant::now()).as_deref(), Some("root"));
        assert_eq!(names.name(u32::MAX - 7, Instant::now()), None);
    }

    #[test]
    fn a_name_is_asked_for_again_after_ten_minutes_and_kept_when_nobody_answers() {
        let mut names = UserNames::default();
        let start = Instant::now();
        let of = |name: &str| Ok::<_, ()>(Some(name.to_owned()));
        assert_eq!(names.name_from(7, start, |_| of("ann")).as_deref(), Some("ann"));
        let soon = start + Duration::from_secs(599);
        assert_eq!(names.name_from(7, soon, |_| of("bob")).as_deref(), Some("ann"));
        let later = start + REMEMBERED;
        assert_eq!(names.name_from(7, later, |_| Err(())).as_deref(), Some("ann"));
        let much_later = later + REMEMBERED;
        assert_eq!(names.name_from(7, much_later, |_| of("bob")).as_deref(), Some("bob"));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut names = UserNames::default();
        let now = Instant::now();
        for id in 0..100_000 {
            names.name_from(id, now, |_| Ok::<_, ()>(None));
            assert!(names.known.len() <= MOST);
        }
    }
}
