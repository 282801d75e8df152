//! A small object store for tests, which supports as much of three protocols as reading by ranges
//! and writing by parts require: S3's, Google's (its XML interface) and Azure's. It is strict
//! rather than complete: it refuses the parts that a real store would refuse.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// The protocol of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    S3,
    Google,
    Azure,
}

pub(crate) const KINDS: [Protocol; 3] = [Protocol::S3, Protocol::Google, Protocol::Azure];

/// The secret in the credentials of the tests.
pub(crate) const SECRET: &str = "c2VjcmV0LXRoYXQtbm9ib2R5LW1heS1zZWUtYW55d2hlcmU=";

/// Minimum size of a part for S3 and Google, except for the last.
const LEAST_PART: usize = 5 << 20;

/// A request, with the path unchanged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) head: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// Status, further header lines, and the body.
pub(crate) type Response = (u16, String, Vec<u8>);

/// May answer a request instead of the store. Gets the number of the request, counted from 1.
type StoreTwist = Box<dyn Fn(&Request, usize) -> Option<Response> + Send + Sync>;

pub(crate) struct Store {
    kind: Protocol,
    port: u16,
    shelf: Arc<Mutex<Shelf>>,
}

/// The contents of the store.
#[derive(Default)]
pub(crate) struct Shelf {
    /// By `bucket/key`.
    pub(crate) objects: BTreeMap<String, Arc<Vec<u8>>>,
    /// The user metadata `metadata` of objects in S3, by `bucket/key`.
    pub(crate) headers: BTreeMap<String, String>,
    /// Parts of incomplete objects.
    pub(crate) uploads: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// All requests, without their bodies.
    pub(crate) asked: Vec<Request>,
    began: usize,
}

impl Store {
    pub(crate) fn start(kind: Protocol) -> Self {
        Self::twisted(kind, |_, _| None)
    }

    pub(crate) fn twisted(
        kind: Protocol,
        twist: impl Fn(&Request, usize) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shelf = Arc::<Mutex<Shelf>>::default();
        let (all, twist): (_, Arc<StoreTwist>) = (shelf.clone(), Arc::new(Box::new(twist)));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (all, twist) = (all.clone(), twist.clone());
                thread::spawn(move || {
                    let stream = stream.unwrap();
                    let Some(asked) = read(&stream) else { return };
                    let number = {
                        let mut shelf = all.lock().unwrap();
                        shelf.asked.push(Request { body: Vec::new(), ..asked.clone() });
                        shelf.asked.len()
                    };
                    let answer = match twist(&asked, number) {
                        Some(answer) => answer,
                        None => all.lock().unwrap().answer(kind, asked),
                    };
                    write(&stream, answer);
                });
            }
        });
        Self { kind, port, shelf }
    }

    pub(crate) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap()
    }

    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        self.shelf().objects.insert(name.to_owned(), Arc::new(bytes));
    }

    pub(crate) fn object(&self, name: &str) -> Option<Arc<Vec<u8>>> {
        self.shelf().objects.get(name).cloned()
    }

    /// Returns the address of an object, as users write it.
    pub(crate) fn at(&self, name: &str) -> String {
        let scheme = match self.kind {
            Protocol::S3 => "s3",
            Protocol::Google => "gs",
            Protocol::Azure => "az",
        };
        format!("{scheme}://{name}")
    }

    /// Returns the environment variables for this store, with credentials.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let here = format!("http://127.0.0.1:{}", self.port);
        let text = |text: &str| text.to_owned();
        match self.kind {
            Protocol::S3 => vec![
                ("AWS_ENDPOINT", here),
                ("AWS_ALLOW_HTTP", text("true")),
                ("AWS_REGION", text("eu-central-1")),
                ("AWS_ACCESS_KEY_ID", text("ACCESSKEY")),
                ("AWS_SECRET_ACCESS_KEY", text(SECRET)),
            ],
            Protocol::Google => {
                vec![("GOOGLE_BASE_URL", here), ("GOOGLE_BEARER_TOKEN", text(SECRET))]
            }
            Protocol::Azure => vec![
                ("AZURE_STORAGE_USE_EMULATOR", text("true")),
                ("AZURITE_BLOB_STORAGE_URL", here),
                ("AZURE_STORAGE_ACCOUNT_NAME", text("account")),
                ("AZURE_STORAGE_ACCOUNT_KEY", text(SECRET)),
            ],
        }
    }
}

impl Shelf {
    fn answer(&mut self, kind: Protocol, asked: Request) -> Response {
        if !is_signed(kind, &asked) {
            return (403, String::new(), b"<Error><Code>AccessDenied</Code></Error>".to_vec());
        }
        let path = match kind {
            Protocol::Azure => asked.path.strip_prefix("/account").unwrap_or_default(),
            _ => &asked.path,
        };
        let name = path.trim_start_matches('/').to_owned();
        let query = |name: &str| asked.query.get(name).map(String::as_str);
        let made = |body: String| (200, String::new(), body.into_bytes());
        match (asked.method.as_str(), query("uploadId"), query("comp")) {
            ("GET", None, None) if query("list-type").is_some() => {
                made(self.listed(&name, query("prefix").unwrap_or_default()))
            }
            ("HEAD" | "GET", None, None) => self.part(kind, &name, &asked),
            ("PUT", None, None) => {
                let conditions = ["if-none-match", "x-goog-if-generation-match"];
                let only_new = conditions.iter().any(|name| asked.head.contains_key(*name));
                if only_new && self.objects.contains_key(&name) {
                    return (412, String::new(), Vec::new());
                }
                let tag = format!("ETag: \"{}\"\r\n", crc32fast::hash(&asked.body));
                self.keep_header(&name, &asked);
                self.objects.insert(name, Arc::new(asked.body));
                (200, tag, Vec::new())
            }
            ("POST", None, None) if query("uploads").is_some() => {
                self.began += 1;
                let id = format!("{}-{name}", self.began);
                self.uploads.insert(id.clone(), BTreeMap::new());
                self.keep_header(&name, &asked);
                made(format!(
                    "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
                ))
            }
            ("PUT", Some(id), None) => {
                let Some(parts) = self.uploads.get_mut(id) else { return nothing() };
                let number: u32 = query("partNumber").unwrap().parse().unwrap();
                let tag = format!("ETag: \"part-{number}\"\r\n");
                parts.insert(format!("{number:05}"), asked.body);
                (200, tag, Vec::new())
            }
            ("POST", Some(id), None) => {
                let Some(parts) = self.uploads.remove(id) else { return nothing() };
                let listed = between(&asked.body, "<PartNumber>", "</PartNumber>");
                let tags = between(&asked.body, "<ETag>", "</ETag>");
                let all: Vec<String> = (1..=parts.len()).map(|at| at.to_string()).collect();
                let sizes: Vec<usize> = parts.values().map(Vec::len).collect();
                let tagged =
                    tags.iter().zip(&all).all(|(tag, at)| tag.contains(&format!("part-{at}")));
                let small = sizes
                    .split_last()
                    .is_some_and(|(_, most)| most.iter().any(|len| *len < LEAST_PART));
                if listed != all || !tagged || small {
                    return (
                        400,
                        String::new(),
                        b"<Error><Code>InvalidPart</Code></Error>".to_vec(),
                    );
                }
                self.complete(name, parts.into_values());
                made("<CompleteMultipartUploadResult><ETag>\"1\"</ETag></CompleteMultipartUploadResult>".into())
            }
            ("DELETE", None, None) => match self.objects.remove(&name) {
                Some(_) => (204, String::new(), Vec::new()),
                None => nothing(),
            },
            // The S3 request that deletes several objects.
            ("POST", None, None) if query("delete").is_some() => {
                let keys = between(&asked.body, "<Key>", "</Key>");
                let bucket = name.split('/').next().unwrap_or_default();
                let gone = keys
                    .iter()
                    .filter(|key| self.objects.remove(&format!("{bucket}/{key}")).is_some());
                let gone = gone.map(|key| format!("<Deleted><Key>{key}</Key></Deleted>"));
                made(format!("<DeleteResult>{}</DeleteResult>", gone.collect::<String>()))
            }
            ("DELETE", Some(id), None) => match self.uploads.remove(id) {
                Some(_) => (204, String::new(), Vec::new()),
                None => nothing(),
            },
            ("PUT", None, Some("block")) => {
                let block = query("blockid").unwrap().to_owned();
                self.uploads.entry(name).or_default().insert(block, asked.body);
                (201, String::new(), Vec::new())
            }
            ("PUT", None, Some("blocklist")) => {
                let Some(mut blocks) = self.uploads.remove(&name) else { return nothing() };
                let listed = between(&asked.body, "<Uncommitted>", "</Uncommitted>");
                let taken: Option<Vec<_>> = listed.iter().map(|id| blocks.remove(id)).collect();
                let Some(taken) = taken else {
                    return (400, String::new(), b"InvalidBlockList".to_vec());
                };
                self.complete(name, taken.into_iter());
                (201, format!("ETag: \"1\"\r\n{DATE}"), Vec::new())
            }
            _ => (501, String::new(), format!("{} {name}", asked.method).into_bytes()),
        }
    }

    fn keep_header(&mut self, name: &str, asked: &Request) {
        match asked.head.get("x-amz-meta-metadata") {
            Some(header) => drop(self.headers.insert(name.to_owned(), header.clone())),
            None => drop(self.headers.remove(name)),
        }
    }

    /// Lists the objects of a bucket whose keys begin with `prefix`, down to the next `/`.
    fn listed(&self, bucket: &str, prefix: &str) -> String {
        let (mut contents, mut prefixes) = (String::new(), std::collections::BTreeSet::new());
        let start = format!("{}/", bucket.trim_end_matches('/'));
        for (name, bytes) in &self.objects {
            let Some(key) = name.strip_prefix(&start) else { continue };
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            match rest.split_once('/') {
                Some((folder, _)) => drop(prefixes.insert(format!("{prefix}{folder}/"))),
                None => {
                    contents += &format!(
                        "<Contents><Key>{key}</Key><Size>{}</Size>\
                         <LastModified>2024-03-01T12:00:00.000Z</LastModified>\
                         <ETag>\"{}\"</ETag></Contents>",
                        bytes.len(),
                        crc32fast::hash(bytes)
                    );
                }
            }
        }
        let prefixes: String = prefixes
            .iter()
            .map(|prefix| format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>"))
            .collect();
        format!("<ListBucketResult>{contents}{prefixes}</ListBucketResult>")
    }

    fn complete(&mut self, name: String, parts: impl Iterator<Item = Vec<u8>>) {
        let mut bytes = Vec::new();
        parts.for_each(|part| bytes.extend(part));
        self.objects.insert(name, Arc::new(bytes));
    }

    fn part(&self, kind: Protocol, name: &str, asked: &Request) -> Response {
        let Some(bytes) = self.objects.get(name) else { return nothing() };
        let tag = format!("\"{}\"", crc32fast::hash(bytes));
        if asked.head.get("if-match").is_some_and(|wanted| *wanted != tag) {
            return (412, String::new(), Vec::new());
        }
        let mut head = format!("ETag: {tag}\r\n{DATE}");
        if kind == Protocol::Azure {
            head += "x-ms-blob-type: BlockBlob\r\n";
        }
        if let Some(header) = self.headers.get(name) {
            head += &format!("x-amz-meta-metadata: {header}\r\n");
        }
        if asked.method == "HEAD" {
            return (200, format!("{head}Content-Length: {}\r\n", bytes.len()), Vec::new());
        }
        let Some(range) = asked.head.get("range").and_then(|range| range.strip_prefix("bytes="))
        else {
            return (200, head, bytes.to_vec());
        };
        let (first, last) = range.split_once('-').unwrap();
        let first: usize = first.parse().unwrap();
        if first >= bytes.len() {
            return (416, head, Vec::new());
        }
        let last = last.parse::<usize>().unwrap().min(bytes.len() - 1);
        head += &format!("Content-Range: bytes {first}-{last}/{}\r\n", bytes.len());
        (206, head, bytes[first..=last].to_vec())
    }
}

const DATE: &str = "Last-Modified: Fri, 01 Mar 2024 12:00:00 GMT\r\n";

fn nothing() -> Response {
    (404, String::new(), b"<Error><Code>NoSuchKey</Code></Error>".to_vec())
}

/// Returns whether a request proves knowledge of the credentials without revealing them.
fn is_signed(kind: Protocol, asked: &Request) -> bool {
    let shown = asked.head.get("authorization").map(String::as_str).unwrap_or_default();
    match kind {
        Protocol::S3 => shown.starts_with("AWS4-HMAC-SHA256 Credential=ACCESSKEY/"),
        Protocol::Google => shown == format!("Bearer {SECRET}"),
        Protocol::Azure => shown.starts_with("SharedKey account:"),
    }
}

fn between(body: &[u8], before: &str, after: &str) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let pieces = text.split(before).skip(1);
    pieces.map(|piece| piece.split(after).next().unwrap().to_owned()).collect()
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut from = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        from.read_line(&mut line).ok()?;
        Some(line.trim_end().to_owned())
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut asked = Request { method, path: decoded(path), ..Request::default() };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        asked.query.insert(name.to_owned(), decoded(value));
    }
    loop {
        let line = line()?;
        let Some((name, value)) = line.split_once(':') else { break };
        asked.head.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = asked.head.get("content-length").map_or(0, |length| length.parse().unwrap());
    asked.body = vec![0; length];
    from.read_exact(&mut asked.body).ok()?;
    Some(asked)
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| byte == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn write(mut stream: &TcpStream, (status, head, body): Response) {
    let length = match head.contains("Content-Length") {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let head = format!("HTTP/1.1 {status} X\r\n{head}{length}Connection: close\r\n\r\n");
    // A client that has read enough closes the connection.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}
