//! Which pages of other origins may call the gateway (the Fetch standard's CORS protocol).

use protocol::http::RequestHead;

/// Where a request comes from.
pub(super) enum Origin {
    /// No page of another origin.
    Same,
    /// A page that may read the answer.
    Allowed(Box<str>),
    /// A page that may not.
    Foreign,
}

/// A request that names no origin does not come from a page of another one. Browsers leave the method
/// and body of simple requests to such a page, so that foreign ones must be refused, not only kept from
/// reading the answer.
pub(super) fn origin(head: &RequestHead<'_>, origin: Option<&[u8]>, allowed: &[String]) -> Origin {
    let Some(origin) = origin else {
        return Origin::Same;
    };
    let Ok(origin) = std::str::from_utf8(origin) else {
        return Origin::Foreign;
    };
    if allowed
        .iter()
        .any(|one| one == "*" || one.eq_ignore_ascii_case(origin))
    {
        return Origin::Allowed(origin.into());
    }
    let host = head.headers.values("Host").next().unwrap_or_default();
    match origin.split_once("://") {
        Some((_, authority)) if authority.as_bytes().eq_ignore_ascii_case(host) => Origin::Same,
        _ => Origin::Foreign,
    }
}
