//! Events with their time and place.

use std::time::SystemTime;

use super::event::{Event, Level, Topic, Value, Visit};

/// Record of one line.
pub(super) struct Record<E: Event> {
    pub(super) time: SystemTime,
    /// Shard of the event; `None` for the program as a whole.
    pub(super) shard: Option<u16>,
    pub(super) content: Content<E>,
}

/// Content of a line: an event, or a report of the log itself.
pub(super) enum Content<E: Event> {
    Event(E),
    /// Number of lines that the output did not take in time.
    LinesLost(u64),
    /// Topic and number of events that were left out because their rate was too high.
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
