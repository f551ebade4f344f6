//! `carbon-rules`: what it writes into Carbon's files takes effect, and what it cannot write leaves
//! them as they are.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use sandbox::carbon::{Limits, Options};
use sandbox::{
    Carbon, Finished, Folder, Invocation, NOBODY, find_program, is_root, printed, run,
    slurm_graphite, unix_seconds, wait,
};

/// A site's rules: one of its own, and Debian's, which matches everything.
const SITE: &str = "# The site's.\n[carbon]\npattern = ^carbon\\.\nretentions = 60:90d\n\n\
    [default]\npattern = .*\nretentions = 60s:1d\n";
const CACHE: &str = "[cache]\nUSER =\nMAX_CREATES_PER_MINUTE = 50\n";
const FILES: [&str; 3] = ["storage-schemas.conf", "storage-aggregation.conf", "carbon.conf"];

/// A folder as Debian has it: without storage-aggregation.conf.
fn site(folder: &Folder) -> PathBuf {
    let site = folder.path().join("site");
    folder.write(&format!("site/{}", FILES[0]), SITE).unwrap();
    folder.write(&format!("site/{}", FILES[2]), CACHE).unwrap();
    site
}

fn rules(folder: &Folder, site: &Path, more: &[&str]) -> Finished {
    run(folder, &[&["carbon-rules", "--write", &site.display().to_string()], more].concat())
        .unwrap()
}

fn texts(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|file| (file.file_name().unwrap().to_string_lossy().into(), fs::read(&file).unwrap()))
        .collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn sections(folder: &Folder, file: &Path) -> Vec<String> {
    let script = "import configparser, sys\nc = configparser.ConfigParser()\n\
                  c.read_file(open(sys.argv[1]))\nfor s in c.sections(): print(s, \
                  sorted(c.items(s)))";
    let python = find_program("python3").unwrap();
    let args = ["-c", script, &file.display().to_string()];
    Invocation::of_program(folder, &python, &args)
        .unwrap()
        .succeed()
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Whisper's header, as whisper's own tool reads it: the roll-up, and the seconds and the points of
/// each archive.
fn header(folder: &Folder, carbon: &Carbon, path: &str) -> String {
    let tool = find_program("whisper-info").unwrap();
    let file = carbon.file(path).display().to_string();
    let said = Invocation::of_program(folder, &tool, &[&file]).unwrap().succeed().unwrap();
    let lines_of = |key: &&str| {
        said.lines()
            .filter_map(|line| line.strip_prefix(&format!("{key}: ")))
            .collect::<Vec<_>>()
            .join(" ")
    };
    ["aggregationMethod", "secondsPerPoint", "retention"]
        .iter()
        .map(lines_of)
        .collect::<Vec<_>>()
        .join("; ")
}

#[test]
fn rules_that_it_wrote_take_effect_above_a_catch_all_and_the_sites_own_stay() {
    let folder = Folder::new().unwrap();
    let options =
        Options { schemas: SITE.to_owned(), limits: Limits::AsShipped, ..Options::default() };
    let mut carbon = Carbon::new(&folder, "carbon", &options).unwrap();
    let home = folder.path().join("carbon");
    fs::remove_file(home.join(FILES[1])).unwrap();
    let before = sections(&folder, &home.join(FILES[0]));

    let written = rules(&folder, &home, &["--interval", "10s", "--max-creates", "1000"]);
    assert_eq!((written.code, written.stderr.as_str()), (Some(0), ""), "{}", written.stdout);
    assert!(written.stdout.contains("systemctl restart carbon-cache"), "{}", written.stdout);
    let after = sections(&folder, &home.join(FILES[0]));
    assert!(after.len() > before.len() && after.ends_with(&before), "{after:#?}");
    let ours = &after[..after.len() - before.len()];
    assert!(ours.iter().all(|one| one.starts_with("slurm_graphite")), "{after:#?}");
    assert!(
        fs::read_to_string(home.join(FILES[2]))
            .unwrap()
            .contains("\nMAX_CREATES_PER_MINUTE = 1000\n")
    );

    carbon.process.start().unwrap();
    // More series than Debian's limit allows in the first minute.
    let names: Vec<String> = (0..80)
        .map(|number| format!("cluster.slurm_rpc_stats.type.T{number}.gauge-count"))
        .collect();
    let known = [
        (
            "cluster.slurm_sched_stats.gauge-main_max_cycle",
            "max; 10 300 3600; 1209600 7776000 94608000",
        ),
        (
            "cluster.slurm_sched_stats.gauge-jobs_started",
            "last; 10 300 3600; 1209600 7776000 94608000",
        ),
        (
            "cluster.slurm_sched_stats.gauge-bf_depth_mean",
            "average; 10 300 3600; 1209600 7776000 94608000",
        ),
        ("cluster.slurm_nodes.total.gauge-nodes", "average; 60 300 3600; 1209600 7776000 94608000"),
        ("cluster.slurm_rpc_stats.user.ann.gauge-count", "last; 10 300; 1209600 2592000"),
        ("carbon.agents.a.b", "average; 60; 7776000"),
        ("servers.a.load", "average; 60; 86400"),
    ];
    let mut stream = TcpStream::connect(("127.0.0.1", carbon.line_port)).unwrap();
    for path in names.iter().map(String::as_str).chain(known.map(|(path, _)| path)) {
        writeln!(stream, "{path} 1 {}", unix_seconds()).unwrap();
    }
    drop(stream);
    wait::until("all series", wait::LIMIT, || carbon.paths().len() == names.len() + known.len())
        .unwrap();
    for (path, expected) in known {
        assert_eq!(header(&folder, &carbon, path), expected, "{path}");
    }
}

#[test]
fn a_second_run_changes_nothing_and_another_configuration_only_the_block() {
    let folder = Folder::new().unwrap();
    let site = site(&folder);
    let dry = rules(&folder, &site, &["--dry-run", "--max-creates", "1000"]);
    assert_eq!((dry.code, texts(&site).len()), (Some(0), 2), "{dry:?}");
    for line in [
        "+[slurm_graphite:cluster]",
        "-MAX_CREATES_PER_MINUTE = 50",
        "+MAX_CREATES_PER_MINUTE = 1000",
    ] {
        assert!(dry.stdout.contains(&format!("{line}\n")), "{line}: {}", dry.stdout);
    }
    assert!(!dry.stdout.contains("\n-[") && !dry.stdout.contains("[default]"), "{}", dry.stdout);

    // carbon.conf only changes when that is asked for.
    assert_eq!(rules(&folder, &site, &[]).code, Some(0));
    let first = texts(&site);
    assert_eq!(first[FILES[2]], CACHE.as_bytes());
    assert_eq!(first[&format!("{}.before-slurm-graphite", FILES[0])], SITE.as_bytes());
    assert_eq!(first.len(), 4, "a file that did not exist has no copy: {:?}", first.keys());
    let printed = |file: &str| run(&folder, &["carbon-rules", "--file", file]).unwrap().stdout;
    assert_eq!(first[FILES[0]], format!("{}\n{SITE}", printed("schemas")).into_bytes());
    assert_eq!(first[FILES[1]], printed("aggregation").into_bytes());
    let again = rules(&folder, &site, &[]);
    assert_eq!((again.code, texts(&site) == first), (Some(0), true), "{again:?}");
    assert!(again.stdout.ends_with("Nothing to restart\n"), "{}", again.stdout);

    let other = rules(&folder, &site, &["--interval", "10s"]);
    let second = texts(&site);
    let text =
        |texts: &BTreeMap<String, Vec<u8>>| String::from_utf8(texts[FILES[0]].clone()).unwrap();
    let change = |line: &str| line.replace("30s:14d", "10s:14d").replace("of 30 s", "of 10 s");
    assert_eq!(text(&second), change(&text(&first)), "{other:?}");
    // The second change took the place of the only copy of the site's own file.
    assert_eq!(second[&format!("{}.before-slurm-graphite", FILES[0])], SITE.as_bytes());
    // And what the first one had made was kept as if it were the site's.
    assert!(!second.contains_key(&format!("{}.before-slurm-graphite", FILES[1])));
    // Another prefix has a block of its own, and Python takes both.
    assert_eq!(rules(&folder, &site, &["--prefix", "hpc.{cluster}"]).code, Some(0));
    let both = sections(&folder, &site.join(FILES[0]));
    for section in ["slurm_graphite:cluster ", "slurm_graphite:hpc.{cluster} ", "default "] {
        assert_eq!(
            both.iter().filter(|one| one.starts_with(section)).count(),
            1,
            "{section}: {both:#?}"
        );
    }
}

#[test]
fn a_file_keeps_its_mode_its_owner_and_the_link_that_leads_to_it() {
    let folder = Folder::new().unwrap();
    let site = site(&folder);
    let managed = folder.path().join("managed.conf");
    fs::rename(site.join(FILES[0]), &managed).unwrap();
    symlink(&managed, site.join(FILES[0])).unwrap();
    fs::set_permissions(&managed, Permissions::from_mode(0o640)).unwrap();
    if is_root() {
        chown(&managed, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let owner = |file: &Path| {
        let metadata = fs::metadata(file).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
    };
    let before = owner(&managed);
    assert_eq!(rules(&folder, &site, &[]).code, Some(0));
    assert!(
        site.join(FILES[0]).is_symlink()
            && fs::read_to_string(&managed).unwrap().contains("slurm_graphite")
    );
    for file in
        [&managed, &folder.path().join("managed.conf.before-slurm-graphite"), &site.join(FILES[1])]
    {
        assert_eq!(owner(file), before, "{}", file.display());
    }
}

#[test]
fn what_is_refused_leaves_every_file_as_it_was() {
    let folder = Folder::new().unwrap();
    let site = site(&folder);
    let refused = |said: &Finished, what: &str| {
        assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.stderr.contains(what), "{what}: {}", said.stderr);
    };
    refused(
        &rules(&folder, &folder.path().join("nowhere"), &[]),
        "folder with Carbon's configuration?",
    );
    // The first file could be written, the second could not.
    let second = site.join(FILES[1]);
    fs::write(&second, "  indented = 1\n").unwrap();
    let before = texts(&site);
    refused(&rules(&folder, &site, &[]), "storage-aggregation.conf: line 1: below the block");
    assert_eq!(texts(&site), before);
    fs::remove_file(second).unwrap();
    // Permissions do not stop root.
    let before = texts(&site);
    fs::set_permissions(&site, Permissions::from_mode(0o555)).unwrap();
    let args = ["carbon-rules", "--write", &site.display().to_string()];
    let ordinary = Invocation::ordinary(&folder, &args).unwrap().finish().unwrap();
    refused(&ordinary, "Permission denied (os error 13). Run this command with sudo");
    fs::set_permissions(&site, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(texts(&site), before);
}

/// Who may write in a folder on the way could lead root to any file, or swap the folder while root
/// writes.
#[test]
fn root_does_not_write_where_another_user_may_rename_what_is_on_the_way() {
    let folder = Folder::new().unwrap();
    let own = site(&folder);
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    let (link, linked_site) = (shared.join("link"), shared.join("site"));
    symlink(&own, &link).unwrap();
    Invocation::of_program(&folder, Path::new("cp"), &["-r", &text(&own), &text(&shared)])
        .unwrap()
        .succeed()
        .unwrap();
    let before = texts(&own);
    let said = |site: &Path, more: &[&str]| {
        let (program, site) = (text(&slurm_graphite().unwrap()), text(site));
        let args = [&[&program, "carbon-rules", "--write", &site], more].concat();
        let args =
            [if is_root() { &[][..] } else { &["unshare", "--map-root-user"] }, &args].concat();
        Invocation::of_program(&folder, Path::new("env"), &args).unwrap().finish().unwrap()
    };
    let set = |path: &Path, mode: u32, user: u32| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        if is_root() {
            lchown(path, Some(user), Some(user)).unwrap();
        }
    };
    let refused = |path: &Path, reason: &str| {
        for more in [&[][..], &["--dry-run"]] {
            let said = said(path, more);
            assert_eq!(
                (said.code, said.stdout.as_str()),
                (Some(1), ""),
                "{}: {said:?}",
                path.display()
            );
            assert!(said.stderr.contains(reason), "{reason}: {}", said.stderr);
        }
        assert_eq!(texts(&own), before);
    };
    for mode in [0o775, 0o757, 0o1777] {
        set(&own, mode, 0);
        refused(&own, &format!("{}: others than its owner may write there", text(&own)));
    }
    set(&own, 0o755, 0);
    set(&shared, 0o775, 0);
    refused(&linked_site, &format!("{}: others", text(&shared)));
    refused(&link, &format!("{}: others", text(&shared)));
    if is_root() {
        let sudo = format!("{}: belongs to user {NOBODY}, and", text(&shared));
        set(&shared, 0o755, NOBODY);
        refused(&linked_site, &sudo);
        refused(&link, "sudo -u '#65534'");
        // As /tmp is.
        set(&shared, 0o1777, 0);
        lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
        refused(&link, &format!("{}: others", text(&shared)));
        lchown(&link, Some(0), Some(0)).unwrap();
        set(&own, 0o755, NOBODY);
        refused(&own, "sudo -u '#65534'");
        for file in texts(&own).keys() {
            lchown(own.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let args = ["carbon-rules", "--write", &text(&own)];
        let as_advised = Invocation::by(NOBODY, &folder, &args).unwrap().finish().unwrap();
        assert_eq!(as_advised.code, Some(0), "{as_advised:?}");
        set(&own, 0o755, 0);
    }
    set(&shared, 0o1777, 0);
    for allowed in [&linked_site, &link] {
        let said = said(allowed, &[]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

/// The first of the new files fits on the disk, the last does not.
#[test]
fn a_disk_that_is_full_leaves_every_file_as_it_was() {
    let folder = Folder::new().unwrap();
    let site = site(&folder);
    let program = slurm_graphite().unwrap().display().to_string();
    // Nobody else sees this mount. It has four pages: two for the files that are there, two for the
    // first one's copy and its new text.
    let script = format!(
        "cp -r {site} {site}.copy; mount -t tmpfs -o size=16k,mode=755 none {site}; cp \
         {site}.copy/* {site}\n{program} carbon-rules --write {site}; echo exit $?; ls -A {site}; \
         diff -r {site} {site}.copy && echo same",
        site = site.display()
    );
    let unshare = find_program("unshare").unwrap();
    let args = ["--map-root-user", "--mount", "sh", "-c", &script];
    let said = Invocation::of_program(&folder, &unshare, &args).unwrap().finish().unwrap();
    assert_eq!(said.stdout, "exit 1\ncarbon.conf\nstorage-schemas.conf\nsame\n", "{}", said.stderr);
    assert!(said.stderr.contains("No space left on device"), "{}", said.stderr);
}

#[test]
fn both_files_rules_are_printed_each_under_its_name_and_an_interval_without_a_unit_is_seconds() {
    let folder = Folder::new().unwrap();
    let printed = |more: &[&str]| printed(&folder, &[&["carbon-rules"], more].concat()).unwrap();
    let all = printed(&[]);
    for (file, name) in [("schemas", FILES[0]), ("aggregation", FILES[1])] {
        let shipped = format!("{}/../../config/carbon/{name}", env!("CARGO_MANIFEST_DIR"));
        let one = printed(&["--file", file]);
        assert_eq!(one, fs::read_to_string(shipped).unwrap());
        assert!(
            all.contains(&format!("# {name}: put this above all other rules\n\n{one}")),
            "{all}"
        );
    }
    let other = printed(&["--file", "schemas", "--interval", "10s", "--prefix", "hpc.{cluster}"]);
    assert!(
        other.contains("\nretentions = 10s:") && other.contains("\npattern = ^(hpc\\."),
        "{other}"
    );
    // As in `stats --watch 5`. In a file a unit is needed: nobody else sees there what was meant.
    assert_eq!(printed(&["--interval", "10"]), printed(&["--interval", "10s"]));
    for wrong in ["0", "3601", "", "1.5"] {
        let refused = run(&folder, &["carbon-rules", "--interval", wrong]).unwrap();
        assert_eq!(refused.code, Some(78), "{wrong}");
    }
    let file = folder.write("late.toml", "[queue]\nmax_age = \"15d\"\n").unwrap();
    assert!(printed(&["--config", &file]).contains("\nretentions = 30s:15d,5m:90d,1h:3y\n"));
}
