//! A simulated NATS client, which checks the messages that it receives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use broker::sim::{HTTP, TCP};
use protocol::nats::{FromServer, Limits, Parser, ServerOp};
use protocol::ws::{Decoder, Event, OpCode, Role, frame, handshake};
use reactor::sim::{Endpoint, Network, Received};

use crate::oracle::{Member, Oracle, Snapshot};
use crate::random::Random;

const PATTERNS: [&str; 8] = ["a", "b", "a.x", "a.*", "a.>", ">", "*.x", "*"];
const SUBJECTS: [&str; 6] = ["a", "b", "a.x", "a.y", "a.y.z", "b.x"];
const GROUPS: [&str; 2] = ["red", "blue"];
const WS_KEY: [u8; 16] = [7; 16];
const MASK: [u8; 4] = [1, 2, 3, 4];

/// Subscription as its client knows it.
struct Subscription {
    pattern: &'static str,
    group: Option<&'static str>,
    /// Messages of every publisher before the broker's confirmation; `None` without a confirmation.
    since: Option<Snapshot>,
    /// Number of deliveries after which the subscription ends.
    max: Option<usize>,
    received: usize,
    /// Highest number of each publisher, by subject.
    last: BTreeMap<(Member, String), usize>,
    /// All received numbers of each publisher.
    got: BTreeMap<Member, BTreeSet<usize>>,
    /// Whether `UNSUB` was sent.
    leaving: bool,
    /// Whether the broker knows the maximum.
    is_bounded: bool,
}

/// `PING` without its `PONG`.
struct Ping {
    /// Number of own messages before it.
    published: usize,
    /// Messages of all publishers that were acknowledged when it was sent.
    acknowledged: Snapshot,
    /// Subscriptions made before it, and subscriptions ended before it.
    sids: Vec<usize>,
    left: Vec<usize>,
}

enum Wire {
    Tcp,
    Handshake(Vec<u8>),
    WebSocket(Box<Decoder>),
}

/// Simulated NATS client.
pub(crate) struct Client {
    member: Member,
    endpoint: Endpoint,
    wire: Wire,
    parser: Parser<FromServer>,
    /// Bytes that the network has not taken.
    outgoing: VecDeque<u8>,
    /// Part of these bytes that belongs to the request for an upgrade.
    request_left: usize,
    subscriptions: BTreeMap<usize, Subscription>,
    next_sid: usize,
    pings: VecDeque<Ping>,
    echo: bool,
    pub(crate) is_reading: bool,
    /// Whether the client has ever read late, so that the broker may cut it.
    pub(crate) was_slow: bool,
    pub(crate) has_ended: bool,
    /// Whether the broker has ended the connection.
    pub(crate) was_cut: bool,
    /// Error that the broker has sent.
    pub(crate) error: Option<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wire = match self.wire {
            Wire::Tcp => "TCP",
            Wire::Handshake(_) => "handshake",
            Wire::WebSocket(_) => "WebSocket",
        };
        let (left, pings) = (self.outgoing.len(), self.pings.len());
        write!(f, "{wire}, {left} bytes to send, {pings} PINGs in flight")
    }
}

impl Client {
    pub(crate) fn connect(member: Member, network: &Network, random: &mut Random) -> Option<Self> {
        let is_websocket = random.once_in(3);
        let address = if is_websocket { HTTP } else { TCP };
        let endpoint = network.connect(address)?;
        let mut client = Self {
            member,
            endpoint,
            wire: Wire::Tcp,
            parser: Parser::new(),
            outgoing: VecDeque::new(),
            request_left: 0,
            subscriptions: BTreeMap::new(),
            next_sid: 1,
            pings: VecDeque::new(),
            echo: !random.once_in(4),
            is_reading: true,
            was_slow: false,
            has_ended: false,
            was_cut: false,
            error: None,
        };
        if is_websocket {
            let mut request = Vec::new();
            handshake::encode_request(&mut request, "127.0.0.1:8080", "/", &WS_KEY).ok()?;
            client.request_left = request.len();
            client.outgoing.extend(request);
            client.wire = Wire::Handshake(Vec::new());
        }
        let connect = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"protocol\":1,\"echo\":{},\
             \"headers\":true,\"no_responders\":true}}\r\n",
            client.echo
        );
        client.operate(connect.as_bytes());
        client.ping(&Oracle::default());
        Some(client)
    }

    /// Send an operation.
    fn operate(&mut self, bytes: &[u8]) {
        match self.wire {
            Wire::Tcp => self.outgoing.extend(bytes),
            // Frames before the response are refused, so they wait in the same buffer, which is
            // sent only up to the request.
            Wire::Handshake(_) | Wire::WebSocket(_) => {
                let mut framed = Vec::new();
                frame::encode_frame(&mut framed, OpCode::Binary, bytes, Some(MASK));
                self.outgoing.extend(framed);
            }
        }
    }

    /// Do a random action of a client.
    pub(crate) fn act(&mut self, oracle: &mut Oracle, random: &mut Random) -> String {
        match random.below(16) {
            0..=2 => self.subscribe(random),
            3 => self.unsubscribe(random),
            4..=9 => (0..=random.below(6))
                .map(|_| self.publish(oracle, random))
                .collect::<Vec<_>>()
                .join(", "),
            10..=13 => {
                self.ping(oracle);
                "pings".into()
            }
            14 => {
                self.is_reading = !self.is_reading;
                self.was_slow |= !self.is_reading;
                format!("reads: {}", self.is_reading)
            }
            _ => {
                self.endpoint.end_sending();
                self.has_ended = true;
                "ends its side".into()
            }
        }
    }

    fn subscribe(&mut self, random: &mut Random) -> String {
        let pattern = random.one_of(&PATTERNS);
        let group = random.once_in(3).then(|| random.one_of(&GROUPS));
        let copies = if random.once_in(12) { 30 } else { 1 };
        for _ in 0..copies {
            let sid = self.next_sid;
            self.next_sid += 1;
            let queue = group.map_or(String::new(), |group| format!("{group} "));
            self.operate(format!("SUB {pattern} {queue}{sid}\r\n").as_bytes());
            self.subscriptions.insert(
                sid,
                Subscription {
                    pattern,
                    group,
                    since: None,
                    max: None,
                    received: 0,
                    last: BTreeMap::new(),
                    got: BTreeMap::new(),
                    leaving: false,
                    is_bounded: false,
                },
            );
        }
        format!("subscribes {copies} times to {pattern} {group:?}")
    }

    fn unsubscribe(&mut self, random: &mut Random) -> String {
        let active = self
            .subscriptions
            .iter_mut()
            .filter(|(_, one)| !one.leaving);
        let mut active: Vec<_> = active.collect();
        if active.is_empty() {
            return "has nothing to unsubscribe".into();
        }
        let chosen = random.below(active.len());
        let (sid, one) = &mut active[chosen];
        let sid = **sid;
        let line = if random.once_in(3) {
            let max = one.received + 1 + random.below(4);
            one.max = Some(one.max.map_or(max, |before| before.min(max)));
            // The broker may count deliveries that are still in flight.
            one.leaving = true;
            format!("UNSUB {sid} {max}\r\n")
        } else {
            one.leaving = true;
            format!("UNSUB {sid}\r\n")
        };
        self.operate(line.as_bytes());
        line.trim_end().into()
    }

    fn publish(&mut self, oracle: &mut Oracle, random: &mut Random) -> String {
        let subject = random.one_of(&SUBJECTS);
        let number = oracle.publish(self.member, subject);
        let filling = match random.below(12) {
            0 => random.below(8000),
            1..=3 => random.below(600),
            _ => random.below(40),
        };
        let mut payload = format!("{} {number} ", self.member).into_bytes();
        payload.resize(payload.len() + filling, b'.');
        let mut bytes = format!("PUB {subject} {}\r\n", payload.len()).into_bytes();
        bytes.extend(payload);
        bytes.extend(b"\r\n");
        self.operate(&bytes);
        format!("publishes {number} to {subject}")
    }

    pub(crate) fn ping(&mut self, oracle: &Oracle) {
        let of = |leaving: bool| {
            let all = self.subscriptions.iter();
            all.filter(move |(_, one)| one.leaving == leaving)
                .map(|(sid, _)| *sid)
                .collect()
        };
        self.pings.push_back(Ping {
            published: oracle.count(self.member),
            // The PING leaves later than this snapshot, so the check is weaker than it could be,
            // never wrong.
            acknowledged: oracle.acknowledged(),
            sids: of(false),
            left: of(true),
        });
        self.operate(b"PING\r\n");
    }

    /// Send and receive as much as the network takes and has.
    pub(crate) fn pump(&mut self, oracle: &mut Oracle, random: &mut Random) -> Result<(), String> {
        self.send();
        if !self.is_reading || self.has_ended {
            return Ok(());
        }
        let limit = if random.once_in(3) { 700 } else { 1 << 20 };
        match self.endpoint.receive(limit) {
            Received::Bytes(bytes) => self.receive(oracle, bytes),
            Received::End | Received::Reset => {
                self.has_ended = true;
                self.was_cut = true;
                Ok(())
            }
        }
    }

    fn send(&mut self) {
        if self.has_ended {
            return;
        }
        let end = match &self.wire {
            // Nothing after the request is sent before the response.
            Wire::Handshake(_) => self.request_left,
            _ => self.outgoing.len(),
        };
        let bytes: Vec<u8> = self.outgoing.iter().take(end).copied().collect();
        if !bytes.is_empty() {
            let count = self.endpoint.send(&bytes);
            self.outgoing.drain(..count);
            self.request_left = self.request_left.saturating_sub(count);
        }
    }

    fn receive(&mut self, oracle: &mut Oracle, mut bytes: Vec<u8>) -> Result<(), String> {
        if let Wire::Handshake(held) = &mut self.wire {
            held.append(&mut bytes);
            let parsed = handshake::parse_response(held, &WS_KEY);
            let used = match parsed {
                Ok(Some(used)) => used,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.error = Some(format!("handshake: {error}"));
                    self.has_ended = true;
                    return Ok(());
                }
            };
            bytes = held.split_off(used);
            self.wire = Wire::WebSocket(Box::new(Decoder::new(Role::Client, 1 << 26)));
        }
        let plain = match &mut self.wire {
            Wire::WebSocket(decoder) => {
                let mut plain = Vec::new();
                let mut input: &mut [u8] = &mut bytes;
                loop {
                    match decoder.next(&mut input) {
                        Ok(Some(Event::Data { bytes, .. })) => plain.extend_from_slice(bytes),
                        Ok(Some(Event::Close { .. })) => self.has_ended = true,
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(error) => return Err(format!("frame: {error}")),
                    }
                }
                plain
            }
            _ => bytes,
        };
        let limits = Limits {
            max_control_line: 1 << 20,
            max_payload: 1 << 20,
            headers: true,
        };
        let mut parser = std::mem::take(&mut self.parser);
        let mut input: &[u8] = &plain;
        loop {
            match parser.next(&limits, &mut input) {
                Ok(Some(op)) => self.handle(oracle, op)?,
                Ok(None) => break,
                Err(error) => return Err(format!("operation: {error}")),
            }
        }
        self.parser = parser;
        Ok(())
    }

    fn handle(&mut self, oracle: &mut Oracle, op: ServerOp<'_>) -> Result<(), String> {
        match op {
            ServerOp::Msg { sid, message } => {
                self.take(oracle, &text(message.subject), &text(sid), message.payload)
            }
            ServerOp::Pong => self.take_pong(oracle),
            ServerOp::Ping => {
                self.operate(b"PONG\r\n");
                Ok(())
            }
            ServerOp::Err(why) => {
                self.error = Some(text(why));
                Ok(())
            }
            ServerOp::Info(_) | ServerOp::Ok => Ok(()),
        }
    }

    fn take(
        &mut self,
        oracle: &mut Oracle,
        subject: &str,
        sid: &str,
        payload: &[u8],
    ) -> Result<(), String> {
        let sid: usize = sid.parse().map_err(|_| format!("SID {sid}"))?;
        let head = String::from_utf8_lossy(&payload[..payload.len().min(40)]).into_owned();
        let mut words = head.split(' ');
        let mut number = || words.next()?.parse::<usize>().ok();
        let (Some(publisher), Some(number)) = (number(), number()) else {
            return Err(format!("payload {head:?}"));
        };
        let Some(one) = self.subscriptions.get_mut(&sid) else {
            return Err(format!(
                "message {number} of {publisher} for subscription {sid}, which has ended"
            ));
        };
        oracle.check(publisher, number, subject, one.pattern)?;
        if publisher == self.member && !self.echo {
            return Err(format!("message {number} came back although echo is off"));
        }
        one.received += 1;
        if one.is_bounded && one.max.is_some_and(|max| one.received > max) {
            return Err(format!("subscription {sid} got more than its maximum"));
        }
        let last = one.last.insert((publisher, subject.to_owned()), number);
        if last.is_some_and(|last| last >= number) {
            return Err(format!(
                "message {number} of {publisher} on {subject} after {last:?}"
            ));
        }
        if one.group.is_none()
            && let Some(highest) = one.got.get(&publisher).and_then(BTreeSet::last)
            && *highest > number
        {
            return Err(format!(
                "message {number} of {publisher} after {highest}: out of order"
            ));
        }
        one.got.entry(publisher).or_default().insert(number);
        match one.group {
            Some(group) => oracle.check_group(group, publisher, number),
            None => Ok(()),
        }
    }

    /// Handle a `PONG`: all messages that were acknowledged before its `PING` must be here.
    fn take_pong(&mut self, oracle: &mut Oracle) -> Result<(), String> {
        let Some(ping) = self.pings.pop_front() else {
            return Err("a PONG without a PING".into());
        };
        for sid in &ping.left {
            // A subscription without a maximum may receive no more.
            let Some(one) = self.subscriptions.get_mut(sid) else {
                continue;
            };
            match &mut one.max {
                None => drop(self.subscriptions.remove(sid)),
                // Deliveries before the broker knew the maximum may exceed it.
                Some(max) if !one.is_bounded => {
                    *max = one.received.max(*max);
                    one.is_bounded = true;
                }
                Some(_) => {}
            }
        }
        let counts = oracle.counts();
        for sid in &ping.sids {
            let Some(one) = self.subscriptions.get_mut(sid) else {
                continue;
            };
            if one.group.is_some() || one.leaving {
                continue;
            }
            let Some(since) = &one.since else {
                one.since = Some(counts.clone());
                continue;
            };
            let mut acknowledged = ping.acknowledged.clone();
            // A client's own messages come before its own PONG.
            acknowledged.insert(self.member, ping.published);
            for (publisher, upto) in acknowledged {
                if publisher == self.member && !self.echo {
                    continue;
                }
                let from = since.get(&publisher).copied().unwrap_or(0);
                let got = one.got.get(&publisher);
                let is_missing = |n: &usize| got.is_none_or(|got| !got.contains(n));
                let mut due = oracle.due(publisher, from, upto, one.pattern);
                if let Some(missing) = due.find(is_missing) {
                    return Err(format!(
                        "client {} has a PONG, and not message {missing} of {publisher} for \
                         subscription {sid} ({}), acknowledged before its PING",
                        self.member, one.pattern
                    ));
                }
            }
        }
        oracle.acknowledge(self.member, ping.published);
        Ok(())
    }

    /// Return whether everything has been sent and answered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.outgoing.is_empty() && self.pings.is_empty()
    }

    pub(crate) fn reset(self) {
        self.endpoint.reset();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
