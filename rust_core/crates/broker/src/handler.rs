//! What the reactor tells a shard: connections, bytes, timers, mail, turns.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use protocol::nats::{FromClient, Parser, encode, error};
use reactor::{Closed, Conn, ConnId, Handler, Origin};

use crate::http::events::HEARTBEAT;
use crate::mail::Mail;
use crate::metrics::table::{Counter, Dropped, Flow};
use crate::nats::Read;
use crate::outbound::{self, Framing};
use crate::reason::Reason;
use crate::session::{Deferred, Session, Transport};
use crate::shard::{Io, Shard, Timer};
use crate::shared::ListenerKind;

impl Handler for Shard {
    type Session = Session;
    type Mail = Mail;

    fn accept(&mut self, io: &mut Io, listener: usize, peer: SocketAddr) -> Option<Session> {
        let listener = *self.listeners.get(listener)?;
        if listener == ListenerKind::Monitor
            && self
                .monitor
                .as_ref()
                .is_none_or(|monitor| monitor.is_crowded())
        {
            return None;
        }
        let cid = self.shared.next_cid.fetch_add(1, Ordering::Relaxed);
        let second = self.second(io.now());
        Some(Session::new(cid, peer, listener, io.now(), second))
    }

    fn on_open(&mut self, io: &mut Io, id: ConnId, _: Origin) {
        let now = io.now();
        let Some(conn) = io.conn_mut(id) else { return };
        if !conn.session.is_client {
            self.open_monitor(io, id);
            return;
        }
        self.log.connected(now, &conn.session);
        let transport = conn.session.framing.transport();
        self.counts.add_flow(transport, Flow::Opened, 1);
        self.open += 1;
        self.shared.open.fetch_add(1, Ordering::Relaxed);
        if !matches!(conn.session.transport, Transport::Tcp(_)) {
            io.set_timer(id, Timer::HANDSHAKE, self.shared.limits.http_check());
        } else if self.take_place(io, id) {
            self.greet(io, id);
        }
    }

    fn on_received(&mut self, io: &mut Io, id: ConnId, bytes: &mut [u8]) {
        let second = self.second(io.now());
        let Some(conn) = io.conn_mut(id) else { return };
        conn.session.is_active = true;
        conn.session.traffic.active = second;
        self.received += 1;
        self.has_worked = true;
        self.counts.add(Counter::WireBytesIn, bytes.len() as u64);
        let transport = match std::mem::replace(&mut conn.session.transport, Transport::Busy) {
            Transport::Tcp(parser) => self.receive_tcp(io, id, parser, bytes),
            Transport::WebSocket(mut decoder, mut parser) => {
                let goes_on = self.receive_websocket(io, id, &mut decoder, &mut parser, bytes);
                goes_on.then_some(Transport::WebSocket(decoder, parser))
            }
            Transport::Http(http) => self.receive_http(io, id, http, bytes),
            Transport::Echo(mut echo) => {
                let goes_on = self.receive_echo(io, id, &mut echo, bytes);
                goes_on.then_some(Transport::Echo(echo))
            }
            Transport::Busy => None,
        };
        if let (Some(transport), Some(conn)) = (transport, io.conn_mut(id)) {
            conn.session.transport = transport;
        }
    }

    fn on_blocked(&mut self, io: &mut Io, id: ConnId) {
        self.begin_backlog(io, id);
    }

    fn before_write(&mut self, conn: &mut Conn<Session>) {
        outbound::seal_frame(&mut conn.session.framing, &mut conn.output);
    }

    fn on_closed(
        &mut self,
        io: &mut Io,
        id: ConnId,
        mut session: Session,
        why: Closed,
        unsent: u64,
    ) {
        let reason = session.ended.unwrap_or(match why {
            Closed::Failed(_) | Closed::Refused(_) => Reason::ConnectionFailed,
            Closed::Shutdown => Reason::Shutdown,
            Closed::Peer | Closed::Local => Reason::ClientClosed,
        });
        self.note_ended(id);
        let subscriptions = std::mem::take(&mut session.subscriptions);
        self.release_held(io, id, session.has_place, subscriptions);
        let dropped = match reason {
            Reason::SlowConsumer => Dropped::SlowConsumer,
            Reason::Shutdown => Dropped::Shutdown,
            _ => Dropped::Closed,
        };
        self.counts.add_unsent(dropped, unsent);
        if session.is_client {
            let transport = session.framing.transport();
            self.counts.add_flow(transport, Flow::Closed, 1);
            self.counts.add_closed(reason);
            self.log.closed(io.now(), &session, reason);
            self.open -= 1;
            self.shared.open.fetch_sub(1, Ordering::Relaxed);
        } else if let Some(monitor) = &mut self.monitor {
            monitor.forget(id);
        }
    }

    fn on_timer(&mut self, io: &mut Io, id: ConnId, kind: u8) {
        self.has_worked |= kind != Timer::SAMPLE;
        match kind {
            Timer::PING => self.handle_ping_timer(io, id),
            Timer::WRITE => self.handle_write_timer(io, id),
            Timer::HANDSHAKE => self.handle_http_timer(io, id),
            Timer::REPLY => self.handle_reply_timer(io, id),
            Timer::RESUME => self.handle_resume_timer(io, id),
            Timer::LAME_DUCK => self.handle_lame_duck_timer(io),
            Timer::SAMPLE => self.handle_sample_timer(io),
            Timer::SURVEY => self.handle_survey_timer(io, id),
            _ => {}
        }
    }

    fn on_mail(&mut self, io: &mut Io, mail: Mail) {
        self.has_worked = true;
        match mail {
            Mail::Deliver {
                parcel,
                receivers,
                publisher,
                weight,
            } => self.deliver_parcel(io, &parcel, &receivers, publisher, weight),
            Mail::Stall(id) => {
                self.stall(io, (self.index, id));
            }
            Mail::Barrier(barrier) => {
                io.mail(usize::from(barrier.shard), Mail::Passed(barrier));
            }
            Mail::Passed(barrier) => self.handle_passed(io, barrier),
            Mail::Survey(survey) => self.handle_survey(io, survey),
            Mail::Surveyed(survey) => self.handle_surveyed(io, *survey),
            Mail::Drain => self.begin_draining(io),
            Mail::Stop => io.stop(),
        }
    }

    fn on_undelivered(&mut self, mail: Mail) {
        match mail {
            Mail::Deliver {
                receivers, weight, ..
            } => {
                if let Some(to) = receivers.as_slice().first() {
                    self.shared.weights[usize::from(to.shard)].subtract(weight);
                }
                let count = receivers.as_slice().len() as u64;
                self.counts.add_arrived(count);
                self.counts.add_dropped(Dropped::Shutdown, count);
            }
            Mail::Barrier(barrier) => {
                // Behind what the ended shard has sent before. If the one that waits has ended, too,
                // nobody waits.
                let shard = usize::from(barrier.shard);
                drop(self.mailboxes.post(shard, Mail::Passed(barrier)));
            }
            Mail::Survey(survey) => self.return_survey(survey),
            Mail::Passed(_) | Mail::Stall(_) | Mail::Surveyed(_) | Mail::Drain | Mail::Stop => {}
        }
    }

    fn on_turn_end(&mut self, io: &mut Io) {
        self.stalled_elsewhere = None;
        self.release_fenced(io);
        self.continue_jobs(io);
        self.receive_deferred(io);
    }

    fn on_written(&mut self, io: &mut Io) {
        self.publish_counts(io);
        self.count_turn(io);
        if self.draining.is_some() && self.jobs.is_empty() && self.is_drained() {
            io.stop();
        }
    }
}

impl Shard {
    /// Reads what was kept, as far as this turn's budget goes.
    fn receive_deferred(&mut self, io: &mut Io) {
        while !io.is_spent()
            && let Some(id) = self.deferred.pop_front()
        {
            io.begin_slice();
            self.receive_more(io, id);
            io.end_slice();
        }
        if !self.deferred.is_empty() {
            io.wake_at(io.now());
        }
    }

    /// Reads what was kept of one connection's bytes.
    fn receive_more(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        if conn.session.is_stalled {
            // Goes on when the stall ends.
            return;
        }
        let Deferred { plain, mut frames } = conn
            .session
            .deferred
            .take()
            .map_or_else(Deferred::default, |deferred| *deferred);
        let transport = std::mem::replace(&mut conn.session.transport, Transport::Busy);
        let transport = match transport {
            Transport::Http(http) => self.receive_http(io, id, http, &[]),
            Transport::Tcp(parser) => self.receive_tcp(io, id, parser, &plain),
            Transport::WebSocket(mut decoder, mut parser) => {
                let goes_on = match self.receive_nats(io, id, &mut parser, &plain) {
                    Read::All => {
                        self.receive_websocket(io, id, &mut decoder, &mut parser, &mut frames)
                    }
                    Read::Left(left) => {
                        self.defer(io, id, left, &frames);
                        true
                    }
                    Read::Ended => false,
                };
                goes_on.then_some(Transport::WebSocket(decoder, parser))
            }
            other => Some(other),
        };
        if let (Some(transport), Some(conn)) = (transport, io.conn_mut(id)) {
            let is_http = matches!(transport, Transport::Http(_));
            conn.session.transport = transport;
            // HTTP knows itself whether it can take more.
            if !is_http && conn.session.deferred.is_none() && !conn.session.is_stalled {
                io.set_reading(id, true);
            }
        }
    }

    fn receive_tcp(
        &mut self,
        io: &mut Io,
        id: ConnId,
        mut parser: Parser<FromClient>,
        input: &[u8],
    ) -> Option<Transport> {
        match self.receive_nats(io, id, &mut parser, input) {
            Read::All => {}
            Read::Left(plain) => self.defer(io, id, plain, &[]),
            Read::Ended => return None,
        }
        Some(Transport::Tcp(parser))
    }

    fn handle_ping_timer(&mut self, io: &mut Io, id: ConnId) {
        let limits = &self.shared.limits;
        let Some(conn) = io.conn_mut(id) else { return };
        let session = &mut conn.session;
        if let Framing::Events(_) = session.framing {
            if let Some(conn) = io.writer(id) {
                conn.output.tail().extend_from_slice(HEARTBEAT);
            }
            io.set_timer(id, Timer::PING, limits.http_heartbeat);
            return;
        }
        let Some(interval) = limits.ping_interval else {
            return;
        };
        if std::mem::take(&mut session.is_active) {
            session.pings_out = 0;
        } else if session.pings_out >= self.shared.limits.ping_max {
            self.end(io, id, Reason::Stale, Some(error::STALE_CONNECTION));
            return;
        } else {
            session.pings_out += 1;
            if let Some(conn) = io.writer(id) {
                outbound::append_bytes(conn, encode::PING);
            }
        }
        io.set_timer(id, Timer::PING, interval);
    }
}
