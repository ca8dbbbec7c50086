//! Events for the tests of the log.

use std::time::Duration;

use super::event::{Event, Level, Topic, Value, Visit};

/// Event of a fictitious program.
pub(super) enum Sample {
    /// Greeting with a text from outside.
    Greeting(String),
    /// End, after a length of time.
    Ended(Duration),
    Failed(SampleTopic),
}

crate::keys! {
    /// Failures have a rate each, and one kind.
    pub(super) enum SampleTopic: &'static str {
        Greeting = "",
        Disk = "disk",
        Network = "network",
    }
}

impl Topic for SampleTopic {
    fn kind(self) -> &'static str {
        match self {
            Self::Greeting => "greeting",
            Self::Disk | Self::Network => "failed",
        }
    }

    fn level(self) -> Level {
        match self {
            Self::Greeting => Level::Debug,
            Self::Disk | Self::Network => Level::Warning,
        }
    }

    fn fields(self, visit: &mut Visit<'_>) {
        if let Self::Disk | Self::Network = self {
            visit("part", Value::Text(crate::key::Key::about(self)));
        }
    }
}

impl Event for Sample {
    type Topic = SampleTopic;

    fn kind(&self) -> &'static str {
        match self {
            Self::Greeting(_) => SampleTopic::Greeting.kind(),
            Self::Ended(_) => "ended",
            Self::Failed(topic) => topic.kind(),
        }
    }

    fn level(&self) -> Level {
        match self {
            Self::Greeting(_) => SampleTopic::Greeting.level(),
            Self::Ended(_) => Level::Info,
            Self::Failed(topic) => topic.level(),
        }
    }

    fn fields(&self, visit: &mut Visit<'_>) {
        match self {
            Self::Greeting(text) => {
                visit("text", Value::Text(text));
                visit("length", Value::Number(text.len() as u64));
            }
            Self::Ended(time) => visit("duration_s", Value::Time(*time)),
            Self::Failed(topic) => {
                topic.fields(visit);
                let address = ([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1], 4222).into();
                visit("remote", Value::Address(address));
            }
        }
    }
}
