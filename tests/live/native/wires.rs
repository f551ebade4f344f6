//! A wire between reader and slurmctld that cuts and changes replies.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use sandbox::{Folder, Slurm, wait};

use super::{Reader, controller, with_port};

#[derive(Clone, Copy, Debug)]
pub(super) enum Harm {
    None,
    Cut(usize),
    /// This bit of it is turned over.
    Flip(usize),
    /// It comes so much later.
    Late(Duration),
}

/// Not up to the end of the connection: from 26.11 on slurmctld waits 10 s for the other side to
/// close it.
fn read_message(stream: &TcpStream) -> Vec<u8> {
    let mut message = Vec::new();
    stream.take(4).read_to_end(&mut message).unwrap();
    let length = message.first_chunk().map_or(0, |length| u32::from_be_bytes(*length));
    stream.take(length.into()).read_to_end(&mut message).unwrap();
    message
}

/// A port that forwards one request after the other and does harm to the replies. Returns the port,
/// where harms are sent, and where the lengths of whole replies come from.
pub(super) fn wire(listens: IpAddr, to: u16) -> (u16, mpsc::Sender<Harm>, mpsc::Receiver<usize>) {
    let listener = TcpListener::bind((listens, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, harms) = mpsc::channel();
    let (lengths, found) = mpsc::channel();
    std::thread::spawn(move || {
        for mut near in listener.incoming().flatten() {
            let Ok(harm) = harms.recv() else { return };
            let mut far = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
            far.write_all(&read_message(&near)).unwrap();
            let mut reply = read_message(&far);
            let _ = lengths.send(reply.len());
            match harm {
                Harm::None => {}
                Harm::Cut(at) => reply.truncate(at),
                Harm::Flip(bit) => reply[bit / 8] ^= 1 << (bit % 8),
                Harm::Late(time) => wait::pause(time),
            }
            let _ = near.write_all(&reply);
        }
    });
    (port, sender, found)
}

/// A reader of slurmctld over a wire at this port, which knows its number.
pub(super) fn reader(folder: &Folder, slurm: &Slurm, port: u16) -> Reader {
    let conf = with_port(slurm, "wire.conf", port);
    // What the first reader found, with slurmctld itself.
    let numbers = folder.path().join("numbers");
    // The reader does not wait for the disk.
    let known = wait::until_some("the numbers", wait::LIMIT, || {
        fs::read_to_string(&numbers).ok().filter(|known| !known.contains("\"started\":0"))
    })
    .unwrap();
    let known = known.replace(&slurm.slurmctld_port.to_string(), &port.to_string());
    fs::write(&numbers, known).unwrap();
    Reader::knowing(Some(&numbers), &conf, 60)
}

/// It was waited for 10 s of 30 at most, and less with a backup.
#[test]
fn a_reply_that_comes_late_is_waited_for_as_long_as_the_timeout_allows_also_before_a_backup() {
    let (folder, slurm) = controller();
    let mut first = Reader::knowing(Some(&folder.path().join("numbers")), slurm.conf(), 10);
    first.settle();
    let (port, harms, _lengths) = wire(Ipv4Addr::LOCALHOST.into(), slurm.slurmctld_port);
    let mut reader = reader(&folder, &slurm, port);
    let primary = "SlurmctldHost=localhost(127.0.0.1)\n";
    let conf = folder.path().join("wire.conf");
    for hosts in [primary.to_owned(), format!("{primary}SlurmctldHost=backup(127.0.0.9)\n")] {
        let text = fs::read_to_string(&conf).unwrap().replace(primary, &hosts);
        fs::write(&conf, text).unwrap();
        if let Reader::Native { runtime, native, timeout, .. } = &mut reader {
            runtime.block_on(native.forget_conf());
            *timeout = Duration::from_secs(20);
        }
        harms.send(Harm::Late(Duration::from_secs(12))).unwrap();
        let (answer, took) = reader.ask();
        answer.unwrap();
        assert!(took >= Duration::from_secs(12), "{took:?}");
    }
}

/// It made every reading late, although the backup answers.
#[test]
fn a_primary_that_is_frozen_makes_one_reading_late_and_then_one_a_minute_by_three_seconds() {
    let (_folder, slurm) = controller();
    // It accepts, and nothing comes.
    let _frozen = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), slurm.slurmctld_port)).unwrap();
    let backup = "SlurmctldHost=localhost(127.0.0.1)\n";
    let pair = format!("SlurmctldHost=primary(127.0.0.2)\n{backup}");
    let conf = slurm.changed("pair.conf", backup, &pair).unwrap();
    let mut reader = Reader::native(&conf, 10);
    let (answer, took) = reader.ask();
    answer.unwrap();
    assert!(took >= Duration::from_secs(5), "the primary was given up after {took:?}");
    for _ in 0..10 {
        let (answer, took) = reader.ask();
        answer.unwrap();
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
}

/// slurmctld itself listens on 127.0.0.1 alone, as everything of a sandbox.
#[test]
fn a_controller_with_an_address_of_ipv6_is_asked_where_slurm_conf_enables_it() {
    let (folder, slurm) = controller();
    let (port, harms, _lengths) = wire(Ipv6Addr::LOCALHOST.into(), slurm.slurmctld_port);
    (0..50).for_each(|_| harms.send(Harm::None).unwrap());
    let text = fs::read_to_string(slurm.conf()).unwrap();
    let text = text
        .replace("localhost(127.0.0.1)", "localhost(::1)")
        .replace(&slurm.slurmctld_port.to_string(), &port.to_string());
    let conf = folder.path().join("six.conf");
    for (word, is_enabled) in [("NoInAddrAny,EnableIPv6", true), ("NoInAddrAny", false)] {
        fs::write(&conf, text.replace("NoInAddrAny,NoCtldInAddrAny", word)).unwrap();
        let mut reader = Reader::native(&conf, 30);
        if is_enabled {
            assert!(reader.reading().statistics.is_some());
        } else {
            reader.fails(1800, &[]);
        }
    }
}

#[test]
fn replies_cut_at_each_byte_and_then_changed_anywhere_give_no_wrong_figure() {
    let (folder, slurm) = controller();
    let mut first = Reader::knowing(Some(&folder.path().join("numbers")), slurm.conf(), 10);
    // Then each reading is one request.
    first.settle();
    // Before it no hash of the body is signed, and after it nothing is.
    let is_signed = first.reading().release.to_string() == "22.05";
    let (port, harms, lengths) = wire(Ipv4Addr::LOCALHOST.into(), slurm.slurmctld_port);
    let mut reader = reader(&folder, &slurm, port);
    drop(first);
    let (mut length, mut cut, mut flips) = (500, 0, 0);
    for round in 0.. {
        // A whole reply now and then: what came before has not harmed the reader.
        let harm = if round % 10 == 0 {
            Harm::None
        } else if cut + 1 < length {
            cut += 1;
            Harm::Cut(cut)
        } else if is_signed && flips < 300 {
            flips += 1;
            Harm::Flip(fastrand::usize(0..length * 8))
        } else {
            return;
        };
        harms.send(harm).unwrap();
        let (answer, took) = reader.ask();
        length = lengths.recv().unwrap();
        // A length that was made longer is waited for.
        assert!(took < Duration::from_secs(60), "{took:?}");
        match (harm, answer) {
            (Harm::None, answer) => {
                assert!(answer.unwrap().statistics.unwrap().rpc.is_some());
            }
            (Harm::Cut(at), answer) => {
                let failure = answer.unwrap_err();
                assert_eq!(failure.errno, 5003, "{at}: {failure:?}");
            }
            // Flags, and numbers that nobody needs, are not part of what munge signs.
            (Harm::Flip(_), Ok(reading)) => {
                let statistics = reading.statistics.unwrap();
                assert_eq!((statistics.jobs_submitted, statistics.bf_active), (0, 0));
            }
            (Harm::Late(_), answer) => panic!("{answer:?}"),
            (Harm::Flip(_), Err(failure)) => {
                assert!([1007, 1800, 2027, 5003, 5004].contains(&failure.errno), "{failure:?}");
            }
        }
    }
}
