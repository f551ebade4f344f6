//! `make install` puts everything where the unit expects it, and never overwrites a configuration.
//! The manual pages and completions that it installs work.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use sandbox::{
    Finished, Folder, Invocation, NOBODY, as_user, find_program, is_root, output, slurm_graphite,
};

const PROGRAMS: [&str; 3] =
    ["slurm-graphite", "slurm-graphite-reader", "slurm-graphite-rest-reader"];

#[test]
fn under_a_prefix_of_its_own() {
    let folder = Folder::new().unwrap();
    let root = install(&folder, "/opt/graphite").unwrap();
    let programs = "bin/slurm-graphite libexec/slurm-graphite/slurm-graphite-reader \
        libexec/slurm-graphite/slurm-graphite-rest-reader";
    let others = "etc/slurm-graphite/slurm-graphite.toml lib/systemd/system/slurm-graphite.service \
        lib/systemd/system/slurm-graphite@.service lib/sysusers.d/slurm-graphite.conf \
        lib/tmpfiles.d/slurm-graphite.conf share/man/man1/slurm-graphite.1 \
        share/man/man5/slurm-graphite.toml.5 share/bash-completion/completions/slurm-graphite \
        share/fish/vendor_completions.d/slurm-graphite.fish \
        share/zsh/site-functions/_slurm-graphite share/doc/slurm-graphite/README.md \
        share/doc/slurm-graphite/metrics.md share/doc/slurm-graphite/THIRD-PARTY-NOTICES \
        share/doc/slurm-graphite/slurm-graphite.toml \
        share/slurm-graphite/supervisor/slurm-graphite.conf \
        share/slurm-graphite/carbon/storage-schemas.conf \
        share/slurm-graphite/carbon/storage-aggregation.conf";
    let installed = programs
        .split(' ')
        .map(|file| (file, 0o755))
        .chain(others.split(' ').map(|file| (file, 0o644)));
    for (file, mode) in installed {
        let found = fs::metadata(root.join("opt/graphite").join(file))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(found.permissions().mode() & 0o777, mode, "{file}");
    }
    // Nothing is outside the prefix.
    assert_eq!(names(&root), ["opt"]);
    assert_eq!(names(&root.join("opt")), ["graphite"]);
    named_paths_exist(&root, "/opt/graphite").unwrap();
    for page in ["man1/slurm-graphite.1", "man5/slurm-graphite.toml.5"] {
        let text = fs::read_to_string(root.join("opt/graphite/share/man").join(page)).unwrap();
        let paths = text.replace('\\', "").replace("/opt/graphite/", "");
        assert!(!paths.contains("/usr/") && !paths.contains("/etc/slurm-graphite"), "{paths}");
    }
    for file in files(&root).unwrap() {
        let text = fs::read_to_string(&file).unwrap().replace("/opt/graphite/", "");
        for elsewhere in
            ["bin", "libexec", "share"].map(|folder| format!("/usr/{folder}/slurm-graphite"))
        {
            assert!(!text.contains(&elsewhere), "{} names {elsewhere}", file.display());
        }
        assert!(
            !text.contains("/etc/slurm-graphite"),
            "{} names /etc/slurm-graphite",
            file.display()
        );
    }
}

#[test]
fn as_a_package_does() {
    let folder = Folder::new().unwrap();
    let root = install(&folder, "/usr").unwrap();
    assert_eq!(names(&root), ["etc", "usr"]);
    named_paths_exist(&root, "/usr").unwrap();
    // Installed documents have other neighbours than those in the source tree.
    let folder = root.join("usr/share/doc/slurm-graphite");
    let mut links = 0;
    for name in names(&folder).into_iter().filter(|name| name.ends_with(".md")) {
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") {
                assert!(folder.join(file).exists(), "{name}: {target} leads nowhere");
                links += 1;
            }
        }
    }
    assert!(links > 5, "only {links} links");
}

#[test]
fn an_edited_configuration_stays_also_when_everything_else_is_removed() {
    let folder = Folder::new().unwrap();
    let root = install(&folder, "/usr").unwrap();
    // Cargo's dependency files are not programs.
    fs::write(folder.path().join("built/slurm-graphite-reader.d"), "").unwrap();
    let installed = files(&root).unwrap();
    let named = script(&folder, &["--prefix", "/usr", "--dry-run"]).unwrap();
    let mut named: Vec<PathBuf> = named.lines().map(PathBuf::from).collect();
    // The configuration already exists, and is kept.
    named.push(root.join("etc/slurm-graphite/slurm-graphite.toml"));
    named.sort();
    assert_eq!(named, installed);
    // A dry run removes nothing, in either order of the options.
    for pair in [["--dry-run", "--uninstall"], ["--uninstall", "--dry-run"]] {
        let refused = script(&folder, &[&["--prefix", "/usr"][..], &pair].concat()).unwrap_err();
        assert!(format!("{refused:#}").contains("do not go together"), "{refused:#}");
        assert_eq!(files(&root).unwrap(), installed);
    }
    script(&folder, &["--prefix", "/usr", "--uninstall"]).unwrap();
    assert_eq!(files(&root).unwrap(), [] as [PathBuf; 0]);

    install(&folder, "/usr").unwrap();
    let configuration = root.join("etc/slurm-graphite/slurm-graphite.toml");
    fs::write(&configuration, "interval = \"10s\"\n").unwrap();
    install(&folder, "/usr").unwrap();
    assert_eq!(fs::read_to_string(&configuration).unwrap(), "interval = \"10s\"\n");
    script(&folder, &["--prefix", "/usr", "--uninstall"]).unwrap();
    assert_eq!(files(&root).unwrap(), [configuration]);
    for relative in ["--prefix=../x", "--prefix="] {
        let error = script(&folder, &[relative]).unwrap_err().to_string();
        assert!(error.contains("must begin with /"), "{relative}: {error}");
    }
    let error = script(&folder, &["--prefx=/usr"]).unwrap_err().to_string();
    assert!(error.contains("--prefx=/usr is no option"), "{error}");
}

/// The check that lintian makes.
#[test]
fn manual_pages_render_without_a_warning() {
    let folder = Folder::new().unwrap();
    let pages = manual(&folder).unwrap();
    let render = |page: &Path| {
        let args = ["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", &page.display().to_string()];
        let man = Invocation::of_program(&folder, &find_program("man").unwrap(), &args).unwrap();
        man.env("MANWIDTH", "80").env("MANROFFSEQ", "").finish().unwrap()
    };
    for page in ["slurm-graphite.1", "slurm-graphite.toml.5"] {
        let Finished { code, stdout, stderr, .. } = render(&pages.join(page));
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{page}");
        assert!(stdout.len() > 5000, "{page}: {stdout}");
    }
    // And the check works: it would report something.
    let wrong =
        folder.write("wrong.1", ".TH wrong 1\n.SH NAME\nwrong \\- \\*[undefined]\n").unwrap();
    assert!(render(wrong.as_ref()).stderr.contains("undefined"));
}

#[test]
fn bash_completes_commands_and_their_options() {
    let folder = Folder::new().unwrap();
    let file = manual(&folder).unwrap().join("slurm-graphite.bash").display().to_string();
    let complete = |words: &str, last: &str| {
        let script = format!(
            "source {file}; COMP_WORDS=(slurm-graphite {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} \
             - 1))\nset -- $(complete -p slurm-graphite); while [ \"$1\" != -F ]; do shift; done\n\
             \"$2\" slurm-graphite {last} slurm-graphite; echo ${{COMPREPLY[@]}}"
        );
        let bash = find_program("bash").unwrap();
        let finished = Invocation::of_program(&folder, &bash, &["--norc", "-c", &script])
            .unwrap()
            .finish()
            .unwrap();
        assert_eq!(finished.stderr, "");
        finished.stdout.trim().to_owned()
    };
    assert_eq!(complete("ch", "ch"), "check");
    assert_eq!(complete("check --conn", "--conn"), "--connect");
    // What only packages need is not offered.
    assert_eq!(complete("manu", "manu"), "");
}

#[test]
fn nothing_built_is_said() {
    let folder = Folder::new().unwrap();
    let error =
        make(&folder, &["install", "BUILT=/nowhere", "DESTDIR=/nowhere"]).unwrap_err().to_string();
    assert!(error.contains("make build"), "{error}");
}

/// Compiling takes minutes, so missing programs must be reported first.
#[test]
fn what_is_missing_is_said_before_anything_is_compiled() {
    let folder = Folder::new().unwrap();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for program in ["sh", "cat"] {
        std::os::unix::fs::symlink(find_program(program).unwrap(), bin.join(program)).unwrap();
    }
    // A Debian with nothing but Rust, for a user other than root.
    let compiled = folder.path().join("compiled");
    for (program, script) in [
        ("rustc", "echo 'rustc 1.89.0 (29483883e 2025-08-04)'".to_owned()),
        ("dpkg-query", "exit 1".to_owned()),
        ("id", "echo 1000".to_owned()),
        ("cargo", format!("echo > {}", compiled.display())),
    ] {
        folder.script(&format!("bin/{program}"), &script).unwrap();
    }
    let make_says = |target: &str| {
        let mut command = sandbox::command(folder.path(), &find_program("make").unwrap());
        command
            .args(["-C", concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), target])
            .env("PATH", &bin);
        for variable in ["LIBCLANG_PATH", "SLURM_INCLUDE_DIR", "SLURM_LIB_DIR"] {
            command.env_remove(variable);
        }
        let output = command.output().unwrap();
        assert!(!output.status.success() && !compiled.exists(), "{target} compiles first");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (target, packages) in [
        ("build", "gcc libc6-dev libclang-dev libslurm-dev\n"),
        ("deb", "gcc libc6-dev libclang-dev libslurm-dev debhelper pkgconf systemd\n"),
        ("rpm", "gcc libc6-dev libclang-dev libslurm-dev rpm\n"),
        // Slurm's headers are downloaded, and the programs run without Slurm.
        ("dist", "gcc libc6-dev libclang-dev debhelper pkgconf systemd rpm python3-venv\n"),
    ] {
        let said = make_says(target);
        assert!(said.contains(packages), "{target}: {said}");
    }
    // Debian 13's: Cargo said so for each crate, after everything else had been installed. Debian's
    // newer one would remove it, so that is for a person to do.
    folder.script("bin/rustc", "echo 'rustc 1.85.1 (4eb161250 2025-03-15)'").unwrap();
    let said = make_says("deb");
    assert!(said.contains("Rust is rustc 1.85.1") && said.contains("1.89 or later"), "{said}");
    assert!(
        said.contains("`apt-get install cargo-web rustc-web`") && said.contains("rustup"),
        "{said}"
    );
    assert!(!said.contains("missing here"), "{said}");
    // Without any, it is one of the packages, with what cargo needs to trust a registry.
    fs::remove_file(bin.join("rustc")).unwrap();
    let system = fs::read_to_string("/etc/os-release").unwrap();
    let keeps = ["\"12\"", "\"13\""].map(|number| format!("\nVERSION_ID={number}\n"));
    let keeps = system.contains("\nID=debian\n") && keeps.iter().any(|line| system.contains(line));
    let expected = if keeps {
        "debhelper pkgconf systemd cargo-web rustc-web ca-certificates\n"
    } else {
        "Rust is missing"
    };
    let said = make_says("deb");
    assert!(said.contains(expected), "{said}");
    // But not where rustup or Debian's rustc would have to go for it.
    folder.script("bin/dpkg-query", "echo '[installed]'").unwrap();
    let said = make_says("deb");
    assert!(
        said.contains("Rust is missing") && said.contains("in place of rustc, cargo and rustup"),
        "{said}"
    );
}

/// The manual pages and completions, as written by `make man`.
fn manual(folder: &Folder) -> Result<PathBuf> {
    let pages = folder.path().join("built/manual");
    let writer = slurm_graphite()?.with_file_name("manual-pages");
    output(sandbox::command(folder.path(), &writer), [&pages])?;
    Ok(pages)
}

/// Installs stand-ins for the programs, whose behaviour does not matter here.
fn install(folder: &Folder, prefix: &str) -> Result<PathBuf> {
    let (built, root) = (folder.path().join("built"), folder.path().join("root"));
    for program in PROGRAMS {
        folder.script(&format!("built/{program}"), "")?;
    }
    manual(folder)?;
    let [built, destination] =
        [format!("BUILT={}", built.display()), format!("DESTDIR={}", root.display())];
    make(folder, &["install", &built, &destination, &format!("PREFIX={prefix}")])?;
    Ok(root)
}

/// Runs the tarball's installer on what [`install`] has made.
fn script(folder: &Folder, args: &[&str]) -> Result<String> {
    let mut command = sandbox::command(folder.path(), &find_program("sh")?);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/install.sh"));
    command.env("BUILT", folder.path().join("built")).env("DESTDIR", folder.path().join("root"));
    output(command, args)
}

fn make(folder: &Folder, args: &[&str]) -> Result<()> {
    let mut command = sandbox::command(folder.path(), &find_program("make")?);
    command.args(["-C", concat!(env!("CARGO_MANIFEST_DIR"), "/../..")]);
    output(command, args).map(drop)
}

/// Every path of ours in the units must have been installed. For an instance of the template, some
/// paths must not exist under the instance's name but must exist under the unit's.
fn named_paths_exist(root: &Path, prefix: &str) -> Result<()> {
    for name in ["slurm-graphite.service", "slurm-graphite@.service"] {
        let units = root.join(prefix.trim_start_matches('/')).join("lib/systemd/system");
        let unit = fs::read_to_string(units.join(name))?.replace("%i", "slurm-graphite");
        let paths =
            unit.lines().filter(|line| line.starts_with("Exec") || line.starts_with("AssertPath"));
        let words = paths.flat_map(|line| line.split(['=', ' ', '!']));
        let ours: Vec<&str> =
            words.filter(|word| word.starts_with('/') && word.contains("slurm-graphite")).collect();
        ensure!(!ours.is_empty(), "{name} starts nothing of ours:\n{unit}");
        for path in ours {
            let is_there = root.join(path.trim_start_matches('/')).exists();
            ensure!(is_there, "{name} names {path}, which is not installed");
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { files.extend(self::files(&path)?) } else { files.push(path) }
    }
    files.sort();
    Ok(files)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

/// Cargo failed after the packages had come, and the demo at its end with a traceback of Python.
#[test]
fn a_target_folder_that_cannot_be_written_is_said_before_anything_is_installed() {
    let folder = Folder::new().unwrap();
    let script = folder.write("packages.sh", include_str!("../packages.sh")).unwrap();
    let closed = folder.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let closed = closed.display().to_string();
    let mut words = if is_root() { as_user(NOBODY).to_vec() } else { Vec::new() };
    words.extend(["sh".to_owned(), script, "demo".to_owned()]);
    let args: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    for target in [closed.clone(), format!("{closed}/a/b")] {
        let program = find_program(&words[0]).unwrap();
        let packages = Invocation::of_program(&folder, &program, &args).unwrap();
        let said = packages.env("CARGO_TARGET_DIR", &target).finish().unwrap();
        assert_eq!(said.code, Some(1), "{said:?}");
        assert!(said.stderr.contains(&format!("cannot write to {closed}: ")), "{said:?}");
        assert_eq!((said.stdout.as_str(), said.stderr.lines().count()), ("", 1), "{said:?}");
    }
}
