//! A claimed size that exceeds the memory is an error, and nothing is left behind.

use std::fs;
use std::path::Path;

use crate::common::{Folder, within};

/// Address space in MiB: enough for the command, too little for the sizes below.
const MEGABYTES: u64 = 400;

/// Bytes that the file claims and has: it is sparse.
const CLAIMED: u64 = 1_000_000_000;

fn sparse(path: &Path, start: &[u8]) {
    fs::write(path, start).unwrap();
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(CLAIMED + 100).unwrap();
}

#[test]
fn refuses_a_string_as_long_as_its_file() {
    let folder = Folder::new();
    // BINUNICODE8.
    let text = folder.file("text.pkl");
    sparse(&text, &[b"\x80\x04\x8d", &CLAIMED.to_le_bytes()[..]].concat());
    for command in ["info", "ls", "scan", "verify"] {
        let error = within(MEGABYTES, &[command, text.to_str().unwrap()]).failed();
        println!("{command}: {error}");
        assert!(error.contains("memory"), "{command}: {error}");
    }
    assert_eq!(folder.names(), ["text.pkl"]);
}
