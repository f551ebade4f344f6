//! Limits that are legal one by one, and of which one makes another useless.

use std::time::Duration;

use super::CheckLine;
use crate::config::Config;

/// Time after which a daemon that must stop is killed: TimeoutStopSec of the unit, and stopwaitsecs
/// of supervisord, as they are shipped.
const KILLED_AFTER: Duration = Duration::from_secs(30);

/// Returns a note for each limit that makes another useless. None is wrong enough to refuse a
/// reload.
pub(super) fn lines(config: &Config) -> Vec<CheckLine> {
    let limits = &config.queue.limits;
    let interval = Duration::from_secs(config.interval.into());
    let usual_timeout = Config::default().slurm.timeout;
    let shown = humantime::format_duration;
    let mut lines = Vec::new();
    if limits.resend_window > limits.max_age {
        lines.push(CheckLine::costs(
            format!(
                "queue: resend_window is {}, but a tick older than max_age ({}) is never sent again",
                shown(limits.resend_window),
                shown(limits.max_age)
            ),
            "Raise max_age: until then, what Carbon loses after that time is lost.",
        ));
    }
    if config.drain_timeout >= KILLED_AFTER {
        lines.push(CheckLine::costs(
            format!(
                "drain_timeout: {} is not below the {} after which the unit, or supervisord, kills \
                    the daemon",
                shown(config.drain_timeout),
                shown(KILLED_AFTER)
            ),
            "Raise TimeoutStopSec (`systemctl edit slurm-graphite`) or stopwaitsecs above it, if you \
                have not done so.",
        ));
    }
    // At an interval of a few seconds, the default would be a note that nobody can act upon.
    if config.slurm.timeout > interval.max(usual_timeout) {
        lines.push(CheckLine::costs(
            format!(
                "slurm: timeout is {}, but an answer that takes longer than interval ({}) is not \
                    used, and no other tick is read meanwhile",
                shown(config.slurm.timeout),
                shown(interval)
            ),
            "Raise interval, or lower timeout to it. Only the replies for jobs, nodes and other \
                lists gain by it: they may take four times as long.",
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against "✓ configuration", and nothing else, for each of these configurations.
    #[test]
    fn a_limit_that_makes_another_useless_is_said() {
        let lines = |toml: &str| -> Vec<String> {
            let config = Config::parse_valid(toml);
            lines(&config).into_iter().map(|line| line.text).collect()
        };
        for fitting in [
            "",
            "interval = \"10s\"",
            "drain_timeout = \"29s\"",
            "interval = \"2m\"\n[slurm]\ntimeout = \"2m\"",
            "[queue]\nmax_age = \"1h\"\nresend_window = \"1h\"",
        ] {
            assert_eq!(lines(fitting), [""; 0], "{fitting}");
        }
        for (toml, words) in [
            ("[queue]\nmax_age = \"1h\"\nresend_window = \"2h\"", "resend_window is 2h, but"),
            ("drain_timeout = \"30s\"", "drain_timeout: 30s is not below the 30s"),
            ("[slurm]\ntimeout = \"31s\"", "timeout is 31s, but"),
            ("interval = \"10s\"\n[slurm]\ntimeout = \"1m\"", "interval (10s)"),
        ] {
            let said = lines(toml);
            assert!(matches!(&said[..], [line] if line.contains(words)), "{toml}: {said:?}");
        }
    }
}
