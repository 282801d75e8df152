//! Responses, with support for ranges of files.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::Request;

/// A response.
#[derive(Debug)]
pub struct Response {
    status: u16,
    content_type: &'static str,
    headers: Vec<(&'static str, String)>,
    content: ResponseBody,
}

#[derive(Debug)]
enum ResponseBody {
    Bytes(Cow<'static, [u8]>),
    /// An open file, its length, and its entity tag.
    File(File, u64, String),
}

/// The range of a file that a request asks for.
#[derive(Debug, PartialEq)]
enum RequestedRange {
    Whole,
    /// The first and the last byte.
    Range(u64, u64),
    Unsatisfiable,
    /// The file does not match the tag in `If-Match`.
    Changed,
}

impl Response {
    /// Creates a response with a text of one line.
    pub fn text(status: u16, text: &str) -> Self {
        let content = ResponseBody::Bytes(format!("{text}\n").into_bytes().into());
        Self { status, content_type: "text/plain; charset=utf-8", headers: Vec::new(), content }
    }

    /// Creates a response with bytes of a content type.
    pub fn bytes(bytes: impl Into<Cow<'static, [u8]>>, content_type: &'static str) -> Self {
        Self {
            status: 200,
            content_type,
            headers: Vec::new(),
            content: ResponseBody::Bytes(bytes.into()),
        }
    }

    /// Creates a response with a regular file, which supports range requests. Its `ETag` changes
    /// with length and modification time.
    ///
    /// # Errors
    /// If the system does not report its length and modification time.
    pub fn file(file: File, content_type: &'static str) -> io::Result<Self> {
        let about = file.metadata()?;
        let changed = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let tag = format!("\"{:x}-{:x}\"", about.len(), changed.as_nanos());
        let content = ResponseBody::File(file, about.len(), tag);
        Ok(Self { status: 200, content_type, headers: Vec::new(), content })
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Returns the status, before a range is applied.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Sends the response, or the requested range of it.
    pub(crate) fn send(
        self,
        mut out: impl Write,
        head_only: bool,
        request: Option<&Request>,
    ) -> io::Result<()> {
        let mut status = self.status;
        let mut headers = self.headers;
        let (start, len) = match &self.content {
            ResponseBody::Bytes(bytes) => (0, bytes.len() as u64),
            ResponseBody::File(_, len, tag) => {
                headers.push(("Accept-Ranges", "bytes".into()));
                headers.push(("ETag", tag.clone()));
                match request.map_or(RequestedRange::Whole, |request| part(request, *len, tag)) {
                    RequestedRange::Whole => (0, *len),
                    RequestedRange::Range(first, last) => {
                        status = 206;
                        headers.push(("Content-Range", format!("bytes {first}-{last}/{len}")));
                        (first, last - first + 1)
                    }
                    RequestedRange::Unsatisfiable => {
                        status = 416;
                        headers.push(("Content-Range", format!("bytes */{len}")));
                        (0, 0)
                    }
                    RequestedRange::Changed => {
                        status = 412;
                        (0, 0)
                    }
                }
            }
        };
        let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        let mut line = |name: &str, value: &str| {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        };
        line("Content-Type", self.content_type);
        line("Content-Length", &len.to_string());
        line("Connection", "close");
        line("X-Content-Type-Options", "nosniff");
        if !headers.iter().any(|(name, _)| *name == "Cache-Control") {
            line("Cache-Control", "no-cache");
        }
        for (name, value) in &headers {
            line(name, value);
        }
        head.push_str("\r\n");
        out.write_all(head.as_bytes())?;
        if !head_only {
            match self.content {
                ResponseBody::Bytes(bytes) => out.write_all(&bytes)?,
                // A file that was truncated meanwhile ends early: the connection is then closed.
                ResponseBody::File(mut file, ..) if len > 0 => {
                    file.seek(SeekFrom::Start(start))?;
                    io::copy(&mut file.take(len), &mut out)?;
                }
                ResponseBody::File(..) => {}
            }
        }
        out.flush()
    }
}

/// Returns the content type of a file, by its extension.
pub fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("json" | "map") => "application/json",
        Some("webmanifest") => "application/manifest+json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Returns the requested range of a file of `len` bytes. A request for several ranges gets the
/// whole file, as the standard (RFC 9110, 14.2) allows.
fn part(request: &Request, len: u64, tag: &str) -> RequestedRange {
    if request.header("if-match").is_some_and(|wanted| wanted != "*" && wanted != tag) {
        return RequestedRange::Changed;
    }
    let stale = request.header("if-range").is_some_and(|wanted| wanted != tag);
    let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
    let Some((first, last)) = range.filter(|_| !stale).and_then(|range| range.split_once('-'))
    else {
        return RequestedRange::Whole;
    };
    let end = len.checked_sub(1);
    match (first.parse::<u64>(), last.parse::<u64>(), end) {
        (Ok(first), Ok(last), _) if first > last => RequestedRange::Whole,
        (Ok(first), Ok(last), Some(end)) if first <= end => {
            RequestedRange::Range(first, last.min(end))
        }
        (Ok(first), Err(_), Some(end)) if last.is_empty() && first <= end => {
            RequestedRange::Range(first, end)
        }
        (Ok(_), Ok(_), _) => RequestedRange::Unsatisfiable,
        (Ok(_), Err(_), _) if last.is_empty() => RequestedRange::Unsatisfiable,
        (Err(_), Ok(0), _) if first.is_empty() => RequestedRange::Unsatisfiable,
        (Err(_), Ok(count), Some(end)) if first.is_empty() => {
            RequestedRange::Range(len.saturating_sub(count), end)
        }
        (Err(_), Ok(_), None) if first.is_empty() => RequestedRange::Unsatisfiable,
        _ => RequestedRange::Whole,
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        206 => "Partial Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        412 => "Precondition Failed",
        416 => "Range Not Satisfiable",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range_of(headers: &str, len: u64) -> RequestedRange {
        let text = format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n");
        part(&Request::read(text.as_bytes()).unwrap().unwrap(), len, "\"tag\"")
    }

    #[test]
    fn parses_ranges_by_the_standard() {
        for (range, len, expected) in [
            ("bytes=0-0", 10, RequestedRange::Range(0, 0)),
            ("bytes=2-5", 10, RequestedRange::Range(2, 5)),
            ("bytes=2-", 10, RequestedRange::Range(2, 9)),
            ("bytes=2-99", 10, RequestedRange::Range(2, 9)),
            ("bytes=-3", 10, RequestedRange::Range(7, 9)),
            ("bytes=-30", 10, RequestedRange::Range(0, 9)),
            ("bytes=10-", 10, RequestedRange::Unsatisfiable),
            ("bytes=10-11", 10, RequestedRange::Unsatisfiable),
            ("bytes=-0", 10, RequestedRange::Unsatisfiable),
            ("bytes=0-", 0, RequestedRange::Unsatisfiable),
            ("bytes=-1", 0, RequestedRange::Unsatisfiable),
            ("bytes=5-2", 10, RequestedRange::Whole),
            ("bytes=0-1,3-4", 10, RequestedRange::Whole),
            ("bytes=x-y", 10, RequestedRange::Whole),
            ("bytes=-", 10, RequestedRange::Whole),
            ("bytes=0-99999999999999999999", 10, RequestedRange::Whole),
            ("lines=0-1", 10, RequestedRange::Whole),
        ] {
            assert_eq!(range_of(&format!("Range: {range}"), len), expected, "{range} of {len}");
        }
    }

    #[test]
    fn detects_a_changed_file_by_etag() {
        let range = "Range: bytes=0-1";
        assert_eq!(
            range_of(&format!("{range}\r\nIf-Range: \"tag\""), 10),
            RequestedRange::Range(0, 1)
        );
        assert_eq!(range_of(&format!("{range}\r\nIf-Range: \"old\""), 10), RequestedRange::Whole);
        assert_eq!(range_of(&format!("{range}\r\nIf-Match: \"old\""), 10), RequestedRange::Changed);
        assert_eq!(
            range_of(&format!("{range}\r\nIf-Match: \"tag\""), 10),
            RequestedRange::Range(0, 1)
        );
    }

    #[test]
    fn sends_part_of_a_file() {
        let path = std::env::temp_dir().join(format!("statelens-part-{}", std::process::id()));
        std::fs::write(&path, "0123456789").unwrap();
        let send = |range: &str, head_only| {
            let text = format!("GET / HTTP/1.1\r\nRange: {range}\r\n\r\n");
            let request = Request::read(text.as_bytes()).unwrap().unwrap();
            let mut out = Vec::new();
            let answer = Response::file(File::open(&path).unwrap(), content_type(&path)).unwrap();
            answer.send(&mut out, head_only, Some(&request)).unwrap();
            String::from_utf8(out).unwrap()
        };
        let some = send("bytes=3-5", false);
        assert!(some.starts_with("HTTP/1.1 206 Partial Content\r\n"), "{some}");
        assert!(some.contains("Content-Range: bytes 3-5/10\r\n") && some.ends_with("\r\n\r\n345"));
        let none = send("bytes=10-", false);
        assert!(
            none.starts_with("HTTP/1.1 416 ") && none.contains("Content-Range: bytes */10\r\n")
        );
        assert!(none.ends_with("\r\n\r\n"), "{none}");
        let head = send("bytes=0-1", true);
        assert!(head.contains("Content-Length: 2\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        std::fs::remove_file(&path).unwrap();
    }
}
