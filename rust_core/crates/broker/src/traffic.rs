//! The traffic of one connection. A file of its own, because log and sessions know it.

/// The messages that have passed over one connection, as the broker sees them.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Traffic {
    /// Messages that the client has published.
    pub(crate) in_msgs: u64,
    /// Bytes of their headers and payloads.
    pub(crate) in_bytes: u64,
    /// Messages appended to the client's output.
    pub(crate) out_msgs: u64,
    /// Bytes of their headers and payloads.
    pub(crate) out_bytes: u64,
    /// Time at which the connection came, in seconds since the broker started.
    pub(crate) started: u32,
    /// Time at which a message last passed, in seconds since the broker started.
    pub(crate) active: u32,
}

impl Traffic {
    /// Count a message of `len` bytes that was appended to the output.
    #[inline]
    pub(crate) fn count_sent(&mut self, len: usize, second: u32) {
        self.out_msgs += 1;
        self.out_bytes += len as u64;
        self.active = second;
    }
}
