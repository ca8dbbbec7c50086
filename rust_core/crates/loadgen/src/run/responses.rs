//! Accounting for responses over HTTP. A response has no request id and needs none, because a
//! connection has one request at a time.

use super::{NO_RESPONDERS, Run, SEQ_BITS};
use crate::inflight::ReplyKind;
use crate::payload::{self, PayloadKind};

const OK: u16 = 200;

impl Run {
    /// Account for the response to `user`'s request, received at `now`.
    #[inline]
    pub(crate) fn handle_response(&mut self, user: u32, status: u16, body: &[u8], now: u64) {
        let Some(seq) = self.inflight.latest(user) else {
            self.unmatched += 1;
            return;
        };
        match self.inflight.end(seq, user) {
            ReplyKind::Awaited { planned, sent } if status == OK => {
                let is_intact = if self.fetch {
                    body.len() == self.reply_bytes
                } else {
                    payload::parse_id(body) == Some(self.thread << SEQ_BITS | seq)
                        && payload::is_intact(body, PayloadKind::Reply, self.reply_bytes)
                };
                self.accept(seq, is_intact, (planned, sent, now));
            }
            ReplyKind::Awaited { .. } => self.refuse_status(seq, status),
            ReplyKind::Duplicate => self.counts(seq).duplicates += 1,
            ReplyKind::Late => self.counts(seq).late += 1,
            ReplyKind::Unmatched => self.unmatched += 1,
        }
    }

    #[cold]
    fn refuse_status(&mut self, seq: u64, status: u16) {
        let counts = self.counts(seq);
        counts.errors += 1;
        counts.no_responders += u64::from(status == NO_RESPONDERS);
        if seq >= self.first_measured {
            *self.statuses.entry(status).or_default() += 1;
        }
    }

    /// Note that `user`'s connection was lost, with the response to the user's request.
    pub(crate) fn fail(&mut self, user: u32) {
        let seq = self.inflight.latest(user);
        if let Some(seq) = seq
            && let ReplyKind::Awaited { .. } = self.inflight.end(seq, user)
        {
            self.counts(seq).errors += 1;
        }
    }
}
