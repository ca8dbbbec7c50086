//! Lines as logfmt and as JSON.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::UNIX_EPOCH;

use super::event::Value;
use super::{LogFormat, Record};

/// Appends a record as a line, with its end.
pub(super) fn encode(out: &mut String, format: LogFormat, record: &Record) {
    let mut line = Line {
        out,
        format,
        is_begun: false,
    };
    line.field("time", &|out| {
        let time = record.time.max(UNIX_EPOCH);
        write!(out, "{}", humantime::format_rfc3339_millis(time))
    });
    line.word("level", record.event.level().name());
    line.word("kind", record.event.kind());
    if let Some(shard) = record.shard {
        line.value("shard", &Value::Number(u64::from(shard)));
    }
    record.event.fields(|name, value| line.value(name, &value));
    line.end();
}

/// A line that grows field by field.
struct Line<'a> {
    out: &'a mut String,
    format: LogFormat,
    is_begun: bool,
}

impl Line<'_> {
    fn value(&mut self, name: &str, value: &Value<'_>) {
        // A string takes everything that is written to it.
        match value {
            Value::Number(number) => {
                self.name(name);
                let _ = write!(self.out, "{number}");
            }
            Value::Time(time) => {
                self.name(name);
                let _ = write!(self.out, "{:.3}", time.as_secs_f64());
            }
            Value::Address(address) => {
                let address = SocketAddr::new(address.ip().to_canonical(), address.port());
                self.field(name, &|out| write!(out, "{address}"));
            }
            Value::Text(text) if self.format == LogFormat::Text && is_word(text) => {
                self.word(name, text);
            }
            Value::Text(text) => {
                self.name(name);
                self.out.push('"');
                escape(self.out, text);
                self.out.push('"');
            }
        }
    }

    /// A text that needs no escape.
    fn word(&mut self, name: &str, word: &str) {
        self.field(name, &|out| out.write_str(word));
    }

    /// A field whose value needs no escape: quoted in JSON alone.
    fn field(&mut self, name: &str, write: &dyn Fn(&mut String) -> std::fmt::Result) {
        let quote = if self.format == LogFormat::Json {
            "\""
        } else {
            ""
        };
        self.name(name);
        self.out.push_str(quote);
        let _ = write(self.out);
        self.out.push_str(quote);
    }

    fn name(&mut self, name: &str) {
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let _ = match (self.format, is_first) {
            (LogFormat::Text, true) => write!(self.out, "{name}="),
            (LogFormat::Text, false) => write!(self.out, " {name}="),
            (LogFormat::Json, true) => write!(self.out, "{{\"{name}\":"),
            (LogFormat::Json, false) => write!(self.out, ",\"{name}\":"),
        };
    }

    fn end(self) {
        self.out.push_str(match self.format {
            LogFormat::Text => "\n",
            LogFormat::Json => "}\n",
        });
    }
}

/// Whether logfmt takes the text without quotes.
fn is_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'=' | b'\\');
    !text.is_empty() && text.bytes().all(is_plain)
}

/// Appends a text as the inside of a JSON string, which logfmt reads as well. Besides what JSON must
/// escape, everything is escaped that could end a line, steer a terminal or turn the direction of reading.
fn escape(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character.is_control() || is_deceptive(character) => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
}

/// Line and paragraph separators, and Unicode's marks of direction. All lie below U+10000, where one
/// escape is enough.
fn is_deceptive(character: char) -> bool {
    matches!(
        character,
        '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value as Json, json};

    use super::super::event::{Client, Event, Topic};
    use super::*;
    use crate::clients::ClientInfo;
    use crate::counters::Reason;
    use crate::session::{Traffic, TransportKind};

    fn line(format: LogFormat, shard: Option<u16>, event: Event) -> String {
        let mut out = String::new();
        let time = UNIX_EPOCH + Duration::from_millis(1_790_000_000_042);
        let record = Record { time, shard, event };
        encode(&mut out, format, &record);
        out
    }

    fn client() -> Client {
        Client {
            cid: 7,
            remote: "[::ffff:127.0.0.1]:4222".parse().unwrap(),
            transport: TransportKind::WebSocket,
        }
    }

    fn identified(name: &str) -> Event {
        Event::ClientIdentified {
            client: client(),
            info: Some(Arc::new(ClientInfo {
                name: name.into(),
                lang: "".into(),
                version: "1.2 beta".into(),
            })),
        }
    }

    #[test]
    fn both_formats_say_the_same() {
        let closed = || Event::ClientClosed {
            client: client(),
            reason: Reason::SlowConsumer,
            traffic: Traffic {
                in_bytes: 5,
                ..Traffic::default()
            },
            duration: 60,
        };
        assert_eq!(
            line(LogFormat::Text, Some(3), closed()),
            "time=2026-09-21T14:13:20.042Z level=warning kind=client_closed shard=3 cid=7 \
             remote=127.0.0.1:4222 transport=websocket reason=slow_consumer duration_s=60 \
             in_msgs=0 in_bytes=5 out_msgs=0 out_bytes=0\n"
        );
        assert_eq!(
            line(LogFormat::Json, Some(3), closed()),
            "{\"time\":\"2026-09-21T14:13:20.042Z\",\"level\":\"warning\",\"kind\":\"client_closed\",\
             \"shard\":3,\"cid\":7,\"remote\":\"127.0.0.1:4222\",\"transport\":\"websocket\",\
             \"reason\":\"slow_consumer\",\"duration_s\":60,\"in_msgs\":0,\"in_bytes\":5,\
             \"out_msgs\":0,\"out_bytes\":0}\n"
        );
        let drained = Event::Drained {
            duration: Duration::from_micros(1_234_567),
        };
        assert!(line(LogFormat::Json, None, drained).ends_with(",\"duration_s\":1.235}\n"));
        let suppressed = Event::LinesSuppressed {
            of: Topic::Closed(Reason::Stale),
            suppressed: 123,
        };
        assert!(line(LogFormat::Text, None, suppressed).ends_with(
            " level=warning kind=lines_suppressed of=client_closed reason=stale suppressed=123\n"
        ));
    }

    #[test]
    fn no_text_of_a_client_forges_a_line_or_a_field() {
        let hostile =
            "a\" level=error\r\n{\"kind\":\"forged\"}\\ \u{1b}[2J\u{9b}2J\u{2028}\u{202e}é\0\t";
        let text = line(LogFormat::Text, None, identified(hostile));
        assert!(
            text.ends_with(
                " name=\"a\\\" level=error\\r\\n{\\\"kind\\\":\\\"forged\\\"}\\\\ \\u001b[2J\\u009b2J\
                 \\u2028\\u202eé\\u0000\\t\" lang=\"\" version=\"1.2 beta\"\n"
            ),
            "{text}"
        );
        let json = line(LogFormat::Json, None, identified(hostile));
        let parsed: Json = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["name"], json!(hostile));
        for line in [&text, &json] {
            assert_eq!(line.lines().count(), 1);
            assert!(!line.trim_end().chars().any(char::is_control), "{line:?}");
        }
    }

    #[test]
    fn every_character_comes_back_from_json() {
        for character in (0..=0x1_0fff).filter_map(char::from_u32) {
            let name = format!("{character}x");
            let json = line(LogFormat::Json, None, identified(&name));
            let parsed: Json = serde_json::from_str(&json).unwrap();
            assert_eq!(parsed["name"], json!(name));
        }
    }

    #[test]
    fn logfmt_quotes_what_is_not_a_word() {
        for (name, written) in [
            ("plain-1.2/x", "name=plain-1.2/x "),
            ("", "name=\"\" "),
            ("a b", "name=\"a b\" "),
            ("a=b", "name=\"a=b\" "),
            ("ü", "name=\"ü\" "),
            ("a\\b", "name=\"a\\\\b\" "),
        ] {
            let line = line(LogFormat::Text, None, identified(name));
            assert!(line.contains(written), "{line}");
        }
    }
}
