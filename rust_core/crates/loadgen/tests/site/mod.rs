//! A small HTTP server for tests: a thread for each connection, a fixed page or a gateway to a NATS
//! server, and faults on demand. It shares the codec with the engine, and nothing else.
#![allow(dead_code, reason = "not every test program needs all of it")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use protocol::http::{
    BodyDecoder, BodyEvent, HeadLimits, RequestHead, decode_percent, encode_response, parse_head,
};
use protocol::nats::encode::{encode_connect, encode_pub, encode_sub};
use protocol::nats::{ConnectOptions, FromServer, Limits, Message, Parser, ServerOp};

/// Content of the responses.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// This, to any GET.
    Page(&'static [u8]),
    /// To a POST, the reply from a NATS server at this address.
    Gateway(SocketAddr),
}

/// Faults of the server. A number N applies to every Nth request; 0 to none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// Answered by status 500.
    pub(crate) fail_every: u64,
    /// The connection is closed without a response.
    pub(crate) close_every: u64,
    /// The request is ignored.
    pub(crate) ignore_every: u64,
    /// The connection ends with the response, which announces it.
    pub(crate) end_every: u64,
    /// After the answer the connection is closed without a word.
    pub(crate) leave_every: u64,
    /// The answer's body has no length and ends with the connection.
    pub(crate) unframed_every: u64,
    /// A byte of the answer's body is changed.
    pub(crate) corrupt_every: u64,
    /// Answers are written byte by byte.
    pub(crate) in_pieces: bool,
    /// Each answer takes so long.
    pub(crate) delay: Duration,
}

/// Counts of the server.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) accepted: AtomicU64,
    pub(crate) requests: AtomicU64,
    /// Requests in progress, and the most of them.
    in_flight: AtomicU64,
    pub(crate) most_in_flight: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) head_bytes_in: AtomicU64,
}

impl Done {
    pub(crate) fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::SeqCst)
    }
}

struct State {
    content: Content,
    faults: Faults,
    done: Done,
    ended: AtomicBool,
}

/// A running server; it ends when dropped.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Site {
    pub(crate) fn start(content: Content, faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            content,
            faults,
            done: Done::default(),
            ended: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Ordering::SeqCst) {
                    return;
                }
                shared.done.accepted.fetch_add(1, Ordering::SeqCst);
                let (state, stream) = (Arc::clone(&shared), stream.unwrap());
                // The engine notices how a connection ends.
                std::thread::spawn(move || state.serve(stream));
            }
        });
        Self { address, state }
    }

    pub(crate) fn done(&self) -> &Done {
        &self.state.done
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        // Ends the wait for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut client = match self.content {
            Content::Gateway(address) => Some(Client::connect(address)?),
            Content::Page(_) => None,
        };
        let (mut buffer, mut chunk) = (Vec::new(), vec![0; 65_536]);
        loop {
            let Some((head, len)) = parse_head(&buffer, HeadLimits::default()).unwrap() else {
                let len = stream.read(&mut chunk)?;
                if len == 0 {
                    return Ok(());
                }
                self.done.bytes_in.fetch_add(len as u64, Ordering::SeqCst);
                buffer.extend_from_slice(&chunk[..len]);
                continue;
            };
            let control = head.control().expect("the engine's requests are valid");
            self.done
                .head_bytes_in
                .fetch_add(len as u64, Ordering::SeqCst);
            let asked = Asked::read(&head);
            let (mut decoder, mut body, mut rest) = (
                BodyDecoder::new(control.framing),
                Vec::new(),
                buffer.split_off(len),
            );
            'body: loop {
                let mut input = &rest[..];
                while let Some(event) = decoder.next(&mut input).unwrap() {
                    match event {
                        BodyEvent::Data(data) => body.extend_from_slice(data),
                        BodyEvent::End => break 'body,
                    }
                }
                let len = stream.read(&mut chunk)?;
                if len == 0 {
                    return Ok(());
                }
                self.done.bytes_in.fetch_add(len as u64, Ordering::SeqCst);
                rest = chunk[..len].to_vec();
            }
            buffer.clear();
            let now = self.done.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.done.most_in_flight.fetch_max(now, Ordering::SeqCst);
            let goes_on = self.answer(
                &mut stream,
                client.as_mut(),
                &asked,
                &body,
                control.keep_alive,
            );
            self.done.in_flight.fetch_sub(1, Ordering::SeqCst);
            if !goes_on? {
                return Ok(());
            }
        }
    }

    /// Answer one request; return whether the connection stays.
    fn answer(
        &self,
        stream: &mut TcpStream,
        client: Option<&mut Client>,
        asked: &Asked,
        body: &[u8],
        keep_alive: bool,
    ) -> io::Result<bool> {
        let number = self.done.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let is_every = |every: u64| every > 0 && number.is_multiple_of(every);
        let faults = &self.faults;
        std::thread::sleep(faults.delay);
        if is_every(faults.close_every) {
            return Ok(false);
        }
        if is_every(faults.ignore_every) {
            return Ok(true);
        }
        if is_every(faults.unframed_every) {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\na")?;
            return Ok(false);
        }
        let (mut status, mut content) = match (&self.content, client) {
            (Content::Page(page), _) => {
                assert_eq!(asked.method, "GET");
                (200, page.to_vec())
            }
            (Content::Gateway(_), Some(client)) => {
                assert_eq!(asked.method, "POST");
                let subject = asked.path.strip_prefix(b"/v1/request/").unwrap();
                match client.request(subject, body)? {
                    Some(reply) => (200, reply),
                    None => (503, b"no subscriber\n".to_vec()),
                }
            }
            (Content::Gateway(_), None) => unreachable!(),
        };
        if is_every(faults.fail_every) {
            (status, content) = (500, b"a fault\n".to_vec());
        }
        if is_every(faults.corrupt_every) {
            content
                .last_mut()
                .into_iter()
                .for_each(|byte| *byte ^= 0x40);
        }
        let stays = keep_alive && !is_every(faults.end_every);
        let mut out = Vec::new();
        encode_response(&mut out, status, [], &content, stays, false);
        self.done
            .bytes_out
            .fetch_add(out.len() as u64, Ordering::SeqCst);
        if faults.in_pieces {
            out.chunks(1).try_for_each(|byte| stream.write_all(byte))?;
        } else {
            stream.write_all(&out)?;
        }
        Ok(stays && !is_every(faults.leave_every))
    }
}

/// Fields of a request's head.
struct Asked {
    method: String,
    path: Vec<u8>,
}

impl Asked {
    fn read(head: &RequestHead<'_>) -> Self {
        let mut path = Vec::new();
        decode_percent(head.path(), &mut path).unwrap();
        Self {
            method: head.method.to_owned(),
            path,
        }
    }
}

/// A client of the NATS server, which makes one request at a time.
struct Client {
    stream: TcpStream,
    parser: Parser<FromServer>,
    inbox: String,
}

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let inbox = format!("_INBOX.{}", NUMBER.fetch_add(1, Ordering::SeqCst));
        let mut out = Vec::new();
        encode_connect(&mut out, &ConnectOptions::telnet());
        encode_sub(&mut out, inbox.as_bytes(), None, b"1");
        stream.write_all(&out)?;
        Ok(Self {
            stream,
            parser: Parser::new(),
            inbox,
        })
    }

    /// Request and return the reply; `None` without a subscriber.
    fn request(&mut self, subject: &[u8], payload: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut out = Vec::new();
        let request = Message {
            subject,
            reply: Some(self.inbox.as_bytes()),
            headers: None,
            payload,
        };
        encode_pub(&mut out, &request);
        self.stream.write_all(&out)?;
        let limits = Limits {
            headers: true,
            ..Limits::default()
        };
        let mut buffer = vec![0; 65_536];
        loop {
            let len = self.stream.read(&mut buffer)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut bytes = &buffer[..len];
            while let Some(op) = self.parser.next(&limits, &mut bytes).unwrap() {
                if let ServerOp::Msg { message, .. } = op {
                    let is_reply = message.headers.is_none();
                    return Ok(is_reply.then(|| message.payload.to_vec()));
                }
            }
        }
    }
}
