//! What becomes of requests over HTTP: an answer names no request, and needs not, because a connection
//! has one at a time.

use super::{NO_RESPONDERS, Run, SEQ_BITS};
use crate::inflight::Verdict;
use crate::payload::{self, Stream};

const OK: u16 = 200;

impl Run {
    /// Accounts for the answer to `user`'s request, received at `now`.
    #[inline]
    pub(crate) fn handle_answer(&mut self, user: u32, status: u16, body: &[u8], now: u64) {
        let Some(seq) = self.inflight.latest(user) else {
            self.unmatched += 1;
            return;
        };
        match self.inflight.end(seq, user) {
            Verdict::Awaited { planned, sent } if status == OK => {
                let is_intact = if self.fetch {
                    body.len() == self.reply_bytes
                } else {
                    payload::parse_id(body) == Some(self.thread << SEQ_BITS | seq)
                        && payload::is_intact(body, Stream::Reply, self.reply_bytes)
                };
                self.accept(seq, is_intact, (planned, sent, now));
            }
            Verdict::Awaited { .. } => self.refuse_status(seq, status),
            Verdict::Duplicate => self.counts(seq).duplicates += 1,
            Verdict::Late => self.counts(seq).late += 1,
            Verdict::Unmatched => self.unmatched += 1,
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

    /// `user`'s connection was lost, and with it the answer to their request.
    pub(crate) fn fail(&mut self, user: u32) {
        let seq = self.inflight.latest(user);
        if let Some(seq) = seq
            && let Verdict::Awaited { .. } = self.inflight.end(seq, user)
        {
            self.counts(seq).errors += 1;
        }
    }
}
