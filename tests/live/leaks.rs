//! The reader's memory: valgrind with 1,000 real requests of every kind.

use std::fs::File;
use std::process::Stdio;

use sandbox::{Folder, Slurm, command, find_program, slurm_graphite};

const CALLS: usize = 1000;

#[test]
fn nothing_that_libslurm_gives_is_kept() {
    let folder = Folder::new().unwrap();
    let slurm = Slurm::start(&folder).unwrap();
    slurm.submit(&["--array=1-50", "--wrap", "exec sleep 600"]).unwrap();
    let kinds = [
        "{\"statistics\":{\"id\":1,\"options\":{\"rpc\":true,\"users\":true}}}\n",
        "{\"jobs\":{\"id\":2,\"since\":1,\"options\":{\"accounts\":true,\
            \"qos\":true,\"users\":true}}}\n",
        "{\"nodes\":{\"id\":3,\"options\":{\"partitions\":true,\"rows\":true}}}\n",
        "{\"licenses\":{\"id\":4}}\n{\"reservations\":{\"id\":5}}\n{\"controllers\":{\"id\":6}}\n",
    ];
    let requests: String =
        kinds.concat().lines().cycle().take(CALLS).map(|line| format!("{line}\n")).collect();
    let file = folder.write("requests", &requests).unwrap();
    let output = command(folder.path(), &find_program("valgrind").unwrap())
        .args(["--leak-check=full", "--errors-for-leak-kinds=definite", "--error-exitcode=9"])
        .arg(slurm_graphite().unwrap().with_file_name("slurm-graphite-reader"))
        .arg("--conf")
        .arg(slurm.conf())
        .stdin(Stdio::from(File::open(file).unwrap()))
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    let answers = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        answers.lines().filter(|line| line.starts_with("{\"reading\":")).count(),
        CALLS,
        "{report}"
    );
    assert!(report.contains("definitely lost: 0 bytes"), "{report}");
}
