//! The way in of a shard's clients: the decision on each connection that comes, and the end of those that
//! stay silent.

use std::net::SocketAddr;

use protocol::nats::error;
use reactor::ConnId;

use super::places::Evicted;
use super::{Decision, Stage};
use crate::http;
use crate::io::{Io, Timer};
use crate::jobs::Job;
use crate::mail::Mail;
use crate::metrics::table::Counter;
use crate::protocols::Protocol;
use crate::reason::Reason;
use crate::sessions::Sessions;

/// Admit a connection that has come to a listener of clients; `None` closes it at once.
pub(crate) fn admit(sessions: &mut Sessions, io: &mut Io, peer: SocketAddr) -> Option<Stage> {
    if let Some(due) = sessions.admission.next_due(io.now()) {
        sessions.listeners.pause_clients(io, due);
    }
    let has_memory = !sessions.shared.account.is_exhausted();
    match sessions.admission.admit(peer.ip(), has_memory) {
        Decision::Admitted(evicted) => {
            if let Some(Evicted { shard, id }) = evicted {
                if shard == usize::from(sessions.index) {
                    sessions.evict(io, id);
                } else {
                    io.mail(shard, Mail::Evict(id));
                }
            }
            Some(Stage::Introduced)
        }
        Decision::Refused(refusal) => Some(Stage::Refused(refusal)),
        Decision::Dismissed => {
            sessions.counts.add(Counter::Dismissed, 1);
            None
        }
    }
}

/// Begin with a client that was admitted or refused.
pub(crate) fn open(sessions: &mut Sessions, io: &mut Io, id: ConnId) {
    sessions.count_opened(io, id);
    let Some(conn) = io.conn(id) else { return };
    let is_tcp = matches!(conn.session.protocol, Protocol::Tcp(_));
    match conn.session.stage {
        Stage::Refused(refusal) if is_tcp => {
            sessions.end(io, id, refusal.reason(), Some(refusal.text()));
        }
        // It is told when its first request has come: by 503, or over WebSocket.
        Stage::Refused(_) => {
            let check = sessions.shared.limits.http_check();
            io.set_timer(id, Timer::HANDSHAKE, check);
        }
        _ => {
            sessions.begin_half_open(io, id);
            if is_tcp {
                sessions.greet(io, id);
            }
        }
    }
}

/// End connections whose time is over, in more than one turn if they are many.
pub(crate) fn handle_timer(sessions: &mut Sessions, io: &mut Io) {
    if let Some(rest) = expire(sessions, io) {
        sessions.jobs.add(rest);
        io.wake_at(io.now());
    }
}

/// End the connections whose time to introduce themselves is over; return the rest of the work.
pub(crate) fn expire(sessions: &mut Sessions, io: &mut Io) -> Option<Job> {
    // The descriptors of closed connections are free only when the turn is over.
    while !sessions.admission.is_closing_enough() {
        if io.is_spent() {
            return Some(Job::Expire);
        }
        let Some(id) = sessions.admission.expire(io.now()) else {
            break;
        };
        let text = error::AUTHENTICATION_TIMEOUT;
        sessions.end_half_open(io, id, Reason::HandshakeTimeout, text, http::TIMEOUT);
    }
    sessions.admission.end_timer();
    sessions.set_half_open_timer(io);
    None
}
