//! `--read-back`: asks graphite-web for the canary, by a plain HTTP/1.0 request, which needs no library.
//!
//! Only http without a password is supported, because graphite-web can be asked on its own host and port.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use carbon::Batch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::Report;
use crate::printable::cell;
use crate::tagged::tagged;
use crate::url::Url;

/// carbon-cache makes a new file within a second or two, unless it has much else to do.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Far over an answer of one series of ten minutes.
const LONGEST_ANSWER: u64 = 1 << 20;

/// Asks until the canary has arrived, under its path or, `with_tags`, under its name with tags.
pub(super) async fn look(
    url: &Url,
    canary: Option<&Batch>,
    with_tags: bool,
    report: &mut Report,
) -> Result<()> {
    let Some((canary, point)) = canary.and_then(|canary| Some((canary, canary.points().next()?))) else {
        return report.unknown("read back: not asked, because no Carbon has read the point");
    };
    let value = point.value();
    let path = &if with_tags { by_tags(&tagged(point.path())) } else { point.path().to_owned() };
    let start = Instant::now();
    let mut last = anyhow!("it was not asked");
    while start.elapsed() < PATIENCE {
        match ask(url, path, canary.timestamp()).await {
            Ok(values) if values.contains(&value) => {
                let took = start.elapsed().as_millis();
                return report
                    .good(&format!("read back: graphite-web has {path}, {took} ms after it was sent"));
            }
            Ok(values) if values.is_empty() => last = anyhow!("it does not know the path"),
            Ok(_) => last = anyhow!("it has only an older point"),
            Err(error) => last = error,
        }
        sleep(ASK_EVERY).await;
    }
    let seconds = PATIENCE.as_secs();
    report.wrong(
        &format!("read back: graphite-web has no {path} after {seconds} s: {last}"),
        "Does graphite-web read this Carbon's files (STORAGE_DIR, CARBONLINK_HOSTS)? Does Carbon create new series \
         (MAX_CREATES_PER_MINUTE; carbon.agents.*.errors)? Behind https, ask graphite-web on its own port.",
    )
}

/// The values of `path` since an hour before `timestamp`: Carbon's slots may be longer than ours.
async fn ask(url: &Url, path: &str, timestamp: i64) -> Result<Vec<f64>> {
    let Url { address, below } = url;
    let from = timestamp.saturating_sub(3600);
    // Without noCache graphite-web gives what it gave a minute ago.
    let request = format!(
        "GET {below}/render?target={path}&format=json&from={from}&noCache=1 HTTP/1.0\r\nHost: {address}\r\n\
         Accept: application/json\r\nConnection: close\r\n\r\n"
    );
    let mut answer = Vec::new();
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(request.as_bytes()).await?;
        stream.take(LONGEST_ANSWER).read_to_end(&mut answer).await
    };
    timeout(LIMIT, exchange).await.map_err(|_| anyhow!("no response within {} s", LIMIT.as_secs()))??;
    values(&answer)
}

/// The target that a name with tags is.
fn by_tags(tagged: &str) -> String {
    let tags = tagged.split(';').map(|tag| format!("'{tag}'")).collect::<Vec<_>>().join(",");
    format!("seriesByTag({})", tags.replacen('\'', "'name=", 1))
}

/// The values in an answer of /render: `[{"datapoints": [[value, time], …]}]`.
fn values(answer: &[u8]) -> Result<Vec<f64>> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| anyhow!("its response is not HTTP"))?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        bail!("graphite-web answers {}", cell(head.lines().next().unwrap_or_default(), 80));
    }
    let series: serde_json::Value =
        serde_json::from_str(body).map_err(|_| anyhow!("its response is not JSON: is this graphite-web?"))?;
    let points = series.as_array().into_iter().flatten().filter_map(|one| one.get("datapoints")?.as_array());
    Ok(points.flatten().filter_map(|point| point.get(0)?.as_f64()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_tags_is_asked_for_by_all_of_them() {
        assert_eq!(
            by_tags("slurm_graphite.check;cluster=a;host=b"),
            "seriesByTag('name=slurm_graphite.check','cluster=a','host=b')"
        );
    }

    #[test]
    fn what_graphite_web_says_is_understood_or_said() {
        let answer = |status: &str, body: &str| {
            values(format!("HTTP/1.1 {status}\r\nX: y\r\n\r\n{body}").as_bytes())
                .map_err(|error| error.to_string())
        };
        let body = r#"[{"target": "a", "datapoints": [[null, 60], [1795248001.0, 120]]}]"#;
        assert_eq!(answer("200 OK", body), Ok(vec![1_795_248_001.0]));
        assert_eq!(answer("200 OK", "[]"), Ok(vec![]));
        assert!(answer("301 Moved", "").is_err_and(|error| error.contains("301 Moved")));
        assert!(answer("200 OK", "<html>").is_err_and(|error| error.contains("is this graphite-web")));
        assert!(values(b"SSH-2.0").is_err());
    }
}
