//! Lookups that may block for any time: addresses of names, and a user's number. Each has a thread of its own and a
//! deadline; while one hangs, no other is begun for the same name.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

/// For how long an address is used.
const REMEMBERED: Duration = Duration::from_secs(300);

/// A lookup that is under way, or its result.
#[derive(Debug)]
struct Lookup<T> {
    pending: Option<Receiver<Option<T>>>,
    known: Option<(T, Instant)>,
}

impl<T: Clone + Send + 'static> Lookup<T> {
    const fn new() -> Self {
        Self { pending: None, known: None }
    }

    /// The result of `look_up`, or an older one if there is none before `deadline`. `None`: there never was one.
    fn get(&mut self, deadline: Instant, look_up: impl FnOnce() -> Option<T> + Send + 'static) -> Option<T> {
        if let Some((known, at)) = &self.known
            && at.elapsed() < REMEMBERED
        {
            return Some(known.clone());
        }
        let pending = self.pending.take().or_else(|| {
            let (answer, pending) = mpsc::channel();
            let thread = thread::Builder::new().name("lookup".to_owned());
            // Nobody may wait for the answer any more.
            thread.spawn(move || drop(answer.send(look_up()))).ok().map(|_| pending)
        });
        if let Some(pending) = pending {
            match pending.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(found) => self.known = found.map(|found| (found, Instant::now())).or(self.known.take()),
                Err(RecvTimeoutError::Timeout) => self.pending = Some(pending),
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        self.known.as_ref().map(|(known, _)| known.clone())
    }
}

/// All lookups of this process.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    addresses: HashMap<String, Lookup<Vec<IpAddr>>>,
    users: HashMap<String, Lookup<u32>>,
}

impl Hosts {
    /// The addresses of a controller, of the families that slurm.conf allows; empty: none, or not in time.
    pub(crate) fn addresses(&mut self, name: &str, ipv4: bool, ipv6: bool, deadline: Instant) -> Vec<IpAddr> {
        let allowed = |address: &IpAddr| if address.is_ipv4() { ipv4 } else { ipv6 };
        let found = match name.parse() {
            Ok(address) => vec![address],
            Err(_) => {
                let lookup = self.addresses.entry(name.to_owned()).or_insert_with(Lookup::new);
                let name = name.to_owned();
                lookup
                    .get(deadline, move || {
                        let found = (name.as_str(), 0).to_socket_addrs().ok()?;
                        Some(found.map(|address| address.ip()).collect())
                    })
                    .unwrap_or_default()
            }
        };
        let mut found: Vec<IpAddr> = found.into_iter().filter(allowed).collect();
        found.dedup();
        found
    }

    /// Forgets a name's addresses, because none of them answers.
    pub(crate) fn forget(&mut self, name: &str) {
        if let Some((_, at)) = self.addresses.get_mut(name).and_then(|lookup| lookup.known.as_mut()) {
            *at = at.checked_sub(REMEMBERED).unwrap_or(*at);
        }
    }

    /// The number of SlurmUser, a name or a number. `None`: this host does not know it.
    pub(crate) fn user(&mut self, name: &str, deadline: Instant) -> Option<u32> {
        if let Ok(number) = name.parse() {
            return Some(number);
        }
        let lookup = self.users.entry(name.to_owned()).or_insert_with(Lookup::new);
        let name = name.to_owned();
        lookup.get(deadline, move || User::from_name(&name).ok().flatten().map(|user| Uid::as_raw(user.uid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn numbers_need_no_lookup_and_families_are_those_of_slurm_conf() {
        let mut hosts = Hosts::default();
        let past = Instant::now();
        assert_eq!(hosts.addresses("192.0.2.1", true, false, past).len(), 1);
        assert_eq!(hosts.addresses("192.0.2.1", false, true, past).len(), 0);
        assert_eq!(hosts.addresses("fd00::1", true, true, past).len(), 1);
        assert_eq!(hosts.user("64030", past), Some(64_030));
        assert_eq!(hosts.user("root", soon()), Some(0));
        assert_eq!(hosts.user("no-such-user", soon()), None);
        assert!(hosts.addresses("localhost", true, true, soon()).iter().all(IpAddr::is_loopback));
    }

    #[test]
    fn a_lookup_that_hangs_is_not_begun_twice_and_what_was_known_is_used() {
        let mut lookup = Lookup::<u32>::new();
        assert_eq!(lookup.get(soon(), || Some(7)), Some(7));
        lookup.known = Some((7, Instant::now().checked_sub(REMEMBERED).unwrap()));
        let (go, wait) = mpsc::channel::<()>();
        let hung = move || wait.recv().ok().map(|()| 8);
        assert_eq!(lookup.get(Instant::now(), hung), Some(7));
        assert_eq!(lookup.get(Instant::now(), || unreachable!()), Some(7));
        go.send(()).unwrap();
        assert_eq!(lookup.get(soon(), || unreachable!()), Some(8));
    }
}
