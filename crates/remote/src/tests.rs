//! Reading from a server that misbehaves.

use std::sync::Arc;
use std::sync::Mutex;

use statelens_checkpoint::{BLOCK, Error, ErrorKind, FileSet, ReadAt, Result, Structure};

use crate::{Address, FIRST, Fetch, Head, Identity, Meter, TRIES, open};

/// A server with a file of 1,000,000 bytes. Every response passes through `twist`, which also gets
/// the number of the request and the address.
struct TestServer {
    twist: Box<Twist>,
    request_log: Arc<Mutex<Vec<(String, u64, usize)>>>,
}

type Twist = dyn Fn(usize, &str, &mut Head, &mut usize) -> Result<()> + Send + Sync;
type RequestLog = Arc<Mutex<Vec<(String, u64, usize)>>>;

const LEN: u64 = 1_000_000;

fn byte(at: u64) -> u8 {
    (at * 7 + at / 251) as u8
}

impl std::fmt::Debug for TestServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

impl Fetch for TestServer {
    fn fetch(
        &self,
        url: &str,
        _: Option<&Identity>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(Head, usize)> {
        let number = {
            let mut request_log = self.request_log.lock().unwrap();
            request_log.push((url.to_owned(), offset, buffer.len()));
            request_log.len()
        };
        let mut got = buffer.len().min((LEN - offset) as usize);
        for (at, slot) in (offset..).zip(&mut buffer[..got]) {
            *slot = byte(at);
        }
        let range = format!("bytes {offset}-{}/{LEN}", offset + got as u64 - 1);
        let mut head = Head::new(206, |name| match name {
            "content-range" => Some(range.clone()),
            "etag" => Some("\"1\"".into()),
            _ => None,
        });
        (self.twist)(number, url, &mut head, &mut got)?;
        Ok((head, got))
    }

    fn pause(&self, _: u64) -> Result<()> {
        Ok(())
    }
}

type OpenResult = (Result<Arc<Structure>>, RequestLog, Arc<Meter>);

fn serve(
    cap: u64,
    twist: impl Fn(usize, &str, &mut Head, &mut usize) -> Result<()> + Send + Sync + 'static,
) -> OpenResult {
    let request_log = RequestLog::default();
    let server = TestServer { twist: Box::new(twist), request_log: request_log.clone() };
    let meter = Arc::new(Meter::new(cap, "Allow more."));
    let address = Address::parse("https://a.org/m/x.pt").unwrap();
    let whole = |_: &str, len: Option<u64>, most: u64, got: &mut u64| {
        *got = len.unwrap_or(LEN).min(most);
        Ok((0..*got).map(byte).collect())
    };
    let opened = open(&address, server, &meter, 1 << 20, whole);
    let structure = |source| {
        let mut files = FileSet::default();
        let id = files.push_remote("x.pt", source, None);
        files.structure(id)
    };
    (opened.and_then(|found| found).and_then(structure), request_log, meter)
}

fn read(source: &dyn ReadAt, offset: u64, len: usize) -> Result<()> {
    let mut buffer = vec![0; len];
    source.read_at(offset, &mut buffer)?;
    assert!((offset..).zip(&buffer).all(|(at, value)| *value == byte(at)));
    Ok(())
}

#[test]
fn small_reads_become_few_requests() {
    let (source, request_log, meter) = serve(u64::MAX, |_, _, _, _| Ok(()));
    let source = source.unwrap();
    assert_eq!(source.len(), LEN);
    for offset in (0..4 * BLOCK).step_by(1000) {
        read(&*source, offset, 1000).unwrap();
    }
    read(&*source, LEN - 22, 22).unwrap();
    let request_log = request_log.lock().unwrap();
    let lens: Vec<usize> = request_log.iter().map(|(.., len)| *len).collect();
    assert_eq!(lens, [FIRST, BLOCK as usize, 4 * BLOCK as usize, (LEN % BLOCK) as usize]);
    assert_eq!(meter.requests(), 4);
}

/// A failure is remembered within a call only: the network may be back at the next one.
#[test]
fn failure_of_one_call_does_not_fail_the_next() {
    let (source, request_log, meter) = serve(u64::MAX, |number, _, _, _| match number {
        2..=5 => Err(Error::io("no route")),
        _ => Ok(()),
    });
    let source = source.unwrap();
    let call = meter.call();
    for _ in 0..2 {
        let error = read(&*source, 500_000, 10).unwrap_err();
        assert!(error.to_string().contains("no route"), "{error}");
        assert_eq!(request_log.lock().unwrap().len(), 1 + TRIES as usize);
    }
    drop(call);
    let _call = meter.call();
    read(&*source, 500_000, 10).unwrap();
}

#[test]
fn retries_failures_and_then_reports_them() {
    for (word, twist) in [
        ("503", (|head, _| head.status = 503) as fn(&mut Head, &mut usize)),
        ("429", |head, _| head.status = 429),
        ("of 65536 bytes", |_, got| *got -= 1),
        ("a different range", |head, _| head.start = Some(5)),
        ("without its position", |head, _| (head.start, head.end, head.total) = (None, None, None)),
        ("the whole file", |head, _| (head.status, head.length) = (200, Some(LEN))),
    ] {
        // Two bad responses are recovered from.
        let (source, ..) = serve(u64::MAX, move |number, _, head, got| {
            if (2..4).contains(&number) {
                twist(head, got);
            }
            Ok(())
        });
        read(&*source.unwrap(), 500_000, 10).unwrap();
        let (source, request_log, _) = serve(u64::MAX, move |number, _, head, got| {
            if number > 1 {
                twist(head, got);
            }
            Ok(())
        });
        let error = read(&*source.unwrap(), 500_000, 10).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        let is_odd =
            ["a different range", "without its position", "the whole file"].contains(&word);
        assert!(error.next_step().is_some() || is_odd);
        assert_eq!(request_log.lock().unwrap().len(), 1 + TRIES as usize, "{word}");
    }
    let (source, request_log, _) = serve(u64::MAX, |_, _, _, _| Err(Error::io("no route")));
    assert!(source.unwrap_err().to_string().contains("no route"));
    assert_eq!(request_log.lock().unwrap().len(), TRIES as usize);
}

#[test]
fn retries_a_final_failure_only_in_the_next_action() {
    let (source, request_log, meter) = serve(u64::MAX, |number, _, head, _| {
        if number > 1 {
            head.status = 503;
        }
        Ok(())
    });
    let source = source.unwrap();
    for _ in 0..3 {
        read(&*source, 500_000, 10).unwrap_err();
    }
    assert_eq!(request_log.lock().unwrap().len(), 1 + TRIES as usize);
    meter.begin();
    read(&*source, 500_000, 10).unwrap_err();
    assert_eq!(request_log.lock().unwrap().len(), 1 + 2 * TRIES as usize);
}

#[test]
fn reports_permanent_errors_without_retry() {
    for (word, twist) in [
        ("changed", (|head| head.etag = Some("\"2\"".into())) as fn(&mut Head)),
        ("changed", |head| head.total = Some(LEN + 1)),
        ("changed", |head| head.status = 416),
        ("changed", |head| (head.status, head.etag) = (200, Some("\"2\"".into()))),
        ("requires a login", |head| head.status = 401),
        ("403", |head| head.status = 403),
        ("no such file", |head| head.status = 404),
        ("too many requests", |head| (head.status, head.retry_after) = (429, Some(3600))),
        ("redirects requests", |head| head.status = 302),
        ("answered 418", |head| head.status = 418),
    ] {
        let (source, request_log, _) = serve(u64::MAX, move |number, _, head, _| {
            if number > 1 {
                twist(head);
            }
            Ok(())
        });
        let error = read(&*source.unwrap(), 500_000, 10).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.next_step().is_some(), "{error}");
        assert_eq!(request_log.lock().unwrap().len(), 2, "{word}");
    }
}

#[test]
fn fetches_small_files_whole_without_range_support() {
    let whole = |cap, len| {
        serve(cap, move |_, _, head, got| {
            *got = 0;
            *head = Head { status: 200, length: len, ..Head::default() };
            Ok(())
        })
        .0
    };
    read(&*whole(u64::MAX, Some(LEN)).unwrap(), 999_000, 1000).unwrap();
    // A chunked response has no length.
    read(&*whole(u64::MAX, None).unwrap(), 999_000, 1000).unwrap();
    for (cap, len) in [(u64::MAX, Some(2 << 20)), (LEN - 1, None)] {
        let error = whole(cap, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("does not support range requests"), "{error}");
    }
    assert_eq!(whole(u64::MAX, Some(0)).unwrap().len(), 0);
}

#[test]
fn accepts_parts_with_status_200_and_shorter_parts() {
    let (source, ..) = serve(u64::MAX, |_, _, head, got| {
        (head.status, head.length) = (200, Some(*got as u64));
        Ok(())
    });
    read(&*source.unwrap(), 500_000, 300_000).unwrap();
    let (source, request_log, _) = serve(u64::MAX, |_, _, head, got| {
        *got = (*got).min(100_000);
        head.end = head.start.map(|start| start + *got as u64 - 1);
        Ok(())
    });
    let source = source.unwrap();
    assert_eq!(source.len(), LEN);
    read(&*source, 0, LEN as usize).unwrap();
    assert!(request_log.lock().unwrap().len() >= 10);
}

#[test]
fn names_responses_that_can_t_be_read() {
    for (word, twist) in [
        ("gzip", (|head| head.compression = Some("gzip".into())) as fn(&mut Head)),
        ("multipart", |head| {
            (head.multipart, head.start, head.end, head.total) = (true, None, None, None)
        }),
    ] {
        for first in [0, 1] {
            let (source, request_log, _) = serve(u64::MAX, move |number, _, head, _| {
                if number > first {
                    twist(head);
                }
                Ok(())
            });
            let error = source.and_then(|source| read(&*source, 500_000, 10)).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
            assert_eq!(request_log.lock().unwrap().len(), first + 1, "{word}");
        }
    }
    // An object store may keep this name of the coding of an upload.
    let header = |name: &str| (name == "content-encoding").then(|| "aws-chunked".to_owned());
    assert_eq!(Head::new(206, header).compression, None);
}

#[test]
fn fetches_stay_within_the_allowance() {
    let (source, _, meter) = serve(300_000, |_, _, _, _| Ok(()));
    let source = source.unwrap();
    read(&*source, 0, 200_000).unwrap();
    let error = read(&*source, 500_000, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.to_string().contains("300 kB"), "{error}");
    meter.begin();
    read(&*source, 500_000, 1).unwrap();
}

#[test]
fn follows_a_redirect_again_after_it_expired() {
    let (source, request_log, _) = serve(u64::MAX, |number, url, head, _| {
        if url.starts_with("https://a.org/") {
            head.url = Some(format!("https://cdn.org/{number}"));
        } else if number == 3 {
            head.status = 403;
        }
        Ok(())
    });
    let source = source.unwrap();
    read(&*source, 300_000, 1).unwrap();
    read(&*source, 600_000, 1).unwrap();
    read(&*source, 900_000, 1).unwrap();
    let request_log = request_log.lock().unwrap();
    let urls: Vec<&str> = request_log.iter().map(|(url, ..)| url.as_str()).collect();
    let origin = "https://a.org/m/x.pt";
    assert_eq!(
        urls,
        [origin, "https://cdn.org/1", "https://cdn.org/1", origin, "https://cdn.org/4"]
    );
}
