//! How long a caller waits for a reply.

use std::borrow::Cow;
use std::time::Duration;

use protocol::http::{HttpError, query_value};

use crate::config::GatewayLimits;

/// The most characters of a timeout.
const MAX_TIMEOUT: usize = 16;

/// Return how long a caller will wait: by the field or by the query's parameter, the shorter if both are
/// there, or the default.
pub(super) fn read(
    field: Option<&[u8]>,
    query: Option<&str>,
    limits: &GatewayLimits,
) -> Result<Duration, Cow<'static, str>> {
    let field = field.map(|field| std::str::from_utf8(field).unwrap_or_default());
    let parameter = query_value(query, "timeout").map_err(HttpError::reason)?;
    let most = limits.max_request_timeout;
    let mut least: Option<Duration> = None;
    for text in [field, parameter].into_iter().flatten() {
        let Some(timeout) = parse_timeout(text, most) else {
            let most = most.as_secs_f64();
            return Err(format!(
                "the timeout must be like 2.5, 2.5s or 250ms, above 0 and at most {most} seconds"
            )
            .into());
        };
        least = Some(least.map_or(timeout, |least| least.min(timeout)));
    }
    Ok(least.unwrap_or(limits.request_timeout))
}

/// Return the time that a text of at most [`MAX_TIMEOUT`] characters gives: seconds, or a number with a unit.
fn parse_timeout(text: &str, most: Duration) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    // Digits and a point: no sign, no exponent, no "inf".
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if text.len() > MAX_TIMEOUT || !number.bytes().all(is_plain) {
        return None;
    }
    let seconds = number.parse::<f64>().ok()? * unit;
    let is_sound = seconds > 0.0 && seconds <= most.as_secs_f64();
    is_sound.then(|| Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn timeouts() {
        let most = Duration::from_secs(300);
        for (text, millis) in [
            ("2.5", 2500),
            ("2s", 2000),
            ("250ms", 250),
            ("0.5ms", 0),
            ("300", 300_000),
            ("300000ms", 300_000),
            ("007.s", 7000),
        ] {
            let timeout = parse_timeout(text, most).unwrap();
            assert_eq!(timeout.as_millis(), millis, "{text}");
            assert!(timeout > Duration::ZERO);
        }
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "1e3",
            "inf",
            "nan",
            "s",
            "ms",
            "1 s",
            "1m",
            ".",
            "300.001",
            "300001ms",
            "1.000000000000000",
        ] {
            assert_eq!(parse_timeout(text, most), None, "{text}");
        }
    }
}
