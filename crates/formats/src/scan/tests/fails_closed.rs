//! Data that can't be examined must end a scan with exit status 1.

use std::path::Path;

use statelens_checkpoint::{Finding, Grade, Limits};

use super::{ZipMember, gzip, hex, member, scan_with, tar, worst, zip};

/// The rest of a pickle that calls `os.system`, without any marker.
const CALL: &[u8] = b"0Vos\nVsystem\n\x93(Vid\ntR.";

/// Files that CPython loads further than scanners do. See the README of the fixtures.
#[test]
fn finds_unreadable_pickles_in_every_container() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/attacks3/unreadable");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let worst = worst(&name, std::fs::read(&path).unwrap());
        assert!(worst > Some(Grade::Warning), "{name}: {worst:?}");
        seen += 1;
    }
    assert_eq!(seen, 12);
}

/// Opcodes to put before [`CALL`]. Each is accepted by a CPython between 3.8 and 3.14.
fn odd_starts() -> Vec<(&'static str, Vec<u8>)> {
    let starts: [(&str, &[u8]); 40] = [
        ("INT in hexadecimal", b"I0x0\n"),
        ("INT in octal", b"I0o17\n"),
        ("INT in binary", b"I0b1\n"),
        ("INT with an underscore", b"I1_0\n"),
        ("INT in C's octal", b"I017\n"),
        ("INT with white space", b"I \x0b7 \n"),
        ("INT with NUL", b"I7\0x\n"),
        ("INT of NUL", b"I\0\n"),
        ("LONG in hexadecimal", b"L-0x10L\n"),
        ("LONG with an underscore", b"L1_0\n"),
        ("LONG with NUL", b"L7\0xL\n"),
        ("FLOAT with an underscore", b"F1_0.5\n"),
        ("FLOAT with white space", b"F 1.5 \n"),
        ("FLOAT with NUL", b"F1.5\0x\n"),
        ("FLOAT nan", b"F-NaN\n"),
        ("FLOAT infinity", b"FiNfInItY\n"),
        ("STRING with escapes", b"S'\\x41\\101\\q\\\\'\n"),
        ("STRING in double quotes", b"S\"it's\"\n"),
        ("UNICODE with two backslashes", b"V\\\\u\n"),
        ("UNICODE that ends in a backslash", b"V\\\n"),
        ("item of a list", b"]K\x01aK\x00K\x02s"),
        ("items of a list", b"]K\x01a(K\x00K\x02u"),
        ("APPEND to a bytearray", b"\x96\0\0\0\0\0\0\0\0K\x01a"),
        ("APPENDS to a bytearray", b"\x96\0\0\0\0\0\0\0\0(K\x01e"),
        ("item of a bytearray", b"\x96\x01\0\0\0\0\0\0\0aK\x00K\x01s"),
        ("APPENDS of nothing to None", b"N(e"),
        ("SETITEMS of nothing to None", b"N(u"),
        ("ADDITEMS of nothing to None", b"N(\x90"),
        ("PUT above 32 bits", b"Np4294967296\n"),
        ("PUT above 64 bits", b"Np99999999999999999999\n0g99999999999999999999\n"),
        ("PUT with zeros and an underscore", b"Np00_1\n0g1\n"),
        ("LONG_BINPUT of the last index", b"Nr\xff\xff\xff\xff"),
        ("POP of a mark", b"N(0"),
        ("POP_MARK", b"N(NN1"),
        ("a frame that is too short", b"\x95\x01\0\0\0\0\0\0\0N"),
        ("a frame of nothing", b"\x95\0\0\0\0\0\0\0\0N"),
        ("BUILD of nothing", b"N}b"),
        ("persistent id", b"Pa\n"),
        ("persistent id of an object", b"NQ"),
        ("a buffer", b"\x97\x98"),
    ];
    let mut starts: Vec<_> = starts.map(|(name, bytes)| (name, bytes.to_vec())).to_vec();
    let long4 = [&b"\x8b\x20\x4e\0\0"[..], &[1; 20_000]].concat();
    starts.push(("LONG4 of 20,000 bytes", long4));
    let hex = [b"I0x", &b"f".repeat(20_000)[..], b"\n"].concat();
    starts.push(("INT of 20,000 hexadecimal digits", hex));
    let decimal = [b"L", &b"7".repeat(5_000)[..], b"L\n"].concat();
    starts.push(("LONG of 5,000 digits", decimal));
    starts.push(("more values than the limit", [b"N".repeat(600_000), b"(".to_vec()].concat()));
    starts
}

#[test]
fn odd_opcodes_before_a_call_are_read_or_reported() {
    let mut silent = Vec::new();
    for (what, start) in odd_starts() {
        let pickle = [&start, CALL].concat();
        for (place, bytes) in [
            ("alone", pickle.clone()),
            ("behind another", [b"\x80\x02N.", &pickle[..]].concat()),
            ("cut short", pickle[..pickle.len() - 1].to_vec()),
        ] {
            if worst("x.bin", bytes) <= Some(Grade::Warning) {
                silent.push(format!("{what}, {place}"));
            }
        }
    }
    assert_eq!(silent, Vec::<String>::new());
}

/// If a frame ends within an opcode, the C unpickler drops its read-ahead when it reads from a
/// file. A loader begins the next pickle where the last frame ends.
#[test]
fn reports_ambiguous_frames() {
    let frame = |len: u64| [&b"\x95"[..], &len.to_le_bytes()].concat();
    for bytes in [
        [&b"\x80\x04"[..], &frame(3), b"VAAcollections\nVOrderedDict\n\x93)R."].concat(),
        [b"\x80\x04}Np12\n", &frame(2)[..], b"p12\n."].concat(),
        [&b"\x80\x04"[..], &frame(12), &frame(1), b"NNNN."].concat(),
        [&b"\x80\x04"[..], &frame(4), b"N.N.cos\nsystem\n(Vid\ntR."].concat(),
    ] {
        let worst = worst("x.bin", bytes.clone());
        assert!(worst > Some(Grade::Warning), "{:?}: {worst:?}", String::from_utf8_lossy(&bytes));
    }
}

/// The Python unpickler drops the last byte of a file that ends within a line.
#[test]
fn finds_an_unterminated_name_at_the_end() {
    for bytes in
        [&b"(Vid\nios\nsystemX"[..], b"(Vid\nios\nsystemX\n", b"cantigravityX", b"cantigravity\nX"]
    {
        let worst = worst("x.bin", bytes.to_vec());
        assert!(worst > Some(Grade::Warning), "{:?}: {worst:?}", String::from_utf8_lossy(bytes));
    }
}

/// An `Unpickler` keeps its memo when it loads again.
#[test]
fn memo_is_shared_with_the_next_pickle() {
    let first = b"Vos\np0\n0Vsystem\np1\n.".to_vec();
    let second = b"h\x00h\x01\x93(Vid\ntR.";
    assert_eq!(worst("x.bin", [&first, &second[..]].concat()), Some(Grade::Danger));
    // The second replaces an item of a list of the first.
    let odd = b"]q\x00K\x01a.h\x00K\x00K\x02s.";
    assert!(worst("x.bin", odd.to_vec()) > Some(Grade::Warning));
    // The second exceeds the number of bytes that are run.
    let long = [&b"]q\x00.h\x00"[..], &b"N0".repeat(1 << 20), b"."].concat();
    assert!(worst("x.bin", long) > Some(Grade::Warning));
    // The number of elements of a storage, which by chance looks like a memo reference.
    let stream = [b"\x80\x02N.", &b"h\0\0\0\0\0\0\0"[..], &[0; 416]].concat();
    assert_eq!(worst("x.bin", stream), None);
}

/// joblib reads an array after the frame of its wrapper, and the rest of the frame is run.
#[test]
fn finds_opcodes_after_a_joblib_array() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/joblib");
    let bytes = std::fs::read(folder.join("plain.joblib")).unwrap();
    assert!(worst("m.joblib", bytes.clone()) <= Some(Grade::Note));
    // The first frame is one byte longer, and longer by the length of a call.
    for more in [1, 40] {
        let mut longer = bytes.clone();
        let frame = longer.iter().position(|byte| *byte == 0x95).unwrap() + 1;
        let len = u64::from_le_bytes(longer[frame..frame + 8].try_into().unwrap());
        longer[frame..frame + 8].copy_from_slice(&(len + more).to_le_bytes());
        assert!(worst("m.joblib", longer) > Some(Grade::Warning), "{more}");
    }
}

/// [`CALL`] after an `N`, by Python's `lzma.compress(…, format=FORMAT_ALONE)`. Without its last
/// seven bytes, Python still decompresses all of it but the `STOP`, and runs that.
#[test]
fn examines_truncated_lzma_completely() {
    const LZMA: &str = "5d00008000ffffffffffffffff00270c06c733f7fd36d946a3163883b1eb55b96e0b8a7a928c1598a2\
                        e3ffffd8230000";
    let packed = hex(LZMA);
    for cut in 0..=7 {
        let file = packed[..packed.len() - cut].to_vec();
        assert!(worst("x.bin", file) > Some(Grade::Warning), "without the last {cut} bytes");
    }
}

/// Two lines of text after a `c` are an import. That deserves no more than a warning.
#[test]
fn text_that_resembles_an_import_is_only_a_warning() {
    for text in ["car\nbus\nbicycle\n", "cat\ndog\nzebra", "conda\npip\nuv\n"] {
        assert_eq!(worst("labels.txt", text.into()), Some(Grade::Warning), "{text}");
    }
    for text in ["I am\nhere\n", "Vocabulary\n", "Serial\n", "Notes on R.\n", "(a, b)\n", "F(x)\n"]
    {
        assert_eq!(worst("readme.md", text.into()), Some(Grade::Note), "{text}");
    }
}

/// Low limits, which small files can reach.
fn small_limits() -> Limits {
    let mut limits = Limits::default();
    (limits.values, limits.structure, limits.string, limits.members) = (1_000, 64 << 10, 1_000, 2);
    limits
}

/// For each limit or error that stops a reader early: the source file, the text of the check, and a
/// file that triggers it. None of the files calls anything in the part that is examined.
fn what_stops() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let (machine, numbers) = ("pickle/src/machine.rs", "pickle/src/machine/numbers.rs");
    let (pickles, torch) =
        ("formats/src/scan/search/pickles.rs", "formats/src/scan/search/torch.rs");
    let (search, members) = ("formats/src/scan/search.rs", "formats/src/scan/search/members.rs");
    let long = [&b"X\x40\x9c\0\0"[..], &[b'a'; 40_000]].concat();
    let tar = |name: &str, bytes: &[u8]| tar(&[("sys_info", b"N."), (name, bytes)], true);
    vec![
        (machine, "objects in a pickle", b"]".repeat(2_000)),
        (machine, "values on a pickle's stack", b"N".repeat(2_000)),
        (machine, "values on a pickle's stack", b"(".repeat(2_000)),
        (machine, "memo entries of a pickle", [b"N".to_vec(), b"\x94".repeat(2_000)].concat()),
        (machine, "items in all containers of a pickle", {
            let row = [b"(".to_vec(), b"N".repeat(900), b"e".to_vec()].concat();
            [b"]".to_vec(), row.repeat(6)].concat()
        }),
        (machine, "bytes of all names in a pickle", {
            // Longer than the string limit, so it passes only with default limits.
            let name = [&b"X\0\0\x10\0"[..], &vec![b'a'; 1 << 20], b"\x94"].concat();
            [name, b"h\0h\0\x930".repeat(20)].concat()
        }),
        (machine, "bytes of one string", [&b"V"[..], &[b'a'; 70_000]].concat()),
        (
            numbers,
            "digits of one integer",
            [b"L".to_vec(), b"1".repeat(5_000), b"\n".to_vec()].concat(),
        ),
        (pickles, "all that looks like a pickle", b"\x80\x02(".repeat(1 << 15)),
        (pickles, "A pickle is too large to examine completely", {
            let line = [b"V", &[b'a'; 900][..], b"\n0"].concat();
            [b"(".to_vec(), line.repeat(100)].concat()
        }),
        (
            pickles,
            "uses the memo of another",
            [&b"K\x01q\x00."[..], &long.repeat(2), b".h\x000."].concat(),
        ),
        (torch, "storages of an archive", tar("storages", b"K\x01.(K\x00K\x00K\x00t.")),
        (torch, "storages of an archive", tar("storages", b"].")),
        (torch, "storages of an archive", tar("storages", b"K\x01.N.")),
        (torch, "tensors of an archive", tar("tensors", b"K\x01.N.")),
        (torch, "tensors of an archive", tar("tensors", b"N.")),
        (search, "the rest of the archives", zip(&[member("a", b"1"); 6])),
        (search, "does not unpack", b"7z\xbc\xaf\x27\x1c\0\0and so on".to_vec()),
        (search, "packed in too many layers", (0..6).fold(b"N.".to_vec(), |bytes, _| gzip(&bytes))),
        (search, "the metadata of a GGUF file", zip(&[member("a.gguf", b"GGUF\x03\0\0\0\x01")])),
        (search, "an archive", {
            let hidden = zip(&[ZipMember { deflated: true, ..member("data.pkl", b"N.") }]);
            gzip(&[vec![0; 20 << 20], hidden].concat())
        }),
        (members, "The member of the archive", {
            let mut zip = zip(&[member("a", b"N.")]);
            let directory = zip.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
            zip[directory + 8] |= 1;
            zip
        }),
    ]
}

#[test]
fn every_limit_is_a_finding() {
    let mut silent = Vec::new();
    for (file, what, bytes) in what_stops() {
        let limits = if what.contains("all names") { Limits::default() } else { small_limits() };
        let findings = scan_with("x.bin", bytes, &limits);
        let says = |finding: &Finding| finding.grade > Grade::Warning;
        if !findings.iter().any(says) {
            silent.push(format!("{file}: {what}: {findings:?}"));
        }
    }
    assert_eq!(silent, Vec::<String>::new());
}

/// Ensures that for every place where a scan stops there is a file above that triggers it.
#[test]
fn every_stop_in_the_code_has_a_test_file() {
    // In `pickle`, the limit of a tuple's length exceeds what fits into memory.
    let met_above = [
        ("pickle/src/graph.rs", 1),
        ("pickle/src/machine.rs", 2),
        ("pickle/src/machine/calls.rs", 1),
        ("pickle/src/machine/numbers.rs", 1),
        ("pickle/src/machine/stack.rs", 3),
        ("formats/src/scan/search/members.rs", 1),
        ("formats/src/scan/search/pickles.rs", 2),
        ("formats/src/scan/search/torch.rs", 2),
    ];
    // Some of these are triggered above, the others by the files of `attacks3`, by
    // `container_fuzz.py` and by `led_to/graphs.rs`.
    let met_elsewhere = [
        ("formats/src/scan/search.rs", 1),
        ("formats/src/scan/search/graphs.rs", 2),
        ("formats/src/scan/search/hdf5.rs", 4),
        ("formats/src/scan/search/tarred.rs", 5),
        ("formats/src/scan/search/texts.rs", 2),
        ("formats/src/scan/search/unpack.rs", 6),
    ];
    let known = [&met_above[..], &met_elsewhere[..]].concat();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for folder in
        ["pickle/src", "pickle/src/machine", "formats/src/scan", "formats/src/scan/search"]
    {
        for entry in std::fs::read_dir(crates.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.ends_with(".rs") || ["findings.rs", "tests.rs"].contains(&&*name) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let stops =
                ["Limits::check(", ".unseen(", ".region(blob, 0, \"", ".region(blob, at, \""];
            let count: usize = stops.iter().map(|stop| text.matches(stop).count()).sum();
            if count > 0 {
                found.push((format!("{folder}/{name}"), count));
            }
        }
    }
    found.sort();
    let mut known: Vec<_> =
        known.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    known.sort();
    assert_eq!(found, known, "add a file to `what_stops` for each place, and count it here");
}
