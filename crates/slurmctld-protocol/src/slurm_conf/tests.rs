//! slurm.conf as clusters have it.

use std::fs;
use std::path::Path;

use super::*;

fn conf_of(text: &str) -> Result<SlurmConf, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slurm.conf");
    fs::write(&path, text).unwrap();
    read_conf(&path, None).map_err(|error| error.what)
}

fn pairs(conf: &SlurmConf) -> Vec<(&str, &str)> {
    conf.controllers.iter().map(|one| (one.name.as_str(), one.address.as_str())).collect()
}

#[test]
fn controllers_in_order_with_their_addresses() {
    let conf =
        conf_of("slurmctldhost=a\nSLURMCTLDHOST=b(10.0.0.2)\nSlurmctldHost=c(fd00::3)\n").unwrap();
    assert_eq!(pairs(&conf), [("a", "a"), ("b", "10.0.0.2"), ("c", "fd00::3")]);
    let conf = conf_of("ControlMachine=a\nControlAddr=10.0.0.1\nBackupController=b\n").unwrap();
    assert_eq!(pairs(&conf), [("a", "10.0.0.1"), ("b", "b")]);
    let conf = conf_of("SlurmctldHost=new\nControlMachine=old\n").unwrap();
    assert_eq!(pairs(&conf), [("new", "new")]);
    let conf = conf_of("SlurmctldHost=a\nSlurmctldHost=b\nSlurmctldAddr=10.0.0.9\n").unwrap();
    assert_eq!(pairs(&conf), [("10.0.0.9", "10.0.0.9")]);
    assert!(conf_of("ClusterName=x\n").unwrap_err().contains("SlurmctldHost"));
}

#[test]
fn defaults_are_slurms() {
    let conf = conf_of("SlurmctldHost=a\n").unwrap();
    let munge = Munge { socket: "/run/munge/munge.socket.2".into(), ttl: 0 };
    assert_eq!(
        (conf.ports, conf.auth, conf.user.as_str()),
        ((6817, 6817), AuthType::Munge(munge), "root")
    );
    assert_eq!((conf.ipv4, conf.ipv6, conf.cluster), (true, false, None));
}

#[test]
fn ports_and_socket_and_words() {
    let conf = conf_of(
        "SlurmctldHost=a\nSlurmctldPort=6820-6830\n\
                   AuthInfo=cred_expire=3,socket=/x/sock,ttl=30\nClusterName=Big\n\
                   CommunicationParameters=NoInAddrAny,enableipv6,DisableIPv4\nSlurmUser=slurm\n",
    )
    .unwrap();
    assert_eq!(
        (conf.ports, conf.cluster.as_deref(), conf.user.as_str()),
        ((6820, 6830), Some("big"), "slurm")
    );
    assert_eq!((conf.ipv4, conf.ipv6), (false, true));
    assert_eq!(conf.auth, AuthType::Munge(Munge { socket: "/x/sock".into(), ttl: 30 }));
    let old = conf_of("SlurmctldHost=a\nAuthInfo=/old/sock\n").unwrap();
    assert_eq!(old.auth, AuthType::Munge(Munge { socket: "/old/sock".into(), ttl: 0 }));
    for port in ["0", "x", "70000", "7-6", "1-"] {
        assert!(conf_of(&format!("SlurmctldHost=a\nSlurmctldPort={port}\n")).is_err(), "{port}");
    }
}

#[test]
fn what_it_cannot_do_is_said_with_what_helps() {
    for (line, helps) in [
        ("TLSType=tls/s2n", "libslurm"),
        ("TLSType=s2n", "libslurm"),
        ("AuthType=auth/none", "libslurm"),
        ("AuthType=auth/kerberos", "libslurm"),
        ("AuthType=auth/jwt", "slurmrestd"),
    ] {
        let error = conf_of(&format!("SlurmctldHost=a\n{line}\n")).unwrap_err();
        assert!(
            error.contains(helps) && error.contains(line.split('=').next().unwrap()),
            "{error}"
        );
    }
    assert!(conf_of("SlurmctldHost=a\nTLSType=tls/none\nAuthType=slurm\n").is_ok());
    assert!(find(Some(Path::new("/named"))).is_ok_and(|path| path == Path::new("/named")));
}

/// `check` knows where munged is also on a cluster that this crate cannot ask.
#[test]
fn munges_socket_is_found_in_an_included_file_and_beside_what_is_not_supported() {
    let folder = tempfile::tempdir().unwrap();
    let [path, more] = ["slurm.conf", "more.conf"].map(|name| folder.path().join(name));
    for (text, included, expected) in [
        ("ClusterName=a\n", "", Some(MUNGE_SOCKET)),
        (
            "TLSType=tls/s2n\nInclude more.conf\n",
            "authinfo = ttl=60,socket=/x/sock\n",
            Some("/x/sock"),
        ),
        ("authtype = auth/munge # not auth/slurm\n", "", Some(MUNGE_SOCKET)),
        ("#AuthType=auth/slurm\n", "", Some(MUNGE_SOCKET)),
        ("Include more.conf\n", "AuthType=auth/slurm\n", None),
        ("AuthType=auth/jwt\n", "", None),
    ] {
        fs::write(&path, text).unwrap();
        fs::write(&more, included).unwrap();
        assert_eq!(munge_socket(&path), Ok(expected.map(PathBuf::from)), "{text}");
    }
    fs::write(&path, "Include absent\n").unwrap();
    munge_socket(&path).unwrap_err();
}
