//! The configuration's tests: every problem at once, and the shipped file.

use std::collections::BTreeSet;

use super::*;

fn problems(text: &str) -> Vec<String> {
    match Config::parse(text, &Flags::default()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.to_string().lines().map(str::to_owned).collect(),
    }
}

#[test]
fn all_problems_are_reported_at_once_each_with_key_and_line() {
    let text = r#"interval = "0.5s"
prefix = ""
intervall = "30s"

[slurm]
conf = "slurm.conf"
timeout = 30

[[carbon]]
address = "carbon"

[[carbon]]
protocol = "http"

[queue]
max_bytes = "lots"
"#;
    let found = problems(text);
    let starts = [
        "line 1: interval: ",
        "line 2: prefix: ",
        "line 6: slurm.conf: ",
        "line 7: slurm.timeout: expected a quoted string, found an integer; \"30\" is not a \
            duration",
        "line 16: queue.max_bytes: ",
        "line 10: carbon.address: ",
        "line 9: carbon.name: is missing: with several destinations each needs one",
        "line 13: carbon.protocol: ",
        "line 12: carbon.name: is missing",
        "line 12: carbon.address: is missing",
        "line 3: intervall: no such key; did you mean interval? The keys here are interval, \
            prefix, ",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found} does not start with {start}");
    }
}

#[test]
fn what_is_no_toml_is_said_with_its_line() {
    let found = problems("interval = \"30s\"\nprefix = cluster\n[slurm\n");
    assert!(
        found.iter().any(|p| p.starts_with("line 2: not TOML: a text needs quotes")),
        "{found:?}"
    );
    assert!(found.iter().any(|p| p.starts_with("line 3: not TOML: ")), "{found:?}");
    // "duplicate key", and not which.
    for (text, says) in [
        (
            "interval = \"30s\"\ninterval = \"10s\"\n",
            "line 2: not TOML: interval is there a second",
        ),
        (
            "[queue]\nmax_age = \"1h\"\n[slurm]\n[queue]\n",
            "line 4: not TOML: queue is there a second",
        ),
        (
            "[[carbon]]\naddress = \"a:1\"\naddress = \"a:2\"\n",
            "line 3: not TOML: address is there",
        ),
    ] {
        let found = problems(text);
        assert!(found.iter().any(|p| p.starts_with(says)), "{found:?}");
    }
}

#[test]
fn what_a_key_cannot_mean_is_refused() {
    let survey = "[collectors.jobs]\n";
    for (table, key, wrong) in [
        (
            "",
            "prefix",
            &[
                "\"\"",
                "\"a..b\"",
                "\"a b\"",
                "\".a\"",
                "\"a/b\"",
                "\"{host\"",
                "\"{hosts}\"",
                "\"é\"",
            ][..],
        ),
        (
            "",
            "interval",
            &["\"0s\"", "\"500ms\"", "\"1500ms\"", "\"2h\"", "\"30\"", "\"-1s\"", "\"soon\""],
        ),
        (
            "[collectors.rpc_stats]\n",
            "users",
            &["-1", "201", "9999999999999999999999", "1.5", "\"10\""],
        ),
        ("[collectors]\n", "max_duty", &["\"0%\"", "\"101%\"", "5"]),
        ("[collectors]\n", "max_threads", &["0", "\"9\""]),
        (survey, "users", &["-1", "1001"]),
        (survey, "qos", &["1"]),
        (survey, "interval", &["60"]),
    ] {
        for value in wrong {
            assert_eq!(problems(&format!("{table}{key} = {value}")).len(), 1, "{key} = {value}");
        }
    }
    let right =
        "prefix = \"hpc.{cluster}.{host}\"\ninterval = \"1m\"\n[collectors.rpc_stats]\nusers = 200";
    assert_eq!(problems(right), [""; 0]);
}

#[test]
fn a_slip_of_the_unit_is_refused() {
    let carbon = "[[carbon]]\naddress = \"a:2004\"\n";
    for (table, key, wrong, right) in [
        ("", "drain_timeout", ["5h", "11m"], ["0s", "30s"]),
        ("[slurm]\n", "timeout", ["1ms", "30h"], ["1s", "2m"]),
        ("[queue]\n", "max_age", ["12ms", "12000d"], ["10s", "30d"]),
        ("[queue]\n", "resend_window", ["10d", "600h"], ["0s", "1h"]),
        (carbon, "connect_timeout", ["10ms", "10h"], ["500ms", "30s"]),
        (carbon, "stall_timeout", ["30ms", "10m"], ["3s", "5m"]),
        (carbon, "reconnect_every", ["1ms", "1000d"], ["1m", "7d"]),
    ] {
        let problems_of = |value: &str| problems(&format!("{table}{key} = {value:?}\n"));
        for value in wrong {
            let found = problems_of(value).concat();
            assert!(found.contains(&format!("{key}: {value:?} is not between ")), "{key}: {found}");
        }
        for value in right {
            assert_eq!(problems_of(value), [""; 0], "{key}");
        }
        let found = problems_of("10M").concat();
        assert!(found.contains("would be months; write m for minutes"), "{key}: {found}");
    }
    assert!(problems("interval = \"1M\"").concat().contains("m for minutes"));
}

#[test]
fn sizes_are_written_as_people_do() {
    for (text, expected) in
        [("64MiB", 64 << 20), ("64 MB", 64_000_000), ("2gib", 2 << 30), ("1048576", 1 << 20)]
    {
        assert_eq!(value::bytes(text), Ok(expected), "{text}");
    }
    for wrong in ["64", "1023KiB", "-64MiB", "64Mi", "9e99GiB", "nan", ""] {
        assert!(value::bytes(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_prefix_that_leaves_no_room_for_what_comes_behind_it_is_refused() {
    // Its points would all be refused, one by one, at every tick.
    let prefix = ["a".repeat(198).as_str(); 5].join(".");
    let text = format!("prefix = {prefix:?}\n[[carbon]]\naddress = \"a:2004\"");
    let found = problems(&text);
    assert!(found[0].starts_with("line 1: prefix: is too long for the path "), "{found:?}");
}

#[test]
fn a_file_that_would_hold_little_but_its_log_is_refused() {
    let small = "[queue]\nmax_bytes = \"2560KiB\"\n";
    assert_eq!(problems(small), [""; 0], "memory has no log");
    let found = problems(&format!("{small}dir = \"/q\"\n"));
    assert!(
        found[0].starts_with("line 2: queue.max_bytes: with queue.dir it must be 4MiB or more"),
        "{found:?}"
    );
    let flags = Flags { queue_dir: Some("/q".into()), ..Flags::default() };
    assert!(Config::parse(small, &flags).is_err());
    assert!(Config::parse("[queue]\nmax_bytes = \"4MiB\"\n", &flags).is_ok());
}

#[test]
fn two_destinations_need_two_names_and_a_single_one_none() {
    let text = |names: [&str; 2]| {
        let [one, two] = names;
        format!(
            "[[carbon]]\naddress = \"a:2004\"\n{one}\n[[carbon]]\naddress = \"b:2004\"\n{two}\n"
        )
    };
    let [one, two] = ["name = \"one\"", "name = \"two\""];
    assert!(Config::parse(&text([one, two]), &Flags::default()).is_ok());
    for (names, lines) in
        [([one, one], vec![4]), ([one, ""], vec![4]), (["", two], vec![1]), (["", ""], vec![1, 3])]
    {
        let found = problems(&text(names));
        assert_eq!(found.len(), lines.len(), "{found:?}");
    }
    let names = |config: Config| config.carbon.into_iter().map(|to| to.name).collect::<Vec<_>>();
    // So a changed address takes the backlog along.
    assert_eq!(names(Config::parse_valid("[[carbon]]\naddress = \"a:2004\"")), ["carbon"]);
    let carbon = vec!["a:2004".to_owned(), "b:2004".to_owned()];
    let flags = Flags { carbon: CarbonFlags { carbon }, ..Flags::default() };
    assert_eq!(names(Config::parse("", &flags).unwrap()), ["carbon", "b:2004"]);
}

#[test]
fn flags_go_over_the_file() {
    let flags = Flags {
        carbon: CarbonFlags { carbon: vec!["[::1]:2004".into()] },
        paths: PathFlags { interval: Some("10s".into()), prefix: Some("test".into()) },
        slurm: SlurmFlags { slurm_conf: Some("/x".into()), ..SlurmFlags::default() },
        queue_dir: Some("/q".into()),
        ..Flags::default()
    };
    let text =
        "interval = \"1m\"\n[[carbon]]\naddress = \"old:2004\"\n[queue]\nresend_window = \"0s\"";
    let config = Config::parse(text, &flags).unwrap();
    assert_eq!((config.interval, config.slurm.conf), (10, Some("/x".into())));
    assert_eq!(config.carbon.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["carbon"]);
    assert_eq!(config.queue.dir, Some("/q".into()));
    assert_eq!(config.queue.limits.resend_window, Duration::ZERO);

    let paths = PathFlags { interval: Some("x".into()), prefix: None };
    let flags =
        Flags { paths, carbon: CarbonFlags { carbon: vec!["y".into()] }, ..Flags::default() };
    let problems = Config::parse("", &flags).unwrap_err().to_string();
    assert!(problems.contains("--interval: ") && problems.contains("--carbon: "), "{problems}");
}

#[test]
fn two_destinations_with_one_address_are_refused_unless_one_alone_sends_tags() {
    let problems = |first: &str, second: &str| {
        problems(&format!(
            "[[carbon]]\nname = \"a\"\naddress = \"h:2004\"\n{first}\n[[carbon]]\nname = \"b\"\n\
                address = \"h:2004\"\n{second}"
        ))
    };
    let tags = "tags = true";
    for (first, second, is_refused) in [
        ("", "", true),
        (tags, tags, true),
        (tags, "", false),
        ("", tags, false),
        ("tags = false", "", true),
    ] {
        let found = problems(first, second);
        assert_eq!(found.len(), usize::from(is_refused), "{first:?} {second:?}: {found:?}");
        assert!(
            found.iter().all(|text| {
                text.starts_with(
                    "line 5: carbon.address: another [[carbon]] sends the same paths to h:2004; \
                        remove one",
                )
            }),
            "{found:?}"
        );
    }
}

#[test]
fn the_same_carbon_flag_twice_would_share_one_place_and_is_refused() {
    let carbon = CarbonFlags { carbon: vec!["a:2004".into(), "a:2004".into()] };
    let flags = Flags { carbon, ..Flags::default() };
    let problems = Config::parse("", &flags).unwrap_err().to_string();
    assert_eq!(problems, "--carbon: a:2004 is given twice");
}

#[test]
fn a_daemon_with_nowhere_to_send_to_is_refused() {
    let problems = Config::default().with_destination().unwrap_err().to_string();
    assert!(problems.contains("--carbon HOST:2004"), "{problems}");
}

#[cfg_attr(not(feature = "tls"), ignore = "it has examples of TLS")]
#[test]
fn the_shipped_file_names_every_key_with_its_default() {
    let shipped = include_str!("../../../../config/slurm-graphite.toml");
    // A package makes the queue's folder, and nobody can be sent to by default.
    let mut shipped_config = Config::parse(shipped, &Flags::default()).unwrap();
    assert_eq!(shipped_config.queue.dir.take(), Some("/var/lib/slurm-graphite".into()));
    shipped_config.carbon.clear();
    assert_eq!(shipped_config, Config::default());
    // Every line `#key = value` too, so that no example is wrong and no key is forgotten.
    let uncommented: String = shipped
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // The two ways to slurmctld exclude each other.
    let without = |keys: &[&str]| -> String {
        let is_left_out =
            |line: &&str| keys.iter().any(|key| line.starts_with(&format!("{key} = ")));
        uncommented
            .lines()
            .filter(|line| !is_left_out(line))
            .map(|line| format!("{line}\n"))
            .collect()
    };
    let rest = ["rest", "token_file", "user", "rest_user", "ca_file", "insecure"];
    assert_eq!(problems(&without(&["conf", "follow"])), [""; 0]);
    assert_eq!(problems(&without(&rest)), [""; 0]);
}

/// The file that a package installs has the keys that a site changes first, each with its default.
#[test]
fn the_first_file_is_short_and_changes_nothing() {
    let first = include_str!("../../../../config/first.toml");
    assert_eq!(first.lines().count(), 12);
    let shipped = include_str!("../../../../config/slurm-graphite.toml");
    let [first, shipped] =
        [first, shipped].map(|text| Config::parse(text, &Flags::default()).unwrap());
    assert_eq!(first, shipped);
}

/// The page slurm-graphite.toml(5) is made from the shipped file.
#[test]
fn every_key_that_the_program_takes_is_in_its_table_of_the_shipped_file() {
    let mut table = "";
    let mut shipped = BTreeSet::new();
    for line in include_str!("../../../../config/slurm-graphite.toml").lines() {
        let line = line.strip_prefix('#').unwrap_or(line);
        match line.split_once(" = ") {
            _ if line.starts_with('[') => table = line.trim_matches(['[', ']']),
            Some((key, _)) if !key.contains(' ') => _ = shipped.insert(format!("{table}.{key}")),
            _ => {}
        }
    }
    let mut keys = Vec::new();
    collect("", &mut keys);
    assert!(keys.len() > 15 && keys.contains(&"carbon.address".to_owned()), "{keys:?}");
    for key in keys {
        let key = if key.contains('.') { key } else { format!(".{key}") };
        assert!(shipped.contains(&key), "{key} is not in {shipped:?}");
    }
}

/// The program names the keys that there are when it meets one that is not; a table has more of
/// them inside.
fn collect(table: &str, keys: &mut Vec<String>) {
    for key in known(table) {
        let full = if table.is_empty() { key } else { format!("{table}.{key}") };
        if known(&full).is_empty() { keys.push(full) } else { collect(&full, keys) }
    }
}

fn known(table: &str) -> Vec<String> {
    let heads = if table.is_empty() {
        vec![String::new()]
    } else {
        vec![format!("[{table}]"), format!("[[{table}]]")]
    };
    let known = heads.iter().find_map(|head| {
        let problems = problems(&format!("{head}\nno_such_key = \"\"")).join("\n");
        let place = if table.is_empty() { String::new() } else { format!("{table}.") };
        let (_, text) = problems.split_once(&format!("{place}no_such_key: no such key; "))?;
        let (_, known) = text.split_once(" keys here are ")?;
        Some(known.lines().next()?.split(", ").map(str::to_owned).collect())
    });
    known.unwrap_or_default()
}

#[test]
fn a_survey_falls_on_ticks_whichever_of_file_and_flags_has_the_last_word() {
    let text = "[collectors.jobs]\ninterval = \"10s\"";
    assert_eq!(
        problems(text),
        ["line 2: collectors.jobs.interval: 10 s is not a multiple of interval, which is 30 s"]
    );
    let paths = PathFlags { interval: Some("5s".to_owned()), prefix: None };
    let flags = Flags { paths, ..Flags::default() };
    assert!(Config::parse(text, &flags).is_ok());
}

#[test]
fn a_key_of_the_top_below_a_table_is_not_called_unknown() {
    for (table, line) in [
        ("[[carbon]]\naddress = \"a:1\"", 3),
        ("[collectors.jobs]\nenabled = true", 3),
        ("[log]", 2),
    ] {
        let text = Config::parse(&format!("{table}\nprefix = \"hpc\"\n"), &Flags::default())
            .unwrap_err()
            .to_string();
        assert!(text.contains(&format!("line {line}: ")), "{text}");
        assert!(
            text.contains("prefix: prefix belongs at the top of the file")
                && !text.contains("no such key"),
            "{text}"
        );
    }
}
