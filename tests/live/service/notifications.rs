//! READY, STATUS as text, WATCHDOG and STOPPING.

use std::time::{Duration, Instant};

use sandbox::{Folder, Notify, Process, Sandbox, free_port, proc, wait};

use super::{SOON, daemon, toml};

fn notifying(process: Process, notify: &Notify) -> Process {
    process.env("NOTIFY_SOCKET", notify.path.as_os_str())
}

fn to_main(sandbox: &Sandbox) -> String {
    let address = format!("127.0.0.1:{}", sandbox.carbon.line_port);
    toml("1s", sandbox.slurm.conf(), &[("main", &address)])
}

#[test]
fn it_is_ready_within_five_seconds_where_neither_slurmctld_nor_carbon_is() {
    let folder = Folder::new().unwrap();
    let mut notify = Notify::listen(&folder).unwrap();
    let address = format!("127.0.0.1:{}", free_port().unwrap());
    let missing = folder.path().join("slurm.conf");
    let config = toml("1s", &missing, &[("nobody", &address)]);
    let mut daemon = notifying(daemon(&folder, "daemon", &config).unwrap(), &notify);
    daemon.start().unwrap();
    notify.message("READY=1", SOON).unwrap();
    notify.message("nobody not connected since ", SOON).unwrap();
    notify.message("slurmctld does not answer; nobody not connected since ", SOON).unwrap();
    notify.message(", 3 ticks not sent, oldest from ", SOON).unwrap();
    let said = daemon.line(&missing.display().to_string(), SOON).unwrap();
    assert!(said.contains("WARN") && said.contains("does not exist"), "{said}");
    assert!(daemon.stop().unwrap().status.success());
}

#[test]
fn its_status_follows_slurmctld_and_carbon_in_words_and_sigterm_ends_it_at_once() {
    let mut sandbox = Sandbox::start().unwrap();
    let mut notify = Notify::listen(&sandbox.folder).unwrap();
    let daemon = daemon(&sandbox.folder, "daemon", &to_main(&sandbox)).unwrap();
    let mut daemon = notifying(daemon, &notify);
    daemon.start().unwrap();
    let well = "STATUS=slurmctld answers; sending to main";
    notify.message(well, SOON).unwrap();
    let Sandbox { slurm, carbon, .. } = &mut sandbox;
    for (process, words) in [
        (&mut carbon.process, "slurmctld answers; main not connected since "),
        (&mut slurm.slurmctld, "slurmctld does not answer; sending to main"),
    ] {
        let before = notify.messages().len();
        process.stop().unwrap();
        notify.message_after(before, words, SOON).unwrap();
        let before = notify.messages().len();
        process.start().unwrap();
        // The backoff may have grown.
        notify.message_after(before, well, SOON * 2).unwrap();
    }
    // STATUS is sent when it changes; without a watchdog nothing else is sent.
    let statuses: Vec<&str> = notify.messages().iter().map(|(_, text)| text.as_str()).collect();
    assert!(statuses.windows(2).all(|pair| pair[0] != pair[1]), "{statuses:#?}");
    assert!(!statuses.iter().any(|text| text.contains("WATCHDOG")), "{statuses:#?}");
    sigterm_ends_it_and_its_reader_at_once_with_everything_delivered(
        &mut sandbox,
        &mut notify,
        daemon,
    );
}

#[test]
fn the_watchdog_is_fed_twice_in_its_patience_however_long_the_interval() {
    let folder = Folder::new().unwrap();
    let mut notify = Notify::listen(&folder).unwrap();
    let config = toml("30s", &folder.path().join("slurm.conf"), &[("nobody", "127.0.0.1:9")]);
    let mut daemon = notifying(daemon(&folder, "daemon", &config).unwrap(), &notify)
        .env("WATCHDOG_USEC", "12000000");
    let start = Instant::now();
    daemon.start().unwrap();
    let feeds = |notify: &mut Notify| -> Vec<Instant> {
        let messages = notify.messages().iter();
        messages.filter(|(_, text)| text.contains("WATCHDOG=1")).map(|(at, _)| *at).collect()
    };
    wait::until("six meals", SOON, || feeds(&mut notify).len() >= 6).unwrap();
    let mut times = feeds(&mut notify);
    times.insert(0, start);
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap <= Duration::from_secs(6)), "{gaps:?}");
    assert!(times[6] - times[0] > Duration::from_secs(12), "it need not be stuffed: {gaps:?}");
    assert!(daemon.stop().unwrap().status.success());
}

fn sigterm_ends_it_and_its_reader_at_once_with_everything_delivered(
    sandbox: &mut Sandbox,
    notify: &mut Notify,
    mut daemon: Process,
) {
    let readers = proc::children(daemon.pid().unwrap());
    assert_eq!(readers.len(), 1);
    let ended = daemon.stop().unwrap();
    assert!(ended.status.success(), "{:?}", ended.status);
    // Less than drain_timeout: it does not wait for that.
    assert!(ended.after < Duration::from_secs(5), "{:?}", ended.after);
    wait::until("the reader's end", SOON, || !readers.iter().any(|&reader| proc::alive(reader)))
        .unwrap();
    notify.message("STOPPING=1", SOON).unwrap();
    daemon.line("slurm-graphite has ended", SOON).unwrap();
    wait::until("its last tick in whisper", SOON, || {
        let up =
            sandbox.carbon.paths().into_keys().find(|path| path.ends_with(".gauge-slurmctld_up"));
        up.and_then(|up| sandbox.carbon.series(&up).ok()?.last()).is_some_and(|(_, up)| up == 1.0)
    })
    .unwrap();
    sandbox.carbon.process.stop().unwrap();

    // While Carbon is down, the end takes drain_timeout, and the daemon reports what is left.
    let config = format!("drain_timeout = \"1s\"\n{}", to_main(sandbox));
    let mut daemon = super::daemon(&sandbox.folder, "alone", &config).unwrap();
    daemon.start().unwrap();
    daemon.line("slurmctld answers", SOON).unwrap();
    let ended = daemon.stop().unwrap();
    assert!(ended.status.success(), "{:?}", ended.status);
    assert!(ended.after < Duration::from_secs(5), "{:?}", ended.after);
    let said = daemon.lines();
    let left = |line: &String| line.contains("WARN") && line.contains("destination=main");
    assert!(said.iter().rev().take(3).any(left), "{said:#?}");
}
