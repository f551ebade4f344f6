//! The key that opens a closed row, without which it shows nothing, and its cost for slurmctld.

use crate::grafana::Row;

/// A collector that is off by default.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    /// The lines of slurm-graphite.toml.
    keys: &'static str,
    /// The cost for slurmctld, in a sentence or two.
    cost: &'static str,
}

pub(crate) const NODES: Need = Need {
    keys: "[collectors.nodes] with enabled = true",
    cost: "one request a minute for all nodes, for which slurmctld holds its lock for nodes: \
        milliseconds for some hundred nodes.",
};

pub(crate) const FEATURES: Need = Need {
    keys: "[collectors.nodes] with enabled = true and features = 20",
    cost: "slurmctld: nothing more than nodes. Graphite: twelve files for each of 20 features.",
};

pub(crate) const EVENTS: Need = Need {
    keys: "[collectors.nodes] with enabled = true and events = true",
    cost: "slurmctld: the same request for all nodes, and one for the partitions.",
};

pub(crate) const PARTITIONS: Need = Need {
    keys: "[collectors.partitions] with enabled = true",
    cost: "one request a minute for all nodes and one for all jobs, which the collectors nodes and \
           jobs share: slurmctld walks them while it holds its locks.",
};

pub(crate) const JOBS: Need = Need {
    keys: "[collectors.jobs] with enabled = true",
    cost: "one request a minute for all jobs, as squeue makes it: slurmctld walks them while it \
           holds its lock for jobs, for some hundred milliseconds if there are 100,000.",
};

pub(crate) const WHO: Need = Need {
    keys: "[collectors.jobs] with enabled = true, and accounts and users there for theirs",
    cost: "the same request as for the rows above. Each account and user gets files in Graphite \
        that stay.",
};

pub(crate) const USERS: Need = Need {
    keys: "users = 10 in [collectors.rpc_stats] for the last table, and in \
        [collectors.jobs], with enabled = true, for the others",
    cost: "each user gets files in Graphite that stay. rpc_stats costs slurmctld nothing more; \
           jobs costs one request a minute for all jobs, as squeue makes it.",
};

pub(crate) const RPC_USERS: Need = Need {
    keys: "users = 10 in [collectors.rpc_stats]",
    cost: "slurmctld: nothing more. Graphite: 319 files within 30 days for ten users.",
};

pub(crate) const FINISHED: Need = Need {
    keys: "[collectors.finished] with enabled = true",
    cost: "slurmctld: nothing. slurmdbd: one query a minute for the jobs of the last hour.",
};

pub(crate) const ASSOCIATIONS: Need = Need {
    keys: "[collectors.associations] with enabled = true",
    cost: "one request a minute for all associations, for which slurmctld holds its locks for \
           associations, but not those for jobs or nodes. Limits that are not set are not drawn.",
};

pub(crate) const LICENSES: Need = Need {
    keys: "[collectors.licenses] with enabled = true",
    cost: "one request a minute for all licences.",
};

pub(crate) const RESERVATIONS: Need = Need {
    keys: "[collectors.reservations] with enabled = true",
    cost: "one request a minute for all reservations.",
};

pub(crate) const CONTROLLERS: Need = Need {
    keys: "[collectors.controllers] with enabled = true",
    cost: "one ping a minute to each host of SlurmctldHost.",
};

pub(crate) const SLURMDBD: Need = Need {
    keys: "[collectors.slurmdbd] with enabled = true, and a user that is an administrator in \
        slurmdbd's records",
    cost: "slurmctld: nothing. slurmdbd: one request a minute.",
};

pub(crate) const SEVERAL: Need = Need {
    keys: "follow in [slurm] for the first curve, rest with a token for the second",
    cost: "nothing more.",
};

impl Row {
    /// Panels without data say what the row needs.
    pub(crate) fn needs(self, Need { keys, cost }: Need) -> Self {
        let section = keys.split_inclusive(']').next().unwrap_or_default();
        let section = section.get(section.find('[').unwrap_or(0)..).unwrap_or_default();
        self.without_data(format!("No data. Needs: {keys}. Costs: {cost}"), section)
    }

    /// The same for panels of a survey.
    pub(crate) fn surveys(self, need: Need) -> Self {
        self.survey().needs(need)
    }
}
