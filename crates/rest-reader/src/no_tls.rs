//! Stands in for tls.rs in a reader that was built without TLS.

use std::path::Path;

use slurm_snapshot::Stage;
use tokio::net::TcpStream;

use crate::problem::RestProblem;

/// The certificate authorities that are trusted: without TLS there are none.
pub(crate) enum Trust {}

pub(crate) fn trust(_: Option<&Path>) -> Result<Trust, RestProblem> {
    Err(RestProblem::new(Stage::Tls, "this reader was built without TLS"))
}

pub(crate) async fn connect(
    trust: &Trust,
    _: &str,
    _: TcpStream,
) -> Result<TcpStream, RestProblem> {
    match *trust {}
}
