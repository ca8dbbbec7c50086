//! Events with the time and the place at which they happened.

use std::time::SystemTime;

use super::event::{Event, Level, Topic, Value, Visit};

/// A line to be written.
pub(super) struct Record<E: Event> {
    pub(super) time: SystemTime,
    /// The shard; `None` for the program as a whole.
    pub(super) shard: Option<u16>,
    pub(super) content: Content<E>,
}

/// The content of a line: an event, or an account of the log itself.
pub(super) enum Content<E: Event> {
    Event(E),
    /// Number of lines that the output did not take in time.
    LinesLost(u64),
    /// Topic and number of events that were left out because there were too many of them.
    LinesSuppressed(E::Topic, u64),
}

impl<E: Event> Content<E> {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Event(event) => event.kind(),
            Self::LinesLost(_) => "lines_lost",
            Self::LinesSuppressed(..) => "lines_suppressed",
        }
    }

    pub(super) fn level(&self) -> Level {
        match self {
            Self::Event(event) => event.level(),
            Self::LinesLost(_) => Level::Warning,
            Self::LinesSuppressed(topic, _) => topic.level(),
        }
    }

    pub(super) fn fields(&self, visit: &mut Visit<'_>) {
        match self {
            Self::Event(event) => event.fields(visit),
            Self::LinesLost(lost) => visit("lost", Value::Number(*lost)),
            Self::LinesSuppressed(topic, suppressed) => {
                visit("of", Value::Text(topic.kind()));
                topic.fields(visit);
                visit("suppressed", Value::Number(*suppressed));
            }
        }
    }
}
