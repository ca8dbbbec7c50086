//! What shards tell each other.

use std::sync::Arc;

use reactor::ConnId;

use crate::monitor::Survey;

/// Names one subscription of one connection of one shard: what the routing table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subscriber {
    pub(crate) conn: ConnId,
    /// Place among the connection's subscriptions.
    pub(crate) index: u32,
    /// Tells the subscription from earlier ones in the same place.
    pub(crate) generation: u16,
    pub(crate) shard: u16,
}

/// A published message, borrowed from where it arrived.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    pub(crate) subject: &'a [u8],
    pub(crate) reply: Option<&'a [u8]>,
    pub(crate) headers: Option<&'a [u8]>,
    pub(crate) payload: &'a [u8],
}

impl Message<'_> {
    /// Bytes of headers and payload.
    pub(crate) fn len(&self) -> usize {
        self.headers.map_or(0, <[u8]>::len) + self.payload.len()
    }
}

/// A message on its way by mail: all of it in one allocation.
pub(crate) struct Parcel {
    bytes: Box<[u8]>,
    subject: u32,
    /// Length, where there is a reply subject.
    reply: Option<u32>,
    headers: Option<u32>,
}

impl Parcel {
    pub(crate) fn new(message: &Message<'_>) -> Self {
        let reply = message.reply.unwrap_or_default();
        let headers = message.headers.unwrap_or_default();
        let parts = [message.subject, reply, headers, message.payload];
        Self {
            bytes: parts.concat().into_boxed_slice(),
            subject: message.subject.len() as u32,
            reply: message.reply.map(|reply| reply.len() as u32),
            headers: message.headers.map(|headers| headers.len() as u32),
        }
    }

    pub(crate) fn message(&self) -> Message<'_> {
        let (subject, rest) = self.bytes.split_at(self.subject as usize);
        let (reply, rest) = rest.split_at(self.reply.unwrap_or(0) as usize);
        let (headers, payload) = rest.split_at(self.headers.unwrap_or(0) as usize);
        Message {
            subject,
            reply: self.reply.map(|_| reply),
            headers: self.headers.map(|_| headers),
            payload,
        }
    }
}

/// The receivers of a parcel on one shard.
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

/// `UNSUB`s that wait until no mail has a message for their subscriptions any more.
#[derive(Clone, Copy)]
pub(crate) struct Barrier {
    pub(crate) shard: u16,
    /// Which of the connection's barriers.
    pub(crate) ticket: u32,
    pub(crate) conn: ConnId,
}

/// Mail between shards, and from the process to its shards.
pub(crate) enum Mail {
    /// Deliver this; `publisher` is to be stalled if a receiver falls behind. `weight` is what it
    /// counts for in [`Shared::weights`](crate::shared::Shared::weights).
    Deliver {
        parcel: Arc<Parcel>,
        receivers: Receivers,
        publisher: (u16, ConnId),
        weight: usize,
    },
    /// A receiver on another shard has fallen behind.
    Stall(ConnId),
    /// Answer with `Passed`: all mail sent before has then arrived.
    Barrier(Barrier),
    /// The barrier has come back from one shard.
    Passed(Barrier),
    /// Go on with this part of a survey.
    Survey(Box<Survey>),
    /// A shard's part of a survey is done.
    Surveyed(Box<Survey>),
    /// Begin lame duck mode.
    Drain,
    /// End at once.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_gives_back_its_message() {
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
            let parcel = Parcel::new(&message);
            let back = parcel.message();
            assert_eq!(back.subject, b"a.b");
            assert_eq!((back.reply, back.headers), (reply, headers));
            assert_eq!(back.payload, b"payload");
        }
    }

    #[test]
    fn the_routing_tables_handle_stays_small() {
        assert_eq!(size_of::<Subscriber>(), 16);
    }
}
