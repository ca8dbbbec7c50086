//! In steady state no message costs an allocation: messages that lie whole in a read are decoded,
//! parsed and encoded without any.

#![allow(clippy::unwrap_used)]

use std::hint::black_box;

use allocation_counter::measure;
use subjectbus_protocol::http::{
    BodyDecoder, BodyEvent, HeadLimits, decode_percent, encode_chunk, encode_last_chunk,
    encode_request, encode_response, parse_head, query_value,
};
use subjectbus_protocol::nats::{
    ClientOp, FromClient, FromServer, Limits, Message, Parser, ServerOp, encode,
};
use subjectbus_protocol::ws::{Batch, Decoder, Event, Kind, OpCode, Role, frame};

const MESSAGES: usize = 1000;
const KEY: Option<[u8; 4]> = Some([0x37, 0xfa, 0x21, 0x3d]);
const HEADERS: &[u8] = b"NATS/1.0\r\nTrace-Id: 8f14e45f\r\n\r\n";
const LIMITS: Limits = Limits {
    max_control_line: 4096,
    max_payload: 1 << 20,
    headers: true,
};

/// Return frames of two operations each, as `append` writes them.
fn frames(key: Option<[u8; 4]>, append: impl Fn(&mut Vec<u8>, usize)) -> Vec<u8> {
    let mut wire = Vec::new();
    for n in (0..MESSAGES).step_by(2) {
        let mut payload = Vec::new();
        append(&mut payload, n);
        append(&mut payload, n + 1);
        frame::encode_frame(&mut wire, OpCode::Binary, &payload, key);
    }
    wire
}

/// Pass the payload of each binary frame of `wire` to `take`.
fn decode(wire: &mut [u8], role: Role, mut take: impl FnMut(&[u8])) {
    let mut decoder = Decoder::new(role, 1 << 20);
    let mut input = wire;
    while let Some(event) = decoder.next(&mut input).unwrap() {
        let Event::Data {
            kind: Kind::Binary,
            bytes,
            end_of_message: true,
        } = event
        else {
            panic!("{event:?}");
        };
        take(bytes);
    }
}

/// Forward every message to a subscriber, as the server does; return their number.
fn serve(wire: &mut [u8], out: &mut Vec<u8>) -> usize {
    let (mut parser, mut batch) = (Parser::<FromClient>::new(), Batch::new());
    let mut messages = 0;
    decode(wire, Role::Server, |mut bytes| {
        while let Some(op) = parser.next(&LIMITS, &mut bytes).unwrap() {
            let ClientOp::Pub(message) = op else {
                panic!("{op:?}");
            };
            batch.begin(out, encode::msg_len(b"7", &message), None);
            encode::encode_msg(out, b"7", &message);
            messages += 1;
        }
        batch.seal(out, None);
    });
    messages
}

/// Answer every message, as a client that provides a service does; return their number.
fn answer(wire: &mut [u8], out: &mut Vec<u8>) -> usize {
    let (mut parser, mut batch) = (Parser::<FromServer>::new(), Batch::new());
    let mut messages = 0;
    decode(wire, Role::Client, |mut bytes| {
        while let Some(op) = parser.next(&LIMITS, &mut bytes).unwrap() {
            let ServerOp::Msg { message, .. } = op else {
                panic!("{op:?}");
            };
            let reply = Message {
                subject: message.reply.unwrap(),
                reply: None,
                headers: None,
                payload: message.payload,
            };
            batch.begin(out, encode::pub_len(&reply), KEY);
            encode::encode_pub(out, &reply);
            messages += 1;
        }
        batch.seal(out, KEY);
    });
    messages
}

/// Run `handle` once to let the output buffer grow, then check that it allocates no more.
fn check(wire: &[u8], handle: impl Fn(&mut [u8], &mut Vec<u8>) -> usize) {
    let mut out = Vec::new();
    assert_eq!(handle(&mut wire.to_vec(), &mut out), MESSAGES);
    let expected = out.clone();
    out.clear();
    let mut wire = wire.to_vec();
    let mut messages = 0;
    let allocations = measure(|| messages = handle(&mut wire, &mut out));
    assert_eq!(messages, MESSAGES);
    assert_eq!(out, expected);
    assert_eq!(allocations.count_total, 0, "{allocations:?}");
}

fn message<'a>(reply: &'a [u8], headers: Option<&'a [u8]>, payload: &'a [u8]) -> Message<'a> {
    Message {
        subject: b"a.b",
        reply: Some(reply),
        headers,
        payload,
    }
}

#[test]
fn the_counter_counts() {
    let allocations = measure(|| drop(black_box(vec![0_u8; 100])));
    assert_eq!((allocations.count_total, allocations.bytes_total), (1, 100));
}

#[test]
fn a_server_allocates_nothing_for_a_message() {
    let wire = frames(KEY, |out, n| {
        let (reply, payload) = (format!("_INBOX.{n}"), vec![b'x'; n]);
        let headers = (n % 3 == 0).then_some(HEADERS);
        encode::encode_pub(out, &message(reply.as_bytes(), headers, &payload));
    });
    check(&wire, serve);
}

#[test]
fn a_client_allocates_nothing_for_a_message() {
    let wire = frames(None, |out, n| {
        let (reply, payload) = (format!("_INBOX.{n}"), vec![b'x'; n]);
        encode::encode_msg(out, b"7", &message(reply.as_bytes(), None, &payload));
    });
    check(&wire, answer);
}

/// Echo every request with its decoded path before it, as a gateway does; return their number.
fn echo(wire: &[u8], out: &mut Vec<u8>) -> usize {
    let mut input = wire;
    let mut requests = 0;
    while let Some((head, len)) = parse_head(input, HeadLimits::default()).unwrap() {
        let control = head.control().unwrap();
        let keep_alive = query_value(head.query(), "close") == Ok(None) && control.keep_alive;
        decode_percent(head.path(), out).unwrap();
        input = &input[len..];
        let mut decoder = BodyDecoder::new(control.framing);
        while let Some(BodyEvent::Data(data)) = decoder.next(&mut input).unwrap() {
            let headers = [("Content-Type", "text/plain")];
            encode_response(out, 200, headers, data, keep_alive, false);
        }
        requests += 1;
    }
    requests
}

#[test]
fn a_gateway_allocates_nothing_for_a_request() {
    let mut wire = Vec::new();
    for n in 0..MESSAGES {
        let (host, payload) = (("Host", "a"), vec![b'x'; n]);
        if n % 3 == 0 {
            let headers = [
                host,
                ("Transfer-Encoding", "chunked"),
                ("Expect", "100-continue"),
            ];
            encode_request(&mut wire, "POST", "/v1/request/a%2Eb", &headers, None);
            payload
                .chunks(100)
                .for_each(|data| encode_chunk(&mut wire, data));
            encode_last_chunk(&mut wire);
        } else {
            let headers = [host, ("Connection", "keep-alive, close")];
            encode_request(&mut wire, "POST", "/a?close", &headers, Some(&payload));
        }
    }
    check(&wire, |wire, out| echo(wire, out));
}
