//! Close frames and their codes (RFC 6455 sections 5.5.1 and 7.4).

use super::Error;
use super::frame::{MAX_CONTROL_PAYLOAD, OpCode, encode_header};
use super::mask;

/// The purpose of the connection is fulfilled.
pub const NORMAL: u16 = 1000;
/// The server goes down, or the user left the page.
pub const GOING_AWAY: u16 = 1001;
/// The peer broke the protocol.
pub const PROTOCOL_ERROR: u16 = 1002;
/// A type of data that cannot be accepted.
pub const UNSUPPORTED_DATA: u16 = 1003;
/// Never on the wire: the close frame carried no code.
pub const NO_STATUS: u16 = 1005;
/// Never on the wire: the connection ended without a close frame.
pub const ABNORMAL: u16 = 1006;
/// The payload does not fit the message's type, such as text that is not UTF-8.
pub const INVALID_PAYLOAD: u16 = 1007;
/// The peer broke a rule of ours, such as authorisation.
pub const POLICY_VIOLATION: u16 = 1008;
/// The message is too big to process.
pub const MESSAGE_TOO_BIG: u16 = 1009;
/// The server failed.
pub const INTERNAL_ERROR: u16 = 1011;

/// The longest reason in bytes: a control frame's payload without the code.
pub const MAX_REASON: usize = MAX_CONTROL_PAYLOAD - 2;

impl Error {
    /// Return the code for the close frame that answers this error (section 7.4.1).
    #[must_use]
    pub const fn close_code(self) -> u16 {
        match self {
            Self::MessageTooBig => MESSAGE_TOO_BIG,
            Self::InvalidUtf8 => INVALID_PAYLOAD,
            _ => PROTOCOL_ERROR,
        }
    }
}

/// Return whether a close frame may carry `code` (section 7.4): a code that RFC 6455 or IANA's
/// registry allows on the wire, or one in the ranges of libraries (3000) and applications (4000).
#[must_use]
pub const fn is_valid_received_code(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// Append a close frame; a client gives its masking key.
///
/// A `reason` longer than [`MAX_REASON`] is cut at a character's boundary. A `code` that must not
/// stand on the wire, such as [`NO_STATUS`], gives a close frame without payload.
pub fn encode_close(out: &mut Vec<u8>, code: u16, reason: &str, mask: Option<[u8; 4]>) {
    if !is_valid_received_code(code) {
        encode_header(out, true, OpCode::Close, 0, mask);
        return;
    }
    let mut cut = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(cut) {
        cut -= 1;
    }
    encode_header(out, true, OpCode::Close, 2 + cut, mask);
    let start = out.len();
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(&reason.as_bytes()[..cut]);
    if let Some(key) = mask {
        mask::apply(&mut out[start..], key, 0);
    }
}

/// Return the code and the reason in a close frame's unmasked payload; no code when it is empty.
///
/// # Errors
/// [`Error::CloseLength`], [`Error::CloseCode`] or [`Error::InvalidUtf8`].
pub fn parse_payload(payload: &[u8]) -> Result<(Option<u16>, &str), Error> {
    if payload.is_empty() {
        return Ok((None, ""));
    }
    let (code, reason) = payload.split_first_chunk().ok_or(Error::CloseLength)?;
    let code = u16::from_be_bytes(*code);
    if !is_valid_received_code(code) {
        return Err(Error::CloseCode);
    }
    let reason = std::str::from_utf8(reason).map_err(|_| Error::InvalidUtf8)?;
    Ok((Some(code), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_may_be_received() {
        for code in [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 3999, 4999] {
            assert!(is_valid_received_code(code), "{code}");
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, u16::MAX] {
            assert!(!is_valid_received_code(code), "{code}");
        }
    }

    #[test]
    fn payloads() {
        assert_eq!(parse_payload(b""), Ok((None, "")));
        assert_eq!(parse_payload(b"\x03\xe8"), Ok((Some(1000), "")));
        assert_eq!(parse_payload(b"\x03\xe9bye"), Ok((Some(1001), "bye")));
        assert_eq!(parse_payload(b"\x03"), Err(Error::CloseLength));
        assert_eq!(parse_payload(b"\x03\xed"), Err(Error::CloseCode));
        assert_eq!(parse_payload(b"\x03\xe8\xc3"), Err(Error::InvalidUtf8));
        assert_eq!(Error::CloseLength.close_code(), 1002);
        assert_eq!(Error::CloseCode.close_code(), 1002);
        assert_eq!(Error::InvalidUtf8.close_code(), 1007);
        assert_eq!(Error::MessageTooBig.close_code(), 1009);
    }

    #[test]
    fn a_frame_holds_code_and_reason() {
        let mut out = Vec::new();
        encode_close(&mut out, GOING_AWAY, "drain", None);
        assert_eq!(out, b"\x88\x07\x03\xe9drain");
        out.clear();
        encode_close(&mut out, NORMAL, "", Some([1, 2, 3, 4]));
        assert_eq!(out, b"\x88\x82\x01\x02\x03\x04\x02\xea");
    }

    #[test]
    fn a_code_never_sent_leaves_the_payload_empty() {
        for code in [NO_STATUS, ABNORMAL, 1015, 0] {
            let mut out = Vec::new();
            encode_close(&mut out, code, "reason", None);
            assert_eq!(out, b"\x88\x00");
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut out = Vec::new();
        encode_close(&mut out, NORMAL, &"é".repeat(100), None);
        assert_eq!(out.len(), 2 + 2 + 122);
        let (code, reason) = parse_payload(&out[2..]).expect("a valid payload");
        assert_eq!((code, reason), (Some(NORMAL), "é".repeat(61).as_str()));
        out.clear();
        encode_close(&mut out, NORMAL, &"e".repeat(124), None);
        assert_eq!(out.len(), 2 + 125);
    }
}
