//! The sandbox in which a document's commands run: replacements for its hosts, files and users, and
//! the state before.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use sandbox::carbon::{Limits, Options};
use sandbox::{GraphiteWeb, Invocation, Sandbox, find_program, slurm_graphite};

use super::blocks::{self, Block, top};

/// Debian's rules, the last of which matches everything. For storage-aggregation.conf Debian ships
/// only an example.
const SCHEMAS: &str = "[default_1min_for_1day]\npattern = .*\nretentions = 60s:1d\n";
const AGGREGATION: &str = "\
[min]
pattern = \\.min$
xFilesFactor = 0.1
aggregationMethod = min

[max]
pattern = \\.max$
xFilesFactor = 0.1
aggregationMethod = max

[sum]
pattern = \\.count$
xFilesFactor = 0
aggregationMethod = max

[default_average]
pattern = .*
xFilesFactor = 0.5
aggregationMethod = average
";

/// Files below cluster that exist before the first block, how they are created, and what they must
/// be afterwards: roll-up, xFilesFactor, and each archive's step and retention in seconds.
const HISTORY: [(&str, &str, &str); 5] = [
    ("slurm_sched_stats/gauge-early_sum", "", "last 0.0 30 1209600 300 7776000 3600 94608000"),
    ("slurm_jobs/total/gauge-jobs", "", "average 0.0 60 1209600 300 7776000 3600 94608000"),
    ("slurm_rpc_stats/user/ann/gauge-count", "", "last 0.0 30 1209600 300 2592000"),
    (
        "slurm_sched_stats/gauge-old_sum",
        "servers/head1/sdiag/old_sum",
        "last 0.0 30 1209600 300 7776000 3600 94608000",
    ),
    (
        "slurm_sched_stats/gauge-older",
        "collectd/head1/sdiag_stats/gauge-older",
        "average 0.0 30 1209600 300 7776000 3600 94608000",
    ),
];

/// The sandbox in place of the documentation's hosts.
pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    graphite: GraphiteWeb,
}

impl Stage {
    pub(crate) fn start() -> Result<Self> {
        // What the documentation tells the reader to do is done by its own commands.
        let (schemas, aggregation) = (SCHEMAS.to_owned(), AGGREGATION.to_owned());
        let options = Options { schemas, aggregation, limits: Limits::Wide, ..Options::default() };
        let sandbox = Sandbox::with(&options)?;
        let mut graphite = GraphiteWeb::spawn(&sandbox.folder, &sandbox.carbon)?;
        graphite.process.wait_ready()?;
        let work = sandbox.path("work");
        fs::create_dir(&work)?;
        // Only root can give a folder to another user; for any other user the daemon's user is the
        // same user.
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        if !user.is_root() {
            let passwd = format!("slurm-graphite:x:{user}:{group}::/:/bin/false\n");
            sandbox.folder.write("root/etc/passwd", &passwd)?;
            sandbox.folder.write("root/etc/group", &format!("slurm-graphite:x:{group}:\n"))?;
        }
        // A copy of the checkout made of links, so that nothing is written into the checkout by
        // mistake.
        let needed = "Makefile config docs packaging systemd README.md CHANGELOG.md SECURITY.md \
            LICENSE THIRD-PARTY-NOTICES";
        for name in needed.split(' ') {
            symlink(top().join(name).canonicalize()?, work.join(name))?;
        }
        Ok(Self { sandbox, graphite })
    }

    /// Installs what a package would install, with the edits that `document` describes.
    pub(crate) fn install(&self, document: &str) -> Result<()> {
        // What `make build` does besides compiling.
        if fs::read_to_string(top().join("Makefile"))?.contains("\nman:") {
            self.sh("make man", document)?;
        }
        self.sh("make install PREFIX=/usr", document)?;
        // Without DESTDIR it would also create this folder.
        fs::create_dir_all(self.sandbox.path("root/var/lib/slurm-graphite"))?;
        let blocks = blocks::all()?;
        let mut own = blocks
            .iter()
            .filter(|block| block.language == "toml" && block.place.starts_with(document));
        if let Some(Block { text, .. }) = own.next() {
            // The shipped file has more lines than those that are edited.
            let text = format!("{text}\n[queue]\ndir = \"/var/lib/slurm-graphite\"\n");
            self.sandbox
                .folder
                .write("root/etc/slurm-graphite/slurm-graphite.toml", &self.adapted(&text))?;
        }
        Ok(())
    }

    /// `text` with the sandbox's hosts, files and users.
    pub(crate) fn adapted(&self, text: &str) -> String {
        self.stand_ins()
            .iter()
            .fold(text.to_owned(), |text, (what, stand_in)| text.replace(what, stand_in))
    }

    fn stand_ins(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.sandbox.path(name).display().to_string();
        vec![
            ("sudo -u slurm-graphite ", String::new()),
            ("sudo -u _graphite ", String::new()),
            ("sudo ", String::new()),
            (
                "slurm-graphite run ",
                "timeout --preserve-status --signal=TERM 3 slurm-graphite run ".to_owned(),
            ),
            ("carbon.example.org:2004", self.sandbox.carbon.address()),
            ("http://graphite.example.org", format!("http://127.0.0.1:{}", self.graphite.port)),
            ("/etc/slurm/slurm.conf", self.sandbox.slurm.conf().display().to_string()),
            ("/etc/slurm-graphite", path("root/etc/slurm-graphite")),
            ("/var/lib/slurm-graphite", path("root/var/lib/slurm-graphite")),
            ("/usr/share/slurm-graphite", path("root/usr/share/slurm-graphite")),
            ("/etc/carbon", path("carbon")),
            ("/var/lib/graphite/whisper", path("carbon/whisper")),
        ]
    }

    /// Creates what an early start and earlier collectors would have left behind in a Carbon
    /// without our rules.
    pub(crate) fn history(&self) -> Result<()> {
        for (path, made_as, _) in HISTORY {
            let own = format!("cluster/{path}");
            let file = self.sandbox.carbon.file(if made_as.is_empty() { &own } else { made_as });
            fs::create_dir_all(file.parent().context("no directory")?)?;
            self.sh(&format!("whisper-create {} 60s:1d", file.display()), "history")?;
        }
        Ok(())
    }

    /// Checks that each of those files is now as Carbon would create it.
    pub(crate) fn history_is_mended(&self) -> Result<()> {
        for (path, _, rules) in HISTORY {
            let file = self.sandbox.carbon.file(&format!("cluster/{path}"));
            let info = self.sh(&format!("whisper-info {}", file.display()), path)?;
            let wanted = ["aggregationMethod", "xFilesFactor", "secondsPerPoint", "retention"];
            let found = info.lines().filter_map(|line| line.split_once(": "));
            let found: Vec<&str> =
                found.filter(|(key, _)| wanted.contains(key)).map(|(_, value)| value).collect();
            ensure!(found.join(" ") == rules, "{path}: {found:?}");
        }
        Ok(())
    }

    /// Compares `said`, the output of `check --connect`, with the document: it must have a line
    /// about each thing that the document shows, in that order. Lines that do not depend on Carbon
    /// must be those of the document up to their first number.
    pub(crate) fn is_as_documented(&self, said: &str) -> Result<()> {
        let shown = blocks::all()?
            .into_iter()
            .find(|block| block.text.starts_with("✓ configuration: "))
            .context("no output shown")?;
        let lines = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("  ")).map(str::to_owned).collect()
        };
        let last =
            said.rfind("✓ configuration: ").and_then(|at| said.get(at..)).context("no output")?;
        let (mut said, mut shown) = (lines(last), lines(&shown.text));
        // Nothing is wrong here.
        let ends = (said.pop(), shown.pop());
        let ends = (ends.0.as_deref().unwrap_or_default(), ends.1.as_deref().unwrap_or_default());
        let failed = "slurm-graphite: 1 check failed; see the advice above";
        ensure!(ends == ("no problem found", failed), "{ends:?}");
        ensure!(said.len() == shown.len(), "{said:#?} is not as documented: {shown:#?}");
        for (line, documented) in said.iter().zip(&shown) {
            let (_, rest) = documented.split_once(' ').context("no mark")?;
            let subject = rest.split([':', ' ']).next().unwrap_or_default();
            let is_it = line.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(subject));
            ensure!(is_it, "{line}: {subject}?");
        }
        for (line, documented) in said.iter().zip(shown).take(6) {
            let start = documented.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default();
            // Root may write anywhere, and the text says so.
            let start = self.adapted(start.split(" by this user").next().unwrap_or_default());
            ensure!(line.starts_with(&start), "{line}\nis not as documented:\n{start}");
        }
        Ok(())
    }

    /// Whether the answer to `script`, which asks graphite-web for the point of `check`, ends with
    /// a moment of the last minutes.
    pub(crate) fn has_point(&self, script: &str, place: &str) -> Result<bool> {
        let said = self.sh(script, place)?;
        let values = said.rsplit(['|', ',']).filter_map(|value| value.trim().parse::<f64>().ok());
        Ok(said.starts_with("cluster.slurm_graphite.")
            && said.contains('|')
            && values.take(1).any(|value| (sandbox::now() - value).abs() < 600.0))
    }

    pub(crate) fn sh(&self, script: &str, place: &str) -> Result<String> {
        let program = slurm_graphite()?;
        let built =
            program.parent().context("a program without a directory")?.display().to_string();
        let search =
            format!("{built}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        let work = self.sandbox.path("work").display().to_string();
        let script = format!("cd {work}\n{script}");
        let run = Invocation::of_program(
            &self.sandbox.folder,
            &find_program("sh")?,
            &["-e", "-u", "-c", &script],
        )?
        .env("PATH", &search)
        .env("SLURM_GRAPHITE_CONFIG", &self.adapted("/etc/slurm-graphite/slurm-graphite.toml"))
        .env("SLURM_CONF", &self.sandbox.slurm.conf().display().to_string())
        .env("DESTDIR", &self.sandbox.path("root").display().to_string())
        .env("BUILT", &built)
        .finish()?;
        let said = format!("{place}: {script}\n{}{}", run.stdout, run.stderr);
        ensure!(run.code == Some(0), "exit {:?}: {said}", run.code);
        Ok(run.stdout)
    }
}
