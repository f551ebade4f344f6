//! `TCP_INFO` of a socket, tcp(7): what the kernel knows of the peer.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::from_mut;

/// The beginning of linux/tcp.h's `struct tcp_info`, as far as every kernel since 4.6 has it; the kernel copies no more
/// than is asked for, and leaves at 0 what an older one lacks.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct TcpInfo {
    state: u8,
    congestion_and_retransmits: [u8; 2],
    /// Probes of a closed window that were not answered.
    pub(crate) probes: u8,
    options: [u8; 4],
    timers_and_sizes: [u32; 4],
    /// Segments sent and not acknowledged.
    pub(crate) unacked: u32,
    counts: [u32; 4],
    /// ms since data were last sent, again or for the first time.
    pub(crate) last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    /// ms since the last acknowledgement of any kind.
    pub(crate) last_ack_recv: u32,
    path: [u32; 9],
    total_retrans: [u32; 2],
    pacing: [u64; 2],
    /// Bytes acknowledged since the connection was opened, its SYN among them.
    pub(crate) bytes_acked: u64,
    bytes_received: u64,
    segments: [u32; 2],
    /// Bytes that wait in our own kernel, unsent.
    pub(crate) notsent_bytes: u32,
    /// ... and what newer kernels have behind it.
    min_rtt: u32,
}

impl TcpInfo {
    /// Of `socket`, now.
    #[expect(unsafe_code, reason = "no crate that is kept gives TCP_INFO; docs/code-structure.md")]
    pub(crate) fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut info = Self::default();
        let mut length = libc::socklen_t::try_from(size_of::<Self>()).map_err(io::Error::other)?;
        // SAFETY: the descriptor is open while it is borrowed, and getsockopt(2) writes at most `length` bytes to
        // `info`, which is plain integers of just that size: any bytes are a value of it.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                from_mut(&mut info).cast(),
                from_mut(&mut length),
            )
        };
        if failed == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether everything was acknowledged, our own close too where we have closed our end.
    pub(crate) const fn has_all_acknowledged(&self) -> bool {
        // linux/tcp_states.h: our close waits for its acknowledgement; it has crossed the peer's own.
        const FIN_WAIT1: u8 = 4;
        const CLOSING: u8 = 11;
        !matches!(self.state, FIN_WAIT1 | CLOSING) && self.unacked == 0 && self.notsent_bytes == 0
    }

    /// Whether the last thing that was sent has got no answer of any kind. A peer whose window is closed answers
    /// probes, which the kernel sends ever more rarely; one alone may go unanswered, because kernels answer at most
    /// two a second (net.ipv4.tcp_invalid_ratelimit).
    pub(crate) const fn is_unanswered(&self) -> bool {
        self.probes > 1 || (self.unacked > 0 && self.last_data_sent < self.last_ack_recv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::mem::offset_of;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn members_are_where_the_kernel_puts_them() {
        let offsets = [
            (offset_of!(TcpInfo, state), 0),
            (offset_of!(TcpInfo, probes), 3),
            (offset_of!(TcpInfo, unacked), 24),
            (offset_of!(TcpInfo, last_data_sent), 44),
            (offset_of!(TcpInfo, last_ack_recv), 56),
            (offset_of!(TcpInfo, bytes_acked), 120),
            (offset_of!(TcpInfo, notsent_bytes), 144),
        ];
        assert!(offsets.iter().all(|(ours, kernels)| ours == kernels), "{offsets:?}");
    }

    #[test]
    fn what_the_peer_has_acknowledged_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        stream.write_all(b"frame").unwrap();
        peer.read_exact(&mut [0; 5]).unwrap();
        let info = TcpInfo::of(&stream).unwrap();
        assert_eq!((info.bytes_acked, info.unacked, info.notsent_bytes), (6, 0, 0));
        assert!(info.last_ack_recv < 10_000);
    }
}
