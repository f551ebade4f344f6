//! Tests of what the end of a TLS connection proves. The server is rustls's, and each test decides
//! how it ends the connection.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{JoinHandle, spawn};

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::destination::Timeouts;
use crate::tls::TlsSettings;
use carbon_wire::Protocol;

type Server = StreamOwned<ServerConnection, TcpStream>;

/// A port that handles its first connection with `serve`, and the destination for it.
fn server<T: Send + 'static>(
    folder: &tempfile::TempDir,
    close_notify: bool,
    serve: impl FnOnce(Server) -> T + Send + 'static,
) -> (Destination, JoinHandle<T>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("localhost:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    let settings =
        TlsSettings { ca_file: Some(ca_file), identity: None, server_name: None, close_notify };
    let tls = Tls::new(settings, &address).unwrap();
    let served = spawn(move || {
        let mut tcp = listener.accept().unwrap().0;
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut tcp).unwrap();
        }
        serve(StreamOwned::new(tls, tcp))
    });
    let timeouts = Timeouts { connect: Duration::from_secs(60), ..Timeouts::default() };
    let protocol = Protocol::Plaintext;
    (
        Destination { protocol, timeouts, tls: Some(tls), ..Destination::new("test", address) },
        served,
    )
}

async fn error_at_end(connection: &TlsConnection) -> ConnectionError {
    timeout(Duration::from_secs(60), connection.wait_for_end()).await.unwrap()
}

/// Reads up to TLS's close_notify, and then answers it or only closes.
fn read_all(mut server: Server, notifies: bool) -> Vec<u8> {
    let mut read = Vec::new();
    server.read_to_end(&mut read).unwrap();
    if notifies {
        server.conn.send_close_notify();
        server.flush().unwrap();
    }
    read
}

#[tokio::test]
async fn the_answer_is_tls_own_end_after_everything_was_read_and_not_that_of_tcp_alone() {
    for (close_notify, notifies) in [(true, true), (true, false), (false, false)] {
        let folder = tempfile::tempdir().unwrap();
        let (to, served) = server(&folder, close_notify, move |server| read_all(server, notifies));
        let connection = TlsConnection::open(&to, &LastTried::default()).await.unwrap();
        connection.write(b"frame").await.unwrap();
        assert!(connection.has_ended().is_none());
        connection.half_close().unwrap();
        let end = error_at_end(&connection).await;
        assert_eq!(matches!(end, ConnectionError::Closed), notifies || !close_notify, "{end}");
        assert_eq!(matches!(end, ConnectionError::Truncated), close_notify && !notifies, "{end}");
        assert_eq!(served.join().unwrap(), b"frame");
    }
}

#[tokio::test]
async fn an_end_that_came_before_ours_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (changes, tell) = std::sync::mpsc::channel();
    let (to, _served) = server(&folder, true, move |mut server| {
        server.conn.send_close_notify();
        server.flush().unwrap();
        changes.send(()).unwrap();
        let mut rest = Vec::new();
        let _read = server.sock.read_to_end(&mut rest);
    });
    let connection = TlsConnection::open(&to, &LastTried::default()).await.unwrap();
    tell.recv().unwrap();
    while connection.has_ended().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(matches!(connection.half_close(), Err(ConnectionError::Closed)));
    assert!(matches!(connection.has_ended(), Some(ConnectionError::Closed)));
}

/// Session tickets are not data: every server sends them.
#[tokio::test]
async fn a_server_that_sends_data_is_not_carbon_and_one_word_of_it_makes_its_end_no_answer() {
    for words in [1, 5000] {
        let folder = tempfile::tempdir().unwrap();
        let (to, _served) = server(&folder, true, move |mut server| {
            let _written = server.write_all(&vec![b'x'; words]);
            let _read = server.read_to_end(&mut Vec::new());
            server.conn.send_close_notify();
            let _flushed = server.flush();
        });
        let connection = TlsConnection::open(&to, &LastTried::default()).await.unwrap();
        let end = match connection.half_close() {
            Ok(()) => error_at_end(&connection).await,
            Err(error) => error,
        };
        assert_eq!(matches!(end, ConnectionError::Talked), words == 1, "{end}");
        assert_eq!(matches!(end, ConnectionError::NotCarbon), words == 5000, "{end}");
    }
}

#[tokio::test]
async fn closing_our_end_of_a_connection_to_a_server_that_sends_without_end_comes_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let (to, _served) =
        server(&folder, true, |mut server| while server.write_all(&[b'x'; 16_000]).is_ok() {});
    let connection = TlsConnection::open(&to, &LastTried::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(connection.half_close(), Err(ConnectionError::NotCarbon)));
}

#[tokio::test]
async fn an_end_with_bytes_unread_is_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (tell, changes) = std::sync::mpsc::channel();
    let (to, served) = server(&folder, false, move |mut server| {
        changes.recv().unwrap();
        server.conn.send_close_notify();
        server.flush().unwrap();
    });
    let connection = TlsConnection::open(&to, &LastTried::default()).await.unwrap();
    connection.write(b"frame").await.unwrap();
    connection.half_close().unwrap();
    tell.send(()).unwrap();
    served.join().unwrap();
    let end = error_at_end(&connection).await;
    assert!(matches!(end, ConnectionError::Socket(_)), "{end}");
}

#[tokio::test]
async fn a_frame_that_was_cut_off_ends_in_a_reset_and_a_whole_one_in_tls_own_end() {
    for whole in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (tell, changes) = std::sync::mpsc::channel();
        let (to, served) = server(&folder, true, move |mut server| {
            changes.recv().unwrap();
            server.read_to_end(&mut Vec::new())
        });
        let connection = TlsConnection::open(&to, &LastTried::default()).await.unwrap();
        let frame = vec![b'1'; if whole { 10 } else { 64 << 20 }];
        let written = timeout(Duration::from_millis(200), connection.write(&frame)).await;
        assert_eq!(written.is_ok(), whole);
        drop(connection);
        tell.send(()).unwrap();
        let read = served.join().unwrap();
        assert_eq!(read.is_ok(), whole, "{read:?}");
    }
}

/// A proxy that speaks TLS passes on what it could decrypt, and then perhaps a clean end.
#[tokio::test]
async fn no_record_ends_within_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let (tell, changes) = std::sync::mpsc::channel();
    let (to, served) = server(&folder, true, move |mut server| {
        changes.recv().unwrap();
        let mut read = Vec::new();
        server.read_to_end(&mut read).unwrap_err();
        read
    });
    let connection = TlsConnection::open(&to, &LastTried::default()).await.unwrap();
    let lines: String = (0..1_000_000).map(|n| format!("some.points.gauge-{n} 1 60\n")).collect();
    assert!(timeout(Duration::from_millis(500), connection.write(lines.as_bytes())).await.is_err());
    drop(connection);
    tell.send(()).unwrap();
    let read = served.join().unwrap();
    assert!(read.len() > 100_000 && lines.as_bytes().starts_with(&read), "{}", read.len());
    assert_eq!(read.last(), Some(&b'\n'), "after {} bytes", read.len());
}

#[tokio::test]
async fn a_large_frame_arrives_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (to, served) = server(&folder, true, |server| read_all(server, true));
    let connection = TlsConnection::open(&to, &LastTried::default()).await.unwrap();
    let frame: Vec<u8> = (0..4_000_000_u32).map(|n| n.to_le_bytes()[n as usize % 4]).collect();
    connection.write(&frame).await.unwrap();
    connection.half_close().unwrap();
    assert!(matches!(error_at_end(&connection).await, ConnectionError::Closed));
    assert!(served.join().unwrap() == frame);
}

#[tokio::test]
async fn a_port_that_answers_no_hello_is_said_to_be_a_plain_one() {
    let folder = tempfile::tempdir().unwrap();
    let (mut to, _) = server(&folder, true, drop);
    for closes in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        to.address =
            format!("127.0.0.1:{}", listener.local_addr().unwrap().port()).parse().unwrap();
        to.timeouts.connect = Duration::from_millis(300);
        let accepted = spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            if closes {
                let _read = stream.read(&mut [0; 64]);
                let _closed = stream.shutdown(Shutdown::Both);
            }
            stream
        });
        let error =
            TlsConnection::open(&to, &LastTried::default()).await.err().unwrap().to_string();
        assert!(error.ends_with("is it a plain port?"), "{error}");
        drop(accepted.join());
    }
}
