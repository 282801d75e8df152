//! A small server for the built site, on this machine only.

//!
//! A thread for each connection, a request for each connection, and nothing else: browsers open
//! connections ahead of time and leave them idle, on which a pool of threads can wait for good
//! (tiny_http's did, once in a few runs of the page's tests).

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail};

use crate::{page, project};

/// How many ports are tried after the one that was asked for.
const MORE_PORTS: u16 = 20;

/// The longest request that is read; the page's are a few hundred bytes.
const MAX_REQUEST: u64 = 16 << 10;

/// Builds the page and serves it until the program is stopped.
pub(crate) fn run(port: u16) -> Result<()> {
    page::build()?;
    let server = Server::start(&project::site(), port)?;
    println!("\nStatelens is at {}  (Ctrl-C stops it)", server.address());
    server.wait();
    Ok(())
}

/// A running server; it stops when this is dropped.
pub(crate) struct Server {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves a folder on 127.0.0.1, at `port` or the next free one; 0 is any free port.
    pub(crate) fn start(folder: &Path, port: u16) -> Result<Self> {
        let folder =
            folder.canonicalize().with_context(|| format!("{} is not there", folder.display()))?;
        let listener = bind(port)?;
        let port = listener.local_addr().context("asking for the server's port")?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), folder) = (stream, folder.clone()) else { continue };
                // The browser may go away in the middle of an answer; nobody is left to tell.
                thread::spawn(move || answer(&stream, &folder).ok());
            }
        });
        Ok(Self { port, stop, thread: Some(thread) })
    }

    /// What to type into the browser.
    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            // It ends only with the program; how makes no difference to who waits for it.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the listener, which then sees that it is to stop.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn bind(port: u16) -> Result<TcpListener> {
    let last = if port == 0 { 0 } else { port.saturating_add(MORE_PORTS) };
    for port in port..=last {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => bail!("can't listen on port {port}: {error}"),
        }
    }
    bail!("the ports {port} to {last} are all taken; name another one with --port")
}

/// Reads one request, answers it, and closes the connection.
fn answer(stream: &TcpStream, folder: &Path) -> io::Result<()> {
    let mut lines = BufReader::new(stream.take(MAX_REQUEST)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    // The headers say nothing that matters here; they are read so that closing is no reset.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = request.split(' ');
    let (method, url) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let file = if matches!(method, "GET" | "HEAD") { locate(folder, url) } else { None };
    let opened = file.and_then(|path| Some((File::open(&path).ok()?, content_type(&path))));
    let mut out = stream;
    let head = |status: &str, kind: &str, len: u64| {
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n\
             Cache-Control: no-cache\r\nConnection: close\r\n\r\n"
        )
    };
    match opened {
        Some((mut file, kind)) => {
            out.write_all(head("200 OK", kind, file.metadata()?.len()).as_bytes())?;
            if method == "GET" {
                io::copy(&mut file, &mut out)?;
            }
        }
        None => {
            let text = "not found";
            let head = head("404 Not Found", "text/plain", text.len() as u64);
            out.write_all(head.as_bytes())?;
            out.write_all(text.as_bytes())?;
        }
    }
    out.flush()
}

/// The file inside `folder` (which is canonical) that an address names, never one outside it.
fn locate(folder: &Path, url: &str) -> Option<PathBuf> {
    let path = decode(url.split(['?', '#']).next()?)?;
    let mut file = folder.join(path.trim_start_matches('/'));
    if file.is_dir() {
        file.push("index.html");
    }
    let file = fs::canonicalize(file).ok()?;
    (file.starts_with(folder) && file.is_file()).then_some(file)
}

/// Undoes percent-encoding; `None` where it is malformed.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok().filter(|path| !path.contains('\0'))
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("wasm") => "application/wasm",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    /// A folder `site` beside a file that must stay out of reach.
    fn site(name: &str) -> PathBuf {
        let top =
            std::env::temp_dir().join(format!("statelens-serve-{name}-{}", std::process::id()));
        let site = top.join("site");
        fs::create_dir_all(site.join("examples")).unwrap();
        fs::write(top.join("secret.txt"), "secret").unwrap();
        fs::write(site.join("index.html"), "<p>page").unwrap();
        fs::write(site.join("examples/a b.wasm"), "wasm").unwrap();
        site.canonicalize().unwrap()
    }

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        write!(stream, "{request}\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn serves_files_with_their_type() {
        let folder = site("types");
        let server = Server::start(&folder, 0).unwrap();
        let page = ask(&server, "GET / HTTP/1.1");
        assert!(page.starts_with("HTTP/1.1 200") && page.ends_with("<p>page"), "{page}");
        let wasm = ask(&server, "GET /examples/a%20b.wasm?v=1 HTTP/1.1");
        assert!(
            wasm.contains("Content-Type: application/wasm") && wasm.ends_with("wasm"),
            "{wasm}"
        );
        assert!(ask(&server, "GET /missing HTTP/1.1").starts_with("HTTP/1.1 404"));
        assert!(ask(&server, "POST / HTTP/1.1").starts_with("HTTP/1.1 404"));
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn never_leaves_the_folder() {
        let folder = site("inside");
        std::os::unix::fs::symlink(folder.join("../secret.txt"), folder.join("link")).unwrap();
        for url in [
            "/../secret.txt",
            "/%2e%2e/secret.txt",
            "/examples/..%2f..%2fsecret.txt",
            "//etc/passwd",
            "/%2fetc/passwd",
            "/link",
            "/%zz",
            "/%",
            "/a%00b",
        ] {
            assert_eq!(locate(&folder, url), None, "{url}");
        }
        assert!(locate(&folder, "/examples/../index.html").is_some());
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn takes_the_next_free_port() {
        let folder = site("ports");
        let first = Server::start(&folder, 0).unwrap();
        let second = Server::start(&folder, first.port).unwrap();
        assert!(second.port > first.port && second.port <= first.port + MORE_PORTS);
        fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
