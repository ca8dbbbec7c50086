//! The reactor's handler of both engines: establishes and keeps connections, and hands what they
//! receive to a [`Workload`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::ws::close;
use reactor::{Closed, Conn, ConnId, Handler, Io, Origin};

use crate::connection::Connection;
use crate::dialer::{Attempt, Dialer, MAX_ATTEMPTS};
use crate::link::{Endpoint, Event, LinkError};
use crate::rng::Rng;
use crate::shared::{Shared, Tally, publish};
use crate::sources::Sources;
use crate::workload::{Loss, Workload, Writer};

/// Time from the start of a connection to its confirmed subscription.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMER: u8 = 1;

/// One connection. A process has a million of them.
pub(crate) struct Session<L> {
    pub(crate) link: L,
    attempt: Attempt,
    /// Why the connection is being closed by this side.
    failure: Option<Box<LinkError>>,
}

/// What the owner tells a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mail {
    /// Begin to send at this time.
    Start(Instant),
    /// Send no more.
    Stop,
    /// The connect phase has failed elsewhere: begin no more connections.
    Halt,
    /// Close every connection and end.
    Close,
    /// Something has changed that the thread looks at in each turn.
    Wake,
}

/// One thread of an engine.
pub(crate) struct Client<W> {
    endpoint: Arc<Endpoint>,
    sources: Arc<Sources>,
    shared: Arc<Shared>,
    thread: usize,
    workload: W,
    dialer: Dialer,
    /// For masking keys, handshake keys and pauses.
    keys: Rng,
    connect_failures: u64,
    reconnect_failures: u64,
    disconnected: u64,
    server_errors: u64,
    /// Connections established, and of these ended with an answer that was their last.
    opened: u64,
    answered: u64,
    /// Bytes received.
    received: u64,
    /// Messages received; a server's own status is none.
    delivered: Tally,
    /// What had been received and sent when the run began.
    before: Option<(u64, u64)>,
    is_closing: bool,
}

impl<W: Workload> Client<W> {
    pub(crate) fn new(
        endpoint: Arc<Endpoint>,
        sources: Arc<Sources>,
        shared: Arc<Shared>,
        thread: usize,
        workload: W,
        dialer: Dialer,
    ) -> Self {
        Self {
            endpoint,
            sources,
            shared,
            thread,
            workload,
            dialer,
            keys: Rng::from_entropy(),
            connect_failures: 0,
            reconnect_failures: 0,
            disconnected: 0,
            server_errors: 0,
            opened: 0,
            answered: 0,
            received: 0,
            delivered: Tally::default(),
            before: None,
            is_closing: false,
        }
    }

    fn dial(&mut self, io: &mut Io<Self>) {
        let now = Instant::now();
        while let Some(attempt) = self.dialer.poll(now) {
            let target = &self.endpoint.target;
            let link = Connection::new(&self.endpoint, &mut self.keys);
            let source = self.sources.of(self.workload.number(attempt.member));
            let id = io.connect(
                target.address,
                source,
                Session {
                    link,
                    attempt,
                    failure: None,
                },
            );
            io.set_timer(id, HANDSHAKE_TIMER, HANDSHAKE_TIMEOUT);
        }
        if let Some(at) = self.dialer.wakes_at() {
            io.wake_at(at);
        }
    }

    /// Appends what a connection owes.
    fn answer(&mut self, io: &mut Io<Self>, id: ConnId) {
        let Some(conn) = io.writer(id) else { return };
        let subject = self.workload.subject(conn.session.attempt.member);
        let (link, output) = (&mut conn.session.link, &mut conn.output);
        if let Err(error) = link.answer(&self.endpoint, &subject, output, &mut self.keys) {
            self.give_up(io, id, error);
        }
    }

    /// A connection may be used.
    fn handle_ready(&mut self, member: u32, id: ConnId) {
        self.dialer.settle();
        self.shared.add_ready();
        self.workload.handle_ready(member, id);
    }

    /// Closes a connection that is of no use any more.
    fn give_up(&mut self, io: &mut Io<Self>, id: ConnId, error: LinkError) {
        let Some(conn) = io.conn_mut(id) else { return };
        let (code, is_ready) = (error.close_code(), conn.session.link.is_ready());
        if let LinkError::Http(_) = error {
            self.server_errors += 1;
            self.shared.note_server_error(|| error.to_string());
        }
        conn.session.failure.get_or_insert(Box::new(error));
        if is_ready {
            self.close(io, id, code);
            io.close(id);
        } else {
            io.abort(id);
        }
    }

    fn close(&mut self, io: &mut Io<Self>, id: ConnId, code: u16) {
        if let Some(conn) = io.writer(id) {
            conn.session
                .link
                .close(&mut conn.output, &mut self.keys, code);
        }
    }

    /// Plans the next attempt, or fails the connect phase.
    fn handle_failed_attempt(&mut self, io: &mut Io<Self>, attempt: Attempt, error: &LinkError) {
        self.connect_failures += 1;
        let gauges = &self.shared.gauges[self.thread];
        publish(&gauges.connect_failures, self.connect_failures);
        if self.shared.connected().is_some() {
            self.reconnect_failures += 1;
            publish(&gauges.reconnect_failures, self.reconnect_failures);
        }
        let is_last = attempt.failed + 1 >= MAX_ATTEMPTS || error.is_permanent();
        if self.shared.connected().is_none() && is_last {
            let Shared { target, wanted, .. } = &*self.shared;
            let ready = self.shared.ready();
            let times = attempt.failed + 1;
            let plural = if times == 1 { "" } else { "s" };
            self.shared.fail(format!(
                "{target}: {ready} of {wanted} connections established, then one failed after \
                 {times} attempt{plural}: {error}"
            ));
            for thread in 0..io.shards() {
                io.mail(thread, Mail::Halt);
            }
        } else if self.shared.error().is_none() {
            let attempt = Attempt {
                failed: attempt.failed.min(MAX_ATTEMPTS),
                ..attempt
            };
            self.dialer.retry(attempt, io.now(), &mut self.keys);
        }
    }

    /// Says farewell on every connection and ends.
    fn end(&mut self, io: &mut Io<Self>) {
        self.is_closing = true;
        self.dialer.halt();
        let ids: Vec<ConnId> = io.connections.ids().collect();
        for id in ids {
            self.close(io, id, close::NORMAL);
        }
        io.stop();
    }
}

impl<W: Workload> Handler for Client<W> {
    type Session = Session<W::Link>;
    type Mail = Mail;

    fn accept(&mut self, _: &mut Io<Self>, _: usize, _: SocketAddr) -> Option<Session<W::Link>> {
        None
    }

    fn on_open(&mut self, io: &mut Io<Self>, id: ConnId, _: Origin) {
        self.opened += 1;
        publish(
            &self.shared.gauges[self.thread].connections_opened,
            self.opened,
        );
        let Some(conn) = io.conn_mut(id) else { return };
        let link = &mut conn.session.link;
        link.handle_open();
        let (owes, is_ready) = (link.owes(), link.is_ready());
        if is_ready {
            let member = conn.session.attempt.member;
            self.handle_ready(member, id);
        }
        if owes {
            self.answer(io, id);
        }
    }

    fn on_received(&mut self, io: &mut Io<Self>, id: ConnId, bytes: &mut [u8]) {
        self.received += bytes.len() as u64;
        self.workload.handle_slice();
        let conn = if W::ANSWERS {
            io.writer(id)
        } else {
            io.conn_mut(id)
        };
        let Some(conn) = conn else { return };
        let (session, output) = (&mut conn.session, &mut conn.output);
        let pending = output.len();
        let (member, was_ready) = (session.attempt.member, session.link.is_ready());
        let (workload, keys) = (&mut self.workload, &mut self.keys);
        let (shared, errors) = (&self.shared, &mut self.server_errors);
        let delivered = &mut self.delivered;
        let outcome = session
            .link
            .receive(&self.endpoint, bytes, |event, outbox| match event {
                Event::Message(message) => {
                    if !message.is_status() {
                        delivered.add(message.len());
                    }
                    let writer = Writer {
                        outbox,
                        output: &mut *output,
                        keys: &mut *keys,
                    };
                    workload.handle_message(member, &message, W::ANSWERS.then_some(writer));
                }
                Event::Error(text) => {
                    *errors += 1;
                    shared.note_server_error(|| String::from_utf8_lossy(text).into_owned());
                }
                Event::Answer(answer) => {
                    if !answer.is_success() {
                        *errors += 1;
                        shared.note_server_error(|| answer.to_string());
                    }
                    if workload.handle_answer(member, &answer) {
                        delivered.add(answer.body.len());
                    }
                }
            });
        let appended = output.len().saturating_sub(pending);
        let link = &session.link;
        let (owes, is_ready, is_over) = (link.owes(), link.is_ready(), link.is_over());
        io.spend(appended);
        if is_ready && !was_ready {
            self.handle_ready(member, id);
        }
        if is_over && was_ready {
            self.shared.remove_ready();
            self.answered += 1;
            // The peer closes it; one that does not is not waited for for ever.
            io.set_timer(id, HANDSHAKE_TIMER, HANDSHAKE_TIMEOUT);
        }
        if owes {
            self.answer(io, id);
        }
        if let Err(error) = outcome {
            self.give_up(io, id, error);
        }
    }

    fn on_blocked(&mut self, _: &mut Io<Self>, _: ConnId) {}

    #[inline]
    fn before_write(&mut self, conn: &mut Conn<Session<W::Link>>) {
        conn.session.link.seal(&mut conn.output, &mut self.keys);
    }

    fn on_closed(
        &mut self,
        io: &mut Io<Self>,
        id: ConnId,
        session: Session<W::Link>,
        why: Closed,
        _unsent: u64,
    ) {
        if session.link.is_over() {
            return;
        }
        let mut attempt = session.attempt;
        let error = session
            .failure
            .map_or(LinkError::Closed(why), |failure| *failure);
        let was_ready = session.link.is_ready();
        let loss = if was_ready {
            self.shared.remove_ready();
            self.workload.handle_lost(attempt.member, id)
        } else {
            self.dialer.settle();
            Loss::Repair
        };
        if self.is_closing || why == Closed::Shutdown {
            return;
        }
        if loss == Loss::Churn {
            self.dialer.redial(attempt.member, io.now());
            // This turn's connections may have been begun already.
            io.wake_at(io.now());
            return;
        }
        let are_connected = self.shared.connected().is_some();
        if loss == Loss::Idle && are_connected {
            return;
        }
        let is_wanted = loss != Loss::Accept;
        // Before all are connected a loss counts as a failed attempt: a server that accepts and drops
        // must not keep the connect phase going for ever.
        if was_ready && are_connected {
            self.disconnected += 1;
            publish(
                &self.shared.gauges[self.thread].disconnected,
                self.disconnected,
            );
            attempt.failed = 0;
            if is_wanted {
                self.dialer.retry(attempt, io.now(), &mut self.keys);
            }
        } else if is_wanted {
            self.handle_failed_attempt(io, attempt, &error);
        }
    }

    fn on_timer(&mut self, io: &mut Io<Self>, id: ConnId, _: u8) {
        if io
            .conn(id)
            .is_some_and(|conn| !conn.session.link.is_ready())
        {
            self.give_up(io, id, LinkError::TimedOut);
        }
    }

    fn on_mail(&mut self, io: &mut Io<Self>, mail: Mail) {
        match mail {
            Mail::Start(at) => {
                self.before.get_or_insert((self.received, io.sent.bytes));
                self.workload.handle_start(at);
            }
            Mail::Stop => self.workload.handle_stop(),
            Mail::Halt => self.dialer.halt(),
            Mail::Close => self.end(io),
            Mail::Wake => {}
        }
    }

    fn on_undelivered(&mut self, _: Mail) {}

    fn on_turn_end(&mut self, io: &mut Io<Self>) {
        if !self.is_closing {
            let gauges = &self.shared.gauges[self.thread];
            if let Some((received, sent)) = self.before {
                publish(&gauges.wire_bytes_in, self.received - received);
                publish(&gauges.wire_bytes_out, io.sent.bytes - sent);
            }
            // Before the workload, which may end with this turn.
            publish(&gauges.server_errors, self.server_errors);
            publish(&gauges.answered, self.answered);
            publish(&gauges.delivered, self.delivered.messages);
            publish(&gauges.delivered_bytes, self.delivered.bytes);
            self.workload.poll_turn(io, &mut self.keys, gauges);
            while let Some(member) = self.workload.poll_wanted() {
                self.dialer.redial(member, io.now());
            }
            self.dial(io);
            if self.workload.is_over() {
                self.end(io);
            }
        }
    }

    fn on_written(&mut self, io: &mut Io<Self>) {
        let gauges = &self.shared.gauges[self.thread];
        self.workload.handle_written(io.sent.items, gauges);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_session_is_small() {
        let size = size_of::<Session<crate::link::Link>>();
        assert!(size <= 112, "{size}");
    }
}
