//! The acknowledgements of the peer on a connection, as our kernel knows them.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::from_mut;
use std::time::Duration;

/// The acknowledgements of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    /// Bytes that the peer's kernel has not acknowledged.
    pub unacked: u64,
    /// Number of tries since the last acknowledgement: packets sent again, and probes.
    pub tries: u32,
    /// Time since the last acknowledgement.
    pub silent: Duration,
}

impl Acks {
    /// Asks our kernel for the acknowledgements on a connected socket. The caller knows already how
    /// many bytes are unacknowledged.
    ///
    /// # Errors
    /// An error of the socket.
    #[expect(
        unsafe_code,
        reason = "no crate that is kept asks for TCP_INFO; docs/development/decisions.md"
    )]
    pub(crate) fn of_socket(socket: &impl AsFd, unacked: u64) -> io::Result<Self> {
        // SAFETY: it has integers only, so all zeros are a value of it.
        let mut info: libc::tcp_info = unsafe { zeroed() };
        let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).unwrap_or(0);
        // SAFETY: the descriptor is open while it is borrowed. For TCP_INFO, in tcp(7), the kernel
        // writes at most `length` bytes, which is the size of `info`, and the length it has used.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                from_mut(&mut info).cast(),
                from_mut(&mut length),
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            unacked,
            tries: u32::from(info.tcpi_retransmits) + u32::from(info.tcpi_probes),
            silent: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        })
    }
}
