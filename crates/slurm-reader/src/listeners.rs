//! Who would get the token in SLURM_JWT, which libslurm sends by itself, in the clear, to the
//! program that listens on slurmctld's port.
//!
//! On this host, another user may have taken the port while slurmctld was down. The question before
//! a call and after it is no proof, because the program may change in between.

use std::net::ToSocketAddrs as _;

use reader_process::listener::{Kernel, check_user, unknown_listener};
use reader_process::route;

use crate::calls::{CallError, CallResult, Libslurm};
use crate::values::lossy;

/// Where it is set, libslurm sends it instead of munge's credential.
pub(crate) const TOKEN: &str = "SLURM_JWT";

/// Checks who listens at each controller's addresses of this host, if a token is used.
///
/// # Errors
/// A user other than root and SlurmUser.
pub(crate) fn check_listeners(libslurm: &mut Libslurm) -> CallResult<()> {
    if std::env::var_os(TOKEN).is_none() {
        return Ok(());
    }
    let conf = libslurm.own_conf(|conf| {
        let hosts: Vec<String> = conf.control_addr().map(lossy).collect();
        (hosts, conf.slurmctld_port, conf.slurmctld_port_count, conf.slurm_user_id)
    });
    let Some((hosts, port, count, slurm_user)) = conf else { return Ok(()) };
    let failed = |text| CallError { call: TOKEN, errno: 0, text };
    let port = u16::try_from(port).unwrap_or_default();
    for port in port..=port.saturating_add(count.saturating_sub(1)) {
        for address in
            hosts.iter().flat_map(|host| (host.as_str(), port).to_socket_addrs()).flatten()
        {
            let owner = || match route::routes_to_itself(address.ip())? {
                true => Kernel::load()?.listener(address),
                false => Ok(None),
            };
            let owner = owner().map_err(|error| failed(unknown_listener(&error)))?;
            check_user(port, owner, &[0, slurm_user], "root nor SlurmUser").map_err(failed)?;
        }
    }
    Ok(())
}
