//! carbonapi over go-carbon, for the whisper files of a [`Carbon`]: other programs that answer
//! Grafana, in which Graphite's functions are written again.
//!
//! Debian has neither, so `CARBONAPI` names a folder with both programs.

use std::path::PathBuf;

use anyhow::Result;

use crate::graphite_web::{Rendered, render};
use crate::{Carbon, Folder, Process, free_port, proc};

/// A carbonapi, and the go-carbon that it asks.
#[derive(Debug)]
pub struct Carbonapi {
    _processes: [Process; 2],
    port: u16,
}

impl Carbonapi {
    /// Starts both, if `CARBONAPI` is set, and waits for them.
    pub fn over(folder: &Folder, carbon: &Carbon) -> Result<Option<Self>> {
        let Some(programs) = std::env::var_os("CARBONAPI").map(PathBuf::from) else {
            return Ok(None);
        };
        let (port, files_port) = (free_port()?, free_port()?);
        // It reads retentions from the files, but does not start without rules.
        let schemas =
            folder.write("go-carbon-schemas.conf", "[all]\npattern = .*\nretentions = 1s:1h\n")?;
        let files =
            folder.write("go-carbon.conf", &go_carbon_conf(carbon, &schemas, files_port))?;
        let api = folder.write("carbonapi.yaml", &carbonapi_conf(port, files_port))?;
        let mut processes = [("go-carbon", files, files_port), ("carbonapi", api, port)].map(
            |(program, conf, port)| {
                Process::new(folder, program, programs.join(program))
                    .args(["-config".to_owned(), conf])
                    .ready(move || proc::listening(port))
            },
        );
        for process in &mut processes {
            process.start()?;
        }
        Ok(Some(Self { _processes: processes, port }))
    }

    /// The series of a target between two moments, with at most this many points for each.
    pub fn render_between(
        &self,
        target: &str,
        (from, until): (u64, u64),
        points: u64,
    ) -> Result<Vec<Rendered>> {
        render(self.port, target, &format!("from={from}&until={until}&maxDataPoints={points}"))
    }
}

/// A go-carbon that receives nothing, and looks for files when it is asked.
fn go_carbon_conf(carbon: &Carbon, schemas: &str, port: u16) -> String {
    let receivers = ["udp", "tcp", "pickle", "carbonlink", "grpc"];
    let off: String = receivers.iter().map(|name| format!("[{name}]\nenabled = false\n")).collect();
    format!(
        "[common]
user = ''
metric-interval = '1h'
[whisper]
enabled = false
data-dir = '{}'
schemas-file = '{schemas}'
{off}[carbonserver]
enabled = true
listen = '127.0.0.1:{port}'
scan-frequency = '0s'
trigram-index = false
query-cache-enabled = false
find-cache-enabled = false
",
        carbon.whisper().display(),
    )
}

/// Without caches, because every test asks for the present.
fn carbonapi_conf(port: u16, files_port: u16) -> String {
    format!(
        "listeners: [{{ address: '127.0.0.1:{port}' }}]
notFoundStatusCode: 200
cache: {{ type: 'null' }}
backendCache: {{ type: 'null' }}
upstreams:
  tldCacheDisabled: true
  timeouts: {{ find: 30s, render: 60s, connect: 5s }}
  backendsv2:
    backends:
      - groupName: files
        protocol: carbonapi_v3_pb
        lbMethod: broadcast
        maxTries: 3
        servers: ['http://127.0.0.1:{files_port}']
"
    )
}
