//! Lines as logfmt and as JSON.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::event::{Event, Value};
use super::record::Record;

/// Format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Pairs `key=value` (logfmt).
    Text,
    /// JSON object.
    Json,
}

/// Append a record as a line, with its end.
pub(super) fn encode<E: Event>(out: &mut String, format: Format, record: &Record<E>) {
    let mut line = Line {
        out,
        format,
        is_begun: false,
    };
    line.field("time", &|out| {
        let time = record.time.max(UNIX_EPOCH);
        write!(out, "{}", humantime::format_rfc3339_millis(time))
    });
    line.word("level", record.content.level().name());
    line.word("kind", record.content.kind());
    if let Some(shard) = record.shard {
        line.value("shard", &Value::Number(u64::from(shard)));
    }
    let content = &record.content;
    content.fields(&mut |name, value| line.value(name, &value));
    line.end();
}

/// Line that grows field by field.
struct Line<'a> {
    out: &'a mut String,
    format: Format,
    is_begun: bool,
}

impl Line<'_> {
    fn value(&mut self, name: &str, value: &Value<'_>) {
        // Writing to a string cannot fail.
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
            Value::Text(text) if self.format == Format::Text && is_word(text) => {
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

    /// Write a field with a text that needs no escape.
    fn word(&mut self, name: &str, word: &str) {
        self.field(name, &|out| out.write_str(word));
    }

    /// Write a field whose value needs no escape: quoted in JSON alone.
    fn field(&mut self, name: &str, write: &dyn Fn(&mut String) -> std::fmt::Result) {
        let quote = if self.format == Format::Json {
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
            (Format::Text, true) => write!(self.out, "{name}="),
            (Format::Text, false) => write!(self.out, " {name}="),
            (Format::Json, true) => write!(self.out, "{{\"{name}\":"),
            (Format::Json, false) => write!(self.out, ",\"{name}\":"),
        };
    }

    fn end(self) {
        self.out.push_str(match self.format {
            Format::Text => "\n",
            Format::Json => "}\n",
        });
    }
}

/// Return whether logfmt takes the text without quotes.
fn is_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'=' | b'\\');
    !text.is_empty() && text.bytes().all(is_plain)
}

/// Append a text as the inside of a JSON string, which logfmt reads as well. Beyond JSON's rules,
/// characters are escaped that could end a line, control a terminal or change the direction of
/// reading.
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

/// Return whether the character separates lines or paragraphs, or marks a direction. All these
/// characters lie below U+10000, so that one escape is enough.
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
    use std::time::Duration;

    use serde_json::{Value as Json, json};

    use super::super::record::Content;
    use super::super::testing::{Sample, SampleTopic};
    use super::*;

    fn line(format: Format, shard: Option<u16>, content: Content<Sample>) -> String {
        let mut out = String::new();
        let time = UNIX_EPOCH + Duration::from_millis(1_790_000_000_042);
        let record = Record {
            time,
            shard,
            content,
        };
        encode(&mut out, format, &record);
        out
    }

    fn greeting(format: Format, text: &str) -> String {
        line(format, None, Content::Event(Sample::Greeting(text.into())))
    }

    #[test]
    fn both_formats_say_the_same() {
        let failed = || Content::Event(Sample::Failed(SampleTopic::Disk));
        assert_eq!(
            line(Format::Text, Some(3), failed()),
            "time=2026-09-21T14:13:20.042Z level=warning kind=failed shard=3 part=disk \
             remote=127.0.0.1:4222\n"
        );
        assert_eq!(
            line(Format::Json, Some(3), failed()),
            "{\"time\":\"2026-09-21T14:13:20.042Z\",\"level\":\"warning\",\"kind\":\"failed\",\
             \"shard\":3,\"part\":\"disk\",\"remote\":\"127.0.0.1:4222\"}\n"
        );
        let ended = Content::Event(Sample::Ended(Duration::from_micros(1_234_567)));
        assert!(line(Format::Json, None, ended).ends_with(",\"duration_s\":1.235}\n"));
    }

    #[test]
    fn the_log_accounts_for_itself() {
        let lost = Content::LinesLost(7);
        assert!(
            line(Format::Text, None, lost).ends_with(" level=warning kind=lines_lost lost=7\n")
        );
        let suppressed = Content::LinesSuppressed(SampleTopic::Network, 123);
        assert!(line(Format::Text, None, suppressed).ends_with(
            " level=warning kind=lines_suppressed of=failed part=network suppressed=123\n"
        ));
        let suppressed = Content::LinesSuppressed(SampleTopic::Greeting, 1);
        assert!(
            line(Format::Text, None, suppressed)
                .ends_with(" level=debug kind=lines_suppressed of=greeting suppressed=1\n")
        );
    }

    #[test]
    fn no_text_from_outside_forges_a_line_or_a_field() {
        let hostile =
            "a\" level=error\r\n{\"kind\":\"forged\"}\\ \u{1b}[2J\u{9b}2J\u{2028}\u{202e}é\0\t";
        let text = greeting(Format::Text, hostile);
        assert!(
            text.contains(
                " text=\"a\\\" level=error\\r\\n{\\\"kind\\\":\\\"forged\\\"}\\\\ \\u001b[2J\\u009b2J\
                 \\u2028\\u202eé\\u0000\\t\" length="
            ),
            "{text}"
        );
        let json = greeting(Format::Json, hostile);
        let parsed: Json = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["text"], json!(hostile));
        for line in [&text, &json] {
            assert_eq!(line.lines().count(), 1);
            assert!(!line.trim_end().chars().any(char::is_control), "{line:?}");
        }
    }

    #[test]
    fn every_character_comes_back_from_json() {
        for character in (0..=0x1_0fff).filter_map(char::from_u32) {
            let text = format!("{character}x");
            let json = greeting(Format::Json, &text);
            let parsed: Json = serde_json::from_str(&json).unwrap();
            assert_eq!(parsed["text"], json!(text));
        }
    }

    #[test]
    fn logfmt_quotes_what_is_not_a_word() {
        for (text, written) in [
            ("plain-1.2/x", "text=plain-1.2/x "),
            ("", "text=\"\" "),
            ("a b", "text=\"a b\" "),
            ("a=b", "text=\"a=b\" "),
            ("ü", "text=\"ü\" "),
            ("a\\b", "text=\"a\\\\b\" "),
        ] {
            let line = greeting(Format::Text, text);
            assert!(line.contains(written), "{line}");
        }
    }
}
