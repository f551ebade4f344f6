//! A reader that was built without TLS.

use std::path::Path;

use slurm_snapshot::Stage;
use tokio::net::TcpStream;

use crate::problem::RestProblem;

pub(crate) async fn connect(_: Option<&Path>, _: &str, _: TcpStream) -> Result<TcpStream, RestProblem> {
    Err(RestProblem::new(Stage::Tls, "this reader was built without TLS"))
}
