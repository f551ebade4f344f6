//! Without slurm.conf, the controller or libslurm itself, commands end within 5 s with a helpful
//! message; only libslurm's own search for a configless controller takes longer.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use sandbox::{Finished, Folder, Invocation, free_port, printed, run};

use super::{RECORDING, SOON};

/// The commands that need slurmctld.
const LIVE: [&[&str]; 3] =
    [&["once"], &["check", "--connect", "--carbon", "127.0.0.1:9"], &["stats"]];

/// How long libslurm searches for a configless controller, before it says a word.
const SEARCH: Duration = Duration::from_secs(15);

/// Exit code 1 within 5 s, with advice. libslurm's own message may be quoted, but never be the only
/// text.
fn helpful(run: &Finished, advice: &[&str]) {
    helpful_within(SOON, run, advice);
}

fn helpful_within(limit: Duration, run: &Finished, advice: &[&str]) {
    let said = format!("{}{}", run.stdout, run.stderr);
    assert_eq!(run.code, Some(1), "{said}");
    assert!(run.took < limit, "{:?}: {said}", run.took);
    assert!(advice.iter().all(|words| said.contains(words)), "{advice:?} is not in: {said}");
    let bare = |line: &str| line.starts_with("fatal") || line.starts_with("slurm-graphite-reader");
    assert_eq!(said.lines().find(|line| bare(line)), None, "{said}");
}

#[test]
fn a_slurm_conf_or_controller_that_is_missing_or_bad_is_said_within_five_seconds() {
    let folder = Folder::new().unwrap();
    let missing = folder.path().join("nothing/slurm.conf").display().to_string();
    let bad = folder.write("slurm.conf", "ClusterName=broken\nNoSuchKey=1\n").unwrap();
    let text = "ClusterName=x\nSlurmctldHost=slurmclt1.invalid\nNodeName=n1\nMessageTimeout=2\n";
    let nameless = folder.write("nameless.conf", text).unwrap();
    let server = format!("127.0.0.1:{}", free_port().unwrap());
    for command in LIVE {
        let with = |conf: &str| run(&folder, &[command, &["--slurm-conf", conf]].concat()).unwrap();
        let by = |variable: &str, value: &str| {
            Invocation::new(&folder, command).unwrap().env(variable, value).finish().unwrap()
        };
        helpful(&with(&missing), &[&missing, "does not exist", "Copy the cluster's slurm.conf"]);
        helpful(&by("SLURM_CONF", &missing), &[&missing, "--slurm-conf", "SLURM_CONF"]);
        helpful(&with(&bad), &["NoSuchKey", "Does `sdiag` work here?"]);
        // At 4 s the reader was stopped before libslurm had said why.
        let configless = &["configless", "slurmctld, which must answer"];
        helpful_within(SEARCH, &by("SLURM_CONF_SERVER", &server), configless);
        // Without any slurm.conf libslurm looks for a controller in DNS. On a host that finds one,
        // the messages are different.
        if !std::path::Path::new("/etc/slurm/slurm.conf").exists() {
            let none = run(&folder, command).unwrap();
            helpful(&none, &["/etc/slurm/slurm.conf", "--slurm-conf", "configless"]);
        }
        // By itself, libslurm's error number means "Resource temporarily unavailable", or nothing.
        let run = with(&nameless);
        let said = format!("{}{}", run.stdout, run.stderr);
        // The name, or in newer releases getaddrinfo's words.
        let words = ["Unable to resolve \"slurmclt1.invalid\"", "Name or service not known"];
        let why = words.iter().any(|words| said.contains(words));
        assert!(run.code == Some(1) && said.contains("libslurm said: ") && why, "{said}");
        assert!(!said.contains("temporarily unavailable"), "{said}");
    }
}

/// "libslurm needs /etc/slurm/slurm.conf, or the file that …", of a file that was there.
#[test]
fn a_slurm_conf_that_may_not_be_read_is_not_called_missing() {
    let folder = Folder::new().unwrap();
    let conf = folder.write("slurm.conf", "ClusterName=x\nSlurmctldHost=localhost\n").unwrap();
    fs::set_permissions(&conf, Permissions::from_mode(0o000)).unwrap();
    for command in LIVE {
        let args = [command, &["--slurm-conf", &conf]].concat();
        let run = Invocation::ordinary(&folder, &args).unwrap().finish().unwrap();
        helpful(&run, &[&conf, "Permission denied", "every parent directory (x)"]);
    }
}

/// "Disable the collectors that read slurmdbd", at a command that has none.
#[test]
fn finished_jobs_without_slurmdbd_are_said_with_the_key_of_slurm_conf() {
    let folder = Folder::new().unwrap();
    let conf = folder.write("slurm.conf", "ClusterName=x\nSlurmctldHost=localhost\n").unwrap();
    let args = ["stats", "--jobs", "--finished", "--slurm-conf", &conf];
    let words =
        ["AccountingStorageType must be accounting_storage/slurmdbd", "leave out `--finished`"];
    helpful(&run(&folder, &args).unwrap(), &words);
}

#[test]
fn where_no_libslurm_is_everything_but_a_live_reading_works() {
    let folder = Folder::new().unwrap();
    // The dynamic loader's message and exit code.
    let loader = "reader: error while loading shared libraries: libslurm.so.38: cannot open shared \
        object file";
    let unloadable = folder.script("reader", &format!("echo '{loader}' >&2; exit 127")).unwrap();
    let refusal = "the loaded libslurm is libslurm.so.38 of Slurm 22.05";
    let refuses = folder.script("refuses", &format!("echo '{refusal}' >&2; exit 69")).unwrap();
    let recording = folder.write("recording", RECORDING).unwrap();
    for (reader, words) in [
        (unloadable.as_str(), ["no reader fits", "libslurm.so.38"]),
        (refuses.as_str(), ["no reader fits", refusal]),
        ("/nowhere/reader", ["/nowhere/reader", "No such file"]),
    ] {
        let text =
            format!("[slurm]\nreader = \"{reader}\"\n[[carbon]]\naddress = \"127.0.0.1:9\"\n");
        let file = folder.write("conf.toml", &text).unwrap();
        for command in LIVE {
            let run = run(&folder, &[command, &["--config", &file]].concat()).unwrap();
            helpful(&run, &words);
            assert!(!run.stderr.contains("slurm.conf"), "that is not the cause: {}", run.stderr);
        }
        for args in [
            &["metrics"][..],
            &["check", "--config", &file],
            &["carbon-rules", "--config", &file],
            &["once", "--config", &file, "--replay", &recording],
        ] {
            assert!(!printed(&folder, args).unwrap().is_empty(), "{args:?}");
        }
    }
}

#[test]
fn an_old_recording_still_gives_its_points() {
    let folder = Folder::new().unwrap();
    let recording = folder.write("recording", &RECORDING.repeat(2)).unwrap();
    let replayed = printed(&folder, &["once", "--replay", &recording]).unwrap();
    assert!(replayed.lines().all(|line| line.ends_with(" 1795248000")), "{replayed}");
    assert_eq!(replayed.matches(".gauge-jobs_submitted ").count(), 2);
    let broken = folder.write("broken", &format!("{RECORDING}{{\"reading\"\n")).unwrap();
    let broken = run(&folder, &["once", "--replay", &broken]).unwrap();
    assert_eq!(broken.code, Some(1));
    assert_eq!(broken.stderr.matches("{\\\"reading").count(), 1, "once: {}", broken.stderr);
    assert!(broken.stderr.contains("line 2: not a line of"), "{}", broken.stderr);
    let missing = run(&folder, &["once", "--replay", "/no/recording"]).unwrap();
    assert_eq!(
        missing.stderr,
        "slurm-graphite: /no/recording: No such file or directory (os error 2)\n"
    );
}
