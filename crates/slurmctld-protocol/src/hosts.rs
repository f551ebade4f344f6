//! Addresses of names, and a user's number. A look-up may take for ever, so a thread does it.

use std::collections::HashMap;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

/// Time for which a result is used before the name is looked up again.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Results by name, each with its time.
type Known<T> = HashMap<String, (T, Instant)>;

/// The addresses and users that were looked up.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    addresses: Known<Vec<IpAddr>>,
    users: Known<u32>,
}

impl Hosts {
    /// The addresses of a controller, of the families that slurm.conf allows; empty: none, or not
    /// in time.
    pub(crate) async fn addresses(
        &mut self,
        name: &str,
        ipv4: bool,
        ipv6: bool,
        deadline: Instant,
    ) -> Vec<IpAddr> {
        let found = match name.parse() {
            Ok(address) => vec![address],
            Err(_) => get(&mut self.addresses, "slurmctld's host", name, deadline, |name| {
                let found = (name, 0).to_socket_addrs().ok()?;
                Some(found.map(|address| address.ip()).collect())
            })
            .await
            .unwrap_or_default(),
        };
        let allowed = |address: &IpAddr| if address.is_ipv4() { ipv4 } else { ipv6 };
        let mut found: Vec<IpAddr> = found.into_iter().filter(allowed).collect();
        found.dedup();
        found
    }

    /// Makes the next request look a name up again, because none of its addresses answers.
    pub(crate) fn forget(&mut self, name: &str) {
        if let Some((_, at)) = self.addresses.get_mut(name) {
            *at = at.checked_sub(REMEMBERED).unwrap_or(*at);
        }
    }

    /// Returns the number of SlurmUser, which slurm.conf has as a name or a number; `None`: this
    /// host does not know it.
    pub(crate) async fn user(&mut self, name: &str, deadline: Instant) -> Option<u32> {
        if let Ok(number) = name.parse() {
            return Some(number);
        }
        let look_up =
            |name: &str| User::from_name(name).ok().flatten().map(|user| Uid::as_raw(user.uid));
        get(&mut self.users, "SlurmUser", name, deadline, look_up).await
    }
}

/// The result of `look_up`, or an older one if there is none before `deadline`. `None`: there never
/// was one.
async fn get<T: Clone + Send + 'static>(
    known: &mut Known<T>,
    what: &str,
    name: &str,
    deadline: Instant,
    look_up: fn(&str) -> Option<T>,
) -> Option<T> {
    if let Some((found, at)) = known.get(name)
        && at.elapsed() < REMEMBERED
    {
        return Some(found.clone());
    }
    let patience = deadline.saturating_duration_since(Instant::now());
    let owner = format!("{what} {name}");
    let host = name.to_owned();
    if let Ok(Some(found)) =
        waiting_threads::ask(&owner, name, patience, move || look_up(&host)).await
    {
        known.insert(name.to_owned(), (found, Instant::now()));
    }
    known.get(name).map(|(found, _)| found.clone())
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn numbers_need_no_lookup_and_families_are_those_of_slurm_conf() {
        let mut hosts = Hosts::default();
        let past = Instant::now();
        assert_eq!(hosts.addresses("192.0.2.1", true, false, past).await.len(), 1);
        assert_eq!(hosts.addresses("192.0.2.1", false, true, past).await.len(), 0);
        assert_eq!(hosts.addresses("fd00::1", true, true, past).await.len(), 1);
        assert_eq!(hosts.user("64030", past).await, Some(64_030));
        assert_eq!(hosts.user("root", soon()).await, Some(0));
        assert_eq!(hosts.user("no-such-user", soon()).await, None);
        assert!(
            hosts.addresses("localhost", true, true, soon()).await.iter().all(IpAddr::is_loopback)
        );
    }

    /// A name service that hangs until it is let go.
    static GATE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    fn hangs(_: &str) -> Option<u32> {
        let open = GATE.0.lock().unwrap();
        drop(GATE.1.wait_while(open, |open| !*open).unwrap());
        Some(8)
    }

    #[tokio::test]
    async fn while_a_lookup_hangs_nobody_waits_twice_and_what_was_known_is_used() {
        let before = Instant::now().checked_sub(REMEMBERED).unwrap();
        let mut known = Known::from([("a".to_owned(), (7, before))]);
        let now = Instant::now();
        assert_eq!(get(&mut known, "test", "a", now, hangs).await, Some(7));
        assert_eq!(get(&mut known, "test", "a", soon(), hangs).await, Some(7));
        assert!(now.elapsed() < Duration::from_secs(30), "it has waited again");
        *GATE.0.lock().unwrap() = true;
        GATE.1.notify_all();
        while get(&mut known, "test", "a", soon(), hangs).await != Some(8) {
            tokio::task::yield_now().await;
        }
    }
}
