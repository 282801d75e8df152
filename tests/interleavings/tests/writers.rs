//! The two threads that write a file leave its bytes in order, and end, under any schedule.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;

use interleavings::sink::{FileSink, Sink};
use statelens_checkpoint::{Error, FileId, FileSet, Memory, ReadAt, Result, Span};

/// Schedules that each test tries; each writes some megabytes.
const SCHEDULES: usize = 60;
/// Bytes of a piece, which a thread writes at once.
const PIECE: usize = 512 << 10;

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("statelens-{name}-{}", std::process::id()))
}

fn sink(name: &str) -> FileSink {
    FileSink::new(vec![Arc::new(File::create(path(name)).unwrap())])
}

fn span(offset: usize, len: usize) -> Span {
    Span { file: FileId(0), offset: offset as u64, len: len as u64 }
}

#[test]
fn bytes_are_in_order() {
    let source: Vec<u8> = (0..PIECE as u32).flat_map(u32::to_le_bytes).collect();
    let run = move || {
        let files = FileSet::single("in", Memory::from(source.clone()));
        let mut sink = sink("order");
        sink.begin(0).unwrap();
        sink.copy(&files, span(7, 3 * PIECE)).unwrap();
        sink.write(&source[..PIECE / 3]).unwrap();
        sink.copy(&files, span(100, PIECE)).unwrap();
        sink.patch_head(b"HEAD").unwrap();
        sink.write(b"end").unwrap();
        sink.finish().unwrap();
        let parts = [&source[7..7 + 3 * PIECE], &source[..PIECE / 3], &source[100..100 + PIECE]];
        let mut expected = parts.concat();
        expected[..4].copy_from_slice(b"HEAD");
        expected.extend_from_slice(b"end");
        assert!(fs::read(path("order")).unwrap() == expected);
    };
    shuttle::check_random(run.clone(), SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 3);
    fs::remove_file(path("order")).unwrap();
}

/// A source that fails behind the second piece.
#[derive(Debug)]
struct Bad {
    panics: bool,
}

impl ReadAt for Bad {
    fn len(&self) -> u64 {
        1 << 40
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(1);
        match (offset < 2 * PIECE as u64, self.panics) {
            (true, _) => Ok(()),
            (false, true) => panic!("reading is broken"),
            (false, false) => Err(Error::io("reading failed")),
        }
    }
}

/// Copies until an error arrives.
fn failure(name: &str, panics: bool) -> String {
    let files = FileSet::single("in", Bad { panics });
    let mut sink = sink(name);
    let outcome = sink.copy(&files, span(0, 40 * PIECE)).and_then(|()| sink.finish());
    outcome.unwrap_err().to_string()
}

#[test]
fn a_failed_read_ends_both_threads() {
    let run = || {
        let error = failure("failed", false);
        assert!(error.contains("reading failed"), "{error}");
    };
    shuttle::check_random(run, SCHEDULES);
    fs::remove_file(path("failed")).unwrap();
}

#[test]
fn a_panic_ends_both_threads() {
    let run = || {
        let error = failure("panic", true);
        assert!(error.contains("writing ended unexpectedly"), "{error}");
    };
    shuttle::check_random(run, SCHEDULES);
    fs::remove_file(path("panic")).unwrap();
}
