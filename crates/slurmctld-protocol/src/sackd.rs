//! The socket of sackd, or of a slurmctld or slurmdbd on this host: tokens for
//! `AuthType=auth/slurm`.

use std::io;
use std::path::PathBuf;

use crate::local_socket::LocalStream;
use crate::pack::{Unpack, packed_length};

/// Type of a request for a token, `SACK_CREATE`.
const CREATE: u32 = 64_001;

/// Largest number of bytes of a token, which has a few hundred.
const MOST: usize = 64 << 10;

/// The places where Slurm's own clients look for the socket, in their order.
pub(crate) fn sockets(cluster: Option<&str>) -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os("SLURM_SACK_SOCKET") {
        return vec![named.into()];
    }
    let own = cluster.map(|name| format!("/run/slurm-{name}/sack.socket"));
    let usual = ["/run/slurm", "/run/slurmctld", "/run/slurmdbd"]
        .map(|folder| format!("{folder}/sack.socket"));
    own.into_iter().chain(usual).map(PathBuf::from).collect()
}

/// Asks sackd for a token for a message with this hash, which only the user `restricted_to` can
/// use, or any user if that is `None`.
pub(crate) async fn token(
    mut sackd: LocalStream<'_>,
    number: u16,
    hash: &[u8],
    restricted_to: Option<u32>,
) -> io::Result<Vec<u8>> {
    let user = restricted_to.unwrap_or(u32::MAX).to_be_bytes();
    // The length of itself, the type, the user and the hash with its length.
    let all = packed_length(hash.len().saturating_add(16));
    let own = packed_length(hash.len());
    let number = (number << 8).to_be_bytes();
    sackd.send(&[&number[..], &all, &CREATE.to_be_bytes(), &user, &own, hash].concat()).await?;
    let length =
        Unpack(&sackd.exactly(4).await?).u32().ok().and_then(|length| usize::try_from(length).ok());
    let Some(length @ 1..=MOST) = length else { return Err(io::Error::other("it gives no token")) };
    let mut token = sackd.exactly(length).await?;
    while token.last() == Some(&0) {
        token.pop();
    }
    Ok(token)
}
