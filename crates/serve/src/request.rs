//! Reads requests: the first line and the headers, at most [`MAX_REQUEST`] bytes.

use std::io::{self, BufRead as _, BufReader, Read};

/// Maximum length of a request in bytes; the page's are a few hundred bytes.
const MAX_REQUEST: u64 = 16 << 10;

/// A request.
#[derive(Debug)]
pub struct Request {
    method: String,
    path: Option<String>,
    headers: Vec<(String, String)>,
}

impl Request {
    /// Reads a request; `None` if it is not an HTTP request or is too long.
    pub(crate) fn read(stream: impl Read) -> io::Result<Option<Self>> {
        let mut lines = BufReader::new(stream.take(MAX_REQUEST)).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let mut words = first.split(' ');
        let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Ok(None);
        };
        let mut request =
            Self { method: method.to_owned(), path: decoded(target), headers: Vec::new() };
        for line in lines {
            let line = line?;
            if line.is_empty() {
                return Ok(Some(request));
            }
            let Some((name, value)) = line.split_once(':') else { return Ok(None) };
            request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(None)
    }

    /// Returns the method, as sent.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the decoded path without the query; `None` if it is malformed.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns a header by its name in lower case; `None` if it is missing or repeated.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(other, _)| other == name);
        let (_, value) = all.next()?;
        all.next().is_none().then_some(value)
    }

    /// Returns true if a header is present, once or more.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(other, _)| other == name)
    }
}

/// Returns the path of a request's target, percent-decoded once.
fn decoded(target: &str) -> Option<String> {
    let path = target.split(['?', '#']).next()?;
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let path = String::from_utf8(bytes).ok()?;
    (path.starts_with('/') && !path.contains('\0')).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_first_line_and_the_headers() {
        let text =
            "GET /a%2fb%25?x=%zz HTTP/1.1\r\nHost: one\r\nRANGE:bytes=0-1\r\nX: 1\r\nX: 2\r\n\r\n";
        let request = Request::read(text.as_bytes()).unwrap().unwrap();
        assert_eq!(request.path(), Some("/a/b%"));
        assert_eq!(request.header("range"), Some("bytes=0-1"));
        assert_eq!((request.header("x"), request.has("x")), (None, true));
        assert_eq!((request.header("y"), request.has("y")), (None, false));
    }

    #[test]
    fn refuses_malformed_requests() {
        for text in ["", "GET /\r\n\r\n", "GET / HTTP/2\r\n\r\n", "GET / HTTP/1.1\r\nHost: cut"] {
            assert!(Request::read(text.as_bytes()).unwrap().is_none(), "{text}");
        }
        for target in ["%zz", "/%", "/%f", "/a%00b", "/%ff", "*", "http://x/"] {
            assert_eq!(decoded(target), None, "{target}");
        }
    }
}
