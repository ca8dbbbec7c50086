//! Gathering of output into as few binary frames as possible.
//!
//! A frame's header stands before its payload, but the payload's length is known only after the
//! last append. [`Batch`] therefore reserves room for the header, lets the owner append, and writes
//! the header when the frame is sealed. Only a payload below 126 bytes has a shorter header than
//! the reserved room, and so few bytes are cheap to move.

use super::frame::{self, OpCode};
use super::mask;

/// Longest payload whose length takes 16 bits.
const SHORT: usize = u16::MAX as usize;

/// The open frame at the end of a buffer, if any. Four bytes of state for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Start of the reserved header; [`NONE`] without an open frame.
    start: u32,
}

const NONE: u32 = u32::MAX;

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// No open frame.
    #[must_use]
    pub const fn new() -> Self {
        Self { start: NONE }
    }

    /// Open a frame for `len` bytes that are about to be appended to `out`, unless the open frame
    /// has room. A frame without room is sealed with `key`. Either all calls for a connection have
    /// a key or none.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>, len: usize, key: Option<[u8; 4]>) {
        if self.start == NONE || out.len() - self.start as usize + len > SHORT {
            self.seal(out, key);
            self.start = out.len() as u32;
            let reserved = frame::header_len(len.max(SHORT), key.is_some());
            out.resize(out.len() + reserved, 0);
            // Until the header is written, its first byte holds the length of the reserved room.
            out[self.start as usize] = reserved as u8;
        }
    }

    /// Complete the open frame, if there is one; its payload is masked if a key is given.
    #[inline]
    pub fn seal(&mut self, out: &mut Vec<u8>, key: Option<[u8; 4]>) {
        if self.start == NONE {
            return;
        }
        let start = std::mem::replace(&mut self.start, NONE) as usize;
        let payload = start + usize::from(out[start]);
        let len = out.len() - payload;
        let header = start + frame::header_len(len, key.is_some());
        if header < payload {
            out.copy_within(payload.., header);
            out.truncate(header + len);
        }
        frame::write_header(&mut out[start..], true, OpCode::Binary, len, key);
        if let Some(key) = key {
            mask::apply(&mut out[header..], key, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ws::{Decoder, Event, Role};

    /// Return the payload of each message in `wire`.
    fn messages(wire: &[u8], role: Role) -> Vec<Vec<u8>> {
        let (mut wire, mut decoder) = (wire.to_vec(), Decoder::new(role, u32::MAX));
        let mut input = wire.as_mut_slice();
        let mut found = Vec::new();
        while let Some(event) = decoder.next(&mut input).unwrap() {
            match event {
                Event::Data {
                    bytes,
                    end_of_message: true,
                    ..
                } => found.push(bytes.to_vec()),
                other => panic!("{other:?}"),
            }
        }
        found
    }

    #[test]
    fn appends_share_a_frame_whatever_its_length() {
        for key in [None, Some([1, 2, 3, 4])] {
            for len in [1usize, 124, 125, 126, 127, 5000, 65_500, 65_536, 200_000] {
                let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
                let role = if key.is_some() {
                    Role::Server
                } else {
                    Role::Client
                };
                let (mut out, mut batch) = (b"before".to_vec(), Batch::new());
                for part in payload.chunks(len.div_ceil(3)) {
                    batch.begin(&mut out, part.len(), key);
                    out.extend_from_slice(part);
                }
                batch.seal(&mut out, key);
                batch.seal(&mut out, key);
                assert!(out.starts_with(b"before"));
                let found = messages(&out[6..], role);
                assert_eq!(found.concat(), payload);
                assert_eq!(found.len() > 1, len > SHORT, "{len}");
            }
        }
    }

    #[test]
    fn one_long_append_is_one_frame() {
        let payload = vec![7; 1 << 20];
        let (mut out, mut batch) = (Vec::new(), Batch::new());
        batch.begin(&mut out, 5, None);
        out.extend_from_slice(b"first");
        batch.begin(&mut out, payload.len(), None);
        out.extend_from_slice(&payload);
        batch.begin(&mut out, 4, None);
        out.extend_from_slice(b"last");
        batch.seal(&mut out, None);
        assert_eq!(
            messages(&out, Role::Client),
            [b"first".to_vec(), payload, b"last".to_vec()]
        );
    }
}
