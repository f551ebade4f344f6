//! The Dockerfile without docker: each of its lines is executed in a chroot of the release that it
//! names.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use sandbox::Folder;

use super::super::chroot::{Chroot, host};
use super::artefact;

const DOCKERFILE: &str = include_str!("../../../../Dockerfile");

#[test]
#[ignore = "make dist-test"]
fn an_image_with_libslurm_starts_the_reader_that_fits_it() {
    let folder = Folder::new().unwrap();
    let chroot = image(&folder, &[("SLURM", "libslurm42 slurm-wlm-basic-plugins")]).unwrap();
    let said = started(&chroot).unwrap();
    let has_found_it =
        said.contains("slurm-graphite-reader-42") && !said.contains("this host has no libslurm");
    assert!(has_found_it, "{said}");
}

#[test]
#[ignore = "make dist-test"]
fn an_image_without_libslurm_has_what_slurmrestd_needs() {
    let folder = Folder::new().unwrap();
    let chroot = image(&folder, &[]).unwrap();
    assert!(started(&chroot).unwrap().contains("this host has no libslurm"));
    assert!(chroot.path("/etc/ssl/certs/ca-certificates.crt").exists());
    let once = "slurm-graphite once --rest http://127.0.0.1:1 --token-file /root/token 2>&1 || :";
    let said = chroot.run(&format!("echo x > /root/token; {once}")).unwrap();
    // The reader's own message: it has started and checked the token.
    assert!(said.contains("slurmrestd diag: the token does not name its user"), "{said}");
}

/// Its output with a slurm.conf that names no cluster, run as the image's user.
fn started(chroot: &Chroot<'_>) -> Result<String> {
    chroot.run("echo 'ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1' > /tmp/slurm.conf")?;
    let user = value("USER ").context("no user")?.replace(':', " --regid=");
    let program = value("ENTRYPOINT ").context("no program")?;
    let program = program.trim_matches(['[', ']', '"']);
    let arguments = "once --log-level info --slurm-conf /tmp/slurm.conf 2>&1 || :";
    chroot.run(&format!("setpriv --clear-groups --reuid={user} {program} {arguments}"))
}

fn value(start: &str) -> Option<&'static str> {
    DOCKERFILE.lines().find_map(|line| line.strip_prefix(start))
}

/// The last stage, with these arguments.
fn image<'f>(folder: &'f Folder, arguments: &[(&str, &str)]) -> Result<Chroot<'f>> {
    let mut variables = BTreeMap::new();
    let mut stages: Vec<(String, Chroot<'f>)> = Vec::new();
    let text = DOCKERFILE.replace("\\\n", "");
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (instruction, rest) = line.split_once(' ').with_context(|| line.to_owned())?;
        let words: Vec<&str> = rest.split(' ').collect();
        match (instruction, &words[..]) {
            ("ARG", [argument]) => {
                let (name, default) = argument.split_once('=').context("no default")?;
                let given =
                    arguments.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
                variables.insert(name, given.unwrap_or(default));
            }
            ("FROM", [image, as_name @ ..]) => {
                let suite = variables.get("DEBIAN").context("no DEBIAN")?;
                assert_eq!(*image, "debian:${DEBIAN}-slim");
                let name = as_name.get(1).copied().unwrap_or_default().to_owned();
                let part = format!("stage{}", stages.len());
                stages.push((name, Chroot::named(folder, suite, &part)?));
            }
            ("ADD", [source, "/"]) => {
                let found = artefact(".tar.gz")?;
                let name = found.file_name().context("no name")?.to_string_lossy();
                let parts: Vec<&str> = source.split('*').collect();
                assert!(parts.iter().all(|part| name.contains(part)), "{source} is not {name}");
                let root = stages.last().context("no FROM")?.1.path("/").display().to_string();
                host(folder, "tar", &["-xf", &found.display().to_string(), "-C", &root])?;
            }
            ("COPY", [from, source, "/"]) => {
                let from = from.strip_prefix("--from=").context("copied from the host")?;
                let (_, of) =
                    stages.iter().find(|(name, _)| name == from).context("no such stage")?;
                let source = format!("{}/.", of.path(source).display());
                let root = stages.last().context("no FROM")?.1.path("/").display().to_string();
                host(folder, "cp", &["-a", &source, &root])?;
            }
            ("RUN", _) => {
                let set: String =
                    variables.iter().map(|(name, value)| format!("{name}='{value}'\n")).collect();
                stages.last().context("no FROM")?.1.run(&format!("{set}{rest}"))?;
            }
            ("USER" | "ENTRYPOINT" | "CMD" | "ENV" | "HEALTHCHECK" | "LABEL", _) => {}
            _ => bail!("{line}: this test does not know what it does"),
        }
    }
    Ok(stages.pop().context("no FROM")?.1)
}
