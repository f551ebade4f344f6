//! Checks which programs would get the token in SLURM_JWT. libslurm sends it by itself, in the
//! clear, to any program that listens on the ports of slurmctld and slurmdbd.
//!
//! On this host, another user may have taken such a port while its program was down. The check is
//! made before a call and after it. It is no proof, because the program may change in between.

use std::net::{SocketAddr, ToSocketAddrs as _};

use reader_process::listener::{Kernel, check_user, unknown_listener};
use reader_process::route;
use slurm_snapshot::Role;

use crate::calls::{CallError, CallResult, Libslurm};
use crate::values::lossy;

/// The variable with a token that libslurm sends instead of munge's credential.
pub(crate) const TOKEN: &str = "SLURM_JWT";

/// Checks who listens on this host where libslurm would send a token, if one is used. The addresses
/// are each controller's, their virtual one, and for [`Role::Accounting`] slurmdbd's. Addresses of
/// other hosts are not checked.
///
/// # Errors
/// A user other than root and SlurmUser listens there, or it is not known who does.
pub(crate) fn check_listeners(libslurm: &mut Libslurm, role: Role) -> CallResult<()> {
    if std::env::var_os(TOKEN).is_none() {
        return Ok(());
    }
    let conf = libslurm.own_conf(|conf| {
        let slurmctld = conf.control_addr().chain([conf.slurmctld_addr()]).map(lossy).collect();
        let slurmdbd = [conf.accounting_storage_host(), conf.accounting_storage_backup_host()];
        let slurmdbd = match role {
            Role::Accounting => slurmdbd.into_iter().map(lossy).collect(),
            Role::Statistics | Role::Surveys => vec![],
        };
        let slurmctld = (slurmctld, port(conf.slurmctld_port), conf.slurmctld_port_count);
        let slurmdbd = (slurmdbd, conf.accounting_storage_port, 1);
        ([slurmctld, slurmdbd], conf.slurm_user_id)
    });
    let Some((programs, slurm_user)) = conf else { return Ok(()) };
    for (hosts, port, count) in programs {
        let ports = port..=port.saturating_add(count.saturating_sub(1));
        let named = hosts.iter().filter(|host| !host.is_empty());
        for (host, port) in named.flat_map(|host| ports.clone().map(move |port| (host, port))) {
            for address in (host.as_str(), port).to_socket_addrs().into_iter().flatten() {
                check(address, slurm_user)?;
            }
        }
    }
    Ok(())
}

fn check(address: SocketAddr, slurm_user: u32) -> CallResult<()> {
    let failed = |text| CallError { call: TOKEN, errno: 0, text };
    let owner = match route::routes_to_itself(address.ip()) {
        Ok(true) => Kernel::load().and_then(|mut kernel| kernel.listener(address)),
        Ok(false) => return Ok(()),
        Err(error) => return Err(failed(route::unknown_route(address.ip(), &error))),
    };
    let owner = owner.map_err(|error| failed(unknown_listener(&error)))?;
    check_user(address.port(), owner, &[0, slurm_user], "root nor SlurmUser").map_err(failed)
}

/// Returns a number of slurm.conf as a port; 0 if it is none.
fn port(number: u32) -> u16 {
    number.try_into().unwrap_or_default()
}
