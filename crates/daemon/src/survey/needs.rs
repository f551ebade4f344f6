//! What collectors need to know of the cluster, and the replies that tell it.

use slurm_snapshot::{Reading, Request};

/// What collectors need to know of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) jobs: bool,
    pub(crate) accounts: bool,
    pub(crate) qos: bool,
    pub(crate) users: bool,
    pub(crate) nodes: bool,
    pub(crate) partitions: bool,
    pub(crate) node_rows: bool,
    pub(crate) licenses: bool,
    pub(crate) reservations: bool,
    pub(crate) controllers: bool,
}

impl Needs {
    /// What two need.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            jobs: self.jobs || other.jobs,
            accounts: self.accounts || other.accounts,
            qos: self.qos || other.qos,
            users: self.users || other.users,
            nodes: self.nodes || other.nodes,
            partitions: self.partitions || other.partitions,
            node_rows: self.node_rows || other.node_rows,
            licenses: self.licenses || other.licenses,
            reservations: self.reservations || other.reservations,
            controllers: self.controllers || other.controllers,
        }
    }

    /// Whether it is nothing but the statistics.
    pub(crate) fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The replies that tell it.
    pub(crate) fn kinds(self) -> impl Iterator<Item = Kind> {
        KINDS.into_iter().filter(move |kind| self.of(*kind))
    }

    pub(super) const fn of(self, kind: Kind) -> bool {
        match kind {
            Kind::Jobs => self.jobs,
            Kind::Nodes => self.nodes || self.partitions,
            Kind::Licenses => self.licenses,
            Kind::Reservations => self.reservations,
            Kind::Controllers => self.controllers,
        }
    }
}

/// A kind of reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Jobs,
    Nodes,
    Licenses,
    Reservations,
    Controllers,
}

/// All of them, in the order in which a round asks: the cheap ones first, and the controllers last, for one that hangs is
/// waited for (MessageTimeout, 10 s).
pub(super) const KINDS: [Kind; 5] =
    [Kind::Licenses, Kind::Reservations, Kind::Nodes, Kind::Jobs, Kind::Controllers];

impl Kind {
    /// Its name in logs and paths.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Nodes => "nodes",
            Self::Licenses => "licenses",
            Self::Reservations => "reservations",
            Self::Controllers => "controllers",
        }
    }

    /// What of PrivateData concerns it.
    pub(super) const fn private(self) -> Option<&'static str> {
        match self {
            Self::Jobs => Some("jobs"),
            Self::Nodes => Some("nodes"),
            Self::Reservations => Some("reservations"),
            Self::Licenses | Self::Controllers => None,
        }
    }

    /// Whether it costs slurmctld something: a ping takes none of its locks.
    pub(super) const fn is_dear(self) -> bool {
        !matches!(self, Self::Controllers)
    }

    pub(super) fn request(self, needs: Needs, since: Option<i64>) -> Request {
        let id = 0;
        match self {
            Self::Jobs => Request::Jobs {
                id,
                since,
                accounts: needs.accounts,
                qos: needs.qos,
                users: needs.users,
                names: needs.users,
            },
            Self::Nodes => Request::Nodes { id, since, partitions: needs.partitions, rows: needs.node_rows },
            Self::Licenses => Request::Licenses { id, since },
            Self::Reservations => Request::Reservations { id, since },
            Self::Controllers => Request::Controllers { id },
        }
    }

    /// Whether slurmctld may keep some of the reply from us.
    pub(super) fn is_hidden(self, reading: &Reading) -> bool {
        let visibility = reading.visibility.as_ref();
        self.private().is_some_and(|word| visibility.is_some_and(|visibility| visibility.may_hide(word)))
    }
}
