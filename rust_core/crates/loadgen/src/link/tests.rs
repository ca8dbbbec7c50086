#![allow(clippy::unwrap_used)]
//! A link against a scripted server: each stage's bytes whole, byte by byte and with following
//! bytes.

use proptest::prelude::*;
use protocol::http::{HeadLimits, parse_head};
use protocol::nats::encode::encode_info;
use protocol::nats::{ClientOp, ConnectOptions, FromClient};
use protocol::ws::{OpCode, close, handshake::HandshakeError};

use super::*;
use crate::rng::Rng;

fn endpoint(transport: Transport) -> Endpoint {
    let target = Target {
        transport,
        address: "127.0.0.1:1".parse().unwrap(),
        host: "h:1".into(),
        path: "/p".into(),
        sources: Vec::new(),
    };
    Endpoint::new(target, 256)
}

fn info(info: &ServerInfo) -> Vec<u8> {
    let mut out = Vec::new();
    encode_info(&mut out, info);
    out
}

fn usual_info() -> Vec<u8> {
    info(&ServerInfo {
        headers: true,
        max_payload: 1024,
        ..ServerInfo::default()
    })
}

/// A link and the events that it has reported.
struct Peer {
    endpoint: Endpoint,
    link: Link,
    keys: Rng,
    told: Vec<String>,
}

impl Peer {
    fn new(transport: Transport) -> Self {
        let mut keys = Rng::new(5);
        let endpoint = endpoint(transport);
        let link = Link::new(&endpoint, &mut keys);
        Self {
            endpoint,
            link,
            keys,
            told: Vec::new(),
        }
    }

    /// Feed `bytes` in pieces of `piece` bytes; return what the link sends.
    fn feed(&mut self, bytes: &[u8], piece: usize) -> Result<Vec<u8>, LinkError> {
        let mut output = Output::default();
        for bytes in bytes.chunks(piece) {
            let told = &mut self.told;
            self.link
                .receive(&self.endpoint, &mut bytes.to_vec(), |event, _| {
                    told.push(match event {
                        Event::Message(message) => message.payload.escape_ascii().to_string(),
                        Event::Error(text) => format!("-ERR {}", text.escape_ascii()),
                        Event::Response(response) => panic!("{response}"),
                    });
                })?;
            self.append_pending(&mut output);
        }
        Ok(std::mem::take(output.tail()))
    }

    fn append_pending(&mut self, output: &mut Output) {
        let subject = Subject::user(7);
        self.link
            .append_pending(&self.endpoint, &subject, output, &mut self.keys)
            .unwrap();
        self.link.outbox.seal(output, &mut self.keys);
    }

    /// Return the WebSocket request that the link sends first.
    fn request(&mut self) -> Vec<u8> {
        let mut output = Output::default();
        self.append_pending(&mut output);
        std::mem::take(output.tail())
    }
}

/// Return the server's response to a WebSocket request.
fn accept(request: &[u8]) -> Vec<u8> {
    let (head, len) = parse_head(request, HeadLimits::default()).unwrap().unwrap();
    assert_eq!(
        (len, head.target, head.method),
        (request.len(), "/p", "GET")
    );
    let mut out = Vec::new();
    handshake::encode_accept(&mut out, &handshake::accept(&head).unwrap(), &[]);
    out
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::encode_frame(&mut out, OpCode::Binary, payload, None);
    out
}

/// Return the client operations in the bytes that a link sent, and the control frames.
fn ops(transport: Transport, sent: &[u8]) -> Vec<String> {
    let (mut sent, mut found) = (sent.to_vec(), Vec::new());
    let mut parser = Parser::<FromClient>::new();
    let mut parse = |bytes: &[u8], found: &mut Vec<String>| {
        let mut bytes = bytes;
        while let Some(op) = parser.next(&Limits::default(), &mut bytes).unwrap() {
            found.push(match op {
                ClientOp::Connect(json) => {
                    let options = ConnectOptions::parse(json).unwrap();
                    assert_eq!(options.validate(options.headers), Ok(()));
                    assert!(!options.verbose && !options.pedantic);
                    format!("CONNECT {}", options.no_responders)
                }
                other => format!("{other:?}"),
            });
        }
    };
    if transport == Transport::Tcp {
        parse(&sent, &mut found);
        return found;
    }
    let (mut decoder, mut input) = (Decoder::new(Role::Server, 1 << 20), sent.as_mut_slice());
    while let Some(event) = decoder.next(&mut input).unwrap() {
        match event {
            ws::Event::Data { bytes, .. } => parse(bytes, &mut found),
            other => found.push(format!("{other:?}")),
        }
    }
    found
}

const SUBSCRIBE: &str = r#"Sub { subject: "/c/7", queue: None, sid: "1" }"#;

/// Take a link to the runtime ready, `piece` bytes at a time.
fn ready(transport: Transport, piece: usize) -> Peer {
    let mut peer = Peer::new(transport);
    let mut greeting = usual_info();
    if transport == Transport::Ws {
        let request = peer.request();
        greeting = [accept(&request), framed(&greeting)].concat();
    } else {
        assert!(!peer.link.has_pending_sends());
    }
    let sent = peer.feed(&greeting, piece).unwrap();
    assert_eq!(ops(transport, &sent), ["CONNECT true", SUBSCRIBE, "Ping"]);
    assert!(!peer.link.is_ready());
    let pong = if transport == Transport::Ws {
        framed(PONG)
    } else {
        PONG.to_vec()
    };
    assert_eq!(peer.feed(&pong, piece).unwrap(), b"");
    assert!(peer.link.is_ready() && !peer.link.has_pending_sends());
    peer
}

#[test]
fn joins_however_the_bytes_are_cut() {
    for transport in [Transport::Tcp, Transport::Ws] {
        for piece in [1, 2, 3, 7, 100_000] {
            let mut peer = ready(transport, piece);
            let stream =
                b"MSG /c/7 1 3\r\nabc\r\nPING\r\nHMSG /c/7 1 12 14\r\nNATS/1.0\r\n\r\nde\r\n\
                -ERR 'Permissions Violation'\r\nINFO {}\r\n+OK\r\nPING\r\n";
            let bytes = match transport {
                Transport::Ws => stream.chunks(11).flat_map(framed).collect(),
                _ => stream.to_vec(),
            };
            let sent = peer.feed(&bytes, piece).unwrap();
            assert_eq!(ops(transport, &sent), ["Pong", "Pong"]);
            assert_eq!(peer.told, ["abc", "de", "-ERR Permissions Violation"]);
        }
    }
}

#[test]
fn everything_may_come_at_once() {
    let mut peer = Peer::new(Transport::Ws);
    let request = peer.request();
    let stream = [&usual_info()[..], PONG, b"MSG /c/7 1 1\r\nx\r\n"].concat();
    let bytes = [accept(&request), framed(&stream)].concat();
    peer.feed(&bytes, usize::MAX).unwrap();
    assert!(peer.link.is_ready());
    assert_eq!(peer.told, ["x"]);
}

#[test]
fn websocket_control_frames() {
    let mut peer = ready(Transport::Ws, 5);
    let mut bytes = Vec::new();
    frame::encode_frame(&mut bytes, OpCode::Ping, b"first", None);
    frame::encode_frame(&mut bytes, OpCode::Ping, b"second", None);
    frame::encode_frame(&mut bytes, OpCode::Pong, b"unasked", None);
    bytes.extend(framed(b"PING\r\n"));
    let sent = peer.feed(&bytes, usize::MAX).unwrap();
    let pong = format!("{:?}", ws::Event::Pong(b"second"));
    assert_eq!(ops(Transport::Ws, &sent), ["Pong", pong.as_str()]);

    let mut bytes = Vec::new();
    close::encode_close(&mut bytes, close::GOING_AWAY, "drain", None);
    let error = peer.feed(&bytes, 1).unwrap_err();
    let reason = "drain".to_owned();
    assert_eq!(
        error,
        LinkError::CloseFrame {
            code: Some(1001),
            reason
        }
    );
    let mut output = Output::default();
    peer.link
        .close(&mut output, &mut peer.keys, error.close_code());
    let sent = std::mem::take(output.tail());
    let close = format!(
        "{:?}",
        ws::Event::Close {
            code: Some(1001),
            reason: ""
        }
    );
    assert_eq!(ops(Transport::Ws, &sent), [close]);
}

#[test]
fn a_server_without_headers_is_not_asked_for_them() {
    let mut peer = Peer::new(Transport::Tcp);
    let bytes = info(&ServerInfo {
        max_payload: -1,
        ..ServerInfo::default()
    });
    let sent = peer.feed(&bytes, 9).unwrap();
    assert_eq!(
        ops(Transport::Tcp, &sent),
        ["CONNECT false", SUBSCRIBE, "Ping"]
    );
}

#[test]
fn servers_that_cannot_be_used() {
    let failed = |bytes: &[u8]| Peer::new(Transport::Tcp).feed(bytes, 1).unwrap_err();
    let small = info(&ServerInfo {
        max_payload: 255,
        ..ServerInfo::default()
    });
    let expected = LinkError::MaxPayload {
        wanted: 256,
        allowed: 255,
    };
    assert_eq!(failed(&small), expected);
    assert!(expected.is_permanent());
    let tls = info(&ServerInfo {
        tls_required: true,
        max_payload: 1024,
        ..ServerInfo::default()
    });
    assert_eq!(failed(&tls), LinkError::TlsRequired);
    assert!(matches!(failed(b"INFO {\r\n"), LinkError::Info(_)));
    assert!(matches!(
        failed(b"SSH-2.0-OpenSSH\r\n"),
        LinkError::Protocol(_)
    ));
    let refused = failed(b"-ERR 'maximum connections exceeded'\r\n");
    assert_eq!(
        refused,
        LinkError::Refused("maximum connections exceeded".into())
    );
    assert!(!refused.is_permanent());
}

#[test]
fn websocket_servers_that_cannot_be_used() {
    let failed = |bytes: &[u8]| {
        let mut peer = Peer::new(Transport::Ws);
        peer.request();
        peer.feed(bytes, 1).unwrap_err()
    };
    let not_found = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        failed(not_found),
        LinkError::Handshake(HandshakeError::Status(404))
    );
    assert!(matches!(failed(b"INFO {}\r\n"), LinkError::Handshake(_)));
    let endless = [b"HTTP/1.1 101 ", [b'x'; 20_000].as_slice()].concat();
    assert!(matches!(failed(&endless), LinkError::Handshake(_)));

    let mut peer = Peer::new(Transport::Ws);
    let request = peer.request();
    let bytes = [accept(&request), vec![0xff; 10]].concat();
    let error = peer.feed(&bytes, usize::MAX).unwrap_err();
    assert_eq!(error, LinkError::WebSocket(ws::Error::ReservedBits));
    assert_eq!(error.close_code(), close::PROTOCOL_ERROR);
}

proptest! {
    /// No bytes make a link panic, and how they are cut changes nothing.
    #[test]
    fn random_bytes(
        bytes: Vec<u8>,
        is_ready: bool,
        is_ws: bool,
        piece in 1usize..20,
    ) {
        let transport = if is_ws { Transport::Ws } else { Transport::Tcp };
        let outcome = |piece| {
            let mut peer =
                if is_ready { ready(transport, 100_000) } else { Peer::new(transport) };
            if !is_ready && is_ws {
                peer.request();
            }
            let outcome = peer.feed(&bytes, piece);
            (outcome.is_ok(), peer.told)
        };
        prop_assert_eq!(outcome(piece), outcome(usize::MAX));
    }

    /// Likewise for streams that are nearly right.
    #[test]
    fn broken_streams(cuts in prop::collection::vec(0usize..6, 0..12), piece in 1usize..40) {
        let parts: [&[u8]; 6] = [
            b"MSG /c/7 1 2\r\nab\r\n",
            b"PING\r\n",
            b"MSG /c/7 1 2\r\nabc\r\n",
            b"-ERR 'x'\r\n",
            b"HMSG /c/7 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
            b"M",
        ];
        let stream: Vec<u8> = cuts.iter().flat_map(|n| parts[*n]).copied().collect();
        for transport in [Transport::Tcp, Transport::Ws] {
            let bytes = match transport {
                Transport::Ws => stream.chunks(7).flat_map(framed).collect(),
                _ => stream.clone(),
            };
            let outcome = |piece| {
                let mut peer = ready(transport, 100_000);
                (peer.feed(&bytes, piece).is_ok(), peer.told)
            };
            prop_assert_eq!(outcome(piece), outcome(usize::MAX));
        }
    }
}
