//! Instruction counts of the codec, compared with the record by `make instructions`.
//!
//! Inputs have the sizes of most messages. Each benchmark handles [`MESSAGES`] of them, so that the
//! code around it hardly counts. Its teardown checks the number of handled messages.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    reason = "what the macros of the harness make"
)]

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use subjectbus_protocol::http::{
    BodyDecoder, BodyEvent, Framing, HeadLimits, encode_chunk, encode_last_chunk, encode_response,
    parse_head,
};
use subjectbus_protocol::nats::{
    ClientOp, FromClient, FromServer, Limits, Message, Parser, ServerOp, Side, encode,
};
use subjectbus_protocol::ws::frame::{self, Header};
use subjectbus_protocol::ws::{Batch, Decoder, Event, OpCode, Role, mask};

const MESSAGES: usize = 960;
/// Messages that share a read or a frame in a benchmark of "many".
const MANY: usize = 16;
const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A request as the load test sends it.
const SUBJECT: &[u8] = b"autocomplete.v1.42";
const REPLY: &[u8] = b"_INBOX.7XkQ2mPz9LrT4vNb8HsWcE.1017";
const SID: &[u8] = b"17";
const HEADERS: &[u8] = b"NATS/1.0\r\nTrace-Id: 8f14e45f\r\n\r\n";
const PAYLOAD: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
const MESSAGE: Message<'_> = Message {
    subject: SUBJECT,
    reply: Some(REPLY),
    headers: None,
    payload: PAYLOAD,
};
const WITH_HEADERS: Message<'_> = Message {
    headers: Some(HEADERS),
    ..MESSAGE
};

/// A connection's received bytes, and how many come with each read.
struct Reads {
    wire: Vec<u8>,
    size: usize,
}

/// Return [`MESSAGES`] messages that `append` writes, `per_read` of them in each read.
fn reads(per_read: usize, append: impl Fn(&mut Vec<u8>)) -> Reads {
    let mut wire = Vec::new();
    append(&mut wire);
    let size = wire.len() * per_read;
    (1..MESSAGES).for_each(|_| append(&mut wire));
    Reads { wire, size }
}

fn frames(per_read: usize, len: usize, key: Option<[u8; 4]>) -> Reads {
    let payload = vec![b'x'; len];
    reads(per_read, |wire| {
        frame::encode_frame(wire, OpCode::Binary, &payload, key);
    })
}

fn headers(len: usize) -> Reads {
    reads(1, |wire| {
        frame::encode_header(wire, true, OpCode::Binary, len, Some(KEY));
    })
}

fn pubs(per_read: usize) -> Reads {
    reads(per_read, |wire| {
        encode::encode_pub(wire, &MESSAGE);
    })
}

fn hpubs() -> Reads {
    reads(1, |wire| {
        encode::encode_pub(wire, &WITH_HEADERS);
    })
}

fn msgs(per_read: usize) -> Reads {
    reads(per_read, |wire| {
        encode::encode_msg(wire, SID, &MESSAGE);
    })
}

/// Number of messages, and the buffer, which is freed outside of the measurement.
type Handled = (usize, Vec<u8>);

fn check((handled, _): Handled) {
    assert_eq!(handled, MESSAGES);
}

#[library_benchmark(setup = headers, teardown = check)]
#[bench::seven_bits(100)]
#[bench::sixteen_bits(1_500)]
#[bench::sixty_four_bits(100_000)]
fn header(Reads { wire, size }: Reads) -> Handled {
    let parsed = wire.chunks(size).filter(|bytes| {
        let header = Header::parse(bytes, Role::Server);
        matches!(black_box(header), Ok(Some((_, len))) if len == size)
    });
    (parsed.count(), wire)
}

/// Return buffers of the given length, one after the other.
fn payloads(size: usize) -> Reads {
    reads(1, |wire| wire.resize(wire.len() + size, b'x'))
}

#[library_benchmark(setup = payloads, teardown = check)]
#[bench::bytes_32(32)]
#[bench::bytes_1500(1_500)]
fn unmask(Reads { mut wire, size }: Reads) -> Handled {
    let mut count = 0;
    for payload in wire.chunks_mut(size) {
        mask::apply(payload, black_box(KEY), 0);
        count += 1;
    }
    (count, wire)
}

/// Decode every read; return the number of complete messages.
#[inline]
fn decode(wire: &mut [u8], size: usize, role: Role) -> usize {
    let mut decoder = Decoder::new(role, 1 << 20);
    let mut messages = 0;
    for mut read in wire.chunks_mut(size) {
        while let Ok(Some(event)) = decoder.next(&mut read) {
            let whole = matches!(
                black_box(event),
                Event::Data {
                    end_of_message: true,
                    ..
                }
            );
            messages += usize::from(whole);
        }
    }
    messages
}

#[library_benchmark(setup = frames, teardown = check)]
#[bench::one_of_100_bytes(1, 100, Some(KEY))]
#[bench::one_of_1500_bytes(1, 1_500, Some(KEY))]
#[bench::many_of_100_bytes(MANY, 100, Some(KEY))]
fn decode_masked(Reads { mut wire, size }: Reads) -> Handled {
    (decode(&mut wire, size, Role::Server), wire)
}

#[library_benchmark(setup = frames, teardown = check)]
#[bench::one_of_100_bytes(1, 100, None)]
#[bench::many_of_100_bytes(MANY, 100, None)]
fn decode_unmasked(Reads { mut wire, size }: Reads) -> Handled {
    (decode(&mut wire, size, Role::Client), wire)
}

/// Return an output buffer that never has to grow.
fn output() -> Vec<u8> {
    Vec::with_capacity(MESSAGES * 256)
}

fn masked_output() -> (Vec<u8>, Option<[u8; 4]>) {
    (output(), Some(KEY))
}

fn unmasked_output() -> (Vec<u8>, Option<[u8; 4]>) {
    (output(), None)
}

#[library_benchmark(teardown = check)]
#[bench::masked(setup = masked_output)]
#[bench::unmasked(setup = unmasked_output)]
fn batch((mut out, key): (Vec<u8>, Option<[u8; 4]>)) -> Handled {
    let mut batch = Batch::new();
    let mut messages = 0;
    for _ in 0..MESSAGES / MANY {
        for _ in 0..MANY {
            let (sid, message) = black_box((SID, MESSAGE));
            batch.begin(&mut out, encode::msg_len(sid, &message), key);
            encode::encode_msg(&mut out, sid, &message);
            messages += 1;
        }
        batch.seal(&mut out, key);
    }
    (messages, out)
}

library_benchmark_group!(
    name = ws;
    benchmarks = header, unmask, decode_masked, decode_unmasked, batch
);

/// Parse every read; return the number of operations that `is_message` accepts.
#[inline]
fn parse<S: Side>(Reads { wire, size }: &Reads, is_message: impl Fn(&S::Op<'_>) -> bool) -> usize {
    let limits = black_box(Limits {
        headers: true,
        ..Limits::default()
    });
    let mut parser = Parser::<S>::new();
    let mut messages = 0;
    for mut read in wire.chunks(*size) {
        while let Ok(Some(op)) = parser.next(&limits, &mut read) {
            messages += usize::from(is_message(black_box(&op)));
        }
    }
    messages
}

#[library_benchmark(teardown = check)]
#[bench::one_pub(args = (1), setup = pubs)]
#[bench::many_pubs(args = (MANY), setup = pubs)]
#[bench::one_hpub(setup = hpubs)]
fn parse_from_client(reads: Reads) -> Handled {
    let messages = parse::<FromClient>(&reads, |op| matches!(op, ClientOp::Pub { .. }));
    (messages, reads.wire)
}

#[library_benchmark(teardown = check)]
#[bench::one_msg(args = (1), setup = msgs)]
#[bench::many_msgs(args = (MANY), setup = msgs)]
fn parse_from_server(reads: Reads) -> Handled {
    let messages = parse::<FromServer>(&reads, |op| matches!(op, ServerOp::Msg { .. }));
    (messages, reads.wire)
}

#[library_benchmark]
#[bench::with_reply(setup = output)]
fn encode_pub(mut out: Vec<u8>) -> Vec<u8> {
    for _ in 0..MESSAGES {
        encode::encode_pub(&mut out, &black_box(MESSAGE));
    }
    out
}

#[library_benchmark]
#[bench::with_reply(setup = output)]
fn encode_msg(mut out: Vec<u8>) -> Vec<u8> {
    for _ in 0..MESSAGES {
        let (sid, message) = black_box((SID, MESSAGE));
        encode::encode_msg(&mut out, sid, &message);
    }
    out
}

#[library_benchmark]
#[bench::with_reply(setup = output)]
fn encode_hmsg(mut out: Vec<u8>) -> Vec<u8> {
    for _ in 0..MESSAGES {
        let (sid, message) = black_box((SID, WITH_HEADERS));
        encode::encode_msg(&mut out, sid, &message);
    }
    out
}

library_benchmark_group!(
    name = nats;
    benchmarks = parse_from_client, parse_from_server, encode_pub, encode_msg, encode_hmsg
);

/// A request as wrk sends it.
const GET: &[u8] = b"GET /byte HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
/// The head of a request through the gateway.
const POST: &[u8] = b"POST /v1/request/autocomplete.v1.42 HTTP/1.1\r\n\
    Host: broker.example.com:8080\r\nUser-Agent: example/1.0\r\nAccept: */*\r\n\
    Content-Type: application/octet-stream\r\nContent-Length: 32\r\n\r\n";

fn heads(head: &[u8]) -> Reads {
    reads(1, |wire| wire.extend_from_slice(head))
}

#[library_benchmark(setup = heads, teardown = check)]
#[bench::get(GET)]
#[bench::post(POST)]
fn parse_request(Reads { wire, size }: Reads) -> Handled {
    let limits = black_box(HeadLimits::default());
    let parsed = wire.chunks(size).filter(|bytes| {
        let parsed = parse_head(bytes, limits);
        matches!(parsed, Ok(Some((head, len))) if len == size && black_box(head.control()).is_ok())
    });
    (parsed.count(), wire)
}

/// Return heads of 58 fields, with a `Connection` list of `members` members as the last; 0 for
/// another field there.
fn crowded(members: usize) -> Reads {
    let names = (0..57).map(|n| format!("X-Application-Field-{n:02}: 0123456789abcdef\r\n"));
    let list: Vec<_> = (0..members).map(|n| format!("x{n:04}")).collect();
    let last = match members {
        0 => "X-Application-Field-57: 0123456789abcdef\r\n".into(),
        _ => format!("Connection: {}\r\n", list.join(",")),
    };
    let fields: String = names.chain([last]).collect();
    let head = format!("POST /v1/request/a HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    heads(head.as_bytes())
}

// As the gateway does with a head before it forwards the fields of the request.
#[library_benchmark(setup = crowded, teardown = check)]
#[bench::no_list(0)]
#[bench::longest_list(16)]
#[bench::refused_list(900)]
fn connection_options(Reads { wire, size }: Reads) -> Handled {
    let limits = black_box(HeadLimits::default());
    let read = wire.chunks(size).filter(|bytes| {
        let Ok(Some((head, _))) = parse_head(bytes, limits) else {
            return false;
        };
        let Ok(options) = head.headers.connection_options() else {
            return head.control().is_err();
        };
        let forwarded = head.headers.iter();
        forwarded
            .filter(|(name, _)| !options.contains(name))
            .count()
            == 59
    });
    (read.count(), wire)
}

fn chunked_bodies(chunks: usize) -> Reads {
    reads(1, |wire| {
        (0..chunks).for_each(|_| encode_chunk(wire, PAYLOAD));
        encode_last_chunk(wire);
    })
}

#[library_benchmark(setup = chunked_bodies, teardown = check)]
#[bench::one_chunk(1)]
#[bench::many_chunks(MANY)]
fn decode_chunked(Reads { wire, size }: Reads) -> Handled {
    let mut bodies = 0;
    for mut read in wire.chunks(size) {
        let mut decoder = BodyDecoder::new(black_box(Framing::Chunked));
        while let Ok(Some(event)) = decoder.next(&mut read) {
            bodies += usize::from(black_box(event) == BodyEvent::End);
        }
    }
    (bodies, wire)
}

#[library_benchmark]
#[bench::one_byte(setup = output)]
fn encode_answer(mut out: Vec<u8>) -> Vec<u8> {
    for _ in 0..MESSAGES {
        let (headers, body) = black_box(([("Content-Type", "text/plain")], b"x"));
        encode_response(&mut out, 200, headers, body, true, false);
    }
    out
}

library_benchmark_group!(
    name = http;
    benchmarks = parse_request, connection_options, decode_chunked, encode_answer
);

main!(library_benchmark_groups = ws, nats, http);
