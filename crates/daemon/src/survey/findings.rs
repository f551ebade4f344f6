//! What a round has found out.

use std::sync::Arc;

use slurm_snapshot::{Controller, Jobs, Licenses, Nodes, Reading, Reply, Reservations};

use super::needs::{KINDS, Kind};

/// What a round has found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings([Option<Arc<Reading>>; KINDS.len()]);

impl Findings {
    pub(crate) fn jobs(&self) -> Option<&Jobs> {
        match self.reply(Kind::Jobs) {
            Some(Reply::Jobs(jobs)) => Some(jobs),
            _ => None,
        }
    }

    pub(crate) fn nodes(&self) -> Option<&Nodes> {
        match self.reply(Kind::Nodes) {
            Some(Reply::Nodes(nodes)) => Some(nodes),
            _ => None,
        }
    }

    pub(crate) fn licenses(&self) -> Option<&Licenses> {
        match self.reply(Kind::Licenses) {
            Some(Reply::Licenses(licenses)) => Some(licenses),
            _ => None,
        }
    }

    pub(crate) fn reservations(&self) -> Option<&Reservations> {
        match self.reply(Kind::Reservations) {
            Some(Reply::Reservations(reservations)) => Some(reservations),
            _ => None,
        }
    }

    pub(crate) fn controllers(&self) -> Option<&[Controller]> {
        match self.reply(Kind::Controllers) {
            Some(Reply::Controllers(controllers)) => Some(controllers),
            _ => None,
        }
    }

    /// One reply, as if a round had found out nothing else.
    #[cfg(test)]
    pub(crate) fn of(reply: Reply) -> Self {
        let kind = match reply {
            Reply::Jobs(_) | Reply::Unchanged => Kind::Jobs,
            Reply::Nodes(_) => Kind::Nodes,
            Reply::Licenses(_) => Kind::Licenses,
            Reply::Reservations(_) => Kind::Reservations,
            Reply::Controllers(_) => Kind::Controllers,
        };
        let mut findings = Self::default();
        findings.add(kind, reply);
        findings
    }

    /// The same with one more.
    #[cfg(test)]
    pub(crate) fn add(&mut self, kind: Kind, reply: Reply) {
        let release = slurm_snapshot::Release::new(22, 5);
        let reading = Reading {
            id: 0,
            time: 0.0,
            uptime: None,
            elapsed: 0,
            release,
            cluster: None,
            max_server_threads: None,
            statistics: None,
            reply: Some(reply),
            visibility: None,
            rest: None,
        };
        self.set(kind, Some(Arc::new(reading)));
    }

    fn reply(&self, kind: Kind) -> Option<&Reply> {
        self.0.get(kind as usize).and_then(Option::as_ref).and_then(|reading| reading.reply.as_ref())
    }

    /// Without what is another cluster's than `cluster`: slurm.conf was replaced, which one reader notices before the other.
    pub(crate) fn only_of(mut self, cluster: Option<&str>) -> Self {
        let another = |reading: &Arc<Reading>| {
            cluster.zip(reading.cluster.as_deref()).is_some_and(|(cluster, its)| cluster != its)
        };
        for place in &mut self.0 {
            place.take_if(|reading| another(reading));
        }
        self
    }

    /// What another has found out, too.
    pub(super) fn extend(&mut self, more: Self) {
        for (place, more) in self.0.iter_mut().zip(more.0) {
            *place = more.or(place.take());
        }
    }

    pub(super) fn set(&mut self, kind: Kind, reading: Option<Arc<Reading>>) {
        if let Some(place) = self.0.get_mut(kind as usize) {
            *place = reading;
        }
    }
}
