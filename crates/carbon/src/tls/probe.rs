//! Finds out whether a port speaks TLS, for a check of a destination without `tls`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::builder;

/// Time to wait for the answer to TLS's hello. A server gives it at once.
const PATIENCE: Duration = Duration::from_secs(3);
/// The first bytes of a TLS answer: a handshake or an alert, and the major version.
const ANSWERS: [[u8; 2]; 2] = [[22, 3], [21, 3]];

/// Whether the server at the first of these addresses of `host` that accepts a connection answers
/// TLS's hello. No certificate is checked.
pub(crate) async fn speaks_tls(host: &str, addresses: &[SocketAddr]) -> bool {
    timeout(PATIENCE, asks(host, addresses))
        .await
        .is_ok_and(|answer| answer.is_ok_and(|answer| ANSWERS.contains(&answer)))
}

async fn asks(host: &str, addresses: &[SocketAddr]) -> io::Result<[u8; 2]> {
    let client = builder(RootCertStore::empty()).map_err(io::Error::other)?.with_no_client_auth();
    let name = host.to_owned().try_into().map_err(io::Error::other)?;
    let mut session = ClientConnection::new(Arc::new(client), name).map_err(io::Error::other)?;
    let (mut hello, mut answer) = (Vec::new(), [0; 2]);
    session.write_tls(&mut hello)?;
    let mut stream = TcpStream::connect(addresses).await?;
    stream.write_all(&hello).await?;
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
