//! Frame headers (RFC 6455 section 5.2).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |F|R|R|R|opcode |M|  length     | 16 or 64 bits of length, when  |
//! |I|S|S|S|       |A|             | length is 126 or 127           |
//! |N|V|V|V|       |S|             |                                |
//! |1|1|2|3|       |K|             | then 32 bits of key, when MASK |
//! ```

use super::{Error, Role, mask};

/// The longest header: two bytes, a 64-bit length and a masking key.
pub const MAX_HEADER: usize = 14;

/// The longest payload of a control frame (section 5.5).
pub const MAX_CONTROL_PAYLOAD: usize = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASK: u8 = 0x80;

/// Kind of a frame's content (section 11.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpCode {
    /// The next fragment of the open message.
    Continuation = 0x0,
    /// A text message, or its first fragment.
    Text = 0x1,
    /// A binary message, or its first fragment.
    Binary = 0x2,
    /// Starts or answers the closing handshake.
    Close = 0x8,
    /// Asks for a pong with the same payload.
    Ping = 0x9,
    /// Answers a ping.
    Pong = 0xa,
}

impl OpCode {
    /// Return whether this opcode is of a control frame.
    #[inline]
    #[must_use]
    pub const fn is_control(self) -> bool {
        self as u8 & 0x8 != 0
    }

    #[inline]
    const fn parse(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }
}

/// A received frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether this frame is its message's last.
    pub fin: bool,
    /// Kind of the frame's content.
    pub opcode: OpCode,
    /// The payload's length in bytes, at most 2^63 - 1.
    pub len: u64,
    /// The masking key; present exactly on frames that a client sends.
    pub mask: Option<[u8; 4]>,
}

impl Header {
    /// Parse the header at the start of `bytes`, received by a side in `role`; return it with its
    /// length in bytes, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// Everything that is wrong with the header taken alone, as soon as the byte that shows it is
    /// there. Whether it fits the open message and the size limit is the decoder's matter.
    #[inline]
    pub fn parse(bytes: &[u8], role: Role) -> Result<Option<(Self, usize)>, Error> {
        let Some((&first, rest)) = bytes.split_first() else {
            return Ok(None);
        };
        // RSV1 will mean "compressed" once permessage-deflate is negotiated (RFC 7692 section 6).
        if first & RESERVED != 0 {
            return Err(Error::ReservedBits);
        }
        let opcode = OpCode::parse(first & 0x0f).ok_or(Error::UnknownOpcode)?;
        let fin = first & FIN != 0;
        if opcode.is_control() && !fin {
            return Err(Error::FragmentedControl);
        }

        let Some((&second, rest)) = rest.split_first() else {
            return Ok(None);
        };
        let masked = second & MASK != 0;
        match role {
            Role::Server if !masked => return Err(Error::UnmaskedFrame),
            Role::Client if masked => return Err(Error::MaskedFrame),
            _ => {}
        }
        let short = second & !MASK;
        if opcode.is_control() && usize::from(short) > MAX_CONTROL_PAYLOAD {
            return Err(Error::ControlTooLong);
        }

        let Some((len, rest)) = parse_len(short, rest)? else {
            return Ok(None);
        };
        let (mask, rest) = if masked {
            let Some((key, rest)) = rest.split_first_chunk::<4>() else {
                return Ok(None);
            };
            (Some(*key), rest)
        } else {
            (None, rest)
        };
        let header = Self {
            fin,
            opcode,
            len,
            mask,
        };
        Ok(Some((header, bytes.len() - rest.len())))
    }
}

/// Return the payload length in the 7-bit field `short` and the bytes after it, and the rest.
#[inline]
fn parse_len(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, Error> {
    let (len, min, rest) = match short {
        126 => match rest.split_first_chunk::<2>() {
            Some((len, rest)) => (u64::from(u16::from_be_bytes(*len)), 126, rest),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk::<8>() {
            Some((len, rest)) => (u64::from_be_bytes(*len), 0x1_0000, rest),
            None => return Ok(None),
        },
        _ => (u64::from(short), 0, rest),
    };
    if len >> 63 != 0 {
        return Err(Error::LengthOverflow);
    }
    if len < min {
        return Err(Error::LengthNotMinimal);
    }
    Ok(Some((len, rest)))
}

/// Return the size in bytes of the header of a frame with `len` bytes of payload.
#[inline]
#[must_use]
pub const fn header_len(len: usize, masked: bool) -> usize {
    let base = match len {
        0..=125 => 2,
        126..=0xffff => 4,
        _ => 10,
    };
    if masked { base + 4 } else { base }
}

/// Append a frame's header with the shortest length encoding. `len` is the length of the payload,
/// which the caller appends next, masked with `mask` if there is one.
#[inline]
pub fn encode_header(
    out: &mut Vec<u8>,
    fin: bool,
    opcode: OpCode,
    len: usize,
    mask: Option<[u8; 4]>,
) {
    compose(fin, opcode, len, mask, |bytes| out.extend_from_slice(bytes));
}

/// Write the header at the start of `buf` and return its length, [`header_len`].
///
/// This puts a header before a payload that is already in a buffer:
/// `write_header(&mut buf[start - header_len(len, false)..], ...)`.
///
/// # Panics
/// When `buf` is shorter than [`header_len`].
#[inline]
pub fn write_header(
    buf: &mut [u8],
    fin: bool,
    opcode: OpCode,
    len: usize,
    mask: Option<[u8; 4]>,
) -> usize {
    let mut at = 0;
    compose(fin, opcode, len, mask, |bytes| {
        buf[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    });
    at
}

/// Append a whole frame with FIN set; a client gives its masking key. The payload of a control
/// frame must have at most [`MAX_CONTROL_PAYLOAD`] bytes.
#[inline]
pub fn encode_frame(out: &mut Vec<u8>, opcode: OpCode, payload: &[u8], mask: Option<[u8; 4]>) {
    debug_assert!(!opcode.is_control() || payload.len() <= MAX_CONTROL_PAYLOAD);
    out.reserve(header_len(payload.len(), mask.is_some()) + payload.len());
    encode_header(out, true, opcode, payload.len(), mask);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(key) = mask {
        mask::apply(&mut out[start..], key, 0);
    }
}

/// Give the header's bytes to `put`, piece by piece.
#[inline]
fn compose(
    fin: bool,
    opcode: OpCode,
    len: usize,
    mask: Option<[u8; 4]>,
    mut put: impl FnMut(&[u8]),
) {
    let first = opcode as u8 | if fin { FIN } else { 0 };
    let masked = if mask.is_some() { MASK } else { 0 };
    match len {
        0..=125 => put(&[first, masked | len as u8]),
        126..=0xffff => {
            let [a, b] = (len as u16).to_be_bytes();
            put(&[first, masked | 126, a, b]);
        }
        _ => {
            put(&[first, masked | 127]);
            put(&(len as u64).to_be_bytes());
        }
    }
    if let Some(key) = mask {
        put(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    fn encoded(fin: bool, opcode: OpCode, len: usize, mask: Option<[u8; 4]>) -> Vec<u8> {
        let mut out = Vec::new();
        encode_header(&mut out, fin, opcode, len, mask);
        out
    }

    #[test]
    fn lengths_take_the_shortest_form() {
        let cases: [(usize, &[u8]); 6] = [
            (0, &[0x82, 0]),
            (125, &[0x82, 125]),
            (126, &[0x82, 126, 0, 126]),
            (0xffff, &[0x82, 126, 0xff, 0xff]),
            (0x1_0000, &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
            (0x1234_5678_9abc, b"\x82\x7f\0\0\x12\x34\x56\x78\x9a\xbc"),
        ];
        for (len, want) in cases {
            assert_eq!(encoded(true, OpCode::Binary, len, None), want);
            let masked = encoded(true, OpCode::Binary, len, Some(KEY));
            assert_eq!(masked[1], want[1] | 0x80);
            assert_eq!(masked[masked.len() - 4..], KEY);
            assert_eq!(masked.len(), want.len() + 4);
        }
    }

    #[test]
    fn errors_show_at_the_earliest_byte() {
        let cases: [(&[u8], Role, Error); 17] = [
            (&[0xc1], Role::Server, Error::ReservedBits),
            (&[0xa1], Role::Server, Error::ReservedBits),
            (&[0x91], Role::Client, Error::ReservedBits),
            (&[0x83], Role::Server, Error::UnknownOpcode),
            (&[0x87], Role::Server, Error::UnknownOpcode),
            (&[0x8b], Role::Server, Error::UnknownOpcode),
            (&[0x8f], Role::Client, Error::UnknownOpcode),
            (&[0x08], Role::Server, Error::FragmentedControl),
            (&[0x09], Role::Server, Error::FragmentedControl),
            (&[0x82, 0x05], Role::Server, Error::UnmaskedFrame),
            (&[0x82, 0x85], Role::Client, Error::MaskedFrame),
            (&[0x89, 126], Role::Client, Error::ControlTooLong),
            (&[0x88, 0xff], Role::Server, Error::ControlTooLong),
            (&[0x82, 126, 0, 125], Role::Client, Error::LengthNotMinimal),
            (
                &[0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
                Role::Client,
                Error::LengthNotMinimal,
            ),
            (
                &[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0, 0],
                Role::Server,
                Error::LengthNotMinimal,
            ),
            (
                &[0x82, 127, 0x80, 0, 0, 0, 0, 1, 0, 0],
                Role::Client,
                Error::LengthOverflow,
            ),
        ];
        for (bytes, role, want) in cases {
            let before = &bytes[..bytes.len() - 1];
            assert_eq!(Header::parse(before, role), Ok(None), "{bytes:x?}");
            assert_eq!(Header::parse(bytes, role), Err(want), "{bytes:x?}");
            let more = [bytes, &[0xff; 20]].concat();
            assert_eq!(Header::parse(&more, role), Err(want), "{bytes:x?}");
        }
    }

    #[test]
    fn a_whole_frame_equals_header_and_masked_payload() {
        let mut out = b"kept".to_vec();
        encode_frame(&mut out, OpCode::Text, b"Hello", Some(KEY));
        assert_eq!(
            out, b"kept\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58",
            "RFC 6455 section 5.7"
        );
    }

    #[test]
    fn a_header_can_stand_right_before_a_payload() {
        let mut buf = [b"..............".as_slice(), &[b'x'; 300]].concat();
        let start = 14 - header_len(300, false);
        let n = write_header(&mut buf[start..], true, OpCode::Binary, 300, None);
        assert_eq!(start + n, 14);
        assert_eq!(&buf[..15], b"..........\x82\x7e\x01\x2cx");
    }

    proptest! {
        #[test]
        fn a_header_survives_the_round_trip(
            fin: bool,
            opcode in prop::sample::select(vec![OpCode::Continuation, OpCode::Text, OpCode::Binary]),
            len in prop_oneof![0_usize..300, 0xff00_usize..0x1_0100, 0..usize::MAX >> 1],
            mask: Option<[u8; 4]>,
            tail: [u8; 3],
        ) {
            let mut bytes = encoded(fin, opcode, len, mask);
            prop_assert_eq!(bytes.len(), header_len(len, mask.is_some()));
            let mut written = [0; MAX_HEADER];
            let n = write_header(&mut written, fin, opcode, len, mask);
            prop_assert_eq!(&written[..n], &bytes[..]);

            let role = if mask.is_some() { Role::Server } else { Role::Client };
            for cut in 0..n {
                prop_assert_eq!(Header::parse(&bytes[..cut], role), Ok(None));
            }
            bytes.extend_from_slice(&tail);
            let header = Header { fin, opcode, len: len as u64, mask };
            prop_assert_eq!(Header::parse(&bytes, role), Ok(Some((header, n))));
        }
    }
}
