//! A `[[carbon]]` of the file: its keys, and how it must differ from the destinations before it.

use carbon::{Address, Destination, MetricNames, Protocol, Timeouts};

use super::section::Section;
use super::tls::read_tls;
use super::value::{between, destination_name, one_of};
use super::{MINUTE, ONLY_NAME, SECOND, YEAR};
use crate::tagged::tagged;

/// Reads one of `count` destinations, and adds it to the `others` before it.
pub(super) fn read_destination(
    mut carbon: Section<'_, '_>,
    count: usize,
    others: &mut Vec<Destination>,
) {
    let mut address = None;
    let mut name = None;
    let mut protocol = Protocol::default();
    let mut by_time = false;
    let mut tags = false;
    let mut timeouts = Timeouts::default();
    let mut reconnect_every = None;
    carbon.set_some("address", str::parse::<Address>, &mut address);
    carbon.set_some("name", destination_name, &mut name);
    let protocols = [("pickle", Protocol::Pickle), ("plaintext", Protocol::Plaintext)];
    carbon.set("protocol", one_of(protocols), &mut protocol);
    carbon.set("order", one_of([("newest_first", false), ("by_time", true)]), &mut by_time);
    carbon.set_flag("tags", &mut tags);
    carbon.set("connect_timeout", between(SECOND / 10, MINUTE * 10), &mut timeouts.connect);
    // The connection is given up after 10 minutes.
    carbon.set("stall_timeout", between(SECOND, MINUTE * 5), &mut timeouts.stall);
    carbon.set_some("reconnect_every", between(SECOND, YEAR), &mut reconnect_every);
    let tls = read_tls(&mut carbon, address.as_ref());
    if name.is_none() && count > 1 {
        carbon.require(
            "name",
            "with several destinations each needs one; one that was alone without a name is called \
                \"carbon\", and keeps its queue under that name",
        );
    }
    if let Some(address) = address {
        let is_named = name.is_some();
        // Two unnamed ones are a problem of its own.
        let unnamed = || if count > 1 { address.to_string() } else { ONLY_NAME.to_owned() };
        let to = Destination {
            name: name.unwrap_or_else(unnamed),
            address,
            protocol,
            names: if tags { MetricNames::Tagged(tagged) } else { MetricNames::Paths },
            timeouts,
            tls,
            replay_rate: None,
            by_time,
            reconnect_every,
        };
        refuse_twins(&mut carbon, &to, is_named, others);
        others.push(to);
    } else {
        carbon.require("address", "where Carbon listens, such as \"carbon.example.org:2004\"");
    }
    carbon.report_unread();
}

/// Adds a problem if one of the `others` has the same name, or gets the same paths at this address.
fn refuse_twins(
    carbon: &mut Section<'_, '_>,
    to: &Destination,
    is_named: bool,
    others: &[Destination],
) {
    let Destination { name, address, names, .. } = to;
    if is_named && others.iter().any(|other| other.name == *name) {
        carbon.problem(
            "name",
            format!("there are two destinations with the name {name}; give one of them another"),
        );
    }
    if others.iter().any(|other| (&other.address, &other.names) == (address, names)) {
        carbon.problem(
            "address",
            format!(
                "another [[carbon]] sends the same paths to {address}; remove one of the two, or \
                    set `tags = true` in one of them"
            ),
        );
    }
}
