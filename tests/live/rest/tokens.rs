//! Tokens go to slurmctld and slurmrestd alone: what another user's program hears on their ports.

use std::fs;

use anyhow::Context as _;
use sandbox::{Invocation, Manner, NOBODY, Sink, Way, free_port, run, wait};

use super::{SOON, check, cluster};
use crate::native::faults::imposter;

/// Anybody could listen on the port while slurmrestd was away, and got the token every interval.
#[test]
fn over_http_a_token_is_sent_only_to_the_program_of_root_or_of_rest_user() {
    let folder = sandbox::Folder::new().unwrap();
    let (port, behind) = (free_port().unwrap(), Sink::start(Manner::Close).unwrap());
    let (_imposter, heard) = imposter(&folder, port, behind.port);
    let token = folder.write("token", "SLURM_JWT=opaque\n").unwrap();
    let said =
        format!("belongs to user {NOBODY}, neither root nor slurmrestd, so the token is not");
    for host in ["127.0.0.1", "localhost", "127.0.0.2"] {
        let toml =
            format!("rest = \"http://{host}:{port}\"\ntoken_file = \"{token}\"\nuser = \"u\"\n");
        let found = check(&folder, &toml);
        assert!(found.contains("✗ token: ") && found.contains(&said), "{found}");
        let config = folder.write("rest.toml", &format!("[slurm]\n{toml}")).unwrap();
        let once = run(&folder, &["once", "--config", &config]).unwrap();
        assert!(format!("{}{}", once.stdout, once.stderr).contains(&said), "{once:?}");
        assert_eq!(fs::read(&heard).unwrap(), b"", "{host}");
    }
    let toml = format!(
        "rest = \"http://localhost:{port}\"\ntoken_file = \"{token}\"\nuser = \"u\"\nrest_user = \
         \"nobody\"\n"
    );
    // On a busy host the other program writes down what it has heard some time later.
    wait::until("the token", SOON * 3, || {
        check(&folder, &toml);
        String::from_utf8_lossy(&fs::read(&heard).unwrap()).contains("opaque")
    })
    .unwrap();
}

/// libslurm connects by itself, so this is no proof, and `check` says so.
#[test]
fn a_token_in_slurm_jwt_is_not_sent_to_another_users_program_on_slurmctlds_port() {
    let (folder, mut slurm, _rest) = cluster(Way::Socket, 3600, "");
    let token = slurm.run("scontrol", &["token", "lifespan=3600"]).unwrap();
    let token = token.trim().trim_start_matches("SLURM_JWT=").to_owned();
    let conf = slurm.conf().display().to_string();
    let config = |conf: &str| {
        let toml = format!("[slurm]\nconf = \"{conf}\"\nreader = \"libslurm\"\n");
        folder.write("jwt.toml", &toml).unwrap()
    };
    let of_conf = |conf: &str, command: &[&str]| {
        let config = config(conf);
        let args = [command, &["--config", &config]].concat();
        let found = Invocation::new(&folder, &args).unwrap().env("SLURM_JWT", &token).finish();
        let found = found.unwrap();
        format!("{}{}", found.stdout, found.stderr)
    };
    // On a busy host a slurmctld that was just started, or a reader, may not answer in time.
    let until_said = |conf: &str, command: &[&str], words: &str| {
        let mut last = String::new();
        wait::until(words, SOON, || {
            last = of_conf(conf, command);
            last.contains(words)
        })
        .with_context(|| format!("{command:?}: {last}"))
        .unwrap();
    };
    let sent = "– token: libslurm sends the one in SLURM_JWT";
    until_said(&conf, &["check", "--connect"], sent);
    until_said(&conf, &["stats", "--json"], "{\"reading\"");

    slurm.slurmctld.kill().unwrap();
    let behind = Sink::start(Manner::Discard).unwrap();
    let (mut imposter, heard) = imposter(&folder, slurm.slurmctld_port, behind.port);
    let refused = format!(
        "belongs to user {NOBODY}, neither root nor SlurmUser, so the token in SLURM_JWT is not sent"
    );
    for command in [&["stats"][..], &["once"], &["check", "--connect"], &["stats", "--jobs"]] {
        until_said(&conf, command, &refused);
    }
    assert_eq!(fs::read(&heard).unwrap(), b"");
    imposter.kill().unwrap();
    slurm.slurmctld.start().unwrap();
    until_said(&conf, &["stats", "--json"], "{\"reading\"");

    // libslurm connects to slurmdbd too, and to a virtual address in place of SlurmctldHost's.
    let port = free_port().unwrap();
    let (_imposter, heard) = self::imposter(&folder, port, behind.port);
    let own = fs::read_to_string(slurm.conf()).unwrap();
    let slurmdbd = format!(
        "{own}\nAccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=localhost\n\
         AccountingStoragePort={port}\n"
    );
    let elsewhere =
        own.replace("SlurmctldHost=localhost(127.0.0.1)", "SlurmctldHost=far(192.0.2.1)");
    assert_ne!(own, elsewhere);
    let virtual_address = format!("{elsewhere}\nSlurmctldAddr=127.0.0.1\nSlurmctldPort={port}\n");
    for (name, text, command) in [
        ("accounting.conf", slurmdbd, &["stats", "--jobs", "--finished"][..]),
        ("virtual.conf", virtual_address, &["stats"]),
    ] {
        let conf = folder.write(name, &text).unwrap();
        until_said(&conf, command, &format!("port {port} of this host {refused}"));
        assert_eq!(fs::read(&heard).unwrap(), b"", "{name}");
    }
}
