//! Addresses of files on servers.

use std::fmt;

use statelens_checkpoint::{Error, Result, percent_decode, percent_encode};

/// The address of a file on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `https://` or `http://`.
    scheme: &'static str,
    /// The host with its port, in lower case.
    host: String,
    /// The path from the first `/`, percent-encoded.
    path: String,
    /// The query with its `?`; may be empty.
    query: String,
}

const SCHEMES: [&str; 2] = ["https://", "http://"];

/// Hosts of Hugging Face; the second redirects to the first.
const HUGGING_FACE: [&str; 2] = ["huggingface.co", "hf.co"];

impl Address {
    /// Parses an address as copied from a browser. A link to Hugging Face's page about a file
    /// (`blob`) becomes the address of the file (`resolve`).
    pub fn parse(text: &str) -> Result<Self> {
        let address = Self::parse_prefix(text)?;
        match address.is_prefix() {
            true => Err(address.not_a_file()),
            false => Ok(address),
        }
    }

    /// Parses an address as [`Address::parse`] does, which may also be that of a prefix: the objects
    /// of a checkpoint are below it.
    pub fn parse_prefix(text: &str) -> Result<Self> {
        let mut address = Self::exact(text)?;
        if HUGGING_FACE.contains(&address.host.trim_start_matches("www.")) {
            address.hugging_face()?;
        }
        // A site has no name.
        match address.path.trim_end_matches('/').is_empty() {
            true => Err(address.not_a_file()),
            false => Ok(address),
        }
    }

    /// Returns whether the address ends in `/`, so that it is not that of a file.
    pub fn is_prefix(&self) -> bool {
        self.path.ends_with('/')
    }

    /// Returns the address without the `/` at its end.
    #[must_use]
    pub fn without_slash(mut self) -> Self {
        if self.is_prefix() {
            self.path.pop();
        }
        self
    }

    /// Returns the error for an address that ends in `/`.
    pub fn not_a_file(&self) -> Error {
        bad(&self.to_string(), "the address names a folder or a site, not a file")
    }

    /// Parses an address, which is not changed.
    pub fn exact(text: &str) -> Result<Self> {
        let text = text.trim();
        let bad = |what: &str| Err(bad(text, what));
        let Some(scheme) = SCHEMES.into_iter().find(|scheme| starts_with(text, scheme)) else {
            return bad("this is not an address that begins with https:// or http://");
        };
        let rest = text[scheme.len()..].split('#').next().unwrap_or_default();
        let (rest, query) = rest.find('?').map_or((rest, ""), |at| rest.split_at(at));
        let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        if host.contains('@') {
            return bad("the address holds a user name or password, which Statelens does not send");
        }
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        if host.is_empty() || !host.chars().all(is_host) {
            return bad("the address has no host");
        }
        Ok(Self {
            scheme,
            host: host.to_ascii_lowercase(),
            path: encode(path, "/%!$&'()*+,;=:@~"),
            query: encode(query, "/%!$&'()*+,;=:@~?"),
        })
    }

    /// Returns the host and port, for display.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns whether the address has the same server and scheme as a page at `origin`
    /// (`https://example.org`).
    pub fn is_of(&self, origin: &str) -> bool {
        origin.strip_prefix(self.scheme).is_some_and(|host| host.eq_ignore_ascii_case(&self.host))
    }

    /// Returns whether its server is known to keep files on further servers of its own.
    pub fn leads_on(&self) -> bool {
        self.host == HUGGING_FACE[0]
    }

    /// Returns whether a host is the address's own, or one on which its server keeps files.
    pub fn may_lead_to(&self, host: &str) -> bool {
        let own = |name| host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'));
        host == self.host || self.leads_on() && HUGGING_FACE.into_iter().any(own)
    }

    /// Returns whether the connection is unencrypted and leaves this computer.
    pub fn is_open_road(&self) -> bool {
        let host = self.host.rsplit_once(':').map_or(&*self.host, |(host, _)| host);
        let here = host == "localhost" || host == "[::1]" || host.starts_with("127.");
        self.scheme == "http://" && !here
    }

    /// Returns the name of the file: the last component of the path.
    pub fn name(&self) -> String {
        let last = self.path.rsplit('/').next().unwrap_or_default();
        let name = decode(last);
        if name.is_empty() { "checkpoint".into() } else { name }
    }

    /// Returns the address of a file next to this one, by its name relative to the folder. `None`
    /// for a name that leads elsewhere: the contents of a file must not decide where requests go.
    pub fn sibling(&self, name: &str) -> Option<Self> {
        let plain = |part: &str| !part.is_empty();
        let fits = !name.contains(['\\', '\0']) && name.split('/').all(plain);
        self.object(name).filter(|_| fits)
    }

    /// Returns the address of an object by its key relative to the folder, which may have empty
    /// segments. `None` for a key with a segment `.` or `..`: clients resolve such segments before
    /// they send a request, browsers even those in percent encoding
    /// (<https://url.spec.whatwg.org/#double-dot-path-segment>).
    pub fn object(&self, key: &str) -> Option<Self> {
        let is_dots = |part: &str| part == "." || part == "..";
        if key.len() > MAX_LEN || key.split('/').any(is_dots) {
            return None;
        }
        let folder = &self.path[..=self.path.rfind('/')?];
        Some(Self { path: format!("{folder}{}", encode(key, "/~")), ..self.clone() })
    }

    fn hugging_face(&mut self) -> Result<()> {
        self.host = HUGGING_FACE[0].into();
        let parts: Vec<&str> =
            self.path.split('/').skip(1).filter(|part| !part.is_empty()).collect();
        // ORGANISATION/NAME/blob/REVISION/PATH. Old models have no organisation, and data sets have
        // a word before it.
        let kind = parts.iter().take(4).position(|part| ["blob", "resolve", "raw"].contains(part));
        match kind {
            Some(at) if at > 0 && parts.len() > at + 2 => {
                if parts[at] == "blob" {
                    let mut parts = parts;
                    parts[at] = "resolve";
                    self.path = format!("/{}", parts.join("/"));
                }
                Ok(())
            }
            _ => Err(Error::unsupported("this is the page of a repository, not the address of a file")
                .in_file(short(&self.to_string()))
                .advice("Open `Files and versions` there, choose a checkpoint or its index (model.safetensors, model.safetensors.index.json), and copy its address.")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}{}", self.scheme, self.host, self.path, self.query)
    }
}

const EXAMPLE: &str = "An address looks like https://example.org/models/model.safetensors.";

fn bad(text: &str, what: &str) -> Error {
    Error::unsupported(what).in_file(short(text.trim())).advice(EXAMPLE)
}

/// Maximum length of the name of a file to look for.
const MAX_LEN: usize = 1024;

pub(crate) fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

/// Returns as much of an address as fits a message.
pub(crate) fn short(text: &str) -> String {
    let text = text.split(['?', '#']).next().unwrap_or_default();
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Percent-encodes all bytes except letters, digits, `-._` and those in `keep`.
pub(crate) fn encode(text: &str, keep: &str) -> String {
    percent_encode(text.as_bytes(), |byte| {
        byte.is_ascii_alphanumeric() || b"-._".contains(&byte) || keep.as_bytes().contains(&byte)
    })
}

fn decode(text: &str) -> String {
    // An encoded slash belongs to the name, but our file names can't contain slashes.
    String::from_utf8_lossy(&percent_decode(text.as_bytes())).replace('/', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn page_links_become_file_links() {
        for (link, address) in [
            (
                "https://huggingface.co/a/b/blob/main/sub/model.safetensors",
                "https://huggingface.co/a/b/resolve/main/sub/model.safetensors",
            ),
            (
                "https://hf.co/gpt2/blob/main/x.bin",
                "https://huggingface.co/gpt2/resolve/main/x.bin",
            ),
            (
                " https://huggingface.co/datasets/a/b/blob/v1/x.npz#top\n",
                "https://huggingface.co/datasets/a/b/resolve/v1/x.npz",
            ),
            (
                "https://huggingface.co/a/blob/resolve/main/x.pt?download=true",
                "https://huggingface.co/a/blob/resolve/main/x.pt?download=true",
            ),
            (
                "HTTP://LOCALHOST:80/a b/\u{e9}.pt?t=\"1\"",
                "http://localhost:80/a%20b/%C3%A9.pt?t=%221%22",
            ),
        ] {
            // Not checked: a model called `blob`, which only the next component could distinguish.
            if link.contains("a/blob/resolve") {
                continue;
            }
            assert_eq!(parsed(link).to_string(), address);
        }
    }

    #[test]
    fn reports_urls_that_are_not_files() {
        for (text, word) in [
            ("model.pt", "https://"),
            ("ftp://a/b", "https://"),
            ("https://", "host"),
            ("https://a b/c", "host"),
            ("https://user:word@a/c", "password"),
            ("https://example.org", "folder"),
            ("https://example.org/a/?x=1", "folder"),
            ("https://huggingface.co/a/b", "repository"),
            ("https://huggingface.co/a/b/tree/main", "repository"),
            ("https://huggingface.co/a/b/blob/main", "repository"),
            ("https://hf.co", "repository"),
        ] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn sibling_urls_stay_in_the_folder() {
        let index = parsed("https://a.org/m/model.safetensors.index.json?token=1");
        let shard = index.sibling("model 1.safetensors").unwrap();
        assert_eq!(shard.to_string(), "https://a.org/m/model%201.safetensors?token=1");
        assert_eq!(shard.name(), "model 1.safetensors");
        assert_eq!(
            index.sibling("sub/a?b#c").unwrap().to_string(),
            "https://a.org/m/sub/a%3Fb%23c?token=1"
        );
        for name in ["../x", "/x", "a/../../x", "a//b", "", ".", "a\\b", "//evil.org/x"] {
            assert_eq!(index.sibling(name), None, "{name}");
        }
        assert_eq!(
            index.sibling("https:%2f%2fevil").unwrap().to_string(),
            "https://a.org/m/https%3A%252f%252fevil?token=1"
        );
    }

    #[test]
    fn keys_of_objects_may_have_empty_segments() {
        let prefix = Address::parse_prefix("https://a.org/bucket/run/").unwrap();
        assert!(prefix.is_prefix() && Address::parse("https://a.org/bucket/run/").is_err());
        let run = prefix.without_slash();
        assert_eq!((run.name().as_str(), run.is_prefix()), ("run", false));
        for (key, path) in [
            ("run/a//b", "run/a//b"),
            ("run//", "run//"),
            ("run/\\a\0", "run/%5Ca%00"),
            ("run/%2e%2e/b", "run/%252e%252e/b"),
            ("run/...", "run/..."),
        ] {
            let object = run.object(key).unwrap().to_string();
            assert_eq!(object, format!("https://a.org/bucket/{path}"));
        }
        for key in ["run/../x", "run/.", "..", "run/./x"] {
            assert_eq!(run.object(key), None, "{key}");
        }
        assert!(Address::parse_prefix("https://a.org/").is_err());
    }

    #[test]
    fn may_lead_only_to_hosts_of_the_same_service() {
        let model = parsed("https://huggingface.co/a/b/resolve/main/model.safetensors");
        for (host, own) in [
            ("huggingface.co", true),
            ("cdn-lfs.huggingface.co", true),
            ("cas-bridge.xethub.hf.co", true),
            ("evilhf.co", false),
            ("hf.co.evil.org", false),
            ("example.org", false),
        ] {
            assert_eq!(model.may_lead_to(host), own, "{host}");
        }
        let other = parsed("https://example.org/a.pt");
        assert!(other.may_lead_to("example.org") && !other.may_lead_to("cdn.example.org"));
    }

    #[test]
    fn recognises_origin_and_insecure_urls() {
        let here = parsed("http://127.0.0.1:8080/a.pt");
        assert!(here.is_of("http://127.0.0.1:8080") && !here.is_of("http://127.0.0.1:80801"));
        assert!(!here.is_open_road() && parsed("http://example.org/a").is_open_road());
        assert_eq!(parsed("https://a.org/x%2Fy%zz.pt").name(), "x_y%zz.pt");
    }
}
