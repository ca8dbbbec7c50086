//! The peers' ends of connections, in the hands of a script. Nothing that is done with them waits.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt;

pub(crate) struct Peer(TcpStream);

impl Peer {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).expect("connect"))
    }

    /// Connect with buffers that hold little, on both sides.
    pub(crate) fn connect_small(address: SocketAddr) -> Self {
        use rustix::net::{AddressFamily, SocketType};
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        let socket = socket.expect("socket");
        sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("option");
        set_max_segment(&socket, 536);
        rustix::net::connect(&socket, &address).expect("connect");
        Self::new(socket.into())
    }

    fn new(stream: TcpStream) -> Self {
        stream.set_nonblocking(true).expect("socket");
        stream.set_nodelay(true).expect("socket");
        Self(stream)
    }

    /// Send what the sockets take; return how much that is.
    pub(crate) fn send(&self, bytes: &[u8]) -> usize {
        match (&self.0).write(bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        }
    }

    /// Send until the sockets take no more.
    pub(crate) fn fill(&self) {
        while self.send(&[0; 64 * 1024]) > 0 {}
    }

    /// Receive what has arrived, at most `limit` bytes.
    pub(crate) fn receive(&self, limit: usize) -> Vec<u8> {
        let mut all = Vec::new();
        match (&self.0).take(limit as u64).read_to_end(&mut all) {
            Ok(_) => all,
            Err(error) if error.kind() == ErrorKind::WouldBlock => all,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn end_sending(&self) {
        self.0.shutdown(Shutdown::Write).expect("shutdown");
    }

    pub(crate) fn reset(self) {
        sockopt::set_socket_linger(&self.0, Some(Duration::ZERO)).expect("option");
    }
}

/// TCP_MAXSEG in tcp(7): the kernel's buffers are a number of segments.
fn set_max_segment(socket: &rustix::fd::OwnedFd, bytes: libc::c_int) {
    use std::os::fd::AsRawFd;
    // SAFETY: the option takes one int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}
