//! Checkpoints at web addresses, on servers that behave well or badly.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{Folder, fixture, run, text};

/// A request: its path with the query, and its range.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) range: Option<(usize, usize)>,
    pub(crate) if_range: Option<String>,
    /// The header `Authorization`.
    pub(crate) token: Option<String>,
}

/// A response: status, further header lines, and the body.
pub(crate) type Response = (u16, String, Vec<u8>);

pub(crate) struct TestServer {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl TestServer {
    /// Answers each request with the result of `answer`, which gets the number of the request,
    /// counted from 1.
    pub(crate) fn start(
        answer: impl Fn(&Request, usize) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let (all, answer) = (requests.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (all, answer) = (all.clone(), answer.clone());
                thread::spawn(move || {
                    let stream = stream.unwrap();
                    let request = read(&stream);
                    let number = {
                        let mut all = all.lock().unwrap();
                        all.push(request.clone());
                        all.len()
                    };
                    let is_head = request.method == "HEAD";
                    write(&stream, answer(&request, number), is_head);
                });
            }
        });
        Self { port, requests }
    }

    /// Serves files by ranges; `twist` may change each response.
    fn of(
        files: Vec<(&'static str, Vec<u8>)>,
        twist: impl Fn(&Request, usize, Response) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self::start(move |request, number| {
            let path = request.path.split('?').next().unwrap();
            let bytes = files.iter().find(|(name, _)| *name == path).map(|(_, bytes)| bytes);
            let answer = match bytes {
                Some(bytes) => part(request, bytes, "\"1\""),
                None => (404, String::new(), b"nothing".to_vec()),
            };
            twist(request, number, answer)
        })
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Request {
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let request = lines.next().unwrap_or_default();
    let mut words = request.split(' ').map(str::to_owned);
    let mut word = || words.next().unwrap_or_default();
    let mut request = Request { method: word(), path: word(), ..Request::default() };
    for line in lines.take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        match name.to_ascii_lowercase().as_str() {
            "range" => {
                let (first, last) = value.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
                request.range = Some((first.parse().unwrap(), last.parse().unwrap()));
            }
            "authorization" => request.token = Some(value.to_owned()),
            "if-range" => request.if_range = Some(value.to_owned()),
            _ => {}
        }
    }
    request
}

fn write(mut stream: &TcpStream, (status, head, body): Response, is_head: bool) {
    let length = match head.contains("Content-Length") {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let head = format!("HTTP/1.1 {status} X\r\n{head}{length}Connection: close\r\n\r\n");
    // A client that has read enough closes the connection.
    let body = if is_head { &[][..] } else { &body };
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

pub(crate) fn part(request: &Request, bytes: &[u8], tag: &str) -> Response {
    let Some((first, last)) = request.range else {
        return (200, format!("ETag: {tag}\r\n"), bytes.to_vec());
    };
    let last = last.min(bytes.len() - 1);
    let range = format!("Content-Range: bytes {first}-{last}/{}\r\n", bytes.len());
    (206, format!("ETag: {tag}\r\n{range}"), bytes[first..=last].to_vec())
}

fn example() -> Vec<u8> {
    fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/cerebras/v2.10.0/gpt_small.mdl"
    ))
    .unwrap()
}

#[test]
fn remote_checkpoint_equals_the_local_one() {
    let folder = Folder::new();
    let file = text(&folder.with("a b.mdl", &example()));
    let server = TestServer::of(vec![("/m/a%20b.mdl", example())], |_, _, answer| answer);
    let url = server.at("/m/a b.mdl");
    for command in ["info", "ls", "manifest", "scan"] {
        assert_eq!(run([command, &url]).ok(), run([command, &file]).ok(), "{command}");
    }
    let (here, there) = (folder.file("here.pt"), folder.file("there.pt"));
    run(["convert", &file, &text(&here)]).ok();
    run(["convert", &url, &text(&there)]).ok();
    assert!(fs::read(&here).unwrap() == fs::read(&there).unwrap());
    assert_eq!(run(["diff", &url, &file]).code, Some(0));
    for request in server.requests() {
        assert!(request.range.is_some(), "{request:?}");
    }
}

#[test]
fn fetches_only_the_structure_within_max_fetch() {
    let header = br#"{"weight":{"dtype":"F32","shape":[8192,8192],"data_offsets":[0,268435456]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.resize(file.len() + (1 << 28), 1);
    let server = TestServer::of(vec![("/large.safetensors", file)], |_, _, answer| answer);
    let url = server.at("/large.safetensors");
    let listed = run(["ls", &url]).ok();
    assert!(listed.contains("weight"), "{listed}");
    // The first bytes and the last, where other formats have their magic number.
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    let fetched: usize =
        requests.iter().map(|request| request.range.unwrap()).map(|(a, b)| b - a + 1).sum();
    assert!(fetched < 300_000, "{fetched}");
    assert_eq!(requests[1].if_range.as_deref(), Some("\"1\""));
    // Converting fetches the whole file, which is refused before it begins, unless allowed.
    let folder = Folder::new();
    let out = text(&folder.file("out.pt"));
    let error = run(["convert", &url, &out, "--max-fetch", "200MB"]).failed();
    assert!(error.contains("268 MB") && error.contains("--max-fetch"), "{error}");
    assert_eq!(server.requests().len(), 4);
    let error = run(["manifest", &url, "--max-fetch", "50MB"]).failed();
    assert!(error.contains("more than the 50.0 MB") && error.contains("--max-fetch"), "{error}");
    assert!(folder.names().is_empty());
    run(["convert", &url, &out, "--max-fetch", "1GB"]).ok();
}

#[test]
fn finds_remote_shards_through_the_index() {
    let folder = fixture("hf_sharded_safetensors");
    let names = [
        ("/m/model.safetensors.index.json", "model.safetensors.index.json"),
        ("/m/model-00001-of-00003.safetensors", "model-00001-of-00003.safetensors"),
        ("/m/model-00002-of-00003.safetensors", "model-00002-of-00003.safetensors"),
        ("/m/model-00003-of-00003.safetensors", "model-00003-of-00003.safetensors"),
    ];
    let files = |count| {
        let all = names.into_iter().take(count);
        all.map(|(path, name)| (path, fs::read(folder.join(name)).unwrap())).collect()
    };
    let server = TestServer::of(files(4), |_, _, answer| answer);
    let index = text(&folder.join(names[0].1));
    let expected = run(["manifest", &index]).ok();
    assert_eq!(
        run(["manifest", &server.at("/m/model.safetensors.index.json?key=1")]).ok(),
        expected
    );
    assert!(server.requests().iter().all(|request| request.path.ends_with("?key=1")));
    assert_eq!(run(["manifest", &server.at(names[1].0)]).ok(), expected);
    // A shard that the server does not have is missing, as on disk.
    let server = TestServer::of(files(3), |_, _, answer| answer);
    let info = run(["info", &server.at(names[0].0)]);
    assert!(info.out.contains("1 of 3 shards are missing"), "{}{}", info.out, info.err);

    let folder = fixture("tf/saver_v2_sharded");
    let mut files = Vec::new();
    let mut index = String::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".index") {
            index.clone_from(&name);
        }
        let path: &'static str = Box::leak(format!("/{name}").into_boxed_str());
        files.push((path, fs::read(folder.join(&name)).unwrap()));
    }
    let server = TestServer::of(files, |_, _, answer| answer);
    let expected = run(["manifest", &text(&folder.join(&index))]).ok();
    assert_eq!(run(["manifest", &server.at(&format!("/{index}"))]).ok(), expected);
}

#[test]
fn index_cannot_redirect_requests() {
    let index = br#"{"weight_map":{"a":"../secret.safetensors","b":"http://127.0.0.1:1/x","c":"/etc/passwd"}}"#;
    let server = TestServer::of(vec![("/m/x.index.json", index.to_vec())], |_, _, answer| answer);
    run(["ls", &server.at("/m/x.index.json")]).failed();
    for request in server.requests() {
        assert!(request.path.starts_with("/m/"), "{request:?}");
    }
}

#[test]
fn resolves_redirects_once() {
    let target = TestServer::of(vec![("/blob", example())], |_, _, answer| answer);
    let to = target.at("/blob");
    let server = TestServer::start(move |_, _| (302, format!("Location: {to}\r\n"), Vec::new()));
    run(["manifest", &server.at("/gpt_small.mdl")]).ok();
    assert_eq!(server.requests().len(), 1);
    assert!(target.requests().len() > 1);
    let server = TestServer::start(|request, _| {
        (302, format!("Location: {}\r\n", request.path), Vec::new())
    });
    let error = run(["ls", &server.at("/loop.pt")]).failed();
    assert!(error.contains("redirects requests"), "{error}");
}

#[test]
fn fetches_small_files_whole_without_range_support() {
    let server = TestServer::of(vec![("/a.mdl", example())], |request, _, _| {
        part(&Request { range: None, ..request.clone() }, &example(), "\"1\"")
    });
    run(["ls", &server.at("/a.mdl")]).ok();
    assert_eq!(server.requests().len(), 2);
    let server =
        TestServer::start(|_, _| (200, "Content-Length: 1000000000000\r\n".into(), Vec::new()));
    let error = run(["ls", &server.at("/a.mdl")]).failed();
    assert!(error.contains("does not support range requests"), "{error}");
}

#[test]
fn reports_server_errors() {
    fn later(
        number: usize,
        answer: Response,
        other: impl FnOnce(Response) -> Response,
    ) -> Response {
        if number > 1 { other(answer) } else { answer }
    }
    type Twist = fn(&Request, usize, Response) -> Response;
    let cases: [(&str, Twist); 11] = [
        ("login for this file (401)", |_, _, _| (401, String::new(), Vec::new())),
        ("denies access to this file (403)", |_, _, _| (403, String::new(), Vec::new())),
        ("no such file (404)", |_, _, _| (404, String::new(), Vec::new())),
        ("no such file (410)", |_, _, _| (410, String::new(), Vec::new())),
        ("too many requests (429)", |_, _, _| (429, "Retry-After: 3600\r\n".into(), Vec::new())),
        ("had an error (500)", |_, _, _| (500, String::new(), Vec::new())),
        ("has changed", |request, number, answer| {
            later(number, answer, |_| part(request, &example(), "\"2\""))
        }),
        ("has changed", |request, number, answer| {
            later(number, answer, |_| part(request, &example()[1..], "\"1\""))
        }),
        ("has changed", |request, number, answer| {
            let whole = Request { range: None, ..request.clone() };
            later(number, answer, |_| part(&whole, &example(), "\"2\""))
        }),
        ("bytes and closed the connection", |_, number, answer| {
            later(number, answer, |(status, head, body)| {
                let head = format!("{head}Content-Length: {}\r\n", body.len());
                (status, head, body[..body.len() / 2].to_vec())
            })
        }),
        ("no such file (404)", |_, number, answer| {
            later(number, answer, |_| (404, String::new(), Vec::new()))
        }),
    ];
    for (expected, twist) in cases {
        let server = TestServer::of(vec![("/a.mdl", example())], twist);
        let error = run(["ls", &server.at("/a.mdl")]).failed();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("a.mdl"), "{error}");
    }
    // There is no server at this address.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = run(["ls", &format!("http://{free}/a.mdl")]).failed();
    assert!(error.contains("could not be reached"), "{error}");
}

#[test]
fn retries_failed_requests() {
    let server = TestServer::of(vec![("/a.mdl", example())], |_, number, answer| match number {
        0 => (503, String::new(), Vec::new()),
        2 | 4 => {
            let (status, head, body) = answer;
            let head = format!("{head}Content-Length: {}\r\n", body.len());
            (status, head, body[..body.len() / 3].to_vec())
        }
        _ => answer,
    });
    let folder = Folder::new();
    let file = text(&folder.with("a.mdl", &example()));
    assert_eq!(run(["manifest", &server.at("/a.mdl")]).ok(), run(["manifest", &file]).ok());
}

#[test]
fn reports_urls_that_are_not_files() {
    for (url, expected) in [
        ("https://huggingface.co/gpt2", "not that of a repository"),
        ("https://example.org/", "folder"),
        ("http://me:word@example.org/a.pt", "password"),
    ] {
        let error = run(["info", url]).failed();
        assert!(error.contains(expected), "{error}");
    }
}
