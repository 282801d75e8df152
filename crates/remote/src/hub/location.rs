//! Addresses and pages of repositories.

use std::fmt;

use statelens_checkpoint::{Error, Result, percent_decode};

use super::Endpoint;
use crate::address::{encode, short, starts_with};

/// The kinds of repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RepositoryKind {
    /// A model.
    Model,
    /// A data set.
    Dataset,
    /// A space.
    Space,
}

/// A repository at a revision, or a file or folder in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubLocation {
    /// The kind of repository.
    pub kind: RepositoryKind,
    /// The id: `owner/name`.
    pub id: String,
    /// A branch, tag, pull request or commit, if one was given.
    named: Option<String>,
    /// The path of a file or folder in the repository; empty for the repository.
    pub path: String,
}

impl RepositoryKind {
    /// Returns the word in addresses of the API and in the names of folders of the cache.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Dataset => "datasets",
            Self::Space => "spaces",
        }
    }

    /// Returns the start of the addresses of its pages.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::Dataset => "datasets/",
            Self::Space => "spaces/",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Model, Self::Dataset, Self::Space].into_iter().find(|kind| kind.plural() == word)
    }
}

const SCHEME: &str = "hf://";

/// Hosts of the Hub's pages.
const HOSTS: [&str; 4] = ["huggingface.co", "hf.co", "www.huggingface.co", "www.hf.co"];

/// Words after the id in the addresses of pages that show a revision, and whether the rest names a
/// file.
const PAGES: [(&str, bool); 5] =
    [("tree", false), ("blob", true), ("resolve", true), ("raw", true), ("blame", true)];

/// The parameter of the page of a repository that shows the tensors of a file.
const SHOWN_FILE: &str = "show_file_info=";

impl HubLocation {
    /// Parses `hf://owner/name@revision/path`, or the address of a page of the Hub, of which
    /// `endpoint` is another host. `None` for any other text.
    pub fn parse(text: &str, endpoint: &Endpoint) -> Option<Result<Self>> {
        let text = text.trim();
        if starts_with(text, SCHEME) {
            return Some(
                Self::parse_scheme(&text[SCHEME.len()..])
                    .map_err(|error| error.in_file(short(text))),
            );
        }
        let page = page_of(text, endpoint)?;
        Some(Self::parse_page(page).map_err(|error| error.in_file(short(text))))
    }

    /// Returns whether a text is an address or a page of the Hub.
    pub fn is_hub(text: &str, endpoint: &Endpoint) -> bool {
        starts_with(text.trim(), SCHEME) || page_of(text.trim(), endpoint).is_some()
    }

    /// Returns the revision, which is the branch `main` unless another was given.
    pub fn revision(&self) -> &str {
        self.named.as_deref().unwrap_or("main")
    }

    /// Returns the same place at a commit.
    #[must_use]
    pub fn at(&self, commit: &str) -> Self {
        Self { named: Some(commit.to_owned()), ..self.clone() }
    }

    /// Returns the same place under another id, after the repository was renamed.
    #[must_use]
    pub fn renamed(&self, id: &str) -> Self {
        Self { id: id.to_owned(), ..self.clone() }
    }

    /// Returns another path of the same repository.
    #[must_use]
    pub fn with_path(&self, path: impl Into<String>) -> Self {
        Self { path: path.into(), ..self.clone() }
    }

    /// Returns the name of the file, folder or repository.
    pub fn name(&self) -> &str {
        let path = if self.path.is_empty() { &self.id } else { &self.path };
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Parses the part after `hf://`.
    fn parse_scheme(text: &str) -> Result<Self> {
        let mut parts = text.splitn(2, '/');
        let first = parts.next().unwrap_or_default();
        let (kind, rest) = match RepositoryKind::of(first) {
            Some(kind) => (kind, parts.next().unwrap_or_default()),
            None => (RepositoryKind::Model, text),
        };
        if ["model", "dataset", "space", "kernels", "buckets"].contains(&first) {
            return Err(Error::unsupported(format!("`{first}/` is not a kind of repository"))
                .expected("hf://OWNER/NAME, hf://datasets/OWNER/NAME or hf://spaces/OWNER/NAME"));
        }
        let Some((owner, rest)) = rest.split_once('/') else {
            return Err(no_owner());
        };
        let name_end = rest.find(['/', '@']).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(name_end);
        let id = checked_id(owner, name)?;
        let (named, path) = match rest.strip_prefix('@') {
            Some(rest) => {
                let (revision, path) = split_revision(rest);
                let revision = decode(revision);
                if revision.is_empty() {
                    return Err(Error::unsupported("the revision after `@` is empty"));
                }
                (Some(revision), path)
            }
            None => (None, rest.strip_prefix('/').unwrap_or_default()),
        };
        Ok(Self { kind, id, named: checked_revision(named)?, path: checked_path(path)? })
    }

    /// Parses the address of a page, without its host.
    fn parse_page(page: &str) -> Result<Self> {
        let page = page.split('#').next().unwrap_or_default();
        let (page, query) = page.split_once('?').unwrap_or((page, ""));
        let mut parts: Vec<&str> = page.split('/').filter(|part| !part.is_empty()).collect();
        let kind = match parts.first().and_then(|first| RepositoryKind::of(first)) {
            Some(kind) => {
                parts.remove(0);
                kind
            }
            None => RepositoryKind::Model,
        };
        let word = |at: usize| parts.get(at).copied();
        let known = |at: usize| {
            let word = word(at)?;
            PAGES.iter().find(|(known, _)| *known == word).map(|(_, is_file)| *is_file)
        };
        // Old models have no owner. Only a further word distinguishes such a page from a user's.
        let length = if known(1).is_some() && known(2).is_none() { 1 } else { 2 };
        let is_file = known(length);
        let id = match (length, word(0), word(1)) {
            (1, Some(name), _) => checked_name(name)?,
            (_, Some("api" | "docs" | "blog" | "settings" | "collections" | "papers"), _) => {
                return Err(no_repository());
            }
            (_, Some(owner), Some(name)) => checked_id(owner, name)?,
            _ => return Err(no_repository()),
        };
        let shown = query.split('&').find_map(|pair| pair.strip_prefix(SHOWN_FILE)).map(decode);
        let (named, path) = match is_file {
            Some(is_file) => {
                let rest = parts.get(length + 1..).unwrap_or_default().join("/");
                let (revision, path) = split_revision(&rest);
                let path: Vec<String> = path.split('/').map(decode).collect();
                if revision.is_empty() || is_file && path.concat().is_empty() {
                    return Err(no_repository());
                }
                (Some(decode(revision)), path.join("/"))
            }
            None if parts.len() > 2 => return Err(no_repository()),
            None => (None, String::new()),
        };
        let path = shown.unwrap_or(path);
        Ok(Self { kind, id, named: checked_revision(named)?, path: checked_path(&path)? })
    }
}

impl fmt::Display for HubLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{}", self.kind.prefix(), self.id)?;
        if let Some(revision) = &self.named {
            write!(f, "@{}", encode(revision, "~"))?;
        }
        match self.path.as_str() {
            "" => Ok(()),
            path => write!(f, "/{path}"),
        }
    }
}

/// Returns the part of the address of a page after the host, if it is one of the Hub.
fn page_of<'a>(text: &'a str, endpoint: &Endpoint) -> Option<&'a str> {
    let scheme = ["https://", "http://"].into_iter().find(|scheme| starts_with(text, scheme));
    let rest = &text[scheme.map_or(0, str::len)..];
    let after = |host: &str| {
        let rest = starts_with(rest, host).then(|| &rest[host.len()..])?;
        (rest.is_empty() || rest.starts_with(['/', '?', '#'])).then_some(rest)
    };
    // Without a scheme, a host alone may be the name of a file.
    let known = HOSTS.iter().find_map(|host| after(host));
    known
        .filter(|rest| scheme.is_some() || rest.len() > 1)
        .or_else(|| scheme.and_then(|_| after(endpoint.pages())))
}

/// Splits a text that begins with a revision, of which only two kinds may have slashes.
fn split_revision(text: &str) -> (&str, &str) {
    let slashes = text.match_indices('/').map(|(at, _)| at);
    let ends: Vec<usize> = slashes.chain([text.len()]).collect();
    let is_long = text.starts_with("refs/pr/") || text.starts_with("refs/convert/");
    let at = ends.get(if is_long { 2 } else { 0 }).copied().unwrap_or(text.len());
    (&text[..at], text[at..].strip_prefix('/').unwrap_or_default())
}

fn checked_id(owner: &str, name: &str) -> Result<String> {
    if owner.is_empty() || name.is_empty() {
        return Err(no_owner());
    }
    Ok(format!("{}/{}", checked_name(owner)?, checked_name(name)?))
}

/// Checks an owner or the name of a repository.
fn checked_name(name: &str) -> Result<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_valid = (1..=96).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.contains("--")
        && !name.contains("..")
        && !name.starts_with(['.', '-'])
        && !name.ends_with(['.', '-'])
        && !name.ends_with(".git");
    match is_valid {
        true => Ok(name.to_owned()),
        false => Err(Error::unsupported(format!("`{}` is not a name on the Hub", short(name)))
            .advice("Copy the address of the repository's page.")),
    }
}

fn checked_revision(revision: Option<String>) -> Result<Option<String>> {
    let is_bad = |text: &String| text.len() > MAX_LEN || text.chars().any(char::is_control);
    match revision.as_ref().is_some_and(is_bad) {
        true => Err(Error::unsupported("this is not the name of a revision")),
        false => Ok(revision),
    }
}

/// Checks a path in a repository, and removes slashes at its ends.
fn checked_path(path: &str) -> Result<String> {
    let path = path.trim_matches('/');
    match path.is_empty() || is_safe_path(path) {
        true => Ok(path.to_owned()),
        false => Err(Error::unsupported("this path leads out of the repository")),
    }
}

/// Returns whether a path names a file below a folder on every system.
pub(super) fn is_safe_path(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= MAX_LEN
        && !path.chars().any(|c| c.is_control() || c == '\\')
        && !path.split('/').next().is_some_and(|first| first.ends_with(':'))
        && path.split('/').all(plain)
}

fn decode(text: &str) -> String {
    String::from_utf8_lossy(&percent_decode(text.as_bytes())).into_owned()
}

fn no_owner() -> Error {
    Error::unsupported("the address names no owner and repository")
        .expected("hf://OWNER/NAME, with @REVISION and /PATH if needed")
}

fn no_repository() -> Error {
    Error::unsupported("this page of the Hub is not that of a repository, a folder or a file")
        .advice("Open the repository's page, and copy its address. The revision of pull request 7 is refs/pr/7.")
}

/// Maximum length of a path or revision.
const MAX_LEN: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String> {
        let it = HubLocation::parse(text, &Endpoint::parse("http://mirror:8080/hub").unwrap());
        it.unwrap().map(|it| {
            let named = it.named.as_deref().unwrap_or("-");
            format!("{}{} {named} {}", it.kind.prefix(), it.id, it.path)
        })
    }

    #[test]
    fn reads_addresses_as_the_client_of_the_hub_does() {
        for (text, expected) in [
            ("hf://org/tiny", "org/tiny - "),
            (" HF://org/tiny/\n", "org/tiny - "),
            ("hf://models/org/tiny", "org/tiny - "),
            ("hf://datasets/org/data/x", "datasets/org/data - x"),
            ("hf://org/tiny@v1/sub/a.txt", "org/tiny v1 sub/a.txt"),
            ("hf://org/tiny@refs/pr/1/config.json", "org/tiny refs/pr/1 config.json"),
            ("hf://org/tiny@refs%2Fpr%2F1/config.json", "org/tiny refs/pr/1 config.json"),
            ("hf://org/tiny@refs/convert/parquet", "org/tiny refs/convert/parquet "),
            ("hf://org/tiny@feat%2Fx/a", "org/tiny feat/x a"),
            ("hf://org/tiny@feat/x/a", "org/tiny feat x/a"),
            ("hf://org/tiny/sub@1.txt", "org/tiny - sub@1.txt"),
            ("hf://org/tiny/a%20b.pt", "org/tiny - a%20b.pt"),
            ("https://huggingface.co/org/tiny", "org/tiny - "),
            ("huggingface.co/org/tiny", "org/tiny - "),
            ("HTTPS://HF.co/org/tiny/", "org/tiny - "),
            ("https://www.huggingface.co/org/tiny/tree/main", "org/tiny main "),
            ("https://huggingface.co/models/org/tiny", "org/tiny - "),
            ("https://huggingface.co/datasets/org/data", "datasets/org/data - "),
            ("https://huggingface.co/org/tiny/tree/main/sub", "org/tiny main sub"),
            ("https://huggingface.co/org/tiny/blob/main/a.txt#L1", "org/tiny main a.txt"),
            ("https://hf.co/org/tiny/resolve/v1/a.txt?download=true", "org/tiny v1 a.txt"),
            ("https://huggingface.co/org/tiny/raw/main/x/a.txt", "org/tiny main x/a.txt"),
            ("https://huggingface.co/org/tiny/blob/refs%2Fpr%2F1/a", "org/tiny refs/pr/1 a"),
            ("https://huggingface.co/org/tiny/blob/refs/pr/1/a", "org/tiny refs/pr/1 a"),
            (
                "https://huggingface.co/datasets/org/data/blob/main/a%20b.csv",
                "datasets/org/data main a b.csv",
            ),
            (
                "https://huggingface.co/org/tiny?show_file_info=model.safetensors",
                "org/tiny - model.safetensors",
            ),
            (
                "https://huggingface.co/org/tiny/tree/v1?show_file_info=a%2Fm.safetensors",
                "org/tiny v1 a/m.safetensors",
            ),
            ("https://huggingface.co/gpt2/blob/main/x.bin", "gpt2 main x.bin"),
            ("http://mirror:8080/hub/org/tiny", "org/tiny - "),
        ] {
            assert_eq!(parsed(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn refuses_addresses_that_name_no_repository() {
        for text in [
            "hf://",
            "hf://gpt2",
            "hf://datasets/org",
            "hf://dataset/org/data",
            "hf://buckets/a/b",
            "hf://org/tiny@",
            "hf://org/tiny@/a",
            "hf://org/ti--ny",
            "hf://org/../x",
            "hf://org/tiny/../x",
            "hf://org/tiny/a\\b",
            "hf://org/-tiny",
            "hf://org/tiny.git",
            "https://huggingface.co/",
            "https://huggingface.co/gpt2",
            "https://huggingface.co/org/tiny/discussions/7",
            "https://huggingface.co/org/tiny/commit/abc",
            "https://huggingface.co/org/tiny/blob/main",
            "https://huggingface.co/api/models/org/tiny",
            "https://huggingface.co/org/tiny/blob/main/..%2F..%2Fx",
        ] {
            assert!(parsed(text).is_err(), "{text}: {:?}", parsed(text));
        }
        let none = |text: &str| HubLocation::parse(text, &Endpoint::default()).is_none();
        for text in [
            "https://example.org/a/b",
            "https://evilhf.co/a/b",
            "https://hf.co.evil.org/a/b",
            "https://hf.co:8080/a/b",
            "huggingface.co",
            "model.pt",
        ] {
            assert!(none(text), "{text}");
        }
    }

    #[test]
    fn shows_the_commit_in_the_address() {
        let it = HubLocation::parse("hf://datasets/a/b@x%2Fy/c d", &Endpoint::default());
        let it = it.unwrap().unwrap();
        assert_eq!(it.to_string(), "hf://datasets/a/b@x%2Fy/c d");
        assert_eq!(it.at("0123").with_path("").to_string(), "hf://datasets/a/b@0123");
        assert_eq!((it.name(), it.with_path("").name()), ("c d", "b"));
    }
}
