//! The commands that Slurm exporters for Prometheus run for one scrape. A whole scrape costs more, because here the
//! output is only split into lines.
//!
//! Only the commands for jobs, nodes and partitions, as in the projects' sources: none for sdiag, licences or
//! reservations, and none that needs slurmdbd.

use anyhow::Result;
use sandbox::{Folder, Slurm};

use crate::cluster;
use crate::reader::Cost;

struct Exporter {
    name: &'static str,
    commands: &'static [&'static [&'static str]],
}

/// Their table, and how many times as much CPU as `ours` the cheapest one uses.
pub(crate) fn measure(folder: &Folder, slurm: &Slurm, rounds: usize, ours: &Cost) -> Result<(String, f64)> {
    let mut table = "| what an exporter forks a scrape | commands | job RPCs | CPU | and their lines taken apart in Python | beside the reader |\n|---|---|---|---|---|---|\n".to_owned();
    let mut cheapest = f64::INFINITY;
    for Exporter { name, commands } in EXPORTERS {
        let before = cluster::dumps(slurm)?;
        let forked = cluster::forked(folder, slurm, rounds, commands)?;
        let dumps = (cluster::dumps(slurm)? - before) / rounds as f64;
        let (alone, read) = (forked.cost.cpu, forked.cost.cpu + forked.reading);
        let times = read / ours.cpu;
        table.push_str(&format!(
            "| {name} | {} | {dumps:.0} | {:.0} ms | {:.0} ms | {times:.1} |\n",
            commands.len(),
            alone / 1e3,
            read / 1e3
        ));
        cheapest = cheapest.min(times);
    }
    Ok((table, cheapest))
}

const EXPORTERS: [Exporter; 5] = [
    Exporter {
        name: "rivosinc/prometheus-slurm-exporter",
        commands: &[
            &[
                "sinfo",
                "-h",
                "-O",
                "StateCompact:12|,Memory:15|,NodeHost:30|,CPUsLoad:12|,Partition:15|,FreeMem:15|,CPUsState:15|,Weight:10|,AllocMem:15",
            ],
            &[
                "squeue",
                "--states=all",
                "-h",
                "-r",
                "-o",
                r#"{"a": "%a", "id": %A, "end_time": "%e", "u": "%u", "state": "%T", "p": "%P", "cpu": %C, "mem": "%m", "array_id": "%K", "r": "%R"}"#,
            ],
        ],
    },
    Exporter {
        name: "treydock/prometheus-slurm-exporter, with its partitions",
        commands: &[
            &["sinfo", "-o", "%G"],
            &["squeue", "-a", "-r", "-h", "-o %A,%T,%r", "--states=all"],
            &["sinfo", "-h", "-N", "-o", "%N|%T|%f"],
            &["sinfo", "-a", "-h", "-o", "%C"],
            &["sinfo", "-a", "-h", "--Node", "--Format=nodehost,gres:70,gresused:70"],
            &["sinfo", "-a", "-h", "-N", "-o", "%R,%T"],
            &["sinfo", "-a", "-h", "-o", "%R,%C"],
            &["squeue", "-a", "-r", "-h", "-P", "-o", "%i|%T|%r|%P|%V", "--states=all"],
            &["sinfo", "-a", "-h", "--Node", "--Format=partitionname:50,gres:70,gresused:70"],
        ],
    },
    Exporter {
        name: "SckyzO/slurm_exporter",
        commands: &[
            &[
                "squeue",
                "-a",
                "-r",
                "-h",
                "-O",
                "JobID:|,Account:|,UserName:|,Partition:|,State:|,NumNodes:|,NumCPUs:|,tres-alloc:",
            ],
            &["squeue", "-h", "-o", "%P|%T|%C|%r|%u", "--states=all"],
            &["sinfo", "-h", "-o", "%C"],
            &["sinfo", "-a", "-h", "--Format=Nodes: ,StateLong: ,Gres: ,GresUsed:"],
            &[
                "sinfo",
                "-h",
                "-N",
                "-O",
                "NodeList: ,AllocMem: ,Memory: ,CPUsState: ,StateLong: ,Partition: ,Gres: ,GresUsed:",
            ],
            &["sinfo", "-h", "-o", "%R|%D|%T|%b"],
            &["scontrol", "show", "nodes", "-o"],
            &["sinfo", "-h", "-o", "%R,%C"],
            &["sinfo", "-h", "--Format=Nodes: ,Partition: ,Gres: ,GresUsed:", "--state=idle,allocated"],
            &["sinfo", "-h", "-N", "-o", "%N|%E|%H|%T"],
        ],
    },
    Exporter {
        name: "vpenso/prometheus-slurm-exporter",
        commands: &[
            &["squeue", "-a", "-r", "-h", "-o %A|%a|%T|%C"],
            &["sinfo", "-h", "-o %C"],
            &["sinfo", "-h", "-o %D,%T"],
            &["sinfo", "-h", "-N", "-O", "NodeList,AllocMem,Memory,CPUsState,StateLong"],
            &["sinfo", "-h", "-o%R,%C"],
            &["squeue", "-a", "-r", "-h", "-o%P", "--states=PENDING"],
            &["squeue", "-a", "-r", "-h", "-o %A,%T,%r", "--states=all"],
            &["squeue", "-a", "-r", "-h", "-o %A|%u|%T|%C"],
        ],
    },
    Exporter {
        name: "fasrc/prometheus-slurm-exporter, its partition collector",
        commands: &[
            &["scontrol", "-o", "show", "partition"],
            &["scontrol", "-o", "show", "node"],
            &["scontrol", "-od", "show", "job"],
        ],
    },
];
