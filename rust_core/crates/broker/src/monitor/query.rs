//! The parameters of a request to the monitor.

use std::ops::RangeInclusive;

use protocol::http::{HttpError, decode_percent, query_value};

/// The parameters of one request, all of them known. Errors are sentences that name the parameter, what it
/// was and what it may be.
pub(crate) struct Parameters<'a> {
    query: Option<&'a str>,
}

impl<'a> Parameters<'a> {
    /// Return the parameters of a query, which may have these `names`.
    ///
    /// # Errors
    /// There is another one, or the names cannot be read.
    pub(crate) fn new(query: Option<&'a str>, names: &[&str]) -> Result<Self, String> {
        let named = query.unwrap_or_default().split('&');
        for parameter in named.filter(|parameter| !parameter.is_empty()) {
            let name = parameter.split('=').next().unwrap_or_default();
            let name = decode(name).map_err(|error| error.reason().to_owned())?;
            if !names.contains(&name.as_str()) {
                return Err(match names {
                    [] => format!("unknown parameter {name:?}; there are none here"),
                    names => format!("unknown parameter {name:?}; there are {}", names.join(", ")),
                });
            }
        }
        Ok(Self { query })
    }

    /// Return a parameter's value, decoded; a `+` stays a `+`.
    ///
    /// # Errors
    /// It stands there twice, or is not UTF-8 when decoded.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, String> {
        let value = query_value(self.query, name)
            .map_err(|error| format!("parameter {name:?}: {}", error.reason()))?;
        let decoded = value.map(decode).transpose();
        decoded.map_err(|error| format!("parameter {name:?}: {}", error.reason()))
    }

    /// Return a whole number.
    ///
    /// # Errors
    /// It is none, or outside of `range`.
    pub(crate) fn number(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, String> {
        let parse = |text: String| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.filter(|_| is_plain).ok_or_else(|| {
                let (least, most) = (range.start(), range.end());
                format!("{name} must be a whole number from {least} to {most}, and is {text:?}")
            })
        };
        self.text(name)?.map(parse).transpose()
    }

    /// Return how many entries a page may have: the most unless the query says it.
    ///
    /// # Errors
    /// It is not a whole number from 1 to `most`.
    pub(crate) fn limit(&self, most: u64) -> Result<usize, String> {
        Ok(self.number("limit", 1..=most)?.unwrap_or(most) as usize)
    }

    /// Return how many entries come before a page: none unless the query says it.
    ///
    /// # Errors
    /// It is not a whole number of 32 bits.
    pub(crate) fn offset(&self) -> Result<usize, String> {
        let most = u64::from(u32::MAX);
        Ok(self.number("offset", 0..=most)?.unwrap_or(0) as usize)
    }

    /// Return the value of one of these words.
    ///
    /// # Errors
    /// It is another one.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, String> {
        let find = |text: String| {
            let found = words.iter().find(|(word, _)| *word == text);
            found.map(|(_, value)| *value).ok_or_else(|| {
                let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                format!(
                    "{name} must be one of {}, and is {text:?}",
                    words.join(", ")
                )
            })
        };
        self.text(name)?.map(find).transpose()
    }

    /// Return whether something is asked for: no unless the query says it.
    ///
    /// # Errors
    /// It is neither 0 nor 1.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        let words = [("0", false), ("1", true), ("false", false), ("true", true)];
        Ok(self.choice(name, &words)?.unwrap_or_default())
    }
}

fn decode(text: &str) -> Result<String, HttpError> {
    let mut bytes = Vec::new();
    decode_percent(text, &mut bytes)?;
    String::from_utf8(bytes).map_err(|_| HttpError::Malformed("a parameter that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: &[&str] = &["limit", "sort", "subs", "test"];

    fn parameters(query: &str) -> Parameters<'_> {
        Parameters::new(Some(query), NAMES).expect("known parameters")
    }

    #[test]
    fn what_is_not_said_is_none() {
        for query in [None, Some(""), Some("&&")] {
            let parameters = Parameters::new(query, NAMES).expect("none");
            assert_eq!(parameters.text("test"), Ok(None));
            assert_eq!(parameters.number("limit", 1..=5), Ok(None));
            assert_eq!(parameters.choice("sort", &[("a", 1)]), Ok(None));
            assert_eq!(parameters.flag("subs"), Ok(false));
        }
    }

    #[test]
    fn values_are_read() {
        let parameters = parameters("limit=007&s%6Frt=b&subs=1&test=a%2e%3E%20+%C3%A9");
        assert_eq!(parameters.number("limit", 1..=7), Ok(Some(7)));
        assert_eq!(
            parameters.choice("sort", &[("a", 1), ("b", 2)]),
            Ok(Some(2))
        );
        assert_eq!(parameters.flag("subs"), Ok(true));
        assert_eq!(parameters.text("test"), Ok(Some("a.> +é".into())));
    }

    #[test]
    fn errors_name_the_parameter_and_what_it_may_be() {
        let unknown = |query, names: &[&str]| Parameters::new(Some(query), names).err();
        assert_eq!(
            unknown("limit=1&sorted=cid", NAMES).as_deref(),
            Some("unknown parameter \"sorted\"; there are limit, sort, subs, test")
        );
        assert_eq!(
            unknown("x", &[]).as_deref(),
            Some("unknown parameter \"x\"; there are none here")
        );
        assert!(unknown("%zz=1", NAMES).is_some());
        for limit in [
            "",
            "0",
            "8",
            "-1",
            "+1",
            "1.0",
            "99999999999999999999",
            "%31x",
            "a",
        ] {
            let query = format!("limit={limit}");
            let error = parameters(&query).number("limit", 1..=7);
            let error = error.expect_err(limit);
            assert!(error.starts_with("limit must be a whole number from 1 to 7, and is "));
        }
        assert_eq!(
            parameters("sort=x").choice("sort", &[("a", 1), ("b", 2)]),
            Err("sort must be one of a, b, and is \"x\"".into())
        );
        assert_eq!(
            parameters("subs=yes").flag("subs"),
            Err("subs must be one of 0, 1, false, true, and is \"yes\"".into())
        );
        for query in ["test=a&test=b", "test=a&t%65st=b", "test=%f", "test=%ff"] {
            let error = parameters(query).text("test").expect_err(query);
            assert!(error.starts_with("parameter \"test\": "), "{error}");
        }
    }
}
