//! slurmrestd for a sandbox's slurmctld, on a socket, or on a port with tokens.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::folder::{key, secret};
use crate::root::Root;
use crate::slurm::as_user;
use crate::{Folder, NOBODY, Process, Slurm, Slurmdbd, find_program, free_port, is_root, proc};

/// The ways in which slurmrestd authenticates users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// On a socket: it admits root and its own user.
    Socket,
    /// On a port, with a token.
    Token,
}

/// slurmrestd, which is started and stopped on its own.
#[derive(Debug)]
pub struct Slurmrestd {
    /// The program.
    pub process: Process,
    /// Its port; 0 if it uses a socket.
    pub port: u16,
    /// Where it listens.
    pub url: String,
    token: PathBuf,
    /// Present if slurmrestd needs one.
    pub slurmdbd: Option<Slurmdbd>,
}

impl Slurmrestd {
    /// Lets slurmctld create and accept tokens. Call this before it is started.
    pub fn allow_tokens(folder: &Folder, slurm: &Slurm) -> Result<()> {
        let path = folder.path().join("jwt.key");
        secret(&path, &key::<32>()?)?;
        slurm.configure(&format!(
            "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={}\n",
            path.display()
        ))
    }

    /// slurmrestd of this cluster's Slurm, not started yet.
    pub fn new(folder: &Folder, slurm: &Slurm, way: Way) -> Result<Self> {
        Self::on(folder, slurm, way, free_port()?)
    }

    /// slurmrestd of the release in the Debian at `root`, on this port with tokens, for this
    /// cluster's slurmctld.
    pub fn of_release(
        folder: &Folder,
        slurm: &Slurm,
        root: &Path,
        release: &str,
        port: u16,
    ) -> Result<Self> {
        let root = Root::Chroot(root.to_owned());
        Self::build(folder, slurm, Way::Token, port, release, &|program| {
            root.start(folder.path(), program)
        })
    }

    /// slurmrestd of this cluster's Slurm, not started yet, on this port if it uses one.
    pub fn on(folder: &Folder, slurm: &Slurm, way: Way, port: u16) -> Result<Self> {
        Self::build(folder, slurm, way, port, &slurm.release()?, &|program| slurm.words(program))
    }

    fn build(
        folder: &Folder,
        slurm: &Slurm,
        way: Way,
        port: u16,
        release: &str,
        words: &dyn Fn(&str) -> Result<Vec<OsString>>,
    ) -> Result<Self> {
        let run = folder.path().join("rest");
        fs::create_dir_all(&run)?;
        let is_root = is_root();
        if is_root {
            chown(&run, Some(NOBODY), Some(NOBODY))?;
        }
        let program = match Root::wanted() {
            Root::Chroot(_) => "/usr/sbin/slurmrestd".to_owned(),
            // The first one in the PATH that it is started with.
            Root::Prefix(_) => "slurmrestd".to_owned(),
            Root::Here => find_program("slurmrestd")?.display().to_string(),
        };
        let words = if is_root {
            let [setpriv, flags @ ..] = as_user(NOBODY);
            words(&setpriv)?
                .into_iter()
                .chain(flags.into_iter().chain([program]).map(Into::into))
                .collect()
        } else {
            words(&program)?
        };
        let plugins: &[&str] = match release.get(..5) {
            Some("22.05") => &["-s", "openapi/v0.0.38"],
            Some("23.02") => &["-s", "openapi/v0.0.38,openapi/v0.0.39"],
            Some("23.11" | "24.05" | "24.11" | "25.05") => &["-s", "openapi/slurmctld"],
            _ => &[],
        };
        let socket = run.join("sock");
        let (name, url, how) = match way {
            Way::Socket => {
                ("slurmrestd-socket", format!("unix:{}", socket.display()), "rest_auth/local")
            }
            Way::Token => ("slurmrestd", format!("http://127.0.0.1:{port}"), "rest_auth/jwt"),
        };
        let process = Process::with_words(folder, name, words)
            .args(plugins.iter().copied())
            .args(["-a", how, url.trim_start_matches("http://")])
            .env("SLURM_CONF", slurm.conf())
            .ready(move || match way {
                Way::Socket => std::os::unix::net::UnixStream::connect(&socket).is_ok(),
                Way::Token => proc::listening(port),
            });
        // Without it slurmrestd would use its own identity.
        let process = if way == Way::Token { process.env("SLURM_JWT", "daemon") } else { process };
        let port = if way == Way::Token { port } else { 0 };
        Ok(Self { process, port, url, token: folder.path().join("token"), slurmdbd: None })
    }

    /// The keys of `[slurm]` for this slurmrestd.
    pub fn toml(&self) -> String {
        let token = if self.port == 0 { String::new() } else { self.token_toml() };
        format!("rest = \"{}\"\n{token}", self.url)
    }

    /// The key that names the token's file.
    pub fn token_toml(&self) -> String {
        let user = if is_root() { "nobody" } else { "slurmrestd" };
        format!("token_file = \"{}\"\nrest_user = \"{user}\"\n", self.token.display())
    }

    /// Lets slurmctld create a token for this many seconds, and replaces the last one with it.
    pub fn renew(&self, slurm: &Slurm, seconds: u32) -> Result<()> {
        let text = slurm.run("scontrol", &["token", &format!("lifespan={seconds}")])?;
        let new = self.token.with_extension("new");
        secret(&new, text.as_bytes())?;
        fs::rename(new, &self.token).context("the token")
    }
}
