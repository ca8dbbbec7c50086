//! A small NATS server for tests: a thread for each connection, a map from subject to subscribers,
//! and faults on demand. It shares the codec with the engine, and nothing else.
#![allow(dead_code, reason = "not every test program needs all of it")]

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::http::{HeadLimits, parse_head};
use protocol::nats::encode::{PONG, encode_info, encode_msg, encode_no_responders};
use protocol::nats::{ClientOp, FromClient, Limits, Message, Parser, ServerInfo};
use protocol::ws::{self, Decoder, OpCode, Role, frame, handshake};

/// Faults of the server. A number N applies to every Nth delivery of a reply or a broadcast; 0 to
/// none.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    pub(crate) drop_every: u64,
    pub(crate) duplicate_every: u64,
    pub(crate) corrupt_every: u64,
    /// Number of first deliveries that come only after `delay`.
    pub(crate) delay_first: u64,
    pub(crate) delay: Duration,
    /// Connections that are closed instead of being served, counted from 0.
    pub(crate) refused: Range<u64>,
    /// Requests after which the users named in `closed` are disconnected; 0 for never.
    pub(crate) close_after: u64,
    pub(crate) closed: Vec<&'static str>,
    pub(crate) max_payload: i64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            drop_every: 0,
            duplicate_every: 0,
            corrupt_every: 0,
            delay_first: 0,
            delay: Duration::ZERO,
            refused: 0..0,
            close_after: 0,
            closed: Vec::new(),
            max_payload: 1 << 20,
        }
    }
}

/// Counts of the server.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) accepted: AtomicU64,
    pub(crate) requests: AtomicU64,
    /// Most requests without a reply at one time.
    pub(crate) most_outstanding: AtomicU64,
    /// How many each user sent, by reply subject.
    pub(crate) requested: Mutex<HashMap<Vec<u8>, u64>>,
    /// Replies and broadcasts.
    pub(crate) published: AtomicU64,
    pub(crate) deliveries: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) duplicated: AtomicU64,
    pub(crate) corrupted: AtomicU64,
    pub(crate) no_responders: AtomicU64,
}

impl Done {
    pub(crate) fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::SeqCst)
    }
}

struct Subscriber {
    /// Number of the connection.
    connection: u64,
    stream: Mutex<TcpStream>,
    sid: Vec<u8>,
    is_ws: bool,
}

impl Subscriber {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        if self.is_ws {
            frame::encode_frame(&mut out, OpCode::Binary, bytes, None);
        } else {
            out.extend_from_slice(bytes);
        }
        self.stream.lock().unwrap().write_all(&out)
    }

    fn deliver(&self, subject: &[u8], reply: Option<&[u8]>, payload: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        let message = Message {
            subject,
            reply,
            headers: None,
            payload,
        };
        encode_msg(&mut out, &self.sid, &message);
        self.send(&out)
    }
}

struct State {
    faults: Faults,
    done: Done,
    subscribers: Mutex<HashMap<Vec<u8>, Vec<Arc<Subscriber>>>>,
    ended: AtomicBool,
}

/// A running server; it ends when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Server {
    pub(crate) fn start(is_ws: bool, faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::serve(listener, is_ws, faults)
    }

    pub(crate) fn serve(listener: TcpListener, is_ws: bool, faults: Faults) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            faults,
            done: Done::default(),
            subscribers: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (state, stream) = (Arc::clone(&shared), stream.unwrap());
                let accepted = state.done.accepted.fetch_add(1, Ordering::SeqCst);
                if !state.faults.refused.contains(&accepted) {
                    std::thread::spawn(move || {
                        // The engine notices how a connection ends; the server must end it.
                        let ended = stream.try_clone();
                        let _ = state.serve(accepted, stream, is_ws);
                        state.forget(accepted);
                        ended.and_then(|stream| stream.shutdown(Shutdown::Both))
                    });
                }
            }
        });
        Self { address, state }
    }

    pub(crate) fn done(&self) -> &Done {
        &self.state.done
    }

    /// End the connection that is subscribed to `subject`.
    pub(crate) fn disconnect(&self, subject: &str) {
        self.state.disconnect(subject);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::SeqCst);
        // Ends the wait for a connection.
        let _ = TcpStream::connect(self.address);
        let subscribers = self.state.subscribers.lock().unwrap();
        for subscriber in subscribers.values().flatten() {
            let _ = subscriber.stream.lock().unwrap().shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn disconnect(&self, subject: &str) {
        let mut subscribers = self.subscribers.lock().unwrap();
        let one = subscribers
            .get_mut(subject.as_bytes())
            .and_then(|all| all.pop());
        if let Some(subscriber) = one {
            let _ = subscriber.stream.lock().unwrap().shutdown(Shutdown::Both);
        }
    }

    /// Forget a connection that has ended.
    fn forget(&self, connection: u64) {
        let mut subscribers = self.subscribers.lock().unwrap();
        for all in subscribers.values_mut() {
            all.retain(|subscriber| subscriber.connection != connection);
        }
    }

    fn serve(&self, connection: u64, mut stream: TcpStream, is_ws: bool) -> io::Result<()> {
        stream.set_nodelay(true)?;
        if is_ws {
            upgrade(&mut stream)?;
        }
        let me = Subscriber {
            connection,
            stream: Mutex::new(stream.try_clone()?),
            sid: Vec::new(),
            is_ws,
        };
        let mut info = Vec::new();
        encode_info(
            &mut info,
            &ServerInfo {
                headers: true,
                max_payload: self.faults.max_payload,
                ..ServerInfo::default()
            },
        );
        me.send(&info)?;
        let mut decoder = Decoder::new(Role::Server, u32::MAX);
        let mut parser = Parser::<FromClient>::new();
        let mut buffer = vec![0; 65_536];
        loop {
            let len = stream.read(&mut buffer)?;
            if len == 0 {
                return Ok(());
            }
            let mut bytes = &mut buffer[..len];
            if !is_ws {
                self.handle(&me, &mut parser, bytes)?;
                continue;
            }
            while let Some(event) = decoder
                .next(&mut bytes)
                .expect("the engine's frames are valid")
            {
                match event {
                    ws::Event::Data { bytes, .. } => self.handle(&me, &mut parser, bytes)?,
                    ws::Event::Close { .. } => return Ok(()),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn handle(
        &self,
        me: &Subscriber,
        parser: &mut Parser<FromClient>,
        mut bytes: &[u8],
    ) -> io::Result<()> {
        let limits = Limits::default();
        while let Some(op) = parser.next(&limits, &mut bytes).expect("valid operations") {
            match op {
                ClientOp::Connect(_) => {}
                ClientOp::Ping => me.send(PONG)?,
                ClientOp::Sub { subject, sid, .. } => {
                    let subscriber = Subscriber {
                        connection: me.connection,
                        stream: Mutex::new(me.stream.lock().unwrap().try_clone()?),
                        sid: sid.to_vec(),
                        is_ws: me.is_ws,
                    };
                    let mut subscribers = self.subscribers.lock().unwrap();
                    let all = subscribers.entry(subject.to_vec()).or_default();
                    all.push(Arc::new(subscriber));
                }
                ClientOp::Pub(message) => match message.reply {
                    Some(reply) => {
                        self.handle_request(me, message.subject, reply, message.payload)?;
                    }
                    None => self.handle_publication(message.subject, message.payload),
                },
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    }

    fn subscribers(&self, subject: &[u8]) -> Vec<Arc<Subscriber>> {
        let subscribers = self.subscribers.lock().unwrap();
        subscribers.get(subject).cloned().unwrap_or_default()
    }

    fn handle_request(
        &self,
        me: &Subscriber,
        subject: &[u8],
        reply: &[u8],
        payload: &[u8],
    ) -> io::Result<()> {
        let count = self.done.requests.fetch_add(1, Ordering::SeqCst) + 1;
        *self
            .done
            .requested
            .lock()
            .unwrap()
            .entry(reply.to_vec())
            .or_default() += 1;
        let open = count - self.done.published.load(Ordering::SeqCst).min(count);
        self.done.most_outstanding.fetch_max(open, Ordering::SeqCst);
        if count == self.faults.close_after {
            self.faults
                .closed
                .iter()
                .for_each(|user| self.disconnect(user));
        }
        if let Some(provider) = self.subscribers(subject).first() {
            // A provider that is gone loses the request.
            let _ = provider.deliver(subject, Some(reply), payload);
            return Ok(());
        }
        self.done.no_responders.fetch_add(1, Ordering::SeqCst);
        let mut out = Vec::new();
        encode_no_responders(&mut out, reply, b"1", subject);
        me.send(&out)
    }

    fn handle_publication(&self, subject: &[u8], payload: &[u8]) {
        self.done.published.fetch_add(1, Ordering::SeqCst);
        for user in self.subscribers(subject) {
            self.deliver(user, subject, payload);
        }
    }

    fn deliver(&self, user: Arc<Subscriber>, subject: &[u8], payload: &[u8]) {
        let count = self.done.deliveries.fetch_add(1, Ordering::SeqCst) + 1;
        let mut payload = payload.to_vec();
        let is_every = |n: u64| n > 0 && count.is_multiple_of(n);
        // A user who is gone loses the message.
        if count <= self.faults.delay_first {
            let (delay, subject) = (self.faults.delay, subject.to_vec());
            std::thread::spawn(move || {
                std::thread::sleep(delay);
                let _ = user.deliver(&subject, None, &payload);
            });
        } else if is_every(self.faults.drop_every) {
            self.done.dropped.fetch_add(1, Ordering::SeqCst);
        } else if is_every(self.faults.duplicate_every) {
            self.done.duplicated.fetch_add(1, Ordering::SeqCst);
            let _ = user.deliver(subject, None, &payload);
            let _ = user.deliver(subject, None, &payload);
        } else if is_every(self.faults.corrupt_every) {
            self.done.corrupted.fetch_add(1, Ordering::SeqCst);
            let last = payload.len() - 1;
            payload[last] ^= 0x40;
            let _ = user.deliver(subject, None, &payload);
        } else {
            let _ = user.deliver(subject, None, &payload);
        }
    }
}

fn upgrade(stream: &mut TcpStream) -> io::Result<()> {
    let (mut request, mut byte) = (Vec::new(), [0]);
    loop {
        if stream.read(&mut byte)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.push(byte[0]);
        if let Some((head, _)) = parse_head(&request, HeadLimits::default()).unwrap() {
            let mut out = Vec::new();
            let accept = handshake::accept(&head).expect("the engine's handshake is valid");
            handshake::encode_accept(&mut out, &accept, &[]);
            return stream.write_all(&out);
        }
    }
}
