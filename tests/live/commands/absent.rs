//! Without slurm.conf, the controller or libslurm itself, commands end within 5 s with a helpful message.

use sandbox::{Finished, Folder, Invocation, free_port, run};

use super::{SOON, script, write};

/// A line that `stats --json` printed once.
const RECORDING: &str = include_str!("reading.json");

/// The commands that need slurmctld.
const LIVE: [&[&str]; 3] = [&["once"], &["check", "--connect", "--carbon", "127.0.0.1:9"], &["stats"]];

/// Exit code 1 within 5 s, with advice. libslurm's own message may be quoted, but never be the only text.
fn helpful(run: &Finished, advice: &[&str]) {
    let said = format!("{}{}", run.stdout, run.stderr);
    assert_eq!(run.code, Some(1), "{said}");
    assert!(run.took < SOON, "{:?}: {said}", run.took);
    assert!(advice.iter().all(|words| said.contains(words)), "{advice:?} is not in: {said}");
    let bare =
        said.lines().find(|line| line.starts_with("fatal") || line.starts_with("slurm-graphite-reader"));
    assert_eq!(bare, None, "{said}");
}

#[test]
fn a_missing_slurm_conf_is_said_within_five_seconds() {
    let folder = Folder::new().unwrap();
    let missing = folder.path().join("nothing/slurm.conf").display().to_string();
    for command in LIVE {
        let mut args = command.to_vec();
        args.extend(["--slurm-conf", &missing]);
        helpful(
            &run(&folder, &args).unwrap(),
            &[&missing, "does not exist", "Copy the cluster's slurm.conf"],
        );
        let by_environment =
            Invocation::new(&folder, command).unwrap().env("SLURM_CONF", &missing).finish().unwrap();
        helpful(&by_environment, &[&missing, "--slurm-conf", "SLURM_CONF"]);
    }
}

/// Without any slurm.conf libslurm looks for a controller in DNS. On a host that finds one, the messages are different.
#[test]
fn no_slurm_conf_at_all_is_said_within_five_seconds() {
    if std::path::Path::new("/etc/slurm/slurm.conf").exists() {
        return;
    }
    let folder = Folder::new().unwrap();
    for command in LIVE {
        helpful(&run(&folder, command).unwrap(), &["/etc/slurm/slurm.conf", "--slurm-conf", "configless"]);
    }
}

#[test]
fn a_bad_slurm_conf_is_said_within_five_seconds() {
    let folder = Folder::new().unwrap();
    let conf = write(&folder, "slurm.conf", "ClusterName=broken\nNoSuchKey=1\n").unwrap();
    for command in LIVE {
        let mut args = command.to_vec();
        args.extend(["--slurm-conf", &conf]);
        helpful(&run(&folder, &args).unwrap(), &["NoSuchKey", "Does `sdiag` work here?"]);
    }
}

#[test]
fn a_configless_controller_that_is_down_is_said_within_five_seconds() {
    let folder = Folder::new().unwrap();
    let server = format!("127.0.0.1:{}", free_port().unwrap());
    for command in LIVE {
        let run = Invocation::new(&folder, command).unwrap().env("SLURM_CONF_SERVER", &server);
        helpful(&run.finish().unwrap(), &["configless", "slurmctld, which must answer"]);
    }
}

/// By itself, libslurm's error number means "Resource temporarily unavailable", or nothing.
#[test]
fn a_controllers_name_that_does_not_resolve_is_said_in_libslurms_words() {
    let folder = Folder::new().unwrap();
    let text = "ClusterName=x\nSlurmctldHost=slurmclt1.invalid\nNodeName=n1\nMessageTimeout=2\n";
    let conf = write(&folder, "slurm.conf", text).unwrap();
    for command in LIVE {
        let mut args = command.to_vec();
        args.extend(["--slurm-conf", &conf]);
        let run = run(&folder, &args).unwrap();
        let said = format!("{}{}", run.stdout, run.stderr);
        // The name, or in newer releases getaddrinfo's words.
        let words = ["Unable to resolve \"slurmclt1.invalid\"", "Name or service not known"];
        let why = words.iter().any(|words| said.contains(words));
        assert!(run.code == Some(1) && said.contains("libslurm said: ") && why, "{said}");
        assert!(!said.contains("temporarily unavailable"), "{said}");
    }
}

#[test]
fn where_no_libslurm_is_everything_but_a_live_reading_works() {
    let folder = Folder::new().unwrap();
    // The dynamic loader's message and exit code.
    let loader =
        "reader: error while loading shared libraries: libslurm.so.38: cannot open shared object file";
    let unloadable = script(&folder, "reader", &format!("echo '{loader}' >&2; exit 127")).unwrap();
    let refusal = "the loaded libslurm is libslurm.so.38 of Slurm 22.05";
    let refuses = script(&folder, "refuses", &format!("echo '{refusal}' >&2; exit 69")).unwrap();
    for (reader, words) in [
        (unloadable.as_str(), ["no reader fits", "libslurm.so.38"]),
        (refuses.as_str(), ["no reader fits", refusal]),
        ("/nowhere/reader", ["/nowhere/reader", "No such file"]),
    ] {
        let file = write(
            &folder,
            "conf.toml",
            &format!("[slurm]\nreader = \"{reader}\"\n[[carbon]]\naddress = \"127.0.0.1:9\"\n"),
        )
        .unwrap();
        for command in LIVE {
            let mut args = command.to_vec();
            args.extend(["--config", &file]);
            let run = run(&folder, &args).unwrap();
            helpful(&run, &words);
            assert!(!run.stderr.contains("slurm.conf"), "that is not the cause: {}", run.stderr);
        }
        let recording = write(&folder, "recording", RECORDING).unwrap();
        for args in [
            &["metrics"][..],
            &["check", "--config", &file],
            &["carbon-rules", "--config", &file],
            &["once", "--config", &file, "--replay", &recording],
        ] {
            let works = run(&folder, args).unwrap();
            assert_eq!((works.code, works.stderr.as_str()), (Some(0), ""), "{args:?}");
            assert!(!works.stdout.is_empty());
        }
    }
}

#[test]
fn an_old_recording_still_gives_its_points() {
    let folder = Folder::new().unwrap();
    let recording = write(&folder, "recording", &RECORDING.repeat(2)).unwrap();
    let replayed = run(&folder, &["once", "--replay", &recording]).unwrap();
    assert_eq!(replayed.code, Some(0), "{}", replayed.stderr);
    let lines: Vec<&str> = replayed.stdout.lines().collect();
    assert!(lines.iter().all(|line| line.ends_with(" 1795248000")), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains(".gauge-jobs_submitted ")).count(), 2);
    let broken = write(&folder, "broken", &format!("{RECORDING}{{\"reading\"\n")).unwrap();
    let broken = run(&folder, &["once", "--replay", &broken]).unwrap();
    assert_eq!(broken.code, Some(1));
    assert_eq!(broken.stderr.matches("{\\\"reading").count(), 1, "once: {}", broken.stderr);
    assert!(broken.stderr.contains("line 2: not a line of"), "{}", broken.stderr);
    let missing = run(&folder, &["once", "--replay", "/no/recording"]).unwrap();
    assert_eq!(missing.stderr, "slurm-graphite: /no/recording: No such file or directory (os error 2)\n");
}
