//! The share sheet: rates the length of a link, and removes secrets from addresses.

use crate::share::message::SummaryKind;

/// File formats with their names, in the order of
/// [`SharedSummary::sizes`](crate::share::message::SharedSummary::sizes).
pub const KINDS: [(SummaryKind, &str); 3] =
    [(SummaryKind::Html, "HTML"), (SummaryKind::Markdown, "Markdown"), (SummaryKind::Json, "JSON")];

/// Describes where a link of `length` characters fits.
pub fn fits(length: u64) -> &'static str {
    match length {
        0..=2_000 => "Fits a chat message of 2,000.",
        2_001..=4_000 => "Fits a chat message of 4,000.",
        4_001..=8_000 => "Too long for most chats; fits in an e-mail.",
        _ => "Many programs truncate URLs of this length. A file is safer.",
    }
}

/// Returns whether other people can open an address: not if the page is on this computer.
pub fn is_reachable(base: &str) -> bool {
    let Some((scheme, rest)) = base.split_once("://") else { return false };
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    scheme.starts_with("http")
        && !matches!(host, "localhost" | "127.0.0.1" | "[" | "")
        && !host.ends_with(".localhost")
}

/// Removes private parts from the address of a page: the folders of a page on disk, and the token
/// that `statelens serve` puts into the path.
pub fn without_secrets(base: &str) -> String {
    if !base.starts_with("http") {
        return String::new();
    }
    if !is_reachable(base)
        && let Some((scheme, rest)) = base.split_once("://")
        && let Some((host, path)) = rest.split_once('/')
        && let Some((token, path)) = path.split_once('/')
        && token.len() >= TOKEN
        && token.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return format!("{scheme}://{host}/{path}");
    }
    base.to_owned()
}

/// Minimum length of a token; few folder names are as long.
const TOKEN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_pages_are_not_reachable() {
        for base in
            ["http://127.0.0.1:8080/", "http://localhost/x/", "file:///x/", "http://[::1]:1/"]
        {
            assert!(!is_reachable(base), "{base}");
        }
        assert!(is_reachable("https://example.org/statelens/"));
    }

    #[test]
    fn removes_folders_and_tokens() {
        let token = "0123456789abcdef0123456789abcdef";
        for (base, expected) in [
            (format!("http://127.0.0.1:8080/{token}/"), "http://127.0.0.1:8080/"),
            (
                format!("https://example.org/{token}/"),
                "https://example.org/0123456789abcdef0123456789abcdef/",
            ),
            ("http://127.0.0.1:8080/sub/path/".into(), "http://127.0.0.1:8080/sub/path/"),
            ("file:///home/statelens.html".into(), ""),
        ] {
            assert_eq!(without_secrets(&base), expected);
        }
    }
}
