//! The address of the Hub.

use statelens_checkpoint::{Error, Result};

/// The address of the Hub, or of a mirror: `https://huggingface.co`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Scheme, host and path, without a slash at the end.
    pub(super) base: String,
    /// Length of the scheme and the host in `base`.
    origin: usize,
}

impl Default for Endpoint {
    fn default() -> Self {
        let base = "https://huggingface.co".to_owned();
        Self { origin: base.len(), base }
    }
}

impl Endpoint {
    /// Parses an address, such as the value of `HF_ENDPOINT`.
    ///
    /// # Errors
    /// Fails if it is not an address of a web server.
    pub fn parse(text: &str) -> Result<Self> {
        let base = text.trim().trim_end_matches('/');
        let scheme = ["https://", "http://"].into_iter().find(|scheme| {
            base.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        let parts = scheme.map(|scheme| {
            let rest = &base[scheme.len()..];
            let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            (format!("{scheme}{}", host.to_ascii_lowercase()), host, path)
        });
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        match parts {
            Some((origin, host, path))
                if !host.is_empty()
                    && host.chars().all(is_host)
                    && path.bytes().all(|byte| byte.is_ascii_graphic())
                    && !path.contains(['?', '#']) =>
            {
                Ok(Self { base: format!("{origin}{path}"), origin: origin.len() })
            }
            _ => Err(Error::refused("the address of the Hub is not that of a web server")
                .expected("an address such as https://huggingface.co")
                .advice("Correct the variable `HF_ENDPOINT`, or remove it.")),
        }
    }

    /// Returns the host, with its port.
    pub fn host(&self) -> &str {
        self.base[..self.origin].rsplit('/').next().unwrap_or_default()
    }

    /// Returns the host and the path: the start of the addresses of pages.
    pub(super) fn pages(&self) -> &str {
        self.base.split_once("://").map_or("", |(_, pages)| pages)
    }

    /// Returns whether an address has the scheme, host and port of the Hub: only there, the token may
    /// be sent.
    pub fn is_at(&self, url: &str) -> bool {
        origin_of(url).is_some_and(|origin| origin.eq_ignore_ascii_case(&self.base[..self.origin]))
    }

    /// Returns the address to which a redirect from `url` leads; `None` if it must not be followed:
    /// it is not an address, or leads from https to http.
    pub fn redirected(url: &str, to: &str) -> Option<String> {
        let origin = origin_of(url)?;
        let is_web = |text: &str| ["https://", "http://"].iter().any(|it| starts_with(text, it));
        let target = match to {
            to if is_web(to) => to.to_owned(),
            to if to.starts_with("//") => format!("{}:{to}", origin.split_once(':')?.0),
            to if to.starts_with('/') => format!("{origin}{to}"),
            _ => return None,
        };
        let is_safe = starts_with(&target, "https://") || !starts_with(url, "https://");
        (is_safe && target.bytes().all(|byte| byte.is_ascii_graphic())).then_some(target)
    }
}

/// Returns the scheme, host and port of an address.
fn origin_of(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    url.get(..scheme.len() + 3 + host)
}

fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_scheme_host_and_port_are_the_hub() {
        let hub = Endpoint::default();
        assert!(hub.is_at("https://huggingface.co/a/b") && hub.is_at("HTTPS://HuggingFace.co?x"));
        for url in [
            "http://huggingface.co/a",
            "https://huggingface.co:444/a",
            "https://huggingface.co.evil.org/a",
            "https://evilhuggingface.co/a",
            "https://huggingface.co@evil.org/a",
            "/a",
        ] {
            assert!(!hub.is_at(url), "{url}");
        }
        let mirror = Endpoint::parse("http://LOCALHOST:80/hub//").unwrap();
        assert!(mirror.is_at("http://localhost:80/else") && mirror.host() == "localhost:80");
        for text in ["", "huggingface.co", "ftp://a", "https://", "https://u:p@a", "https://a b"] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn follows_no_redirect_from_https_to_http() {
        let at = |to: &str| Endpoint::redirected("https://a.org/b/c?d", to);
        assert_eq!(at("/e?f=%20").as_deref(), Some("https://a.org/e?f=%20"));
        assert_eq!(at("//cdn.org/x").as_deref(), Some("https://cdn.org/x"));
        assert_eq!(at("https://cdn.org/x?P=a~b%2F").as_deref(), Some("https://cdn.org/x?P=a~b%2F"));
        assert_eq!((at("http://a.org/e"), at("e"), at("file:///etc/passwd")), (None, None, None));
        assert_eq!(Endpoint::redirected("http://a/b", "http://c/d").as_deref(), Some("http://c/d"));
    }
}
