//! The reactor's handler of all engines. It establishes connections and hands received bytes to a
//! [`Workload`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use protocol::ws::close;
use reactor::{Closed, Conn, ConnId, Handler, Io, Origin};

use crate::connection::{Connection, Endpoint, Event, LinkError};
use crate::dialer::{Attempt, Dialer, MAX_ATTEMPTS};
use crate::rng::Rng;
use crate::session::{Mail, Session};
use crate::shared::{MessageCount, Shared, set};
use crate::sources::Sources;
use crate::workload::{Reconnect, Workload, Writer};

/// Time from the start of a connection to its confirmed subscription.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMER: u8 = 1;

/// One thread of an engine.
pub(crate) struct Client<W> {
    endpoint: Arc<Endpoint>,
    sources: Arc<Sources>,
    shared: Arc<Shared>,
    thread: usize,
    workload: W,
    dialer: Dialer,
    /// Random numbers for masking keys, handshake keys and pauses.
    keys: Rng,
    connect_failures: u64,
    reconnect_failures: u64,
    disconnected: u64,
    server_errors: u64,
    /// Connections established, and how many of them ended with an HTTP response that announced it.
    opened: u64,
    answered: u64,
    /// Bytes received.
    received: u64,
    /// Messages received, without the server's own status messages.
    delivered: MessageCount,
    /// Bytes that had been received and sent when the run began.
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
        keys: Rng,
    ) -> Self {
        Self {
            endpoint,
            sources,
            shared,
            thread,
            workload,
            dialer,
            keys,
            connect_failures: 0,
            reconnect_failures: 0,
            disconnected: 0,
            server_errors: 0,
            opened: 0,
            answered: 0,
            received: 0,
            delivered: MessageCount::default(),
            before: None,
            is_closing: false,
        }
    }

    fn dial(&mut self, io: &mut Io<Self>) {
        let now = io.clock().now();
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

    /// Append the pending sends of a connection.
    fn append_pending(&mut self, io: &mut Io<Self>, id: ConnId) {
        let Some(conn) = io.writer(id) else { return };
        let subject = self.workload.subject(conn.session.attempt.member);
        let (link, output) = (&mut conn.session.link, &mut conn.output);
        if let Err(error) = link.append_pending(&self.endpoint, &subject, output, &mut self.keys) {
            self.fail_connection(io, id, error);
        }
    }

    /// Account for a connection that may be used from now on.
    fn handle_ready(&mut self, member: u32, id: ConnId) {
        self.dialer.end_attempt();
        self.shared.add_ready();
        self.workload.handle_ready(member, id);
    }

    /// Close a connection that has failed.
    fn fail_connection(&mut self, io: &mut Io<Self>, id: ConnId, error: LinkError) {
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

    /// Plan the next attempt, or fail the connect phase.
    fn handle_failed_attempt(&mut self, io: &mut Io<Self>, attempt: Attempt, error: &LinkError) {
        self.connect_failures += 1;
        let counters = &self.shared.counters[self.thread];
        set(&counters.connect_failures, self.connect_failures);
        if self.shared.connected().is_some() {
            self.reconnect_failures += 1;
            set(&counters.reconnect_failures, self.reconnect_failures);
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

    /// Close every connection in order, and end.
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
        set(
            &self.shared.counters[self.thread].connections_opened,
            self.opened,
        );
        let Some(conn) = io.conn_mut(id) else { return };
        let link = &mut conn.session.link;
        link.handle_open();
        let (has_pending, is_ready) = (link.has_pending_sends(), link.is_ready());
        if is_ready {
            let member = conn.session.attempt.member;
            self.handle_ready(member, id);
        }
        if has_pending {
            self.append_pending(io, id);
        }
    }

    fn on_received(&mut self, io: &mut Io<Self>, id: ConnId, bytes: &mut [u8]) {
        self.received += bytes.len() as u64;
        self.workload.handle_slice(io.clock());
        let conn = if W::REPLIES {
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
                        delivered.add(message.size());
                    }
                    let writer = Writer {
                        outbox,
                        output: &mut *output,
                        keys: &mut *keys,
                    };
                    workload.handle_message(member, &message, W::REPLIES.then_some(writer));
                }
                Event::Error(text) => {
                    *errors += 1;
                    shared.note_server_error(|| String::from_utf8_lossy(text).into_owned());
                }
                Event::Response(response) => {
                    if !response.is_success() {
                        *errors += 1;
                        shared.note_server_error(|| response.to_string());
                    }
                    if workload.handle_response(member, &response) {
                        delivered.add(response.body.len());
                    }
                }
            });
        let appended = output.len().saturating_sub(pending);
        let link = &session.link;
        let (has_pending, is_ready, is_over) =
            (link.has_pending_sends(), link.is_ready(), link.is_over());
        io.spend(appended);
        if is_ready && !was_ready {
            self.handle_ready(member, id);
        }
        if is_over && was_ready {
            self.shared.remove_ready();
            self.answered += 1;
            // The peer closes the connection. A timer ends the wait for a peer that does not.
            io.set_timer(id, HANDSHAKE_TIMER, HANDSHAKE_TIMEOUT);
        }
        if has_pending {
            self.append_pending(io, id);
        }
        if let Err(error) = outcome {
            self.fail_connection(io, id, error);
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
        unsent: u64,
    ) {
        self.workload.handle_unsent(unsent);
        if session.link.is_over() {
            return;
        }
        let mut attempt = session.attempt;
        let error = session
            .failure
            .map_or(LinkError::Closed(why), |failure| *failure);
        let was_ready = session.link.is_ready();
        let reconnect = if was_ready {
            self.shared.remove_ready();
            self.workload.handle_lost(attempt.member, id)
        } else {
            self.dialer.end_attempt();
            Reconnect::Retry
        };
        if self.is_closing || why == Closed::Shutdown {
            return;
        }
        if reconnect == Reconnect::AtOnce {
            self.dialer.redial(attempt.member, io.now());
            // This turn's connections may have been begun already.
            io.wake_at(io.now());
            return;
        }
        let are_connected = self.shared.connected().is_some();
        if reconnect == Reconnect::OnDemand && are_connected {
            return;
        }
        let is_wanted = reconnect != Reconnect::Never;
        // Before all are connected a lost connection counts as a failed attempt: otherwise a server
        // that accepts and drops would keep the connect phase going without end.
        if was_ready && are_connected {
            self.disconnected += 1;
            set(
                &self.shared.counters[self.thread].disconnected,
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
            self.fail_connection(io, id, LinkError::TimedOut);
        }
    }

    fn on_mail(&mut self, io: &mut Io<Self>, mail: Mail) {
        match mail {
            Mail::Start(at) => {
                self.before.get_or_insert((self.received, io.sent.bytes));
                self.workload.handle_start(at);
            }
            Mail::Stop => self.workload.handle_stop(io.clock().now()),
            Mail::Halt => self.dialer.halt(),
            Mail::Close => self.end(io),
            Mail::Wake => {}
        }
    }

    fn on_undelivered(&mut self, _: Mail) {}

    fn on_turn_end(&mut self, io: &mut Io<Self>) {
        if !self.is_closing {
            let counters = &self.shared.counters[self.thread];
            if let Some((received, sent)) = self.before {
                set(&counters.wire_bytes_in, self.received - received);
                set(&counters.wire_bytes_out, io.sent.bytes - sent);
            }
            // Before the workload, which may end with this turn.
            set(&counters.server_errors, self.server_errors);
            set(&counters.answered, self.answered);
            set(&counters.delivered, self.delivered.messages);
            set(&counters.delivered_bytes, self.delivered.bytes);
            self.workload.poll_turn(io, &mut self.keys, counters);
            while let Some(member) = self.workload.poll_wanted() {
                self.dialer.redial(member, io.now());
            }
            self.dial(io);
            if self.workload.is_over(io.now()) {
                self.end(io);
            }
        }
    }

    fn on_written(&mut self, io: &mut Io<Self>) {
        let counters = &self.shared.counters[self.thread];
        self.workload.handle_written(io.sent.items, counters);
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
