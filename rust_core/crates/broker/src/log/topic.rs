//! The kinds of events that share a rate.

use telemetry::key::Key;
use telemetry::log::event::Visit;
use telemetry::log::{Level, Value};

use crate::reason::Reason;

/// Events that share a rate: each kind that clients bring about, and of closes each reason, so that a
/// flood of one hides no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    Connected,
    Identified,
    Refused,
    Stalled,
    AcceptFailed,
    Closed(Reason),
}

const PLAIN: [Topic; 5] = [
    Topic::Connected,
    Topic::Identified,
    Topic::Refused,
    Topic::Stalled,
    Topic::AcceptFailed,
];
const TOPICS: usize = PLAIN.len() + Reason::ALL.len();

impl Key for Topic {
    type About = ();
    type Array<T: Send + Sync> = [T; TOPICS];

    const ALL: &'static [Self] = &{
        let mut all = [Self::Connected; TOPICS];
        let mut index = 0;
        while index < TOPICS {
            all[index] = if index < PLAIN.len() {
                PLAIN[index]
            } else {
                Self::Closed(Reason::ALL[index - PLAIN.len()])
            };
            index += 1;
        }
        all
    };

    #[inline]
    fn index(self) -> usize {
        match self {
            Self::Connected => 0,
            Self::Identified => 1,
            Self::Refused => 2,
            Self::Stalled => 3,
            Self::AcceptFailed => 4,
            Self::Closed(reason) => PLAIN.len() + reason.index(),
        }
    }

    fn about(self) -> &'static () {
        &()
    }

    fn array<T: Send + Sync>(mut make: impl FnMut(Self) -> T) -> [T; TOPICS] {
        std::array::from_fn(|index| make(Self::ALL[index]))
    }
}

impl telemetry::log::Topic for Topic {
    fn kind(self) -> &'static str {
        match self {
            Self::Connected => "client_connected",
            Self::Identified => "client_identified",
            Self::Refused => "request_refused",
            Self::Stalled => "publisher_stalled",
            Self::AcceptFailed => "accept_failed",
            Self::Closed(_) => "client_closed",
        }
    }

    #[inline]
    fn level(self) -> Level {
        match self {
            Self::Connected | Self::Identified | Self::Refused => Level::Debug,
            Self::Stalled => Level::Debug,
            Self::AcceptFailed => Level::Warning,
            Self::Closed(reason) => level_of_close(reason),
        }
    }

    fn fields(self, visit: &mut Visit<'_>) {
        if let Self::Closed(reason) = self {
            visit("reason", Value::Text(reason.name()));
        }
    }
}

/// Return the level of a close. An end that every client may have in good order, or that the network has
/// caused, does not concern an operator by itself.
const fn level_of_close(reason: Reason) -> Level {
    match reason {
        Reason::ClientClosed
        | Reason::ConnectionFailed
        | Reason::HttpAnswered
        | Reason::Shutdown => Level::Debug,
        Reason::SlowConsumer
        | Reason::Stale
        | Reason::ProtocolError
        | Reason::InvalidText
        | Reason::PayloadTooLarge
        | Reason::ControlLineTooLong
        | Reason::TooManyConnections
        | Reason::TooManyFromAddress
        | Reason::Evicted
        | Reason::NoMemory
        | Reason::HandshakeTimeout
        | Reason::Refused => Level::Warning,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_a_place_of_its_own() {
        let indexes: Vec<_> = Topic::ALL.iter().map(|topic| topic.index()).collect();
        assert_eq!(indexes, (0..TOPICS).collect::<Vec<_>>());
    }
}
