//! A small HTTP server on loopback, with which `statelens serve` and `cargo xtask serve` serve the
//! page.
//!
//! Each connection gets a thread and serves one request. There is no thread pool: browsers open
//! connections ahead of time and leave them idle, which could block all threads of a pool. The
//! contents come from a [`Site`]; [`ServedFolder`] serves the files of a folder, and never one
//! outside it.

mod folder;
mod request;
mod response;

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub use folder::ServedFolder;
pub use request::Request;
pub use response::{Response, content_type};

/// How many ports are tried after the requested one.
pub const MORE_PORTS: u16 = 20;

/// How long a connection may stay silent.
const PATIENCE: Duration = Duration::from_secs(60);

/// Responds to requests.
pub trait Site: Send + Sync + 'static {
    /// Returns the response to a request.
    fn answer(&self, request: &Request) -> Response;
}

/// A running server, which stops when dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves on 127.0.0.1, at `port` or the next free one; 0 is any free port.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start(site: impl Site, port: u16) -> io::Result<Self> {
        let listener = bind(port)?;
        let port = listener.local_addr()?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, site) = (Arc::clone(&stop), Arc::new(site));
        let thread = thread::Builder::new().spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), site) = (stream, Arc::clone(&site)) else { continue };
                // The browser may close the connection at any time, so errors are ignored.
                let talk = move || drop(talk(&stream, &*site));
                // If the system allows no more threads, the connection is closed, and the browser
                // tries again.
                drop(thread::Builder::new().spawn(talk));
            }
        })?;
        Ok(Self { port, stop, thread: Some(thread) })
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the address of its root, with a slash at the end.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Serves until the program ends.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread ends only with the program, so its result does not matter.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes up the listener, which then checks `stop`.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn bind(port: u16) -> io::Result<TcpListener> {
    let last = if port == 0 { 0 } else { port.saturating_add(MORE_PORTS) };
    for port in port..=last {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            Err(error) => {
                let text = format!("can't listen on port {port}: {error}");
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
    let text = format!("the ports {port} to {last} are all taken; choose another one with --port");
    Err(io::Error::new(ErrorKind::AddrInUse, text))
}

/// Reads a request, responds, and closes the connection.
fn talk(stream: &TcpStream, site: &dyn Site) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(request) = Request::read(stream)? else {
        return Response::text(400, "this is not an HTTP request").send(stream, false, None);
    };
    let head_only = match request.method() {
        "GET" => false,
        "HEAD" => true,
        _ => {
            let answer = Response::text(405, "only GET and HEAD are supported");
            return answer.header("Allow", "GET, HEAD".into()).send(stream, false, None);
        }
    };
    site.answer(&request).send(stream, head_only, Some(&request))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    struct Hello;

    impl Site for Hello {
        fn answer(&self, request: &Request) -> Response {
            Response::bytes(request.path().unwrap_or("?").to_owned().into_bytes(), "text/plain")
        }
    }

    fn ask(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        write!(stream, "{request}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn answers_http_requests_only() {
        let server = Server::start(Hello, 0).unwrap();
        let page = ask(&server, "GET /a%20b?c HTTP/1.1\r\nHost: x");
        assert!(page.starts_with("HTTP/1.1 200") && page.ends_with("\r\n\r\n/a b"), "{page}");
        let head = ask(&server, "HEAD /abc HTTP/1.1");
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        assert!(ask(&server, "POST / HTTP/1.1").starts_with("HTTP/1.1 405"));
        assert!(ask(&server, "hello").starts_with("HTTP/1.1 400"));
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(20_000));
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        // The server may close before it has read all of it.
        let _ = write!(stream, "{long}\r\n\r\n");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }

    #[test]
    fn takes_the_next_free_port() {
        let first = Server::start(Hello, 0).unwrap();
        let second = Server::start(Hello, first.port).unwrap();
        assert!(second.port > first.port && second.port <= first.port + MORE_PORTS);
    }
}
