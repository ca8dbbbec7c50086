//! The WebSocket decoder on wire vectors, whole, byte by byte and in other pieces, and on random
//! streams: the cuts must never change the events.

use proptest::prelude::*;
use subjectbus_protocol::ws::close::{self, encode_close};
use subjectbus_protocol::ws::frame::{encode_frame, encode_header};
use subjectbus_protocol::ws::{Decoder, Error, Event, Kind, OpCode, Role, mask};

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
const LIMIT: u32 = 70_000;

/// Events of a stream, independent of its cuts.
#[derive(Clone, Debug, PartialEq)]
enum Parsed {
    Message(Kind, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Error(Error),
}

fn text(text: &str) -> Parsed {
    Parsed::Message(Kind::Text, text.as_bytes().to_vec())
}

fn binary(bytes: &[u8]) -> Parsed {
    Parsed::Message(Kind::Binary, bytes.to_vec())
}

/// Feed `stream` cut by `next_len` (bytes of the next piece) and gather its events.
fn decode(role: Role, stream: &[u8], mut next_len: impl FnMut() -> usize) -> Vec<Parsed> {
    let mut decoder = Decoder::new(role, LIMIT);
    let mut said = Vec::new();
    let mut message = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(next_len().clamp(1, rest.len()));
        rest = after;
        let mut piece = piece.to_vec();
        let mut input = piece.as_mut_slice();
        loop {
            match decoder.next(&mut input) {
                Ok(Some(Event::Data {
                    kind,
                    bytes,
                    end_of_message,
                })) => {
                    assert!(end_of_message || !bytes.is_empty());
                    message.extend_from_slice(bytes);
                    if end_of_message {
                        said.push(Parsed::Message(kind, std::mem::take(&mut message)));
                    }
                }
                Ok(Some(Event::Ping(payload))) => said.push(Parsed::Ping(payload.to_vec())),
                Ok(Some(Event::Pong(payload))) => said.push(Parsed::Pong(payload.to_vec())),
                Ok(Some(Event::Close { code, reason })) => {
                    said.push(Parsed::Close(code, reason.to_owned()));
                }
                Ok(None) => break,
                Err(error) => said.push(Parsed::Error(error)),
            }
        }
        assert!(input.is_empty(), "`None` means that all was taken");
    }
    let ended = matches!(said.last(), Some(Parsed::Close(..) | Parsed::Error(_)));
    assert_eq!(decoder.is_closed(), ended);
    said
}

/// Check `stream` whole, cut into every fixed piece size up to 17, and with trailing frames.
fn check(role: Role, stream: &[u8], want: &[Parsed]) {
    let shown = stream[..stream.len().min(80)].escape_ascii().to_string();
    assert_eq!(decode(role, stream, || usize::MAX), want, "whole {shown}");
    for size in 1..=17 {
        let said = decode(role, stream, || size);
        assert_eq!(said, want, "pieces of {size}: {shown}");
    }
    let mask = (role == Role::Server).then_some(KEY);
    let mut tailed = stream.to_vec();
    encode_frame(&mut tailed, OpCode::Pong, b"tail", mask);
    let mut want = want.to_vec();
    if !matches!(want.last(), Some(Parsed::Close(..) | Parsed::Error(_))) {
        want.push(Parsed::Pong(b"tail".to_vec()));
    }
    assert_eq!(decode(role, &tailed, || usize::MAX), want, "tail {shown}");
    assert_eq!(decode(role, &tailed, || 1), want, "tail {shown}");
}

/// A frame to encode: FIN, opcode and payload.
type Frame<P> = (bool, OpCode, P);

/// Return frames from a client.
fn masked(frames: &[Frame<&[u8]>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (fin, opcode, payload) in frames {
        encode_header(&mut out, *fin, *opcode, payload.len(), Some(KEY));
        let start = out.len();
        out.extend_from_slice(payload);
        mask::apply(&mut out[start..], KEY, 0);
    }
    out
}

#[test]
fn rfc_6455_section_5_7() {
    let unmasked_hello = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    check(Role::Client, &unmasked_hello, &[text("Hello")]);
    let masked_hello = [
        0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
    ];
    check(Role::Server, &masked_hello, &[text("Hello")]);
    let fragmented = [0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f];
    check(Role::Client, &fragmented, &[text("Hello")]);
    let ping = [0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    check(Role::Client, &ping, &[Parsed::Ping(b"Hello".to_vec())]);
    let pong = [
        0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
    ];
    check(Role::Server, &pong, &[Parsed::Pong(b"Hello".to_vec())]);
    let data: Vec<u8> = (0..65_536_u32).map(|i| i as u8).collect();
    let medium = [b"\x82\x7e\x01\x00".as_slice(), &data[..256]].concat();
    check(Role::Client, &medium, &[binary(&data[..256])]);
    let large = [b"\x82\x7f\0\0\0\0\0\x01\0\0".as_slice(), &data].concat();
    check(Role::Client, &large, &[binary(&data)]);
}

#[test]
fn fragments_with_control_frames_between_them() {
    let frames = masked(&[
        (false, OpCode::Text, "κό".as_bytes()),
        (true, OpCode::Ping, b""),
        (false, OpCode::Continuation, b""),
        (true, OpCode::Pong, &[7; 125]),
        (false, OpCode::Continuation, &"σμε".as_bytes()[..1]),
        (false, OpCode::Continuation, &"σμε".as_bytes()[1..]),
        (true, OpCode::Continuation, b""),
        (true, OpCode::Binary, b""),
        (true, OpCode::Binary, b"\xff"),
        (true, OpCode::Close, b"\x03\xe9going"),
    ]);
    let want = [
        Parsed::Ping(Vec::new()),
        Parsed::Pong(vec![7; 125]),
        text("κόσμε"),
        binary(b""),
        binary(b"\xff"),
        Parsed::Close(Some(1001), "going".to_owned()),
    ];
    check(Role::Server, &frames, &want);
}

#[test]
fn data_arrives_with_each_read() {
    let mut decoder = Decoder::new(Role::Server, LIMIT);
    let mut bytes = masked(&[
        (false, OpCode::Text, b"Hel"),
        (true, OpCode::Continuation, b"lo"),
    ]);
    let (mut first, mut second) = bytes.split_at_mut(8);
    let data = |bytes, end_of_message| {
        Ok(Some(Event::Data {
            kind: Kind::Text,
            bytes,
            end_of_message,
        }))
    };
    assert_eq!(decoder.next(&mut first), data(b"He", false));
    assert_eq!(decoder.next(&mut first), Ok(None));
    assert_eq!(decoder.next(&mut second), data(b"l", false));
    assert_eq!(decoder.next(&mut second), data(b"lo", true));
    assert_eq!(decoder.next(&mut second), Ok(None));
}

#[test]
fn an_empty_final_fragment_ends_the_message() {
    let mut decoder = Decoder::new(Role::Client, LIMIT);
    let mut bytes = *b"\x02\x01a\x80\x00";
    let mut input = bytes.as_mut_slice();
    let mut ends = Vec::new();
    while let Ok(Some(Event::Data {
        bytes,
        end_of_message,
        ..
    })) = decoder.next(&mut input)
    {
        ends.push((bytes.to_vec(), end_of_message));
    }
    assert_eq!(ends, [(b"a".to_vec(), false), (Vec::new(), true)]);
}

#[test]
fn broken_sequences() {
    let cases: [(&[Frame<&[u8]>], Error); 4] = [
        (
            &[(true, OpCode::Continuation, b"x")],
            Error::UnexpectedContinuation,
        ),
        (
            &[
                (true, OpCode::Text, b""),
                (false, OpCode::Continuation, b""),
            ],
            Error::UnexpectedContinuation,
        ),
        (
            &[(false, OpCode::Text, b""), (true, OpCode::Text, b"")],
            Error::ExpectedContinuation,
        ),
        (
            &[(false, OpCode::Binary, b"x"), (false, OpCode::Binary, b"")],
            Error::ExpectedContinuation,
        ),
    ];
    for (frames, want) in cases {
        let said = decode(Role::Server, &masked(frames), || 1);
        assert_eq!(said.last(), Some(&Parsed::Error(want)));
        assert_eq!(want.close_code(), 1002);
        check(Role::Server, &masked(frames), &said);
    }
}

#[test]
fn broken_headers() {
    let cases: [(Role, &[u8], Error); 9] = [
        (Role::Server, b"\xc2\x80", Error::ReservedBits),
        (Role::Server, b"\x83\x80", Error::UnknownOpcode),
        (Role::Server, b"\x82\x01a", Error::UnmaskedFrame),
        (Role::Client, b"\x82\x81keyXa", Error::MaskedFrame),
        (Role::Client, b"\x09\x00", Error::FragmentedControl),
        (Role::Client, b"\x89\x7e\x00\x7e", Error::ControlTooLong),
        (Role::Client, b"\x82\x7e\x00\x01a", Error::LengthNotMinimal),
        (
            Role::Client,
            b"\x82\x7f\0\0\0\0\0\0\x01\0",
            Error::LengthNotMinimal,
        ),
        (
            Role::Client,
            b"\x82\x7f\xff\0\0\0\0\0\0\0",
            Error::LengthOverflow,
        ),
    ];
    for (role, bytes, want) in cases {
        assert_eq!(want.close_code(), 1002);
        check(role, bytes, &[Parsed::Error(want)]);
    }
}

#[test]
fn text_that_is_not_utf8() {
    let cases: [&[Frame<&[u8]>]; 6] = [
        &[(true, OpCode::Text, b"\xff")],
        &[(true, OpCode::Text, b"a\xc3")],
        &[(true, OpCode::Text, b"\xed\xa0\x80")],
        &[
            (false, OpCode::Text, b"\xe2\x82"),
            (true, OpCode::Continuation, b"a"),
        ],
        &[
            (false, OpCode::Text, b"\xf0\x9f"),
            (true, OpCode::Continuation, b""),
        ],
        &[(true, OpCode::Close, b"\x03\xe8\xff")],
    ];
    for frames in cases {
        check(
            Role::Server,
            &masked(frames),
            &[Parsed::Error(Error::InvalidUtf8)],
        );
    }
    assert_eq!(Error::InvalidUtf8.close_code(), close::INVALID_PAYLOAD);
}

#[test]
fn text_fails_before_its_frame_is_complete() {
    let mut decoder = Decoder::new(Role::Client, LIMIT);
    let mut bytes = *b"\x81\x7dok\xf4\x90";
    let (mut head, mut last) = bytes.split_at_mut(5);
    assert!(matches!(decoder.next(&mut head), Ok(Some(_))));
    assert_eq!(decoder.next(&mut head), Ok(None));
    assert_eq!(decoder.next(&mut last), Err(Error::InvalidUtf8));
}

#[test]
fn close_payloads() {
    let close = |payload: &[u8]| masked(&[(true, OpCode::Close, payload)]);
    let closed = |code, reason: &str| [Parsed::Close(code, reason.to_owned())];
    check(Role::Server, &close(b""), &closed(None, ""));
    check(Role::Server, &close(b"\x03\xe8"), &closed(Some(1000), ""));
    let longest = [b"\x0f\xa0".as_slice(), &[b'r'; 123]].concat();
    check(
        Role::Server,
        &close(&longest),
        &closed(Some(4000), &"r".repeat(123)),
    );
    let length = [Parsed::Error(Error::CloseLength)];
    check(Role::Server, &close(b"\x03"), &length);
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000_u16] {
        let wrong = [Parsed::Error(Error::CloseCode)];
        check(Role::Server, &close(&code.to_be_bytes()), &wrong);
    }
}

#[test]
fn the_size_limit_counts_fragments_and_is_checked_before_the_payload() {
    let limit = LIMIT as usize;
    let exact = masked(&[
        (false, OpCode::Binary, &vec![1; limit - 1]),
        (true, OpCode::Ping, b"not counted"),
        (true, OpCode::Continuation, b"\x01"),
        (true, OpCode::Binary, &vec![2; limit]),
    ]);
    let want = [
        Parsed::Ping(b"not counted".to_vec()),
        binary(&vec![1; limit]),
        binary(&vec![2; limit]),
    ];
    check(Role::Server, &exact, &want);

    let too_big = [Parsed::Error(Error::MessageTooBig)];
    assert_eq!(Error::MessageTooBig.close_code(), 1009);
    for len in [limit + 1, u32::MAX as usize + 1, (1 << 63) - 1] {
        let mut header = Vec::new();
        encode_header(&mut header, true, OpCode::Binary, len, Some(KEY));
        check(Role::Server, &header, &too_big);
    }
    let mut split = masked(&[(false, OpCode::Binary, b"ab")]);
    for fin in [true, false] {
        let len = (1 << 63) - 1;
        split.truncate(8);
        encode_header(&mut split, fin, OpCode::Continuation, len, Some(KEY));
        check(Role::Server, &split, &too_big);
    }
}

#[test]
fn nothing_is_read_after_the_end() {
    let mut close = Vec::new();
    encode_close(&mut close, close::NORMAL, "bye", Some(KEY));
    for end in [close.as_slice(), b"\xff"] {
        let mut decoder = Decoder::new(Role::Server, LIMIT);
        let mut stream = end.to_vec();
        encode_frame(&mut stream, OpCode::Binary, b"late", Some(KEY));
        let mut input = stream.as_mut_slice();
        assert!(!matches!(decoder.next(&mut input), Ok(None)));
        assert_eq!(decoder.next(&mut input), Ok(None));
        assert!(input.is_empty());
        let mut more = masked(&[(true, OpCode::Ping, b"")]);
        let mut input = more.as_mut_slice();
        assert_eq!(decoder.next(&mut input), Ok(None));
        assert!(input.is_empty());
    }
}

#[test]
fn a_decoder_is_small() {
    assert!(size_of::<Decoder>() <= 40, "{}", size_of::<Decoder>());
}

/// Return a message as its fragments, with control frames among them, and its events.
fn message() -> impl Strategy<Value = (Vec<Frame<Vec<u8>>>, Vec<Parsed>)> {
    let body = prop_oneof![
        any::<String>().prop_map(|s| (OpCode::Text, Kind::Text, s.into_bytes())),
        prop::collection::vec(any::<u8>(), 0..700).prop_map(|bytes| (
            OpCode::Binary,
            Kind::Binary,
            bytes
        )),
    ];
    let ping = prop::option::of(prop::collection::vec(any::<u8>(), 0..=125));
    (body, prop::collection::vec((1_usize..200, ping), 0..5)).prop_map(
        |((opcode, kind, body), cuts)| {
            let (mut frames, mut said) = (Vec::new(), Vec::new());
            let (mut rest, mut opcode) = (body.as_slice(), opcode);
            for (cut, ping) in cuts {
                let (fragment, after) = rest.split_at(cut.min(rest.len()));
                frames.push((false, opcode, fragment.to_vec()));
                (rest, opcode) = (after, OpCode::Continuation);
                if let Some(payload) = ping {
                    said.push(Parsed::Ping(payload.clone()));
                    frames.push((true, OpCode::Ping, payload));
                }
            }
            frames.push((true, opcode, rest.to_vec()));
            said.push(Parsed::Message(kind, body));
            (frames, said)
        },
    )
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(
        messages in prop::collection::vec(message(), 0..6),
        server: bool,
        key: [u8; 4],
        pieces in prop::collection::vec(1_usize..300, 1..20),
    ) {
        let (role, key) = if server { (Role::Server, Some(key)) } else { (Role::Client, None) };
        let mut stream = Vec::new();
        let mut want = Vec::new();
        for (frames, said) in messages {
            want.extend(said);
            for (fin, opcode, payload) in frames {
                encode_header(&mut stream, fin, opcode, payload.len(), key);
                let start = stream.len();
                stream.extend_from_slice(&payload);
                if let Some(key) = key {
                    mask::apply(&mut stream[start..], key, 0);
                }
            }
        }
        let mut sizes = pieces.iter().copied().cycle();
        prop_assert_eq!(&decode(role, &stream, || usize::MAX), &want);
        prop_assert_eq!(&decode(role, &stream, || sizes.next().unwrap_or(1)), &want);
        prop_assert_eq!(&decode(role, &stream, || 1), &want);
    }

    #[test]
    fn cutting_arbitrary_bytes_changes_nothing(
        stream in prop_oneof![
            any::<Vec<u8>>(),
            // Mostly short frames with random flags, so that streams get past the first header.
            prop::collection::vec(
                (prop::sample::select(b"\x81\x82\x01\x02\x80\x00\x89\x8a\x88\xc2\x09".to_vec()),
                 any::<[u8; 4]>(), prop::collection::vec(any::<u8>(), 0..126)),
                0..8,
            ).prop_map(|frames| {
                let mut stream = Vec::new();
                for (first, key, payload) in frames {
                    stream.extend_from_slice(&[first, 0x80 | payload.len() as u8]);
                    stream.extend_from_slice(&key);
                    stream.extend_from_slice(&payload);
                }
                stream
            }),
        ],
        pieces in prop::collection::vec(1_usize..40, 1..20),
    ) {
        for role in [Role::Server, Role::Client] {
            let whole = decode(role, &stream, || usize::MAX);
            let mut sizes = pieces.iter().copied().cycle();
            prop_assert_eq!(&whole, &decode(role, &stream, || sizes.next().unwrap_or(1)));
            prop_assert_eq!(&whole, &decode(role, &stream, || 1));
        }
    }
}
