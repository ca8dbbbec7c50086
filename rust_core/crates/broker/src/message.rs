//! Published messages with memory of their own.

use std::sync::Arc;

use protocol::nats::Message;

use crate::memory::account::Account;
use crate::subscriber::Subscriber;

/// A message of its own memory, for mail, and for several outputs that hold it together: all of it in one
/// allocation.
pub(crate) struct OwnedMessage {
    /// Subject, reply, headers and payload, and the CR LF behind them.
    bytes: Box<[u8]>,
    subject: u32,
    /// Length, where there is a reply subject.
    reply: Option<u32>,
    headers: Option<u32>,
    /// The account that has the bytes, when outputs hold them together.
    account: Option<Arc<Account>>,
}

/// Bytes of headers and payload from which on outputs hold a message together.
pub(crate) const SHARED: usize = 16 << 10;

impl OwnedMessage {
    pub(crate) fn new(message: &Message<'_>, account: &Arc<Account>) -> Self {
        let reply = message.reply.unwrap_or_default();
        let headers = message.headers.unwrap_or_default();
        let parts = [message.subject, reply, headers, message.payload, b"\r\n"];
        let bytes = parts.concat().into_boxed_slice();
        let is_shared = message.size() >= SHARED;
        let account = is_shared.then(|| Arc::clone(account));
        if let Some(account) = &account {
            account.add(bytes.len());
        }
        Self {
            bytes,
            subject: message.subject.len() as u32,
            reply: message.reply.map(|reply| reply.len() as u32),
            headers: message.headers.map(|headers| headers.len() as u32),
            account,
        }
    }

    pub(crate) fn message(&self) -> Message<'_> {
        let (subject, rest) = self.bytes.split_at(self.subject as usize);
        let (reply, rest) = rest.split_at(self.reply.unwrap_or(0) as usize);
        let (headers, rest) = rest.split_at(self.headers.unwrap_or(0) as usize);
        Message {
            subject,
            reply: self.reply.map(|_| reply),
            headers: self.headers.map(|_| headers),
            payload: &rest[..rest.len() - 2],
        }
    }

    /// Return whether outputs hold the message together.
    pub(crate) fn is_shared(&self) -> bool {
        self.account.is_some()
    }

    /// Return where the headers begin, or the payload, followed by the CR LF.
    pub(crate) fn body(&self, has_headers: bool) -> u32 {
        let headers = if has_headers {
            0
        } else {
            self.headers.unwrap_or(0)
        };
        self.subject + self.reply.unwrap_or(0) + headers
    }

    /// Return the bytes of memory that belong to the mail with the message.
    pub(crate) fn own_bytes(&self) -> usize {
        if self.is_shared() {
            0
        } else {
            self.bytes.len()
        }
    }
}

impl AsRef<[u8]> for OwnedMessage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.subtract(self.bytes.len());
        }
    }
}

/// The receivers of a message on one shard.
pub(crate) enum Receivers {
    One(Subscriber),
    Many(Box<[Subscriber]>),
}

impl From<&[Subscriber]> for Receivers {
    fn from(receivers: &[Subscriber]) -> Self {
        match receivers {
            [one] => Self::One(*one),
            many => Self::Many(many.into()),
        }
    }
}

impl Receivers {
    pub(crate) fn as_slice(&self) -> &[Subscriber] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owned_message_gives_back_its_message() {
        for (reply, headers) in [
            (None, None),
            (Some(&b"_INBOX.1"[..]), None),
            (Some(&b"r"[..]), Some(&b"NATS/1.0"[..])),
        ] {
            let message = Message {
                subject: b"a.b",
                reply,
                headers,
                payload: b"payload",
            };
            let owned = OwnedMessage::new(&message, &Arc::new(Account::new(0, 1)));
            let back = owned.message();
            assert_eq!(back.subject, b"a.b");
            assert_eq!((back.reply, back.headers), (reply, headers));
            assert_eq!(back.payload, b"payload");
            let body = |has_headers| &owned.as_ref()[owned.body(has_headers) as usize..];
            assert_eq!(body(false), b"payload\r\n");
            assert_eq!(
                body(true),
                [headers.unwrap_or_default(), b"payload\r\n"].concat()
            );
        }
    }

    #[test]
    fn a_shared_message_is_in_the_account_until_its_last_holder_is_gone() {
        let account = Arc::new(Account::new(0, 1));
        let message = |payload| Message {
            subject: b"a",
            reply: None,
            headers: None,
            payload,
        };
        let payload = vec![0; SHARED];
        let small = OwnedMessage::new(&message(&payload[1..]), &account);
        assert!(!small.is_shared());
        assert_eq!(account.used(), 0);
        let owned = Arc::new(OwnedMessage::new(&message(&payload), &account));
        let other = Arc::clone(&owned);
        drop(owned);
        assert_eq!(account.used(), SHARED + 3);
        drop(other);
        assert_eq!(account.used(), 0);
    }
}
