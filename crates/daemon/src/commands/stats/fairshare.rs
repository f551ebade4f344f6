//! `stats --fairshare`: shares and usage of accounts and users, in sshare's columns and order. One reply of slurmctld.

use std::collections::HashMap;
use std::fmt::Write;

use anyhow::{Result, bail};
use slurm_snapshot::{Association, Reply, ReplyKind, ReplyOptions, Request, SharesRaw};

use super::{print_table, read_whole};
use crate::cli::Options;
use crate::printable::cell;

pub(in crate::commands) fn fairshare(options: &Options, json: bool) -> Result<()> {
    let users = ReplyOptions { users: true, ..ReplyOptions::default() };
    let reading = read_whole(options, Request::new(ReplyKind::Associations, users))?;
    let Some(Reply::Associations(all)) = &reading.reply else {
        bail!("no associations in slurmctld's reply")
    };
    if all.associations.is_empty() {
        bail!("slurmctld has no associations: this cluster has no slurmdbd");
    }
    print_table(json, all.associations.as_slice(), table)
}

fn table(associations: &[Association]) -> String {
    let mut text = format!(
        "{:<24} {:<12} {:<12} {:>10} {:>10} {:>14} {:>10} {:>12} {:>10} {:>12}\n",
        "Account",
        "User",
        "Partition",
        "RawShares",
        "NormShares",
        "RawUsage",
        "NormUsage",
        "EffectvUsage",
        "FairShare",
        "LevelFS"
    );
    // slurmctld sends an account before those below it.
    let mut depths: HashMap<&str, usize> = HashMap::new();
    for association in associations {
        let depth = match (&association.user, &association.parent) {
            (Some(_), _) => {
                depths.get(association.account.as_str()).map_or(0, |depth| depth.saturating_add(1))
            }
            (None, parent) => {
                let above = parent.as_ref().and_then(|parent| depths.get(parent.as_str()));
                let depth = above.map_or(0, |depth| depth.saturating_add(1));
                depths.insert(&association.account, depth);
                depth
            }
        };
        let raw = match association.shares {
            SharesRaw::None => String::new(),
            SharesRaw::Parent => "parent".to_owned(),
            SharesRaw::Shares(shares) => shares.to_string(),
        };
        let figure = |figure: Option<f64>| figure.map(|figure| format!("{figure:.6}")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:<24} {:<12} {:<12} {raw:>10} {:>10} {:>14} {:>10} {:>12} {:>10} {:>12}",
            cell(&format!("{:depth$}{}", "", association.account), 24),
            cell(association.user.as_ref().map_or("", |user| &user.name), 12),
            cell(association.partition.as_deref().unwrap_or_default(), 12),
            figure(association.shares_norm),
            format!("{}", association.usage_raw.trunc()),
            figure(association.usage_norm),
            figure(association.usage_efctv),
            figure(association.fairshare),
            figure(association.level_fs),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use slurm_snapshot::AssociationUser;

    use super::*;

    #[test]
    fn accounts_are_below_their_parents_and_users_below_their_accounts() {
        let account = |name: &str, parent: Option<&str>| Association {
            account: name.to_owned(),
            parent: parent.map(str::to_owned),
            shares: SharesRaw::Shares(1),
            ..Association::default()
        };
        let user = |name: &str, account: &str| Association {
            account: account.to_owned(),
            user: Some(AssociationUser { name: name.to_owned(), id: None }),
            fairshare: Some(0.5),
            ..Association::default()
        };
        let all = [
            account("root", None),
            account("physics", Some("root")),
            user("ann", "physics"),
            account("optics", Some("physics")),
            account("chemistry", Some("root")),
        ];
        let text = table(&all);
        let starts = ["Account", "root", " physics", "  physics", "  optics", " chemistry"];
        for (line, start) in text.lines().zip(starts) {
            assert!(line.starts_with(&format!("{start} ")), "{text}");
        }
        let ann = text.lines().nth(3).unwrap();
        assert_eq!(ann.split_whitespace().collect::<Vec<_>>(), ["physics", "ann", "0", "0.500000"]);
    }
}
