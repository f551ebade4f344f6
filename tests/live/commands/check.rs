//! `check` and usage: all problems are reported at once, and nothing is started.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sandbox::{
    Folder, Invocation, Manner, Sink, Space, find_program, printed, run, slurm_graphite,
};
use serde_json::Value;

use super::SOON;

#[test]
fn all_problems_are_said_at_once_with_their_lines_and_nothing_starts() {
    let folder = Folder::new().unwrap();
    let sink = Sink::start(Manner::Record).unwrap();
    let reader = folder.script("reader", "touch \"${0%/*}/started\"").unwrap();
    let text = format!(
        "interval = \"1.5s\"\nprefix = \"a b\"\n[slurm]\nreader = \"{reader}\"\ntimout = \"1s\"\n\
         [[carbon]]\naddress = \"{}\"\n[[carbon]]\nprotocol = \"http\"\n[log]\nlevel = 3\n",
        sink.address()
    );
    let file = folder.write("bad.toml", &text).unwrap();
    for command in ["check", "run", "once", "stats", "carbon-rules"] {
        let bad = run(&folder, &[command, "--config", &file]).unwrap();
        assert_eq!((bad.code, bad.stdout.as_str()), (Some(78), ""), "{command}: {}", bad.stderr);
        for problem in [
            "line 1: interval: ",
            "line 2: prefix: ",
            "line 5: slurm.timout: no such key",
            "line 9: carbon.protocol: ",
            "line 8: carbon.address: is missing",
            "line 11: log.level: ",
        ] {
            let problem = format!("{file}: {problem}");
            assert!(
                bad.stderr.contains(&problem),
                "{command} does not say {problem}: {}",
                bad.stderr
            );
        }
        assert!(bad.took < SOON);
    }
    assert!(
        !folder.path().join("started").exists() && sink.accepted() == 0,
        "something was started"
    );

    let nowhere =
        run(&folder, &["check", "--config", "/nowhere.toml", "--interval", "soon"]).unwrap();
    assert_eq!(nowhere.code, Some(78));
    assert!(nowhere.stderr.contains("/nowhere.toml"), "{}", nowhere.stderr);
    // ExecReload runs `check` first: it must refuse what the daemon refuses.
    let file = folder.write("homeless.toml", "interval = \"1s\"\n").unwrap();
    let homeless = run(&folder, &["check", "--config", &file]).unwrap();
    assert!(
        homeless.code == Some(78) && homeless.stderr.contains("nowhere to send to"),
        "{homeless:?}"
    );
    let unnamed = run(&folder, &["check"]).unwrap();
    assert!(
        unnamed.code == Some(0) && unnamed.stdout.contains("\n– carbon: no destination"),
        "{unnamed:?}"
    );
    let homeless = run(&folder, &["run"]).unwrap();
    assert_eq!(homeless.code, Some(78));
    assert!(homeless.stderr.contains("--carbon HOST:2004"), "{}", homeless.stderr);
}

/// Each file in the folder of the default one belongs to a daemon started by
/// slurm-graphite@NAME.service.
#[test]
fn two_files_of_one_host_with_one_prefix_are_found() {
    let folder = Folder::new().unwrap();
    let file = |name: &str, prefix: &str| {
        let text = format!("prefix = \"{prefix}\"\n[[carbon]]\naddress = \"127.0.0.1:9\"\n");
        folder.write(name, &text).unwrap()
    };
    let [alpha, beta] = [file("default.toml", "one"), file("beta.toml", "two")];
    let check = |file: &str| run(&folder, &["check", "--config", file]).unwrap();
    let apart = check(&alpha);
    assert!(apart.code == Some(0) && !apart.stdout.contains("has the same"), "{}", apart.stdout);
    file("beta.toml", "one");
    let same = check(&alpha);
    let line = format!("– configuration: {beta} has the same prefix, one\n");
    assert!(same.code == Some(0) && same.stdout.contains(&line), "{}", same.stdout);
    // A reload checks only its own file first, so a file that no daemon uses must not prevent it.
    let connected = run(&folder, &["check", "--connect", "--config", &alpha]).unwrap();
    let line = format!("✗ configuration: {beta} has the same prefix, one\n");
    assert!(connected.code == Some(1) && connected.stdout.contains(&line), "{}", connected.stdout);
    folder.write("beta.toml", "prefix = 3").unwrap();
    // A pipe to which nobody writes must not prevent it either.
    let pipe = folder.path().join("pipe.toml").display().to_string();
    Invocation::of_program(&folder, Path::new("mkfifo"), &[&pipe]).unwrap().succeed().unwrap();
    let broken = check(&alpha);
    assert!(
        broken.code == Some(0) && broken.stdout.contains("is not compared"),
        "{}",
        broken.stdout
    );
}

/// A reload checks the file first, and must not be prevented by a file system that is away.
#[test]
fn what_a_check_without_connection_can_know_is_a_note() {
    let folder = Folder::new().unwrap();
    let check = |text: &str| {
        let text = format!("{text}[[carbon]]\naddress = \"192.0.2.1:2004\"\n");
        let file = folder.write("noted.toml", &text).unwrap();
        printed(&folder, &["check", "--config", &file]).unwrap()
    };
    let conf = check("[slurm]\nconf = \"/nowhere/slurm.conf\"\n");
    assert!(
        conf.contains("\n– slurm.conf: there is no /nowhere/slurm.conf, which [slurm] conf"),
        "{conf}"
    );
    for (protocol, port) in [("pickle", 2003), ("plaintext", 2004)] {
        let text =
            format!("[[carbon]]\naddress = \"192.0.2.1:{port}\"\nprotocol = \"{protocol}\"\n");
        let file = folder.write("noted.toml", &text).unwrap();
        let checked = printed(&folder, &["check", "--config", &file]).unwrap();
        let line = format!("\n– carbon 192.0.2.1:{port}: port {port} usually reads ");
        assert!(checked.contains(&line), "{checked}");
    }
    let queue = check("[queue]\nmax_age = \"15d\"\n");
    let line = "\n– queue: max_age is 15d; Carbon must keep the finest points as long";
    assert!(queue.contains(line), "{queue}");
    assert_eq!(check("[queue]\nmax_age = \"14d\"\n").lines().count(), 1);
    // The default file's name is given, and there is no such file.
    let absent = printed(&folder, &["check"]).unwrap();
    let expected = folder.path().join("default.toml").display().to_string();
    let line = format!(
        "– configuration: flags and defaults only; there is no {expected}, which \
            SLURM_GRAPHITE_CONFIG names"
    );
    assert!(absent.starts_with(&line), "{absent}");
}

/// "It must belong to the daemon's user" was said of a full disk too, and of one that is read-only.
#[test]
fn a_queue_whose_disk_is_full_or_read_only_is_told_from_one_of_another_user() {
    let folder = Folder::new().unwrap();
    let disks = ["full", "read-only"].map(|name| folder.path().join(name).display().to_string());
    disks.iter().for_each(|disk| fs::create_dir(disk).unwrap());
    let [full, read_only] = &disks;
    let script = format!(
        "mount -t tmpfs -o size=16k none {full}; head -c 16384 /dev/zero > {full}/others; \
         mount -t tmpfs -o ro none {read_only}"
    );
    let Some(space) = Space::new(&folder, &script).unwrap() else { return };
    let program = slurm_graphite().unwrap();
    for (disk, error, advice) in [
        (full, "No space left on device", "Free some space"),
        (read_only, "Read-only file system", "Mount it for writing"),
    ] {
        let checks = format!(
            "exec {} check --connect --slurm-conf /nowhere/slurm.conf --carbon 127.0.0.1:9 \
             --queue-dir {disk}",
            program.display()
        );
        let args = space.words(&checks);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let nsenter = find_program("nsenter").unwrap();
        let checked = Invocation::of_program(&folder, &nsenter, &args).unwrap().finish().unwrap();
        let said = format!("✗ queue: {disk} cannot be written to: {error} (os error");
        let (_, after) = checked.stdout.split_once(&said).unwrap_or_else(|| panic!("{checked:?}"));
        let line = after.lines().nth(1).unwrap();
        assert!(line.starts_with(&format!("  {advice}")), "{disk}: {line}");
        assert!(!line.contains("sudo -u"), "{disk}: {line}");
    }
}

/// A rename may put a pipe in the place of each file that is somebody else's.
#[test]
fn a_pipe_in_the_place_of_a_file_hangs_no_check() {
    let folder = Folder::new().unwrap();
    let pipe = folder.path().join("pipe").display().to_string();
    Invocation::of_program(&folder, Path::new("mkfifo"), &[&pipe]).unwrap().succeed().unwrap();
    let carbon = "[[carbon]]\naddress = \"192.0.2.1:2004\"\nconnect_timeout = \"100ms\"\n";
    let tls = format!("{carbon}tls = true\n");
    for (text, wrong) in [
        (
            format!("{carbon}[slurm]\nconf = \"{pipe}\"\n"),
            format!("slurm.conf: {pipe}: not a regular file"),
        ),
        (format!("{tls}ca_file = \"{pipe}\"\n"), format!("ca_file: {pipe}: not a regular file")),
        (
            format!("{tls}cert_file = \"{pipe}\"\nkey_file = \"{pipe}\"\n"),
            format!("cert_file: {pipe}: not a regular file"),
        ),
        (
            format!("{carbon}[slurm]\nrest = \"https://h\"\ntoken_file = \"{pipe}\"\n"),
            format!("{pipe}: not a regular file"),
        ),
    ] {
        let file = folder.write("pipe.toml", &text).unwrap();
        let checked = run(&folder, &["check", "--connect", "--config", &file]).unwrap();
        assert!(checked.stdout.contains(&wrong), "{wrong}: {checked:?}");
        assert!(checked.took < SOON, "{checked:?}");
    }
}

#[test]
fn a_token_file_is_read_without_a_connection_as_a_ca_file_is() {
    let folder = Folder::new().unwrap();
    let token = folder.path().join("token").display().to_string();
    let text = format!(
        "[slurm]\nrest = \"https://h\"\ntoken_file = {token:?}\n[[carbon]]\naddress = \
            \"192.0.2.1:2004\"\n"
    );
    let file = folder.write("token.toml", &text).unwrap();
    let check = || run(&folder, &["check", "--config", &file]).unwrap();
    let missing = check();
    let line = format!("✗ token_file: {token}: No such file");
    assert!(missing.code == Some(1) && missing.stdout.contains(&line), "{missing:?}");
    // A mode is no reason to refuse a reload.
    for (mode, mark) in [(0o600, "✓"), (0o644, "–")] {
        folder.write("token", "SLURM_JWT=opaque\n").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(mode)).unwrap();
        let found = check();
        let line = format!("\n{mark} token: for user (unknown), does not expire");
        assert!(found.code == Some(0) && found.stdout.contains(&line), "{found:?}");
    }
}

/// A script that parses the output must not fail on an empty one.
#[test]
fn a_script_gets_every_line_as_one_line_of_json_also_if_the_configuration_cannot_be_used() {
    let folder = Folder::new().unwrap();
    let bad = folder.write("bad.toml", "interval = 3\nprefx = \"a\"\n").unwrap();
    let homeless = folder.write("homeless.toml", "interval = \"1s\"\n").unwrap();
    let checked = |args: &[&str], code: i32| {
        let checked = run(&folder, &[&["check", "--json"], args].concat()).unwrap();
        assert_eq!(
            (checked.code, checked.stdout.lines().count()),
            (Some(code), 1),
            "{args:?}: {checked:?}"
        );
        let document: Value = serde_json::from_str(&checked.stdout).unwrap();
        assert_eq!(document["ok"].as_bool(), Some(code == 0), "{args:?}: {document}");
        document["lines"].as_array().unwrap().clone()
    };
    assert_eq!(checked(&[], 0)[0]["mark"], "–");
    let lines = checked(
        &["--connect", "--slurm-conf", "/nowhere/slurm.conf", "--carbon", "127.0.0.1:9"],
        1,
    );
    let wrong: Vec<_> = lines.iter().filter(|line| line["mark"] == "✗").collect();
    assert!(wrong.len() > 1 && wrong.iter().all(|line| line["advice"].is_string()), "{wrong:?}");
    let of_bad = &["line 1: interval: ", "line 2: prefx: no such key"][..];
    for (args, expected) in [
        (&["--config", "/nowhere.toml"][..], &["/nowhere.toml: cannot be read"][..]),
        (&["--connect", "--config", "/nowhere.toml"], &["/nowhere.toml: cannot be read"]),
        (&["--config", &bad], of_bad),
        (&["--connect", "--config", &bad], of_bad),
        (&["--config", &homeless], &["carbon: nowhere to send to"]),
    ] {
        let lines = checked(args, 78);
        assert_eq!(lines.len(), expected.len(), "{args:?}: {lines:?}");
        for (line, text) in lines.iter().zip(expected) {
            assert!(
                line["mark"] == "✗" && line["text"].as_str().unwrap().contains(text),
                "{args:?}: {line}"
            );
        }
    }
}

#[test]
fn usage_errors_exit_with_64_and_help_with_0() {
    let folder = Folder::new().unwrap();
    for args in [
        &["frobnicate"][..],
        &["run", "--frobnicate"],
        &["check", "--interval"],
        &["stats", "--json", "--reset"],
        &["check", "--storage-schemas", "/dev/null"],
        &["check", "--connect", "--read-back", "http://graphite.example.org"],
        &["run", "--replay", "/dev/null", "--carbon", "localhost:2004"],
        // Options that would have no meaning there.
        &["stats", "--carbon", "localhost:2004"],
        &["once", "--queue-dir", "/q"],
        &["once", "--send", "--replay", "/dev/null"],
        &["carbon-rules", "--log-format", "json"],
        &["carbon-rules", "--dry-run"],
        &["carbon-rules", "--max-creates", "1000"],
        &["carbon-rules", "--write", "/etc/carbon", "--file", "schemas"],
        &["metrics", "--count"],
        &["stats", "--watch", "1.5s"],
        &[],
    ] {
        let wrong = run(&folder, args).unwrap();
        assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(64), ""), "{args:?}");
        assert!(wrong.stderr.contains("--help"), "{}", wrong.stderr);
    }
    for args in [&["--help"][..], &["run", "--help"], &["help"], &["help", "stats"], &["--version"]]
    {
        let help = printed(&folder, args).unwrap();
        assert!(help.contains("slurm-graphite"), "{help}");
        // `--version` prints the readers' paths, which contain the path of this checkout.
        let narrow = help.lines().all(|line| line.chars().count() <= 100);
        assert!(narrow || args == ["--version"], "{help}");
    }
}
