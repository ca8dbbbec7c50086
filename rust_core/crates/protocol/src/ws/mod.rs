//! WebSocket ([RFC 6455]) for both roles, without I/O.
//!
//! * [`handshake`] upgrades an HTTP/1.1 connection to a WebSocket connection.
//! * [`Decoder`] takes received bytes and returns [`Event`]s. It unmasks in place and never gathers
//!   a message: data arrives in slices of the caller's own read buffer.
//! * [`frame`] and [`close`] append output to the caller's buffer; [`Batch`] gathers many small
//!   appends in one frame.
//!
//! An [`Error`] ends the connection: send a close frame with [`Error::close_code`] and the error's
//! text as its reason, then close the transport (RFC 6455 section 7.1.7).
//!
//! permessage-deflate (RFC 7692) is not negotiated: offers are ignored and RSV1 is refused.
//!
//! [RFC 6455]: https://www.rfc-editor.org/rfc/rfc6455

pub mod batch;
pub mod close;
pub mod frame;
pub mod handshake;
pub mod mask;
mod message;
pub mod utf8;

use std::fmt;

pub use batch::Batch;
pub use frame::OpCode;
pub use message::{Decoder, Event, Kind};

/// Which end of the connection this side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server receives masked frames and sends unmasked ones.
    Server,
    /// The client receives unmasked frames and sends masked ones.
    Client,
}

/// Violation of the protocol by the peer. The text ([`fmt::Display`]) fits a close frame's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A reserved bit is set although no extension was negotiated (section 5.2).
    ReservedBits,
    /// An opcode that RFC 6455 reserves (section 5.2).
    UnknownOpcode,
    /// A client's frame without a mask (section 5.1).
    UnmaskedFrame,
    /// A server's frame with a mask (section 5.1).
    MaskedFrame,
    /// A control frame without FIN (section 5.5).
    FragmentedControl,
    /// A control frame with more than 125 bytes of payload (section 5.5).
    ControlTooLong,
    /// A length in more bytes than it needs (section 5.2).
    LengthNotMinimal,
    /// A 64-bit length whose most significant bit is set (section 5.2).
    LengthOverflow,
    /// A continuation frame while no message is open (section 5.4).
    UnexpectedContinuation,
    /// A new message inside a fragmented one (section 5.4).
    ExpectedContinuation,
    /// The message, summed over its fragments, is larger than the limit (section 10.4).
    MessageTooBig,
    /// A text message or a close reason is not UTF-8 (section 8.1).
    InvalidUtf8,
    /// A close frame with a payload of one byte (section 5.5.1).
    CloseLength,
    /// A close code that must not be sent (section 7.4).
    CloseCode,
}

impl Error {
    /// Return the error's text: at most 123 bytes of ASCII, fit for a close frame's reason.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::ReservedBits => "reserved bit set",
            Self::UnknownOpcode => "unknown opcode",
            Self::UnmaskedFrame => "client frame not masked",
            Self::MaskedFrame => "server frame masked",
            Self::FragmentedControl => "fragmented control frame",
            Self::ControlTooLong => "control frame longer than 125 bytes",
            Self::LengthNotMinimal => "length not minimally encoded",
            Self::LengthOverflow => "length exceeds 63 bits",
            Self::UnexpectedContinuation => "continuation without a message",
            Self::ExpectedContinuation => "new message inside a fragmented message",
            Self::MessageTooBig => "message too big",
            Self::InvalidUtf8 => "invalid UTF-8",
            Self::CloseLength => "close payload of one byte",
            Self::CloseCode => "invalid close code",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Error {}
