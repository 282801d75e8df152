//! The site that is served below the token: the page, the list of checkpoints, and the files of the
//! folder.
//!
//! Any page in the user's browser can send requests to this machine, so a request is answered only
//! if its address holds the token, its `Host` is this machine (a name that an attacker's DNS points
//! here is not), and it does not come from another origin.

use std::path::Path;
use std::time::UNIX_EPOCH;

use statelens::parts::checkpoint::percent_encode;
use statelens::parts::formats::sets::CheckpointFiles;
use statelens::parts::values::fields;
use statelens::parts::values::json::json_text;
use statelens_serve::{Request, Response, ServedFolder, Site, content_type};

use crate::source;

/// The page's files by name; empty if the command was built without them.
pub(super) static PAGE: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/site.rs"));

/// Marks the page as served with files, and gives their address.
const MARK: &str = "<meta name=\"files\" content=\"files/\"></head>";

pub(super) struct Served {
    token: String,
    folder: Option<ServedFolder>,
    /// The page's `index.html` with the mark.
    index: Vec<u8>,
}

impl Served {
    pub(super) fn new(token: String, folder: Option<ServedFolder>) -> Self {
        let index = PAGE.iter().find(|(name, _)| *name == "index.html");
        let index = index.map(|(_, bytes)| String::from_utf8_lossy(bytes)).unwrap_or_default();
        let index = index.replacen("</head>", MARK, 1).into_bytes();
        Self { token, folder, index }
    }

    /// Returns the response for a path below the token.
    fn below(&self, path: &str) -> Response {
        if path.is_empty() || path == "index.html" {
            return Response::bytes(self.index.clone(), "text/html; charset=utf-8");
        }
        if let Some(file) = path.strip_prefix("files/") {
            return match &self.folder {
                None => Response::text(404, "no folder is served: statelens serve DIR"),
                Some(folder) if file.is_empty() => listing(folder),
                Some(folder) => folder.answer(file),
            }
            // The contents of a checkpoint must not enter the browser's cache.
            .header("Cache-Control", "no-store".into());
        }
        match PAGE.iter().find(|(name, _)| *name == path) {
            Some((name, bytes)) => Response::bytes(*bytes, content_type(Path::new(name))),
            None => Response::text(404, "not found"),
        }
    }
}

impl Site for Served {
    fn answer(&self, request: &Request) -> Response {
        let answer = match refusal(request) {
            Some(why) => Response::text(403, why),
            None => match request.path().and_then(|path| after(path, &self.token)) {
                Some(path) => self.below(path),
                None => Response::text(
                    403,
                    "the token is missing from this address: use the address that statelens printed",
                ),
            },
        };
        answer
            .header("Cross-Origin-Resource-Policy", "same-origin".into())
            .header("Referrer-Policy", "no-referrer".into())
            .header("X-Frame-Options", "DENY".into())
    }
}

/// Returns why a request is refused, whatever its path.
fn refusal(request: &Request) -> Option<&'static str> {
    let Some(host) = request.header("host").filter(|host| is_local(host)) else {
        return Some("this server answers to the name 127.0.0.1 only");
    };
    if request.has("origin")
        && request.header("origin").and_then(|origin| origin.strip_prefix("http://")) != Some(host)
    {
        return Some("requests from other origins are refused");
    }
    // Browsers send this header with requests without an `Origin`, too. Navigation by a link on
    // another page is harmless, because that page can't read the response.
    let other = request.has("sec-fetch-site")
        && !matches!(request.header("sec-fetch-site"), Some("same-origin" | "none"));
    if other && request.header("sec-fetch-mode") != Some("navigate") {
        return Some("requests from other sites are refused");
    }
    None
}

/// Returns whether a host is a name of this machine that DNS can't redirect. Any port is accepted,
/// because a tunnel has its own.
fn is_local(host: &str) -> bool {
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "80"));
    matches!(name, "127.0.0.1" | "localhost") && port.parse::<u16>().is_ok()
}

/// Returns the rest of the path after `/TOKEN/`. Takes the same time for a partly correct token as
/// for a wrong one.
fn after<'a>(path: &'a str, token: &str) -> Option<&'a str> {
    let (first, rest) = path.strip_prefix('/')?.split_once('/')?;
    let differ = first.bytes().zip(token.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    (first.len() == token.len() && differ == 0).then_some(rest)
}

/// Links to files outside the folder are skipped, and so are links to folders: nothing outside the
/// folder is read, and nothing is listed twice.
fn listing(folder: &ServedFolder) -> Response {
    // Links to outside the folder are left out, and so are links to files that are listed anyway.
    let keep = |path: &Path| match path.is_symlink() {
        true => path.is_file() && path.canonicalize().is_ok_and(|to| to.starts_with(folder.path())),
        false => true,
    };
    let (files, mut found) = match source::checkpoints(folder.path(), keep) {
        Ok(found) => found,
        Err(error) => return Response::text(404, &error.to_string()),
    };
    if found.is_empty() {
        // Lists files that can't be opened if opening them reports the reason.
        found.extend(statelens::parts::formats::explaining_file(&files).map(|id| {
            let name = files.name(id).to_owned();
            CheckpointFiles { name: name.clone(), main: name.clone(), members: vec![name] }
        }));
    }
    let size = |name: &str| {
        files.iter().find(|(_, file)| file.name == name).map_or(0, |(id, _)| files.len(id))
    };
    let file = |path: String| {
        let bytes = size(&path);
        fields! { path: path, bytes: bytes }
    };
    let checkpoint = |found: CheckpointFiles| {
        let files: Vec<_> = found.members.into_iter().map(file).collect();
        fields! { name: found.name, main: found.main, files: files }
    };
    // A run has further files, such as the index of its checkpoints.
    let all = files.iter().map(|(id, file)| {
        let (path, bytes) = (file.name.clone(), files.len(id));
        let modified = modified_millis(&folder.path().join(&path));
        fields! { path: path, bytes: bytes, modified: modified }
    });
    let all: Vec<_> = all.collect();
    let name = folder.path().file_name().unwrap_or(folder.path().as_os_str());
    let listing = fields! {
        folder: name.to_string_lossy(),
        checkpoints: found.into_iter().map(checkpoint).collect::<Vec<_>>(),
        files: all,
    };
    Response::bytes(json_text(&listing).into_bytes(), "application/json")
}

/// Returns when a file was last changed, in milliseconds since 1970; 0 if that is unknown.
fn modified_millis(path: &Path) -> u64 {
    let modified = path.metadata().and_then(|metadata| metadata.modified()).ok();
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| u64::try_from(since.as_millis()).ok()).unwrap_or_default()
}

/// Returns a path inside the folder as in addresses, not encoded; `None` if it is not valid text.
pub(super) fn name_of(path: &Path) -> Option<String> {
    let names: Option<Vec<&str>> = path.iter().map(|part| part.to_str()).collect();
    Some(names?.join("/"))
}

/// Percent-encodes the bytes that the query of an address can't contain.
pub(super) fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    // Encoded twice: the query is decoded once, and its value is itself an address.
    percent_encode(name.as_bytes(), plain).replace('%', "%25")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_local_host_headers() {
        for (host, local) in [
            ("127.0.0.1:8650", true),
            ("localhost:1", true),
            ("localhost", true),
            ("127.0.0.1.evil.example:8650", false),
            ("evil.example:8650", false),
            ("localhost.evil.example", false),
            ("127.0.0.1:x", false),
            ("127.0.0.1:", false),
            ("0.0.0.0:8650", false),
            ("", false),
        ] {
            assert_eq!(is_local(host), local, "{host}");
        }
    }

    #[test]
    fn requires_the_complete_token() {
        assert_eq!(after("/abcd/files/x", "abcd"), Some("files/x"));
        assert_eq!(after("/abcd/", "abcd"), Some(""));
        for path in ["/abcd", "/", "/abc/", "/abcde/", "/abce/x", "//abcd/", "/x/abcd/", ""] {
            assert_eq!(after(path, "abcd"), None, "{path}");
        }
    }

    #[test]
    fn encodes_names_for_a_query() {
        assert_eq!(encoded("a/b-1.mdl"), "a/b-1.mdl");
        assert_eq!(encoded("a b&c%.mdl"), "a%2520b%2526c%2525.mdl");
    }
}
