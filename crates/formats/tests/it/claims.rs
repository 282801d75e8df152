//! Small files that claim to hold more than any machine can: each must be refused or reported as
//! damaged, with few reads and steps and without allocating memory for the claim.

use std::path::Path;
use std::sync::Arc;

use statelens_checkpoint::{FileSet, Grade, Limits, Progress};

use crate::counted::CountedFile;

/// How many times the bytes of a file may be read.
const MAX_TIMES: u64 = 16;
/// How many times progress may be reported.
const MAX_STEPS: u64 = 1_000;
const MAX_KILOBYTES: u64 = 20 << 10;

/// Claimed lengths and counts.
const CLAIMS: [u64; 4] = [1 << 32, 1 << 40, 1 << 62, u64::MAX];

/// A single test, so that no other test of this process allocates memory at the same time.
#[test]
fn false_claims_cost_no_time_or_memory() {
    let mut files = Vec::new();
    for claim in CLAIMS {
        files.extend(gguf(claim).into_iter().map(|file| ("x.gguf", claim, file)));
        files.extend(zip(claim).into_iter().map(|file| ("x.npz", claim, file)));
        files.extend(zip(claim).into_iter().map(|file| ("x.pt", claim, file)));
        files.extend(pickles(claim).into_iter().map(|file| ("x.pkl", claim, file)));
        files.extend(arrays(claim).into_iter().map(|file| ("x.npy", claim, file)));
        files.extend(table(claim).into_iter().map(|file| ("x.index", claim, file)));
        let header = [&claim.to_le_bytes()[..], b"{\"a\": {\"dtype\": \"F32\""].concat();
        files.push(("x.safetensors", claim, header));
    }
    files.extend(msgpack().into_iter().map(|file| ("x.msgpack", u64::from(u32::MAX), file)));
    // Allocates what every opening needs before the peak is first measured.
    for (name, _, bytes) in &files {
        let _ = opened(name, bytes);
    }
    let before = peak();
    let mut wrong = Vec::new();
    for (at, (name, claim, bytes)) in files.iter().enumerate() {
        let which = format!("{name}, the {at}th file, which claims {claim}");
        match opened(name, bytes) {
            Some(said) if said.len() > 20 => {}
            said => wrong.push(format!("{which}: {said:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    if let (Some(before), Some(after)) = (before, peak()) {
        let taken = after.saturating_sub(before);
        assert!(taken < MAX_KILOBYTES, "{taken} kB more than before");
    }
}

/// Counts progress reports.
struct Steps(u64);

impl Progress for Steps {
    fn report(&mut self, _done: u64, _total: u64) -> bool {
        self.0 += 1;
        true
    }
}

/// Opens a file with bounded reads and steps. Returns a description of the failure, if any.
fn opened(name: &str, bytes: &[u8]) -> Option<String> {
    let file = Arc::new(CountedFile::new(bytes.to_vec()));
    let mut files = FileSet::default();
    files.push(name, file.clone());
    let limits = Limits::default().fitted(bytes.len() as u64);
    let mut steps = Steps(0);
    let outcome = statelens_formats::open(files, &limits, &mut steps);
    file.assert_read_at_most(MAX_TIMES, name);
    assert!(steps.0 <= MAX_STEPS, "{name}: {} steps", steps.0);
    match outcome {
        Err(error) => Some(error.to_string()),
        Ok(checkpoint) => {
            let mut findings = checkpoint.findings.iter();
            findings.find(|finding| finding.grade >= Grade::Damage).map(|found| found.title.clone())
        }
    }
}

/// Returns the peak memory of this process in kB, if the system reports it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// GGUF version 3, as described in ggml's `gguf.md`.
fn gguf(claim: u64) -> Vec<Vec<u8>> {
    let head = |tensors: u64, pairs: u64| {
        let mut head = b"GGUF\x03\0\0\0".to_vec();
        head.extend(tensors.to_le_bytes());
        head.extend(pairs.to_le_bytes());
        head
    };
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let number = |number: u32| number.to_le_bytes().to_vec();
    let long = |number: u64| number.to_le_bytes().to_vec();
    let pair = |kind: u32, rest: Vec<u8>| [head(0, 1), text("a"), number(kind), rest].concat();
    let items = |kind: u32| pair(9, [number(kind), long(claim), vec![0; 64]].concat());
    let tensor = |dims: u32, shape: Vec<u8>| {
        [head(1, 0), text("w"), number(dims), shape, number(0), long(0), vec![0; 64]].concat()
    };
    vec![
        head(claim, 0),
        head(0, claim),
        [head(0, 1), long(claim), vec![b'a'; 64]].concat(),
        pair(8, [long(claim), vec![b'a'; 64]].concat()),
        // Arrays of bytes, floats, bools, strings, arrays.
        items(0),
        items(6),
        items(7),
        items(8),
        items(9),
        [head(1, 0), long(claim), vec![b'w'; 64]].concat(),
        tensor(u32::MAX, Vec::new()),
        tensor(1, long(claim)),
        tensor(4, [long(claim), long(claim), long(1), long(1)].concat()),
    ]
}

/// MessagePack, as in its specification: lengths have 32 bits.
fn msgpack() -> Vec<Vec<u8>> {
    let most = u32::MAX.to_be_bytes();
    let named = |rest: &[u8]| [b"\x81\xa1a", rest].concat();
    let long = |code: u8, rest: &[u8]| named(&[&[code], &most[..], rest].concat());
    // A chunked array, as flax writes it if it is too long for one message.
    let pieces = |shape: u64| {
        let mut bytes =
            b"\x81\xa1a\x83\xb9__msgpack_chunked_array__\xc3\xa5shape\x81\xa10\xcf".to_vec();
        bytes.extend(shape.to_be_bytes());
        bytes.extend(b"\xa6chunks\x81\xa10\xc7\x04\x01\x93\x90\xa1f\xc4\0");
        bytes
    };
    vec![
        long(0xdf, b"\xa1b\x01"),
        long(0xdd, b"\x01\x02"),
        long(0xc6, b"abc"),
        long(0xdb, b"abc"),
        long(0xc9, b"\x01abc"),
        [&[0xdf], &most[..], b"\xa1a\x01"].concat(),
        // Each of ten thousand maps claims the same length.
        [b"\x81\xa1a".to_vec(), [&[0xdf], &most[..], b"\xa1a"].concat().repeat(10_000)].concat(),
        pieces(1 << 40),
        pieces(1 << 62),
    ]
}

/// Directories of zip files: PKWARE's appnote, 4.3.
fn zip(claim: u64) -> Vec<Vec<u8>> {
    let end64 = |entries: u64, size: u64, at: u64, place: u64| {
        let mut end = b"PK\x06\x06".to_vec();
        end.extend(44u64.to_le_bytes());
        end.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        for number in [entries, entries, size, at] {
            end.extend(number.to_le_bytes());
        }
        end.extend(b"PK\x06\x07\0\0\0\0");
        end.extend(place.to_le_bytes());
        end.extend(1u32.to_le_bytes());
        end.extend(b"PK\x05\x06\0\0\0\0");
        end.extend([0xff; 12]);
        end.extend([0, 0]);
        end
    };
    let local =
        [&b"PK\x03\x04\x2d\0\0\0\0\0\0\0\0\0"[..], &[0; 12], &[5, 0, 0, 0], b"a.npy"].concat();
    // A record whose lengths and offset are in its extra field.
    let record = |stored: u64, len: u64, at: u64| {
        let mut record = b"PK\x01\x02\x2d\0\x2d\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        record.extend([0xff; 8]);
        record.extend([5, 0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        record.extend([0xff; 4]);
        record.extend(b"a.npy\x01\0\x18\0");
        for number in [len, stored, at] {
            record.extend(number.to_le_bytes());
        }
        record
    };
    let file = |record: Vec<u8>, entries: u64, size: Option<u64>, at: Option<u64>| {
        let start = local.len() as u64;
        let place = start + record.len() as u64;
        let end = end64(entries, size.unwrap_or(record.len() as u64), at.unwrap_or(start), place);
        [local.clone(), record, end].concat()
    };
    let sound = || record(0, 0, 0);
    vec![
        file(sound(), claim, None, None),
        file(sound(), 1, Some(claim), None),
        file(sound(), 1, None, Some(claim)),
        file(sound(), claim, Some(claim), Some(claim)),
        file(record(claim, claim, 0), 1, None, None),
        file(record(0, claim, 0), 1, None, None),
        file(record(0, 0, claim), 1, None, None),
    ]
}

/// Pickles with such lengths.
fn pickles(claim: u64) -> Vec<Vec<u8>> {
    let long = |code: u8| {
        [&b"\x80\x05}X\x01\0\0\0a"[..], &[code], &claim.to_le_bytes()[..], b"abcs."].concat()
    };
    let short = |code: u8, len: u32| {
        [&b"\x80\x05}X\x01\0\0\0a"[..], &[code], &len.to_le_bytes()[..], b"abcs."].concat()
    };
    vec![
        // BINUNICODE8, BINBYTES8, BYTEARRAY8, BINUNICODE, BINBYTES, LONG4.
        long(0x8d),
        long(0x8e),
        long(0x96),
        short(b'X', u32::MAX),
        short(b'B', u32::MAX),
        short(0x8b, i32::MAX as u32),
    ]
}

/// NumPy files of versions 1 and 2.
fn arrays(claim: u64) -> Vec<Vec<u8>> {
    let header =
        |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let version_1 = |text: &str| {
        [b"\x93NUMPY\x01\0", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), &[0; 16]]
            .concat()
    };
    vec![
        version_1(&header(&format!("({claim},)"))),
        version_1(&header(&format!("({claim}, {claim})"))),
        version_1(&header("(9999999999999999999999999999999999,)")),
        [b"\x93NUMPY\x02\0", &u32::MAX.to_le_bytes()[..], header("(4,)").as_bytes()].concat(),
    ]
}

/// The footer of TensorFlow's sorted tables: the handles of two blocks, and the magic number.
fn table(claim: u64) -> Vec<Vec<u8>> {
    let varint = |mut number: u64| {
        let mut bytes = Vec::new();
        while number > 0x7f {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    };
    let footer = |numbers: [u64; 4]| {
        let mut footer: Vec<u8> = numbers.into_iter().flat_map(varint).collect();
        footer.resize(40, 0);
        footer.extend(0xdb47_7524_8b80_fb57u64.to_le_bytes());
        [vec![0; 64], footer].concat()
    };
    vec![footer([0, 8, 0, claim]), footer([0, 8, claim, 8]), footer([0, claim, 0, 8])]
}
