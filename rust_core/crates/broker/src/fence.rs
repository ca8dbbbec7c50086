//! Replies that wait for mail: the fence of a `PONG`, and the barrier of an `UNSUB`.
//!
//! Messages under way by mail when a client's `PING` was read are handed out before its `PONG`. After an
//! `UNSUB` other shards may have messages for the subscription under way that were routed before. The
//! subscription stays until a barrier has come back from all of them, and so do the replies behind it.

use std::collections::VecDeque;

use protocol::nats::encode;
use reactor::ConnId;

use crate::io::Io;
use crate::mail::{Barrier, Mail};
use crate::metrics::table::Counter;
use crate::outbound;
use crate::publishing::Publishing;
use crate::session::Flags;
use crate::sessions::Sessions;
use crate::subscriptions::{REMOVE, SubscriptionId, UNSUBSCRIBE};

/// The replies of a shard that wait.
#[derive(Default)]
pub(crate) struct Fence {
    /// Connections whose replies wait for mail, with the mark that ends the wait; oldest first.
    waiting: VecDeque<(u64, ConnId)>,
    /// Whether the connection being read has `UNSUB`s whose barrier is not sent.
    has_open_barrier: bool,
}

impl Fence {
    /// Answer with `PONG`, behind all messages that are under way by mail now: their publisher may have
    /// had a `PONG` already.
    pub(crate) fn answer_ping(&mut self, io: &mut Io, id: ConnId, flags: &mut Flags) {
        let mark = io.mail_mark();
        let must_wait = !io.has_passed(mark);
        let Some(conn) = io.writer(id) else { return };
        if must_wait {
            conn.session.held.get_or_insert_default().wait_for(mark);
            self.waiting.push_back((mark, id));
        }
        outbound::append_reply(conn, encode::PONG);
        flags.set(Flags::GREETED);
        conn.session.flags = *flags;
    }

    /// Send the replies that waited for mail which has been handed out by now.
    pub(crate) fn release(&mut self, sessions: &mut Sessions, io: &mut Io) {
        while let Some((mark, id)) = self.waiting.front().copied()
            && io.has_passed(mark)
        {
            self.waiting.pop_front();
            release_replies(sessions, io, id);
        }
    }

    /// Return the number of waits.
    #[cfg(feature = "sim")]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Remove a subscription at its client's wish: at once if no message for it can be under way,
    /// otherwise behind a barrier.
    pub(crate) fn unsubscribe(
        &mut self,
        sessions: &mut Sessions,
        publishing: &Publishing,
        io: &mut Io,
        id: ConnId,
        handle: SubscriptionId,
    ) {
        io.spend(UNSUBSCRIBE);
        let subscriber = sessions.subscriber(id, handle);
        let is_alone = io.shards() == 1 && !publishing.has_own_mail();
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        sessions.counts.add(Counter::Unsubscribed, 1);
        let subscriptions = &mut conn.session.subscriptions;
        if let Some(one) = subscriptions.value(handle) {
            let routing = &sessions.shared.routing;
            routing.unsubscribe(one.subject(), one.queue(), &subscriber);
        }
        if is_alone {
            subscriptions.remove(handle);
            return;
        }
        subscriptions.mark_leaving(handle);
        conn.session
            .held
            .get_or_insert_default()
            .add_leaving(handle);
        self.has_open_barrier = true;
    }

    /// Send the barrier for the subscriptions of a connection that left in this read, if any did.
    #[inline]
    pub(crate) fn send_barrier(&mut self, publishing: &Publishing, io: &mut Io, id: ConnId) {
        if std::mem::take(&mut self.has_open_barrier) {
            send_barrier(io, id, publishing.has_own_mail());
        }
    }

    /// Note that one shard has no more messages for the subscriptions that wait at `barrier`.
    pub(crate) fn handle_passed(sessions: &mut Sessions, io: &mut Io, barrier: Barrier) {
        let id = barrier.conn;
        let Some(conn) = io.conn_mut(id) else {
            return;
        };
        if let Some(held) = &mut conn.session.held {
            held.note_passed(barrier.ticket);
            release_replies(sessions, io, id);
        }
    }
}

/// Send the open barrier of a connection to all shards that may have messages for it; `own` says whether
/// this shard has, too.
fn send_barrier(io: &mut Io, id: ConnId, own: bool) {
    let waiting = io.shards() as u32 - u32::from(!own);
    let me = io.shard();
    let Some(conn) = io.conn_mut(id) else {
        return;
    };
    let held = conn.session.held.as_mut();
    let Some(ticket) = held.and_then(|held| held.close_barrier(waiting)) else {
        return;
    };
    let barrier = Barrier {
        shard: me as u16,
        ticket,
        conn: id,
    };
    for shard in (0..io.shards()).filter(|shard| own || *shard != me) {
        io.mail(shard, Mail::Barrier(barrier));
    }
}

/// Send the replies of a connection whose wait is over, and remove the subscriptions that waited with them.
fn release_replies(sessions: &mut Sessions, io: &mut Io, id: ConnId) {
    let (mut replies, mut removed) = (Vec::new(), 0);
    loop {
        // Taken out, because the mail is asked meanwhile.
        let Some(conn) = io.conn_mut(id) else { return };
        let Some(mut held) = conn.session.held.take() else {
            break;
        };
        let done = held.next_done(|mark| io.has_passed(mark));
        let Some(conn) = io.conn_mut(id) else { return };
        if !held.is_empty() {
            conn.session.held = Some(held);
        }
        let Some((handles, bytes)) = done else { break };
        removed += handles.len();
        for handle in handles {
            conn.session.subscriptions.remove(handle);
        }
        replies.extend_from_slice(&bytes);
    }
    io.spend(removed * REMOVE);
    sessions.memory.weigh(io, id);
    if !replies.is_empty()
        && let Some(conn) = io.writer(id)
    {
        outbound::append_bytes(conn, &replies);
    }
}
