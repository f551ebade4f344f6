//! slurm.conf, as far as a request for statistics needs it: controllers, their port, how users are
//! known, the cluster.
//!
//! What this reader cannot do (TLS, configless, another AuthType) is an error that says what helps.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::conf_lines::{ConfError, ConfFiles};
use crate::munge::Munge;
use crate::sackd;

/// slurmctld's port if slurm.conf names none, `SLURMCTLD_PORT` in Slurm.
const PORT: u16 = 6817;

/// Places where Slurm looks for slurm.conf after SLURM_CONF, if it is built as Debian builds it;
/// the last is what slurmd writes where it runs configless.
pub const USUAL_CONFS: [&str; 2] = ["/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"];

/// munged's socket, unless AuthInfo names one.
pub const MUNGE_SOCKET: &str = "/run/munge/munge.socket.2";

/// Number of controllers that are read: more than any cluster has.
const CONTROLLERS: usize = 16;

/// One slurmctld.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Controller {
    /// The controller's name in slurm.conf.
    pub(crate) name: String,
    /// The controller's address: a name or a number.
    pub(crate) address: String,
}

/// The ways in which slurmctld knows its users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuthType {
    Munge(Munge),
    /// `auth/slurm`, with tokens of sackd, which may listen at these sockets.
    Slurm(Vec<PathBuf>),
}

/// The contents of slurm.conf, as far as they matter for a request for statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlurmConf {
    pub(crate) controllers: Vec<Controller>,
    /// The first and the last port of slurmctld, both included.
    pub(crate) ports: (u16, u16),
    pub(crate) auth: AuthType,
    pub(crate) cluster: Option<String>,
    /// SlurmUser: a name or a number.
    pub(crate) user: String,
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    /// A note for a person about its files.
    pub(crate) note: Option<String>,
}

/// The keys and values of slurm.conf, before they are understood.
#[derive(Debug, Default)]
struct Raw {
    hosts: Vec<String>,
    /// The last value of each key but SlurmctldHost, by the key in lower case.
    values: HashMap<String, String>,
    note: Option<String>,
}

/// The file to read: as named, or where libslurm would find it.
pub(crate) fn find(named: Option<&Path>) -> Result<PathBuf, ConfError> {
    let named =
        named.map(Path::to_owned).or_else(|| std::env::var_os("SLURM_CONF").map(PathBuf::from));
    let usual = || USUAL_CONFS.iter().map(PathBuf::from).find(|path| path.exists());
    named.or_else(usual).ok_or_else(|| ConfError {
        path: USUAL_CONFS.first().copied().unwrap_or_default().into(),
        what: "no slurm.conf is here or in SLURM_CONF. A configless host has one in \
               /run/slurm/conf while slurmd or sackd runs there; this reader does not ask \
               slurmctld for it"
            .to_owned(),
    })
}

/// The socket on which munged listens, by slurm.conf; `None`: munge is not used.
///
/// # Errors
/// slurm.conf, or a file that it includes, cannot be read.
pub fn munge_socket(conf: &Path) -> Result<Option<PathBuf>, String> {
    let raw = read_raw(conf, None).map_err(|error| error.to_string())?;
    Ok((raw.auth_type() == "munge").then(|| raw.munge().socket))
}

/// Reads slurm.conf as the Slurm with this protocol number does, if it is known.
pub(crate) fn read_conf(path: &Path, number: Option<u16>) -> Result<SlurmConf, ConfError> {
    read_raw(path, number)?.understood().map_err(|what| ConfError { path: path.to_owned(), what })
}

fn read_raw(path: &Path, number: Option<u16>) -> Result<Raw, ConfError> {
    let (mut raw, mut files) = (Raw::default(), ConfFiles::new(path, number));
    files.read_lines(path, &mut |key, value| raw.take(key, value))?;
    raw.note = files.note;
    Ok(raw)
}

impl Raw {
    fn take(&mut self, key: &str, value: &str) {
        let key = key.to_ascii_lowercase();
        if key != "slurmctldhost" {
            self.values.insert(key, value.to_owned());
        } else if self.hosts.len() < CONTROLLERS {
            self.hosts.push(value.to_owned());
        }
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Whether the value of a key, which is a list of words, has this word.
    fn has(&self, key: &str, word: &str) -> bool {
        let mut words = self.value(key).unwrap_or_default().split(',');
        words.any(|one| one.trim().eq_ignore_ascii_case(word))
    }

    fn auth_type(&self) -> &str {
        plugin(self.value("authtype").unwrap_or("munge"), "auth")
    }

    /// Reads AuthInfo: options, or in its old form only munged's socket.
    fn munge(&self) -> Munge {
        let info = self.value("authinfo").unwrap_or_default();
        let option = |name: &str| info.split(',').find_map(|part| part.trim().strip_prefix(name));
        let old = (!info.is_empty() && !info.contains('=')).then_some(info);
        let socket = option("socket=").or(old).unwrap_or(MUNGE_SOCKET).into();
        let ttl = option("ttl=").and_then(|text| text.parse().ok()).unwrap_or(0);
        Munge { socket, ttl }
    }

    fn understood(&self) -> Result<SlurmConf, String> {
        if let Some(tls) =
            self.value("tlstype").filter(|tls| !matches!(plugin(tls, "tls"), "" | "none"))
        {
            return Err(format!(
                "TLSType={tls}: this reader does not speak TLS. Use libslurm's reader, or \
                    slurmrestd"
            ));
        }
        let cluster =
            self.value("clustername").map(str::to_ascii_lowercase).filter(|name| !name.is_empty());
        let auth = match self.auth_type() {
            "munge" => AuthType::Munge(self.munge()),
            "slurm" => AuthType::Slurm(sackd::sockets(cluster.as_deref())),
            other => {
                return Err(format!(
                    "AuthType={other}: the native reader knows auth/munge and auth/slurm. Use \
                        libslurm's reader, or slurmrestd"
                ));
            }
        };
        let port = self.value("slurmctldport").unwrap_or_default();
        let ports = ports(port).ok_or_else(|| format!("SlurmctldPort={port}: not a port"))?;
        let controllers = self.controllers();
        if controllers.is_empty() {
            return Err("neither SlurmctldHost nor ControlMachine is set".to_owned());
        }
        Ok(SlurmConf {
            controllers,
            ports,
            auth,
            cluster,
            user: self.value("slurmuser").unwrap_or("root").to_owned(),
            ipv4: !self.has("communicationparameters", "DisableIPv4"),
            ipv6: self.has("communicationparameters", "EnableIPv6"),
            note: self.note.clone(),
        })
    }

    /// Returns the controllers in slurm.conf's order. `SlurmctldAddr` is a virtual address of
    /// whichever controller is active, so it is the only one.
    fn controllers(&self) -> Vec<Controller> {
        let one = |name: &str, address: &str| Controller {
            name: name.to_owned(),
            address: address.to_owned(),
        };
        if let Some(address) = self.value("slurmctldaddr") {
            return vec![one(address, address)];
        }
        if !self.hosts.is_empty() {
            return self.hosts.iter().map(|text| controller(text)).collect();
        }
        let old =
            [("controlmachine", "controladdr"), ("backupcontroller", "backupaddr")].into_iter();
        old.filter_map(|(name, address)| {
            self.value(name).map(|name| one(name, self.value(address).unwrap_or(name)))
        })
        .collect()
    }
}

/// Reads a controller, `NAME` or `NAME(ADDRESS)`.
fn controller(text: &str) -> Controller {
    let (name, address) = text.split_once('(').unwrap_or((text, text));
    Controller { name: name.to_owned(), address: address.trim_end_matches(')').to_owned() }
}

/// Returns the name of a plugin, which may be written with its type: `munge` for `auth/munge`.
fn plugin<'a>(text: &'a str, kind: &str) -> &'a str {
    text.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/')).unwrap_or(text)
}

/// Reads SlurmctldPort, `N` or `N-M`; empty: Slurm's own port.
fn ports(text: &str) -> Option<(u16, u16)> {
    if text.is_empty() {
        return Some((PORT, PORT));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = first.parse::<u16>().ok()?;
    let last = last.parse::<u16>().ok()?;
    (first > 0 && first <= last).then_some((first, last))
}
