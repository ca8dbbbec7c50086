//! The receivers that the routing table names.

use reactor::ConnId;

use crate::subscriptions::SubscriptionId;

/// The index of a [`Subscriber`] that waits for one reply; no subscription has it.
const REPLY: u32 = 1 << 31;

/// One receiver: a subscription of a connection of a shard, or a connection that waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Subscriber {
    pub(crate) conn: ConnId,
    /// Slot among the connection's subscriptions, or [`REPLY`].
    index: u32,
    /// Generation of the subscription, which tells it from earlier ones in the same slot.
    generation: u16,
    pub(crate) shard: u16,
}

/// The place on a connection that a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// One of its subscriptions.
    Subscription(SubscriptionId),
    /// The HTTP request that waits for a reply.
    Reply,
}

impl Subscriber {
    /// Return a subscription of the connection `conn` on `shard`.
    #[inline]
    pub(crate) const fn subscription(shard: u16, conn: ConnId, handle: SubscriptionId) -> Self {
        Self {
            conn,
            index: handle.slot(),
            generation: handle.generation(),
            shard,
        }
    }

    /// Return the request of the connection `conn` on `shard` that waits for a reply.
    pub(crate) const fn reply(shard: u16, conn: ConnId) -> Self {
        Self {
            conn,
            index: REPLY,
            generation: 0,
            shard,
        }
    }

    /// Return the place on the connection that a message is for.
    #[inline]
    pub(crate) const fn destination(&self) -> Destination {
        if self.index == REPLY {
            Destination::Reply
        } else {
            Destination::Subscription(SubscriptionId::new(self.index, self.generation))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routing_tables_handle_stays_small() {
        assert_eq!(size_of::<Subscriber>(), 16);
    }

    #[test]
    fn a_subscription_and_a_reply_are_told_apart() {
        let (conn, handle) = (ConnId::from_bits(7), SubscriptionId::new(3, 9));
        let subscription = Subscriber::subscription(2, conn, handle);
        assert_eq!(
            subscription.destination(),
            Destination::Subscription(handle)
        );
        let reply = Subscriber::reply(2, conn);
        assert_eq!(reply.destination(), Destination::Reply);
        assert_eq!((reply.conn, reply.shard), (conn, 2));
    }
}
