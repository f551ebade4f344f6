//! `[slurm] rest` and the keys that belong to it: how slurmrestd is asked instead of libslurm.

use std::path::PathBuf;

use slurm_snapshot::Endpoint;

use super::ReaderChoice;
use super::problem::Problems;
use super::section::Section;
use super::value::{path, user_name};

/// Settings for slurmrestd. Where it is not used, `endpoint` is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestSettings {
    pub(crate) endpoint: Option<Endpoint>,
    pub(crate) token_file: Option<PathBuf>,
    /// User whose name requests to slurmrestd have. `None`: the user in the token.
    pub(crate) user: Option<String>,
    /// User as whom slurmrestd runs on this host. `None`: a user with the name slurmrestd.
    pub(crate) rest_user: Option<String>,
    /// File of the authorities that may have issued slurmrestd's certificate. `None`: the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether the token may leave this host in the clear.
    pub(crate) insecure: bool,
}

impl RestSettings {
    pub(super) fn apply(&mut self, slurm: &mut Section<'_, '_>) {
        slurm.set_some("rest", str::parse::<Endpoint>, &mut self.endpoint);
        slurm.set_some("token_file", path, &mut self.token_file);
        slurm.set_some("user", user_name, &mut self.user);
        slurm.set_some("rest_user", user_name, &mut self.rest_user);
        slurm.set_some("ca_file", path, &mut self.ca_file);
        slurm.set_flag("insecure", &mut self.insecure);
    }

    /// Checks that the keys about slurmrestd fit each other, and `conf` and `reader` too.
    pub(super) fn check(&self, has_conf: bool, reader: &ReaderChoice, problems: &mut Problems) {
        let Some(endpoint) = &self.endpoint else {
            let has_key = self.user.is_some() || self.rest_user.is_some() || self.ca_file.is_some();
            if has_key || self.insecure {
                let text = "is missing, but user, rest_user, ca_file or insecure is set";
                problems.add("slurm.rest", text);
            }
            if self.token_file.is_some() {
                let text = "can only be used with rest; libslurm takes a token from SLURM_JWT, the \
                    native reader none";
                problems.add("slurm.token_file", text);
            }
            if *reader == ReaderChoice::Native && std::env::var_os("SLURM_JWT").is_some() {
                problems.add(
                    "slurm.reader",
                    "\"native\" cannot use the token in SLURM_JWT: unset it, or use rest",
                );
            }
            return;
        };
        if matches!(reader, ReaderChoice::Libslurm | ReaderChoice::Native) {
            problems.add(
                "slurm.reader",
                "cannot be used with slurm.rest, which has a reader of its own",
            );
        }
        if has_conf {
            problems.add(
                "slurm.rest",
                "cannot be used with [slurm] conf: one is for slurmrestd, the other for libslurm",
            );
        }
        if endpoint.is_exposed() && self.token_file.is_some() && !self.insecure {
            problems.add(
                "slurm.rest",
                "would send the token over the network in the clear: use https://, or set insecure \
                    = true",
            );
        }
        if !matches!(endpoint, Endpoint::Unix(_)) && self.token_file.is_none() {
            problems.add(
                "slurm.token_file",
                "is missing: slurmrestd needs a token, except on a unix socket",
            );
        }
        if self.ca_file.is_some() && !endpoint.is_tls() {
            problems.add("slurm.ca_file", "can only be used with https://");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Flags, SlurmFlags};

    fn problems(text: &str) -> String {
        Config::parse(text, &Flags::default())
            .map_or_else(|problems| problems.to_string(), |_| String::new())
    }

    #[test]
    fn what_does_not_fit_slurmrestd_is_refused_with_the_key() {
        for (text, expected) in [
            ("rest = \"unix:/s\"", ""),
            ("rest = \"https://h\"\ntoken_file = \"/t\"", ""),
            ("rest = \"http://h\"\ntoken_file = \"/t\"\ninsecure = true", ""),
            ("rest = \"http://h\"\ntoken_file = \"/t\"", "in the clear"),
            ("rest = \"h:6820\"", "line 2: slurm.rest: "),
            ("rest = \"unix:/s\"\nconf = \"/c\"", "cannot be used with [slurm] conf"),
            (
                "rest = \"unix:/s\"\nfollow = \"slurmctld\"",
                "slurm.follow: cannot be used with slurm.rest",
            ),
            ("follow = \"me\"", "line 2: slurm.follow: \"me\" is not \"slurmctld\""),
            ("rest = \"https://h\"", "slurm.token_file: is missing"),
            ("token_file = \"/t\"", "slurm.token_file: can only be used with rest; libslurm"),
            (
                "token_file = \"/t\"\nreader = \"native\"",
                "with rest; libslurm takes a token from SLURM_JWT, the native reader none",
            ),
            ("user = \"u\"", "slurm.rest: is missing"),
            ("rest_user = \"u\"", "slurm.rest: is missing"),
            (
                "rest = \"unix:/s\"\nreader = \"native\"",
                "slurm.reader: cannot be used with slurm.rest",
            ),
            ("rest = \"unix:/s\"\nreader = \"/r\"", ""),
            ("reader = \"rest\"", "line 2: slurm.reader: \"rest\" is neither"),
            (
                "follow = \"slurmctld\"\nreader = \"native\"",
                "slurm.follow: cannot be used with reader",
            ),
            ("follow = \"slurmctld\"", ""),
            ("rest = \"unix:/s\"\nca_file = \"/c\"", "only be used with https://"),
            (
                "rest = \"unix:/s\"\nuser = \"a b\"",
                "line 3: slurm.user: \"a b\" is not a user name",
            ),
            (
                "rest = \"unix:/s\"\n[collectors.jobs]\nenabled = true",
                "makes slurmrestd grow by up to 2 GB",
            ),
            ("rest = \"unix:/s\"\n[collectors.jobs]\nenabled = true\nstates_only = true", ""),
            (
                "[collectors.jobs]\nenabled = true\nstates_only = true",
                "can only be used with [slurm] rest",
            ),
            // Partitions do without the reply of jobs there, and need not come in its rounds.
            (
                "rest = \"unix:/s\"\n[collectors.jobs]\nenabled = true\nstates_only = true\n\
                 interval = \"5m\"\n[collectors.partitions]\nenabled = true\ninterval = \"1m\"",
                "",
            ),
        ] {
            let found = problems(&format!("[slurm]\n{text}\n"));
            assert_eq!(found.is_empty(), expected.is_empty(), "{text}: {found}");
            assert!(found.contains(expected), "{text}: {found}");
        }
    }

    #[test]
    fn a_flag_takes_the_place_of_the_files_other_way() {
        let rest = |url: &str| SlurmFlags { rest: Some(url.to_owned()), ..SlurmFlags::default() };
        let flags = Flags { slurm: rest("unix:/s"), ..Flags::default() };
        let config = Config::parse("[slurm]\nconf = \"/c\"\n", &flags).unwrap();
        assert_eq!(
            (config.slurm.conf, config.slurm.rest.endpoint.unwrap().to_string()),
            (None, "unix:/s".into())
        );
        let flags = Flags { slurm: rest("x"), ..Flags::default() };
        assert!(Config::parse("", &flags).unwrap_err().to_string().starts_with("--rest: "));
    }
}
