//! Bytes as WebSocket frames: how they were cut must not change what they say.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use protocol::ws::frame::encode_frame;
use protocol::ws::{Decoder, Error, Event, Kind, OpCode, Role};

#[derive(Arbitrary, Debug)]
struct Input {
    is_server: bool,
    max_message: u16,
    /// The lengths of the pieces in turn, in bytes; none means one byte each.
    pieces: Vec<u8>,
    stream: Vec<u8>,
}

/// What a stream says, independent of how it was cut.
#[derive(Debug, PartialEq)]
enum Said {
    Message(Kind, Vec<u8>),
    Control(OpCode, Vec<u8>),
    Close(Option<u16>, String),
    Error(Error),
}

fn decode(input: &Input, mut next_len: impl FnMut() -> usize) -> Vec<Said> {
    let role = match input.is_server {
        true => Role::Server,
        false => Role::Client,
    };
    let mut decoder = Decoder::new(role, input.max_message.into());
    let (mut said, mut message) = (Vec::new(), Vec::new());
    let mut rest = input.stream.as_slice();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(next_len().clamp(1, rest.len()));
        rest = after;
        let mut piece = piece.to_vec();
        let mut bytes = piece.as_mut_slice();
        loop {
            let event = match decoder.next(&mut bytes) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    said.push(Said::Error(error));
                    continue;
                }
            };
            said.push(match event {
                Event::Data {
                    kind,
                    bytes,
                    end_of_message,
                } => {
                    message.extend_from_slice(bytes);
                    assert!(message.len() <= input.max_message.into());
                    if !end_of_message {
                        continue;
                    }
                    let message = std::mem::take(&mut message);
                    assert!(kind == Kind::Binary || std::str::from_utf8(&message).is_ok());
                    Said::Message(kind, message)
                }
                Event::Ping(payload) => {
                    encode_frame(&mut Vec::new(), OpCode::Pong, payload, None);
                    Said::Control(OpCode::Ping, payload.to_vec())
                }
                Event::Pong(payload) => Said::Control(OpCode::Pong, payload.to_vec()),
                Event::Close { code, reason } => Said::Close(code, reason.to_owned()),
            });
        }
        assert!(bytes.is_empty());
    }
    said
}

fuzz_target!(|input: Input| {
    let whole = decode(&input, || usize::MAX);
    assert_eq!(whole, decode(&input, || 1));
    let mut lens = input.pieces.iter().copied().cycle();
    assert_eq!(whole, decode(&input, || lens.next().map_or(1, usize::from)));
});
