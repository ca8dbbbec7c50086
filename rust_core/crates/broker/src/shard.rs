//! A shard: the composition of its parts, and the reactor's events handed to them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use reactor::{Closed, Conn, ConnId, Handler, Mailboxes, Origin};

use crate::admission::{Stage, entry};
use crate::backpressure::Backpressure;
use crate::drain::Drain;
use crate::fence::Fence;
use crate::http::{Exchange, Gateway, Requests, gateway};
use crate::io::{Io, Timer};
use crate::jobs::Job;
use crate::mail::Mail;
use crate::metrics::table::{Counter, Dropped};
use crate::monitor::Monitor;
use crate::nats::Nats;
use crate::outbound;
use crate::protocols::Protocol;
use crate::publishing::Publishing;
use crate::random::SystemRandom;
use crate::sample::Sampler;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::shared::Shared;
use crate::transport::ListenerKind;
use crate::websocket;

/// One shard's state besides its connections. Each part knows only parts above it.
pub(crate) struct Shard {
    pub(crate) sessions: Sessions,
    publishing: Publishing,
    nats: Nats,
    gateway: Gateway,
    monitor: Monitor,
    drain: Drain,
    sampler: Sampler,
    mailboxes: Mailboxes<Mail>,
}

impl Shard {
    /// Return a shard that has no connections.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        listeners: Vec<ListenerKind>,
        mailboxes: Mailboxes<Mail>,
        random: SystemRandom,
    ) -> io::Result<Self> {
        let shards = mailboxes.shards();
        let mut sessions = Sessions::new(shared, index, shards, listeners, random)?;
        Ok(Self {
            publishing: Publishing::new(&mut sessions, shards)?,
            nats: Nats::default(),
            gateway: Gateway::default(),
            monitor: Monitor::new(&sessions),
            drain: Drain::default(),
            sampler: Sampler::default(),
            mailboxes,
            sessions,
        })
    }

    /// Begin to measure; called once, before the first turn.
    pub(crate) fn begin(&mut self, io: &mut Io) {
        Sampler::sample(&self.sessions, io);
        self.publishing.hot.advance(io.now());
        self.monitor.watch(&self.sessions, io);
    }

    /// Return the pieces of work that are put off, or wait for others.
    #[cfg(feature = "sim")]
    pub(crate) fn rest(&self) -> usize {
        let (sessions, publishing) = (&self.sessions, &self.publishing);
        let put_off = sessions.reading.waiting() + sessions.jobs.len();
        put_off
            + self.monitor.surveys.unfinished()
            + self.nats.fence.waiting()
            + publishing.mailed()
    }

    /// Read the requests of a connection.
    fn receive_http(&mut self, io: &mut Io, id: ConnId, bytes: &[u8]) {
        let mut requests = Requests {
            on: Exchange {
                sessions: &mut self.sessions,
                publishing: &mut self.publishing,
                io,
                id,
            },
            gateway: &mut self.gateway,
            monitor: &mut self.monitor,
        };
        requests.receive(bytes);
    }

    /// Go on with the work under way, as far as this turn's budget goes.
    fn continue_jobs(&mut self, io: &mut Io) {
        let sessions = &mut self.sessions;
        while !io.is_spent()
            && let Some(job) = sessions.jobs.take()
        {
            io.begin_slice();
            let rest = match job {
                Job::Leave {
                    conn,
                    subscriptions,
                    next,
                } => sessions.remove_left(io, conn, subscriptions, next),
                Job::StartOver { conn, next } => {
                    let (nats, publishing) = (&mut self.nats, &self.publishing);
                    nats.remove_former(sessions, publishing, io, conn, next)
                }
                Job::Announce { slot } => Drain::announce(sessions, io, slot),
                Job::Close => self.drain.close_some(sessions, io),
                Job::Expire => entry::expire(sessions, io),
            };
            io.end_slice();
            if let Some(rest) = rest {
                sessions.jobs.add(rest);
            }
        }
        if !sessions.jobs.is_empty() {
            io.wake_at(io.now());
        }
    }

    /// Read on from connections whose bytes were kept, as far as this turn's budget goes.
    fn receive_deferred(&mut self, io: &mut Io) {
        while !io.is_spent()
            && let Some(id) = self.sessions.reading.next_waiting()
        {
            io.begin_slice();
            self.receive_more(io, id);
            io.end_slice();
        }
        if self.sessions.reading.waiting() > 0 {
            io.wake_at(io.now());
        }
    }

    /// Read the bytes of one connection that were kept.
    fn receive_more(&mut self, io: &mut Io, id: ConnId) {
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        if conn.session.is_stalled {
            // Goes on when the stall ends.
            return;
        }
        let deferred = conn.session.deferred.take();
        let deferred = deferred.map_or_else(Default::default, |deferred| *deferred);
        let (nats, sessions, publishing) =
            (&mut self.nats, &mut self.sessions, &mut self.publishing);
        match &mut conn.session.protocol {
            Protocol::Tcp(parser) => {
                let parser = std::mem::take(parser);
                nats.receive_tcp(sessions, publishing, io, id, parser, &deferred.plain);
            }
            Protocol::WebSocket(websocket) => {
                let input = websocket.take_input();
                websocket::receive_deferred(nats, sessions, publishing, io, id, input, deferred);
            }
            Protocol::Http(_) => self.receive_http(io, id, &[]),
            Protocol::Echo(_) => {}
        }
        if let Some(conn) = io.conn(id)
            && conn.session.ended.is_none()
            && conn.session.deferred.is_none()
            && !conn.session.is_stalled
            // HTTP knows itself whether it can take more.
            && !matches!(conn.session.protocol, Protocol::Http(_))
        {
            io.set_reading(id, true);
        }
        self.sessions.memory.weigh(io, id);
    }
}

impl Handler for Shard {
    type Session = Session;
    type Mail = Mail;

    fn accept(&mut self, io: &mut Io, listener: usize, peer: SocketAddr) -> Option<Session> {
        let sessions = &mut self.sessions;
        let kind = sessions.listeners.kind(listener)?;
        let stage = if kind == ListenerKind::Monitor {
            Stage::Monitor
        } else {
            entry::admit(sessions, io, peer)?
        };
        let cid = sessions.shared.next_cid.fetch_add(1, Ordering::Relaxed);
        let second = sessions.second(io.now());
        Some(Session::new(cid, peer, kind, stage, (io.now(), second)))
    }

    fn on_open(&mut self, io: &mut Io, id: ConnId, _: Origin) {
        let Some(conn) = io.conn(id) else { return };
        if conn.session.is_client() {
            entry::open(&mut self.sessions, io, id);
        } else {
            self.monitor.open(&self.sessions, io, id);
        }
    }

    fn on_received(&mut self, io: &mut Io, id: ConnId, bytes: &mut [u8]) {
        let (nats, sessions, publishing) =
            (&mut self.nats, &mut self.sessions, &mut self.publishing);
        let second = sessions.second(io.now());
        let Some(conn) = io.conn_mut(id) else { return };
        conn.session.is_active = true;
        conn.session.traffic.active = second;
        self.sampler.note_received();
        sessions
            .counts
            .add(Counter::WireBytesIn, bytes.len() as u64);
        match &mut conn.session.protocol {
            Protocol::Tcp(parser) => {
                let parser = std::mem::take(parser);
                nats.receive_tcp(sessions, publishing, io, id, parser, bytes);
            }
            Protocol::WebSocket(websocket) => {
                let input = websocket.take_input();
                websocket::receive(nats, sessions, publishing, io, id, input, bytes);
            }
            Protocol::Http(_) => self.receive_http(io, id, bytes),
            Protocol::Echo(echo) => {
                let decoder = echo.take_decoder();
                websocket::receive_echo(sessions, io, id, decoder, bytes);
            }
        }
        self.sessions.memory.weigh(io, id);
    }

    fn on_blocked(&mut self, io: &mut Io, id: ConnId) {
        Backpressure::begin_backlog(&self.sessions, io, id);
    }

    fn before_write(&mut self, conn: &mut Conn<Session>) {
        outbound::seal_frame(&mut conn.session.protocol, &mut conn.output);
    }

    fn on_closed(&mut self, io: &mut Io, id: ConnId, session: Session, why: Closed, unsent: u64) {
        if !session.is_client() {
            self.monitor.close(id);
        }
        self.sessions.close(io, id, session, why, unsent);
    }

    fn on_timer(&mut self, io: &mut Io, id: ConnId, kind: u8) {
        let sessions = &mut self.sessions;
        if kind != Timer::SAMPLE {
            self.sampler.note_worked();
        }
        match kind {
            Timer::PING => match io.conn(id).map(|conn| &conn.session.protocol) {
                Some(Protocol::Http(_)) => gateway::handle_heartbeat_timer(sessions, io, id),
                _ => Nats::handle_ping_timer(sessions, io, id),
            },
            Timer::WRITE => Backpressure::handle_write_timer(sessions, io, id),
            Timer::HANDSHAKE => Requests::handle_timer(sessions, io, id),
            Timer::REPLY | Timer::SURVEY => {
                let on = &mut Exchange {
                    sessions,
                    publishing: &mut self.publishing,
                    io,
                    id,
                };
                match kind {
                    Timer::REPLY => gateway::handle_reply_timer(on),
                    _ => self.monitor.handle_timer(on),
                }
            }
            Timer::RESUME => Backpressure::handle_resume_timer(sessions, io, id),
            Timer::LAME_DUCK => self.drain.handle_timer(sessions, io),
            Timer::SAMPLE => self.begin(io),
            Timer::HALF_OPEN => entry::handle_timer(sessions, io),
            _ => {}
        }
    }

    fn on_mail(&mut self, io: &mut Io, mail: Mail) {
        let (sessions, publishing) = (&mut self.sessions, &mut self.publishing);
        self.sampler.note_worked();
        match mail {
            Mail::Deliver {
                owned,
                receivers,
                publisher,
                weight,
            } => {
                let from = (publisher, weight);
                publishing.deliver_mail(sessions, io, &owned, &receivers, from);
            }
            Mail::Stall(id) => {
                let publisher = (sessions.index, id);
                publishing
                    .delivery
                    .backpressure
                    .stall(sessions, io, publisher);
            }
            Mail::Barrier(barrier) => {
                io.mail(usize::from(barrier.shard), Mail::Passed(barrier));
            }
            Mail::Passed(barrier) => Fence::handle_passed(sessions, io, barrier),
            Mail::Survey(survey) => {
                let surveys = &mut self.monitor.surveys;
                surveys.handle_survey(&sessions.shared, publishing, io, survey);
            }
            Mail::Surveyed(survey) => {
                let monitor = &mut self.monitor;
                monitor.handle_surveyed(sessions, publishing, io, survey);
            }
            // Done at the end of each turn.
            Mail::BoundMemory => {}
            Mail::Evict(id) => sessions.evict(io, id),
            Mail::Drain => Drain::begin(sessions, io),
            Mail::Stop => io.stop(),
            #[cfg(test)]
            Mail::Panic => panic!("a test has asked for it"),
        }
    }

    fn on_undelivered(&mut self, mail: Mail) {
        match mail {
            Mail::Deliver {
                owned,
                receivers,
                weight,
                ..
            } => {
                let (sessions, count) = (&self.sessions, receivers.as_slice().len() as u64);
                if let Some(to) = receivers.as_slice().first() {
                    let memory = Mail::bytes(&owned, &receivers);
                    sessions.shared.queued[usize::from(to.shard)].subtract(weight, memory);
                }
                sessions.counts.add_arrived(count);
                sessions.counts.add_dropped(Dropped::Shutdown, count);
            }
            // The answers go behind the mail that the ended shard has sent before. If the shard that asked has
            // ended, too, no answer is needed.
            Mail::Barrier(barrier) => {
                let shard = usize::from(barrier.shard);
                drop(self.mailboxes.post(shard, Mail::Passed(barrier)));
            }
            Mail::Survey(mut survey) => {
                survey.discard();
                let asker = survey.asker();
                drop(self.mailboxes.post(asker, Mail::Surveyed(survey)));
            }
            Mail::Passed(_)
            | Mail::Stall(_)
            | Mail::Surveyed(_)
            | Mail::BoundMemory
            | Mail::Evict(_)
            | Mail::Drain
            | Mail::Stop => {}
            #[cfg(test)]
            Mail::Panic => {}
        }
    }

    fn on_turn_end(&mut self, io: &mut Io) {
        let (sessions, publishing) = (&mut self.sessions, &mut self.publishing);
        publishing.delivery.backpressure.end_turn();
        self.nats.fence.release(sessions, io);
        self.monitor.answer_queued(sessions, publishing, io);
        self.continue_jobs(io);
        self.receive_deferred(io);
        self.monitor.surveys.go_on(io);
        self.sessions.bound_memory(io);
    }

    fn on_written(&mut self, io: &mut Io) {
        self.sessions.settle_memory(io);
        self.sessions.publish_counts(io);
        self.sampler.count_turn(&self.sessions, io);
        if Drain::is_over(&self.sessions) {
            io.stop();
        }
    }
}
