//! Reply subjects of the gateway: each names the shard, connection and request that wait for the reply, so
//! that no subscription has to be made and looked up for it.
//!
//! `_INBOX.<secret>.<shard>-<slot>-<generation>-<number>`, all in hexadecimal. The secret is this
//! process's own; who subscribes by a wildcard sees the replies like those of any client.

use reactor::ConnId;

use crate::mail::Subscriber;

/// Marks a [`Subscriber`] that waits for one reply. The rest of its index is the request's number.
pub(crate) const REPLY: u32 = 1 << 31;

/// Makes and reads the reply subjects.
pub(crate) struct Inboxes {
    prefix: Box<[u8]>,
    shards: usize,
}

impl Inboxes {
    /// `secret` is random, and there are `shards` shards.
    pub(crate) fn new(secret: u64, shards: usize) -> Self {
        Self {
            prefix: format!("_INBOX.{secret:016x}.")
                .into_bytes()
                .into_boxed_slice(),
            shards,
        }
    }

    /// Appends the subject of the reply to `to`.
    pub(crate) fn encode(&self, to: &Subscriber, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        let bits = to.conn.to_bits();
        let (slot, generation) = (bits as u32, (bits >> 32) as u32);
        for (n, part) in [to.shard.into(), slot, generation, to.index & !REPLY]
            .into_iter()
            .enumerate()
        {
            if n > 0 {
                out.push(b'-');
            }
            encode_hex(out, part);
        }
    }

    /// Who waits for what is published to `subject`; `None` for every other subject.
    #[inline]
    pub(crate) fn receiver(&self, subject: &[u8]) -> Option<Subscriber> {
        let address = subject.strip_prefix(&*self.prefix)?;
        parse(address).filter(|to| usize::from(to.shard) < self.shards)
    }
}

fn encode_hex(out: &mut Vec<u8>, number: u32) {
    let digits = (32 - number.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|digit| {
        let value = number >> (4 * digit) & 0xf;
        b"0123456789abcdef"[value as usize]
    }));
}

/// One to eight digits.
fn parse_hex(digits: &[u8]) -> Option<u32> {
    if !(1..=8).contains(&digits.len()) {
        return None;
    }
    digits.iter().try_fold(0, |number: u32, digit| {
        Some(number << 4 | char::from(*digit).to_digit(16)?)
    })
}

fn parse(address: &[u8]) -> Option<Subscriber> {
    let mut parts = address.split(|byte| *byte == b'-');
    let mut next = || parse_hex(parts.next()?);
    let shard = u16::try_from(next()?).ok()?;
    let (slot, generation, number) = (next()?, next()?, next()?);
    if parts.next().is_some() || number & REPLY != 0 {
        return None;
    }
    Some(Subscriber {
        conn: ConnId::from_bits(u64::from(generation) << 32 | u64::from(slot)),
        index: REPLY | number,
        generation: 0,
        shard,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_subject_names_its_receiver() {
        let inboxes = Inboxes::new(0x5ec, 1024);
        for (shard, bits, number) in [
            (0, 0, 0),
            (1023, 0xffff_fffe_0000_00ff, 0x7fff_ffff),
            (7, 1 << 32, 9),
        ] {
            let to = Subscriber {
                conn: ConnId::from_bits(bits),
                index: REPLY | number,
                generation: 0,
                shard,
            };
            let mut subject = Vec::new();
            inboxes.encode(&to, &mut subject);
            assert_eq!(inboxes.receiver(&subject), Some(to));
            assert!(router::subject::is_valid_publish(&subject));
        }
    }

    #[test]
    fn other_subjects_do_not() {
        let inboxes = Inboxes::new(0x5ec, 1024);
        let others = [
            "a.b",
            "_INBOX",
            "_INBOX.00000000000005ec",
            "_INBOX.00000000000005ec.",
            "_INBOX.OTHER.0-0-0-0",
            "_INBOX.00000000000005ec.0-0-0",
            "_INBOX.00000000000005ec.0-0-0-0-0",
            "_INBOX.00000000000005ec.0-0-0-80000000",
            "_INBOX.00000000000005ec.10000-0-0-0",
            "_INBOX.00000000000005ec.400-0-0-0",
            "_INBOX.00000000000005ec.+0-0-0-0",
            "_INBOX.00000000000005ec.0-0--0",
            "_INBOX.00000000000005ec.0-100000000-0-0",
        ];
        for other in others {
            assert_eq!(inboxes.receiver(other.as_bytes()), None, "{other}");
        }
    }
}
