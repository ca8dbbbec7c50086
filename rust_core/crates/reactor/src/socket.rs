//! TCP sockets as the backends want them.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Whether calls that cannot be carried out at once fail or wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They fail; for readiness.
    NonBlocking,
    /// They wait; io_uring makes of that a completion that comes later.
    Blocking,
}

/// Return a TCP socket of `address`'s family.
pub(crate) fn open(address: SocketAddr, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let mut flags = SocketFlags::CLOEXEC;
    flags.set(SocketFlags::NONBLOCK, mode == Mode::NonBlocking);
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

/// Return a socket that is ready to be connected to `to`, from the local address `from` where one is
/// given.
pub(crate) fn open_outgoing(
    to: SocketAddr,
    from: Option<IpAddr>,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let fd = open(to, mode)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    if let Some(from) = from {
        // The port is chosen when the destination is known, so that each source address has the
        // whole ephemeral range towards it.
        set_bind_address_no_port(fd.as_fd())?;
        rustix::net::bind(&fd, &SocketAddr::new(from, 0))?;
    }
    Ok(fd)
}

/// Set IP_BIND_ADDRESS_NO_PORT, see ip(7).
fn set_bind_address_no_port(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option takes one int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

/// Return how many connections wait to be accepted by a listening socket; 0 if the kernel does not say.
pub(crate) fn accept_queue(listener: RawFd) -> usize {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `info`, and zero is a value of all its fields.
    let (result, info) = unsafe {
        let result = libc::getsockopt(
            listener,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        );
        (result, info.assume_init())
    };
    // For a listener this field is the length of the queue; see inet_csk_listen_start in Linux.
    if result == 0 && info.tcpi_state == TCP_LISTEN {
        info.tcpi_unacked as usize
    } else {
        0
    }
}

/// The state of a listening socket in tcp(7)'s `tcpi_state`.
const TCP_LISTEN: u8 = 10;
