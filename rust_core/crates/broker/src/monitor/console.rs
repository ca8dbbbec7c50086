//! The console: one page that needs nothing from elsewhere.

use std::io;

use crate::random::SystemRandom;

const HTML: &str = include_str!("console/index.html");
const STYLE: &str = include_str!("console/console.css");
/// One module: each part knows those before it.
const SCRIPT: &str = concat!(
    include_str!("console/elements.js"),
    include_str!("console/format.js"),
    include_str!("console/chart.js"),
    include_str!("console/table.js"),
    include_str!("console/feed.js"),
    include_str!("console/overview.js"),
    include_str!("console/panels.js"),
    include_str!("console/connection.js"),
    include_str!("console/console.js"),
);

/// Return the page and the content security policy under which its own style and script may run, and
/// nothing else. Both have a number that cannot be known before.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn page(random: &mut SystemRandom) -> io::Result<(String, String)> {
    let nonce = format!("{:016x}{:016x}", random.next()?, random.next()?);
    Ok((html(&nonce), policy(&nonce)))
}

fn html(nonce: &str) -> String {
    HTML.replacen("<style>", &format!("<style nonce=\"{nonce}\">"), 1)
        .replacen("<script", &format!("<script nonce=\"{nonce}\""), 1)
        .replacen("/*console.css*/", STYLE, 1)
        .replacen("/*console.js*/", SCRIPT, 1)
}

fn policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_its_policy_lets_it_run() {
        let mut random = SystemRandom::new();
        let mut page = || page(&mut random).expect("random numbers");
        let (html, policy) = page();
        assert!(html.contains(STYLE) && html.contains(SCRIPT));
        assert_eq!(html.matches("<script").count(), 1);
        assert_eq!(html.matches("<style").count(), 1);
        let nonce = policy.split_once("'nonce-").expect("a nonce").1;
        let nonce = nonce.split_once('\'').expect("its end").0;
        assert_eq!(nonce.len(), 32);
        assert_eq!(html.matches(&format!(" nonce=\"{nonce}\"")).count(), 2);
        assert_ne!(page().1, policy);
        for missing in [
            "console.css*/",
            "console.js*/",
            "src=\"http",
            "href=\"http",
            "</script>\n<script",
        ] {
            assert!(!html.contains(missing), "{missing}");
        }
    }
}
