//! The command line.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

pub(crate) const HELP: &str = "\
floor: what the kernel alone costs for the benchmark's byte pattern, as one JSON object

  floor relay  [options]   users ask, providers answer, the server relays
  floor fanout [options]   one publisher, every connection receives every message

Both:
  --driver epoll|uring     system interface of both processes [epoll]
  --connections N          users or subscribers [1000]
  --greeting               each of them makes the two exchanges of a NATS client over
                           WebSocket before it counts as established
  --warmup S               seconds before the measured phase [1]
  --server-cpu C           core of the server [first one allowed]
  --load-cpu C             core of the load [second one allowed]
  --server-threads N, --load-threads N   epoll: threads with a descriptor table each
  --server-rings N, --load-rings N       uring: rings of one thread
                           [as many as the connections need under RLIMIT_NOFILE]
relay:
  --outstanding N          requests under way [1024]
  --duration S             seconds of the measured phase [3]
  --request-bytes N        [70]
  --reply-bytes N          [300]
  --providers N            connections that answer [16]
fanout:
  --outstanding N          messages under way [16]
  --publish-duration S     seconds of the measured phase [3]
  --bytes N                of one message [300]

Status: 0 measured without errors, 1 errors or failed, 2 wrong command line.
";

/// A command line that makes no sense, and why.
#[derive(Debug, PartialEq)]
pub(crate) struct UsageError(String);

impl Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Help,
    Run(Options),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverKind {
    Epoll,
    Uring,
}

impl DriverKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Uring => "uring",
        }
    }
}

/// What is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Relay(Exchange),
    Fanout { message_bytes: usize },
}

/// Requests and replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) request_bytes: usize,
    pub(crate) reply_bytes: usize,
    pub(crate) providers: u32,
}

impl Mode {
    /// Number of the few connections with much traffic: providers, or the publisher.
    pub(crate) fn trunks(self) -> u32 {
        match self {
            Self::Relay(exchange) => exchange.providers,
            Self::Fanout { .. } => 1,
        }
    }
}

/// A run as asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    pub(crate) driver: DriverKind,
    /// Users or subscribers.
    pub(crate) connections: u32,
    /// Whether each of them greets.
    pub(crate) greeting: bool,
    /// Requests or messages under way.
    pub(crate) outstanding: u32,
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
    /// `None` for the first and the second core allowed.
    pub(crate) server_cpu: Option<usize>,
    pub(crate) load_cpu: Option<usize>,
    /// Threads (epoll) or rings (uring); `None` for as many as are needed.
    pub(crate) server_shares: Option<u32>,
    pub(crate) load_shares: Option<u32>,
}

impl Command {
    /// Reads the arguments behind the program's name.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, UsageError> {
        let mode = arguments
            .next()
            .ok_or_else(|| UsageError("no mode given: relay or fanout".into()))?;
        match mode.as_str() {
            "--help" | "-h" | "help" => return Ok(Self::Help),
            "relay" | "fanout" => {}
            _ => {
                let text = format!("unknown mode {mode:?}: relay or fanout");
                return Err(UsageError(text));
            }
        }
        let mut given = Given::read(arguments)?;
        if given.0.contains_key("help") {
            return Ok(Self::Help);
        }
        let options = options(&mode, &mut given)?;
        match given.0.keys().next() {
            None => Ok(Self::Run(options)),
            Some(name) => Err(UsageError(format!(
                "unknown option --{name} for {mode} with driver {}",
                options.driver.name()
            ))),
        }
    }
}

fn options(mode: &str, given: &mut Given) -> Result<Options, UsageError> {
    let driver = match given.0.remove("driver").as_deref() {
        None | Some("epoll") => DriverKind::Epoll,
        Some("uring") => DriverKind::Uring,
        Some(other) => {
            let text = format!("--driver: {other:?} is neither epoll nor uring");
            return Err(UsageError(text));
        }
    };
    let (server_shares, load_shares) = match driver {
        DriverKind::Epoll => ("server-threads", "load-threads"),
        DriverKind::Uring => ("server-rings", "load-rings"),
    };
    const BYTES: RangeInclusive<usize> = 1..=16 << 20;
    const COUNT: RangeInclusive<u32> = 1..=10_000_000;
    let (mode, outstanding, duration) = match mode {
        "relay" => (
            Mode::Relay(Exchange {
                request_bytes: given.whole("request-bytes", BYTES)?.unwrap_or(70),
                reply_bytes: given.whole("reply-bytes", BYTES)?.unwrap_or(300),
                providers: given.whole("providers", 1..=1024)?.unwrap_or(16),
            }),
            1024,
            "duration",
        ),
        _ => (
            Mode::Fanout {
                message_bytes: given.whole("bytes", BYTES)?.unwrap_or(300),
            },
            16,
            "publish-duration",
        ),
    };
    Ok(Options {
        mode,
        driver,
        connections: given.whole("connections", COUNT)?.unwrap_or(1000),
        greeting: given.0.remove("greeting").is_some(),
        outstanding: given.whole("outstanding", COUNT)?.unwrap_or(outstanding),
        warmup: given
            .seconds("warmup", 0.0)?
            .unwrap_or(Duration::from_secs(1)),
        duration: given
            .seconds(duration, 0.1)?
            .unwrap_or(Duration::from_secs(3)),
        server_cpu: given.whole("server-cpu", 0..=1023)?,
        load_cpu: given.whole("load-cpu", 0..=1023)?,
        server_shares: given.whole(server_shares, 1..=1024)?,
        load_shares: given.whole(load_shares, 1..=1024)?,
    })
}

/// Options without a value.
const FLAGS: [&str; 2] = ["help", "greeting"];

/// Options by name, without the dashes; those that have been used are gone.
struct Given(BTreeMap<String, String>);

impl Given {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, UsageError> {
        let mut given = BTreeMap::new();
        while let Some(argument) = arguments.next() {
            let Some(option) = argument.strip_prefix("--") else {
                return Err(UsageError(format!("{argument:?} is not an option")));
            };
            let (name, value) = match option.split_once('=') {
                Some((name, _)) if FLAGS.contains(&name) => {
                    return Err(UsageError(format!("--{name} takes no value")));
                }
                Some((name, value)) => (name, Some(value.to_owned())),
                None if FLAGS.contains(&option) => (option, Some(String::new())),
                None => (option, arguments.next()),
            };
            let Some(value) = value else {
                return Err(UsageError(format!("--{name} has no value")));
            };
            if given.insert(name.to_owned(), value).is_some() {
                return Err(UsageError(format!("--{name} is given twice")));
            }
        }
        Ok(Self(given))
    }

    fn whole<T: FromStr + PartialOrd + Display>(
        &mut self,
        name: &str,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, UsageError> {
        let Some(text) = self.0.remove(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(value) if range.contains(&value) => Ok(Some(value)),
            _ => Err(UsageError(format!(
                "--{name}: {text:?} is not a whole number from {} to {}",
                range.start(),
                range.end()
            ))),
        }
    }

    fn seconds(&mut self, name: &str, least: f64) -> Result<Option<Duration>, UsageError> {
        const MOST: f64 = 86_400.0;
        let Some(text) = self.0.remove(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(seconds) if (least..=MOST).contains(&seconds) => {
                Ok(Some(Duration::from_secs_f64(seconds)))
            }
            _ => Err(UsageError(format!(
                "--{name}: {text:?} is not a number of seconds from {least} to {MOST}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        Command::parse(line.split_whitespace().map(str::to_owned)).map_err(|error| error.0)
    }

    #[test]
    fn options_in_both_forms() {
        let Ok(Command::Run(options)) = parse(
            "fanout --driver=uring --connections 20 --bytes=8 --server-rings 2 --warmup 0.5 --greeting",
        ) else {
            panic!("refused");
        };
        assert_eq!(options.mode, Mode::Fanout { message_bytes: 8 });
        assert_eq!(options.driver, DriverKind::Uring);
        assert_eq!((options.connections, options.outstanding), (20, 16));
        assert_eq!(
            (options.server_shares, options.load_shares),
            (Some(2), None)
        );
        assert_eq!(options.warmup, Duration::from_millis(500));
        assert!(options.greeting);
        assert_eq!(parse("relay --help"), Ok(Command::Help));
    }

    #[test]
    fn errors_name_the_option_and_what_is_wrong_with_it() {
        for (line, error) in [
            ("", "no mode given: relay or fanout"),
            ("echo", "unknown mode \"echo\": relay or fanout"),
            ("relay 5", "\"5\" is not an option"),
            ("relay --duration", "--duration has no value"),
            ("relay --greeting=yes", "--greeting takes no value"),
            (
                "relay --duration 1 --duration=2",
                "--duration is given twice",
            ),
            (
                "relay --bytes 5",
                "unknown option --bytes for relay with driver epoll",
            ),
            (
                "relay --server-rings 2",
                "unknown option --server-rings for relay with driver epoll",
            ),
            (
                "relay --driver kqueue",
                "--driver: \"kqueue\" is neither epoll nor uring",
            ),
            (
                "relay --connections 0",
                "--connections: \"0\" is not a whole number from 1 to 10000000",
            ),
            (
                "relay --duration nan",
                "--duration: \"nan\" is not a number of seconds from 0.1 to 86400",
            ),
        ] {
            assert_eq!(parse(line), Err(error.to_owned()), "{line}");
        }
    }
}
