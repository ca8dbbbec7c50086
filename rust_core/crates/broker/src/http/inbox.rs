//! Reply subjects of the gateway: each names the shard and the connection that wait for the reply, so that no
//! subscription has to be made and looked up for it.
//!
//! `_INBOX.<broker>.<shard>-<slot>-<generation>-<token>`, all in hexadecimal. The broker's part differs from
//! process to process. The token is 64 random bits for each request, and the connection takes no reply without
//! it: a service knows the tokens of the requests that it was sent, and learns nothing about any other. Clients
//! that subscribe by a wildcard see the replies like those to any client.

use reactor::ConnId;

use crate::subscriber::Subscriber;

/// Digits of a token.
const TOKEN_LEN: usize = 16;

/// Makes and reads the reply subjects.
pub(crate) struct Inboxes {
    prefix: Box<[u8]>,
    shards: usize,
}

impl Inboxes {
    /// Return the reply subjects of a broker with `shards` shards; `broker` tells it from other processes.
    pub(crate) fn new(broker: u64, shards: usize) -> Self {
        Self {
            prefix: format!("_INBOX.{broker:016x}.")
                .into_bytes()
                .into_boxed_slice(),
            shards,
        }
    }

    /// Append the subject of the reply to the request with this token, which `conn` of `shard` waits for.
    pub(crate) fn encode(&self, shard: u16, conn: ConnId, token: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        let bits = conn.to_bits();
        let (slot, generation) = (bits as u32, (bits >> 32) as u32);
        for part in [shard.into(), slot, generation] {
            encode_hex(out, part);
            out.push(b'-');
        }
        push_digits(out, token, TOKEN_LEN as u32);
    }

    /// Return the connection that a message to `subject` is a reply for; `None` for every other subject. The
    /// connection compares the token, which [`token`] reads.
    #[inline]
    pub(crate) fn receiver(&self, subject: &[u8]) -> Option<Subscriber> {
        let address = subject.strip_prefix(&*self.prefix)?;
        parse(address).filter(|to| usize::from(to.shard) < self.shards)
    }
}

/// Return the token at the end of a reply subject.
pub(crate) fn token(subject: &[u8]) -> Option<u64> {
    parse_hex(subject.last_chunk::<TOKEN_LEN>()?)
}

fn encode_hex(out: &mut Vec<u8>, number: u32) {
    let digits = (32 - number.leading_zeros()).div_ceil(4).max(1);
    push_digits(out, number.into(), digits);
}

/// Append the last `count` hexadecimal digits of a number.
fn push_digits(out: &mut Vec<u8>, number: u64, count: u32) {
    out.extend((0..count).rev().map(|digit| {
        let value = number >> (4 * digit) & 0xf;
        b"0123456789abcdef"[value as usize]
    }));
}

/// Return the number that 1 to 16 digits stand for.
fn parse_hex(digits: &[u8]) -> Option<u64> {
    if !(1..=16).contains(&digits.len()) {
        return None;
    }
    digits.iter().try_fold(0, |number: u64, digit| {
        Some(number << 4 | u64::from(char::from(*digit).to_digit(16)?))
    })
}

fn parse(address: &[u8]) -> Option<Subscriber> {
    let mut parts = address.split(|byte| *byte == b'-');
    let mut number = || u32::try_from(parse_hex(parts.next()?)?).ok();
    let shard = u16::try_from(number()?).ok()?;
    let (slot, generation) = (number()?, number()?);
    let token = parts.next()?;
    if token.len() != TOKEN_LEN || parse_hex(token).is_none() || parts.next().is_some() {
        return None;
    }
    let conn = ConnId::from_bits(u64::from(generation) << 32 | u64::from(slot));
    Some(Subscriber::reply(shard, conn))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_subject_names_its_receiver_and_its_request() {
        let inboxes = Inboxes::new(0x1d, 1024);
        for (shard, bits, request) in [
            (0, 0, 0),
            (1023, 0xffff_fffe_0000_00ff, u64::MAX),
            (7, 1 << 32, 9),
        ] {
            let conn = ConnId::from_bits(bits);
            let mut subject = Vec::new();
            inboxes.encode(shard, conn, request, &mut subject);
            let to = Subscriber::reply(shard, conn);
            assert_eq!(inboxes.receiver(&subject), Some(to));
            assert_eq!(token(&subject), Some(request));
            assert!(router::subject::is_valid_publish(&subject));
        }
    }

    #[test]
    fn other_subjects_do_not() {
        const TOKEN: &str = "0123456789abcdef";
        let inboxes = Inboxes::new(0x1d, 1024);
        let receiver = |address: &str| {
            let subject = format!("_INBOX.000000000000001d.{address}");
            inboxes.receiver(subject.as_bytes())
        };
        assert!(receiver(&format!("0-0-0-{TOKEN}")).is_some());
        for address in [
            "".into(),
            TOKEN.into(),
            format!("0-0-{TOKEN}"),
            "0-0-0-0".into(),
            "0-0-0-".into(),
            format!("0-0-0-0{TOKEN}"),
            "0-0-0-0123456789abcdeg".into(),
            format!("0-0-0-{TOKEN}-0"),
            format!("10000-0-0-{TOKEN}"),
            format!("400-0-0-{TOKEN}"),
            format!("+0-0-0-{TOKEN}"),
            format!("0-0--{TOKEN}"),
            format!("0-100000000-0-{TOKEN}"),
            format!("0-0-{TOKEN}0-{TOKEN}"),
        ] {
            assert_eq!(receiver(&address), None, "{address}");
        }
        for subject in [
            "a.b",
            "_INBOX",
            "_INBOX.000000000000001d",
            "_INBOX.OTHER.0-0-0-0123456789abcdef",
        ] {
            assert_eq!(inboxes.receiver(subject.as_bytes()), None, "{subject}");
        }
        assert_eq!(token(b"_INBOX.x"), None);
    }
}
