//! Errors of operations, and the exact texts that `-ERR` carries.
//!
//! Clients match on these texts, and several give up for good on an unknown one. A server therefore
//! sends only these texts. Each is sent in single quotes; see [`encode_err`].
//!
//! [`encode_err`]: super::encode::encode_err

use std::fmt::{self, Write};

/// Fatal: refused credentials, or an operation before a required `CONNECT`.
pub const AUTHORIZATION_VIOLATION: &str = "Authorization Violation";
/// Fatal: no `CONNECT` within the time allowed.
pub const AUTHENTICATION_TIMEOUT: &str = "Authentication Timeout";
/// Fatal: the user's credentials have expired.
pub const USER_AUTHENTICATION_EXPIRED: &str = "User Authentication Expired";
/// Fatal: the account's credentials have expired.
pub const ACCOUNT_AUTHENTICATION_EXPIRED: &str = "Account Authentication Expired";
/// Fatal: the user was revoked.
pub const USER_AUTHENTICATION_REVOKED: &str = "User Authentication Revoked";
/// Fatal: an unknown operation, or a payload that is longer or shorter than its size.
pub const UNKNOWN_PROTOCOL_OPERATION: &str = "Unknown Protocol Operation";
/// Fatal: a control line longer than `max_control_line`.
pub const MAX_CONTROL_LINE_EXCEEDED: &str = "maximum control line exceeded";
/// Fatal: a payload, headers included, larger than `max_payload`.
pub const MAX_PAYLOAD_VIOLATION: &str = "Maximum Payload Violation";
/// Fatal: the server keeps its memory for the clients that it has.
pub const NO_MEMORY: &str = "no memory for more connections";
/// Fatal: the server is full.
pub const MAX_CONNECTIONS_EXCEEDED: &str = "maximum connections exceeded";
/// Fatal: the client's address has as many connections as it may have.
pub const MAX_CONNECTIONS_OF_ADDRESS_EXCEEDED: &str =
    "maximum connections from this address exceeded";
/// Fatal: the account is full.
pub const MAX_ACCOUNT_CONNECTIONS_EXCEEDED: &str = "maximum account active connections exceeded";
/// Fatal: `CONNECT` with a `protocol` other than 0 or 1.
pub const INVALID_CLIENT_PROTOCOL: &str = "invalid client protocol";
/// Fatal: `CONNECT` with `no_responders` but without `headers`.
pub const NO_RESPONDERS_REQUIRES_HEADERS: &str = "no responders requires headers support";
/// Fatal: too many PINGs without a PONG.
pub const STALE_CONNECTION: &str = "Stale Connection";
/// Fatal: a plain connection to a server that requires TLS.
pub const TLS_REQUIRED: &str = "Secure Connection - TLS Required";
/// Fatal: too many connections are being made at once.
pub const CONNECTION_THROTTLING: &str = "Connection throttling is active. Please try again later.";
/// Not fatal: `SUB` of an invalid subject.
pub const INVALID_SUBJECT: &str = "Invalid Subject";
/// Not fatal: a pedantic client published to a subject that is not a valid literal.
pub const INVALID_PUBLISH_SUBJECT: &str = "Invalid Publish Subject";
/// Not fatal: a `SUB` beyond the limit.
pub const MAX_SUBSCRIPTIONS_EXCEEDED: &str = "maximum subscriptions exceeded";

const PERMISSIONS_VIOLATION: &str = "Permissions Violation";

/// Return whether the server closes the connection after `-ERR` with this text.
///
/// A text outside the catalogue counts as fatal, as clients take it. Letter case is ignored.
#[must_use]
pub fn is_fatal(text: &str) -> bool {
    let survives = [
        INVALID_SUBJECT,
        INVALID_PUBLISH_SUBJECT,
        MAX_SUBSCRIPTIONS_EXCEEDED,
    ];
    let permissions = text
        .as_bytes()
        .get(..PERMISSIONS_VIOLATION.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PERMISSIONS_VIOLATION.as_bytes()));
    !permissions
        && !survives
            .iter()
            .any(|known| text.eq_ignore_ascii_case(known))
}

/// Return a text that is not fatal: publishing to `subject` is not permitted.
#[must_use]
pub fn publish_denied(subject: &[u8]) -> String {
    format!("{PERMISSIONS_VIOLATION} for Publish to {}", Quoted(subject))
}

/// Return a text that is not fatal: publishing with the reply subject `reply` is not permitted.
#[must_use]
pub fn reply_denied(reply: &[u8]) -> String {
    format!(
        "{PERMISSIONS_VIOLATION} for Publish with Reply of {}",
        Quoted(reply)
    )
}

/// Return a text that is not fatal: subscribing to `subject`, in the queue group if there is one,
/// is not permitted.
#[must_use]
pub fn subscribe_denied(subject: &[u8], queue: Option<&[u8]>) -> String {
    let mut text = format!(
        "{PERMISSIONS_VIOLATION} for Subscription to {}",
        Quoted(subject)
    );
    if let Some(queue) = queue {
        let _ = write!(text, " using queue {}", Quoted(queue));
    }
    text
}

/// Not fatal: subscribing to `subject` is refused, and `why` says which limit it exceeds.
///
/// The text is that of nats-server for a subject of too many tokens. Clients give up for good on
/// a text that they do not know, and this one begins with what they know.
#[must_use]
pub fn subscribe_refused(subject: &[u8], why: impl fmt::Display) -> String {
    let mut text = subscribe_denied(subject, None);
    let _ = write!(text, ", {why}");
    text
}

/// Bytes in double quotes. Quotes, backslashes, control characters and invalid UTF-8 are escaped,
/// so that a client's bytes cannot end the text or its line.
struct Quoted<'a>(&'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '"' | '\\' => write!(f, "\\{c}")?,
                    c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_char('"')
    }
}

/// Why a stream of operations cannot be read any further. Every kind ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseError {
    /// The line begins with no operation that this side may receive.
    UnknownOperation,
    /// The arguments of a control line exceed the limit; raised before the line is complete.
    ControlLineTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A control line announced more than the limit; raised before any payload is taken.
    PayloadTooLarge {
        /// Announced size in bytes, headers included.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The bytes after a payload are not CR LF.
    PayloadNotTerminated,
    /// Known operation with unusable arguments: the operation and the fault.
    Malformed(&'static str),
}

impl ParseError {
    /// Return the text of the `-ERR` that a server sends before it closes; `None` if the protocol
    /// closes without one.
    #[must_use]
    pub const fn err_text(&self) -> Option<&'static str> {
        match self {
            Self::UnknownOperation | Self::PayloadNotTerminated => Some(UNKNOWN_PROTOCOL_OPERATION),
            Self::ControlLineTooLong { .. } => Some(MAX_CONTROL_LINE_EXCEEDED),
            Self::PayloadTooLarge { .. } => Some(MAX_PAYLOAD_VIOLATION),
            Self::Malformed(_) => None,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOperation => f.write_str("unknown protocol operation"),
            Self::ControlLineTooLong { limit } => {
                write!(f, "control line of more than {limit} bytes")
            }
            Self::PayloadTooLarge { size, limit } => {
                write!(f, "payload of {size} bytes, {limit} allowed")
            }
            Self::PayloadNotTerminated => f.write_str("payload is not followed by CR LF"),
            Self::Malformed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_texts_are_those_of_nats_server() {
        assert_eq!(
            publish_denied(b"foo.bar"),
            r#"Permissions Violation for Publish to "foo.bar""#
        );
        assert_eq!(
            reply_denied(b"_INBOX.1"),
            r#"Permissions Violation for Publish with Reply of "_INBOX.1""#
        );
        assert_eq!(
            subscribe_denied(b"foo.>", None),
            r#"Permissions Violation for Subscription to "foo.>""#
        );
        assert_eq!(
            subscribe_denied(b"foo", Some(b"q")),
            r#"Permissions Violation for Subscription to "foo" using queue "q""#
        );
        assert_eq!(
            subscribe_refused(b"a.b", "too many tokens"),
            r#"Permissions Violation for Subscription to "a.b", too many tokens"#
        );
    }

    #[test]
    fn quoted_bytes_cannot_break_out() {
        assert_eq!(
            publish_denied(b"a\"b\\c\r\n\x00\xff\xc3\xa9"),
            "Permissions Violation for Publish to \"a\\\"b\\\\c\\x0d\\x0a\\x00\\xffé\""
        );
    }

    #[test]
    fn fatal_and_non_fatal_texts() {
        for text in [
            AUTHORIZATION_VIOLATION,
            UNKNOWN_PROTOCOL_OPERATION,
            MAX_CONTROL_LINE_EXCEEDED,
            MAX_PAYLOAD_VIOLATION,
            STALE_CONNECTION,
            "something new",
            "",
        ] {
            assert!(is_fatal(text), "{text}");
        }
        for text in [
            INVALID_SUBJECT,
            INVALID_PUBLISH_SUBJECT,
            MAX_SUBSCRIPTIONS_EXCEEDED,
            "MAXIMUM SUBSCRIPTIONS EXCEEDED",
            &publish_denied(b"x"),
            &subscribe_refused(b"x", "too long"),
            "permissions violation for something",
        ] {
            assert!(!is_fatal(text), "{text}");
        }
    }
}
