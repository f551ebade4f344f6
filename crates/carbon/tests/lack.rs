//! Tests of the errors where this host has no file descriptor left. They have a process of their
//! own, because the limit is the process's.

#![expect(clippy::disallowed_methods, reason = "tests may wait")]

use carbon::{Connection, Destination, LastTried, Stream};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// "Is carbon-cache running?" was asked.
#[tokio::test]
async fn without_file_descriptors_it_is_this_host_that_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = Destination::new("test", address.parse().unwrap());
    let usual = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..usual }).unwrap();
    let opened = Connection::open(&to, &LastTried::default()).await;
    setrlimit(Resource::Nofile, usual).unwrap();
    let advice = opened.unwrap_err().advice(to.protocol);
    assert!(advice.is_some_and(|advice| advice.contains("LimitNOFILE")), "{advice:?}");
    Connection::open(&to, &LastTried::default()).await.unwrap();
}
