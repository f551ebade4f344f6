//! Points that a sink has recorded, as lines of the plaintext protocol.

use std::collections::BTreeMap;

/// Value by timestamp.
pub type Values = BTreeMap<u64, f64>;

/// The points that a daemon has sent.
#[derive(Debug, Default)]
pub struct Recorded {
    series: BTreeMap<String, Values>,
    twice: Vec<String>,
    read: usize,
}

impl Recorded {
    /// Continues reading everything that was recorded; an incomplete last line is read later.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let fresh = bytes.get(self.read..).unwrap_or_default();
        let end = fresh.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(fresh.get(..end).unwrap_or_default());
        for line in text.lines() {
            match point(line) {
                Some((path, value, at)) => {
                    if self.series.entry(path.to_owned()).or_default().insert(at, value).is_some() {
                        self.twice.push(line.to_owned());
                    }
                }
                None => self.twice.push(format!("not a point: {line}")),
            }
        }
        self.read += end;
    }

    /// A metric path's points.
    pub fn series(&self, path: &str) -> Values {
        self.series.get(path).cloned().unwrap_or_default()
    }

    /// Its newest value.
    pub fn newest(&self, path: &str) -> Option<f64> {
        self.series.get(path)?.last_key_value().map(|(_, &value)| value)
    }

    /// One of the daemon's own figures.
    pub fn own(&self, leaf: &str) -> Values {
        let is_it = |path: &str| {
            path.starts_with("cluster.slurm_graphite.")
                && ![".carbon.", ".reply."].iter().any(|below| path.contains(below))
        };
        let leaf = format!(".gauge-{leaf}");
        let found = self.series.iter().find(|(path, _)| is_it(path) && path.ends_with(&leaf));
        found.map(|(_, values)| values.clone()).unwrap_or_default()
    }

    /// A figure about one kind of survey's replies.
    pub fn reply(&self, reply: &str, leaf: &str) -> Values {
        let end = format!(".reply.{reply}.gauge-{leaf}");
        let found = self.series.iter().find(|(path, _)| path.ends_with(&end));
        found.map(|(_, values)| values.clone()).unwrap_or_default()
    }

    /// The newest value of one of the daemon's own figures; 0 if there is none.
    pub fn last(&self, leaf: &str) -> f64 {
        self.own(leaf).last_key_value().map_or(0.0, |(_, &value)| value)
    }

    /// One of slurmctld's figures.
    pub fn statistics(&self, leaf: &str) -> Values {
        self.series(&format!("cluster.slurm_sched_stats.gauge-{leaf}"))
    }

    /// All paths below `prefix`.
    pub fn below(&self, prefix: &str) -> Vec<&str> {
        self.series.keys().map(String::as_str).filter(|path| path.starts_with(prefix)).collect()
    }

    /// `points_superseded` of the destination `sink`, of all runs: each begins with 0.
    pub fn superseded(&self) -> f64 {
        let of_sink = |path: &str| path.ends_with(".carbon.sink.gauge-points_superseded");
        let found = self.series.iter().find(|(path, _)| of_sink(path));
        let values = found.into_iter().flat_map(|(_, values)| values.values().copied());
        let (sum, last) = values.fold((0.0, 0.0), |(sum, last), value| {
            (if value < last { sum + last } else { sum }, value)
        });
        sum + last
    }

    /// All of slurmctld's figures by path, from every collector.
    pub fn slurm(&self) -> impl Iterator<Item = (&str, &Values)> {
        let own = "cluster.slurm_graphite.";
        self.series
            .iter()
            .map(|(path, values)| (path.as_str(), values))
            .filter(move |(path, _)| !path.starts_with(own))
    }

    /// Lines with a point that had been sent before, and lines that cannot be read.
    pub fn twice(&self) -> &[String] {
        &self.twice
    }
}

/// A line of the plaintext protocol: path, value and timestamp.
pub(crate) fn point(line: &str) -> Option<(&str, f64, u64)> {
    let mut words = line.split(' ');
    let point = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(point)
}
