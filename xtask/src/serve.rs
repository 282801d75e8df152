//! A small server for the built site, on this machine only.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};
use tiny_http::{Header, Method, Request, Response};

use crate::{page, project};

/// How many ports are tried after the one that was asked for.
const MORE_PORTS: u16 = 20;

/// How many requests are answered at the same time.
const THREADS: usize = 4;

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
    server: Arc<tiny_http::Server>,
    port: u16,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Serves a folder on 127.0.0.1, at `port` or the next free one; 0 is any free port.
    pub(crate) fn start(folder: &Path, port: u16) -> Result<Self> {
        let folder =
            folder.canonicalize().with_context(|| format!("{} is not there", folder.display()))?;
        let server = Arc::new(bind(port)?);
        let port = server.server_addr().to_ip().map(|address| address.port());
        let port = port.ok_or_else(|| anyhow!("the server has no port"))?;
        let threads = (0..THREADS)
            .map(|_| {
                let (server, folder) = (Arc::clone(&server), folder.clone());
                thread::spawn(move || {
                    for request in server.incoming_requests() {
                        answer(request, &folder);
                    }
                })
            })
            .collect();
        Ok(Self { server, port, threads })
    }

    /// What to type into the browser.
    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    fn wait(mut self) {
        for thread in self.threads.drain(..) {
            // A thread ends only with the server; how makes no difference to who waits for it.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for _ in &self.threads {
            self.server.unblock();
        }
    }
}

fn bind(port: u16) -> Result<tiny_http::Server> {
    let last = if port == 0 { 0 } else { port.saturating_add(MORE_PORTS) };
    for port in port..=last {
        match tiny_http::Server::http(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
            Ok(server) => return Ok(server),
            Err(error) => match error.downcast_ref::<std::io::Error>() {
                Some(error) if error.kind() == ErrorKind::AddrInUse => {}
                _ => bail!("can't listen on port {port}: {error}"),
            },
        }
    }
    bail!("the ports {port} to {last} are all taken; name another one with --port")
}

fn answer(request: Request, folder: &Path) {
    let get = matches!(request.method(), Method::Get | Method::Head);
    let file = if get { locate(folder, request.url()) } else { None };
    let opened = file.and_then(|path| Some((File::open(&path).ok()?, content_type(&path))));
    // The browser may go away in the middle of an answer; nobody is left to tell.
    let _ = match opened {
        Some((file, kind)) => {
            let mut response = Response::from_file(file);
            for (name, value) in [("Content-Type", kind), ("Cache-Control", "no-cache")] {
                if let Ok(header) = Header::from_bytes(name, value) {
                    response.add_header(header);
                }
            }
            request.respond(response)
        }
        None => request.respond(Response::from_string("not found").with_status_code(404)),
    };
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
