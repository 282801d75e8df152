//! A pickle that calls something, hidden in files of all kinds.

mod fails_closed;
pub(super) mod led_to;

use crate::damaged_copies::damaged_copies;
use statelens_fixtures::busy;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use statelens_checkpoint::{
    Error, FileSet, Finding, Grade, Limits, Memory, OneThread, ReadAt, Result, Unwatched, try_alloc,
};

use crate::ScanOptions;
use crate::budget::Budget;

/// Calls `os.system`, in protocol 0, without any marker of a pickle.
pub(super) const BARE: &[u8] = b"cos\nsystem\n(S'true'\ntR.";
/// The same call in protocols 2 and 4.
pub(super) const MARKED: &[u8] = b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.";
const STACKED: &[u8] = b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x8c\x04true\x85R.";

fn scan_with(name: &str, bytes: Vec<u8>, limits: &Limits) -> Vec<Finding> {
    let files = FileSet::single(name, Memory::from(bytes));
    super::scan(files, limits, &ScanOptions::default(), &mut Unwatched).unwrap()
}

/// Scans a file within a budget of `units`.
fn scan_within(name: &str, bytes: Vec<u8>, limits: &Limits, units: u64) -> Vec<Finding> {
    let files = FileSet::single(name, Memory::from(bytes));
    let (options, budget) = (ScanOptions::default(), Budget::of(units));
    let progress = &mut Unwatched;
    super::scan_within(files, &|_| false, limits, &options, budget, &OneThread, progress).unwrap()
}

fn scan(name: &str, bytes: Vec<u8>) -> Vec<Finding> {
    scan_with(name, bytes, &Limits::default())
}

fn worst(name: &str, bytes: Vec<u8>) -> Option<Grade> {
    scan(name, bytes).into_iter().map(|finding| finding.grade).max()
}

fn calls_system(findings: &[Finding]) -> bool {
    let calls = findings.iter().filter_map(|finding| Some((finding.grade, finding.call.as_ref()?)));
    calls.into_iter().any(|(grade, call)| grade == Grade::Danger && call.name == "system")
}

/// A member of an archive: its name, its method, its name in the directory, and its bytes.
#[derive(Clone, Copy)]
pub(super) struct ZipMember<'a> {
    pub(super) name: &'a str,
    pub(super) listed: &'a str,
    pub(super) deflated: bool,
    pub(super) bytes: &'a [u8],
}

pub(super) fn member<'a>(name: &'a str, bytes: &'a [u8]) -> ZipMember<'a> {
    ZipMember { name, listed: name, deflated: false, bytes }
}

pub(super) fn zip(members: &[ZipMember<'_>]) -> Vec<u8> {
    let (mut zip, mut directory) = (Vec::new(), Vec::new());
    for member in members {
        let stored = if member.deflated { deflated(member.bytes) } else { member.bytes.to_vec() };
        let header = |name: &str| {
            let mut header =
                vec![20, 0, 0, 0, if member.deflated { 8 } else { 0 }, 0, 0, 0, 0x21, 0];
            header.extend(crc32fast::hash(member.bytes).to_le_bytes());
            header.extend((stored.len() as u32).to_le_bytes());
            header.extend((member.bytes.len() as u32).to_le_bytes());
            header.extend((name.len() as u16).to_le_bytes());
            header.extend([0, 0]);
            header
        };
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(header(member.listed));
        directory.extend([0; 10]);
        directory.extend((zip.len() as u32).to_le_bytes());
        directory.extend(member.listed.as_bytes());
        zip.extend(b"PK\x03\x04");
        zip.extend(header(member.name));
        zip.extend(member.name.as_bytes());
        zip.extend(stored);
    }
    let start = zip.len() as u32;
    zip.extend(&directory);
    zip.extend(b"PK\x05\x06\0\0\0\0");
    zip.extend((members.len() as u16).to_le_bytes());
    zip.extend((members.len() as u16).to_le_bytes());
    zip.extend((directory.len() as u32).to_le_bytes());
    zip.extend(start.to_le_bytes());
    zip.extend([0, 0]);
    zip
}

pub(super) fn tar(members: &[(&str, &[u8])], ustar: bool) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, bytes) in members {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
        header[156] = b'0';
        if ustar {
            header[257..262].copy_from_slice(b"ustar");
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        tar.extend(header);
        tar.extend(*bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// [`BARE`] compressed by Python's `lzma.compress(…, format=FORMAT_ALONE)` and `FORMAT_XZ`, by its
/// `zipfile` with `ZIP_LZMA`, and by `zstd` 1.5.
const LZMA: &str = "5d00008000ffffffffffffffff00319bcac6b27c65dfdf91599fb1d67e2e8a77380de474817125e8cbc7\
    ffff758c0000";
const XZ: &str = "fd377a585a000004e6d6b4460200210116000000742fe5a3010016636f730a73797374656d0a28532774\
    727565270a74522e0000dc543c9435c46d5600012f17810849b11fb6f37d010000000004595a";
const ZIP_LZMA: &str = "090405005d0000800000319bcac6b27c65dfdf91599fb1d67e2e8a77380de474817125e8cbc7ffff\
    758c0000";
const ZSTD: &str = "28b52ffd0458b90000636f730a73797374656d0a28532774727565270a74522e84972bfc";

pub(super) fn hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Returns an archive with [`BARE`] as its only member, compressed with this method.
pub(super) fn zip_by(method: u8, packed: &[u8]) -> Vec<u8> {
    let mut zip = zip(&[member("archive/data.pkl", packed)]);
    for (magic, at, crc) in [(b"PK\x03\x04", 8, 14), (b"PK\x01\x02", 10, 16)] {
        let header = zip.windows(4).position(|bytes| bytes == magic).unwrap();
        zip[header + at] = method;
        zip[header + crc..][..4].copy_from_slice(&crc32fast::hash(BARE).to_le_bytes());
        zip[header + crc + 8..][..4].copy_from_slice(&(BARE.len() as u32).to_le_bytes());
    }
    zip
}

pub(super) fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Returns an array file of this dtype with these bytes.
pub(super) fn npy(descr: &str, bytes: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (1,), }}\n");
    join(&[b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes(), header.as_bytes(), bytes])
}

/// Returns bytes as in weights, in which nothing recognisable begins.
pub(super) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(super) const PLAIN: &[u8] = b"\x80\x02}q\x00.";

#[test]
fn finds_pickles_in_every_container() {
    let torch = zip(&[member("archive/data.pkl", MARKED), member("archive/version", b"3\n")]);
    let safetensors = {
        let header = br#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
        join(&[&(header.len() as u64).to_le_bytes(), header, b"\0"])
    };
    let weights = noise(200_000);
    let tensorflow = std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/fixtures/tf/saver_v2_basic/model.ckpt-1.index"),
    )
    .unwrap();
    let footer = &tensorflow[tensorflow.len() - 48..];
    let behind = |packed: &[u8]| join(&[&weights, packed, &weights]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("lzma", hex(LZMA)),
        ("xz", hex(XZ)),
        ("zstd", hex(ZSTD)),
        ("member by bzip2", zip_by(12, &bzip2(BARE))),
        ("member by lzma", zip_by(14, &hex(ZIP_LZMA))),
        ("member by xz", zip_by(95, &hex(XZ))),
        ("member by zstd", zip_by(93, &hex(ZSTD))),
        ("lzma between weights", behind(&hex(LZMA))),
        ("xz between weights", behind(&hex(XZ))),
        ("zstd between weights", behind(&hex(ZSTD))),
        ("bzip2 between weights", behind(&bzip2(BARE))),
        ("zlib between weights", behind(&zlib(BARE))),
        ("stored zlib between weights", {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::none());
            encoder.write_all(BARE).unwrap();
            behind(&encoder.finish().unwrap())
        }),
        ("zlib of much between weights", behind(&zlib(&join(&[&vec![0; 9999], MARKED])))),
        ("zip behind a table of TensorFlow", join(&[&tensorflow, &torch])),
        ("zip in front of a table of TensorFlow", join(&[&torch, &tensorflow])),
        ("zip in front of a footer of TensorFlow", join(&[&torch, footer])),
        ("zip before the footer of its table", {
            let table = &tensorflow[..tensorflow.len() - 48];
            join(&[table, &torch, footer])
        }),
        ("bare", BARE.to_vec()),
        ("marked", MARKED.to_vec()),
        ("stacked", STACKED.to_vec()),
        ("zip", torch.clone()),
        ("zip behind safetensors", join(&[&safetensors, &torch])),
        ("zip behind msgpack", join(&[b"\x81\xa1a\x01", &torch])),
        ("zip in front of more than a comment", join(&[&torch, &weights])),
        ("zip between weights", join(&[&weights, &torch, &weights])),
        ("deflated member", zip(&[ZipMember { deflated: true, ..member("a/data.pkl", BARE) }])),
        ("a member that no directory lists", {
            let zip = zip(&[ZipMember { deflated: true, ..member("a/data.pkl", BARE) }]);
            let end = zip.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
            zip[..end].to_vec()
        }),
        (
            "zip in a deflated member of a zip",
            zip(&[ZipMember { deflated: true, ..member("m.pt", &torch) }]),
        ),
        (
            "names in capitals",
            zip(&[member("archive/data.pkl", PLAIN), member("archive/DATA.PKL", BARE)]),
        ),
        (
            "two names",
            zip(&[ZipMember { listed: "readme.txt", ..member("archive/data.pkl", BARE) }]),
        ),
        ("two of one name", zip(&[member("data.pkl", PLAIN), member("data.pkl", BARE)])),
        ("any name", zip(&[member("archive/data.pkl", PLAIN), member("x/y.bin", BARE)])),
        ("tar", tar(&[("weights.pkl", BARE)], true)),
        ("tar of the first kind", tar(&[("x", BARE)], false)),
        ("zip in a tar in gzip", gzip(&tar(&[("m.pt", &torch)], true))),
        ("tar behind weights", join(&[&weights, &tar(&[("m", BARE)], true)])),
        ("storages of torch 0.1", tar(&[("sys_info", PLAIN), ("storages", BARE)], true)),
        (
            "tensors of torch 0.1",
            tar(&[("sys_info", PLAIN), ("tensors", &join(&[b"K\x01.", BARE]))], true),
        ),
        ("gzip", gzip(BARE)),
        ("zlib", zlib(BARE)),
        ("bzip2", bzip2(BARE)),
        ("gzip in bzip2 in zlib", zlib(&bzip2(&gzip(BARE)))),
        ("gzip between weights", join(&[&weights, &gzip(MARKED), &weights])),
        ("array of objects", npy("'|O'", BARE)),
        ("array of records with objects", npy("[('a', '|O')]", BARE)),
        ("array in an archive", zip(&[member("a.npy", &npy("'|O'", BARE))])),
        ("array behind weights", join(&[&weights, &npy("'|O'", BARE)])),
        ("second pickle", join(&[PLAIN, BARE])),
        ("third pickle", join(&[PLAIN, b"N.", BARE])),
        ("pickle behind weights", join(&[&weights, MARKED])),
        ("bare pickle behind weights", join(&[&weights, BARE])),
        ("stacked names behind weights", join(&[&weights, &STACKED[2..]])),
        ("lines of names behind weights", join(&[&weights, b"Vos\np0\nVsystem\n\x93(Vid\ntR."])),
        (
            "long names behind weights",
            join(&[&weights, b"X\x02\0\0\0osq\0U\x06systemr\x01\0\0\0\x93(Vid\ntR."]),
        ),
        ("instance behind weights", join(&[&weights, b"(S'true'\nios\nsystem\n."])),
        (
            "after one that breaks off",
            join(&[b"\x80\x02}q\x00X\x03\x00\x00\x00ab\xff\xff", &weights, MARKED]),
        ),
        ("key of a stream", join(&[BARE, b"M\xe9\x03.}.}.]."])),
        ("keys of storages of a stream", {
            let magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
            join(&[magic, PLAIN, PLAIN, BARE])
        }),
    ];
    let wrong: Vec<&str> = cases
        .iter()
        .filter(|(_, bytes)| !calls_system(&scan("model.bin", bytes.clone())))
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(wrong, Vec::<&str>::new());
}

/// The name does not matter: the reader of the named format examines everything, too.
#[test]
fn extension_does_not_limit_the_scan() {
    let torch = zip(&[member("archive/data.pkl", MARKED), member("archive/version", b"3\n")]);
    for name in ["a.npz", "a.npy", "a.keras", "a.safetensors", "a.index", "a.gguf", "a.h5", "a"] {
        assert!(calls_system(&scan(name, torch.clone())), "{name}");
    }
}

#[test]
fn reports_confusable_member_names() {
    let of = |first: &str, second: &str| {
        let findings = scan("m.pt", zip(&[member(first, PLAIN), member(second, PLAIN)]));
        findings.into_iter().map(|finding| (finding.grade, finding.title)).collect::<Vec<_>>()
    };
    let capitals = (Grade::Warning, "Names in the archive differ in capitals only".to_owned());
    assert_eq!(of("archive/data.pkl", "archive/DATA.PKL"), [capitals]);
    let twice = (Grade::Damage, "Two members of the archive have the same name".to_owned());
    assert_eq!(of("archive/data.pkl", "archive/data.pkl"), [twice]);
    assert_eq!(of("archive/data.pkl", "archive/other.pkl"), []);
}

#[test]
fn data_that_no_loader_runs_has_no_findings() {
    for (name, bytes) in [
        ("weights", noise(4 << 20)),
        ("a vocabulary", b"the\ncos\nberkeley\ncat\ndog\nos\nsystem\nR\n.\n".repeat(1000)),
        ("a text", b"(see below) import os; os.system('true')\n".repeat(100)),
        (
            "an archive of nothing",
            zip(&[member("a/data.pkl", PLAIN), member("a/data/0", &noise(9999))]),
        ),
        ("two arrays", zip(&[member("W.npy", &npy("'<f4'", b"\0\0\x80?"))])),
    ] {
        let worst = worst("file", bytes);
        assert!(worst <= Some(Grade::Note), "{name}: {worst:?}");
    }
}

/// Files as written by joblib, with array data between the opcodes.
#[test]
fn scans_joblib_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/joblib");
    for name in ["plain.joblib", "objects.joblib", "packed.joblib"] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let worst = scan(name, bytes.clone()).into_iter().max_by_key(|finding| finding.grade);
        assert!(worst.as_ref().is_none_or(|worst| worst.grade <= Grade::Note), "{name}: {worst:?}");
        if name != "packed.joblib" {
            // In place of the last opcode, after the last array.
            let end = bytes.len() - 1;
            let evil = join(&[&bytes[..end], b"0", &BARE[..BARE.len() - 1], b"."]);
            assert!(calls_system(&scan(name, evil)), "{name}");
        }
    }
    // A pickle in place of the array of objects.
    let bytes = std::fs::read(folder.join("objects.joblib")).unwrap();
    let start = bytes.windows(4).position(|bytes| bytes == b"\x80\x05\x95\x91").unwrap();
    let end = start + bytes[start..].windows(3).position(|bytes| bytes == b"b.\x95").unwrap() + 2;
    assert!(calls_system(&scan("m", join(&[&bytes[..start], BARE, &bytes[end..]]))));
}

/// Data too long to keep is examined all the same; data that can't be examined is reported.
#[test]
fn examines_or_reports_data_beyond_the_memory_limit() {
    let mut limits = Limits::default();
    limits.structure = 1 << 20;
    let long = join(&[&npy("'<f4'", &vec![0; 20 << 20]), MARKED, &vec![0; 20 << 20]]);
    let file = zip(&[ZipMember { deflated: true, ..member("a.npy", &long) }]);
    assert!(calls_system(&scan_with("a.npz", file, &limits)));
    let hidden = zip(&[ZipMember { deflated: true, ..member("data.pkl", BARE) }]);
    let long = join(&[&vec![0; 20 << 20], &hidden]);
    let findings = scan_with("a.bin.gz", gzip(&long), &limits);
    let unseen = findings.iter().find(|finding| finding.grade == Grade::UnknownCode);
    assert!(unseen.unwrap().title.contains("could not examine"), "{findings:?}");
}

#[test]
fn reports_data_that_cannot_be_decompressed() {
    for (name, bytes, grade) in [
        ("m.7z", b"7z\xbc\xaf\x27\x1c\0\0and so on".to_vec(), Grade::UnknownCode),
        ("m.rar", b"Rar!\x1a\x07\0and so on".to_vec(), Grade::UnknownCode),
        ("m.rar5", b"Rar!\x1a\x07\x01\0and so on".to_vec(), Grade::UnknownCode),
        ("m.lz4", b"\x04\x22\x4d\x18and so on".to_vec(), Grade::Damage),
        ("m.gz", gzip(&noise(5000))[..2000].to_vec(), Grade::Damage),
        (
            "m.zip",
            {
                let mut zip = zip(&[member("a", BARE)]);
                let directory = zip.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
                zip[directory + 8] |= 1;
                zip
            },
            Grade::UnknownCode,
        ),
    ] {
        let findings = scan(name, bytes);
        assert!(findings.iter().any(|finding| finding.grade == grade), "{name}: {findings:?}");
    }
}

/// A source that is too large to read into memory.
#[derive(Debug)]
struct TooLarge;

impl ReadAt for TooLarge {
    fn len(&self) -> u64 {
        1000
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
        try_alloc::zeros(u64::MAX).map(|_| ())
    }
}

/// Data that was not examined for lack of memory would pass for harmless.
#[test]
fn lack_of_memory_ends_the_scan() {
    let files = FileSet::single("m.pt", TooLarge);
    let ended = super::scan(files, &Limits::default(), &ScanOptions::default(), &mut Unwatched);
    let error = ended.unwrap_err();
    assert_eq!(error.code(), try_alloc::CODE, "{error}");
    // Also where other errors are reported and skipped.
    assert!(super::fatal(&error).is_err());
    assert!(super::fatal(&Error::limit("more than the limit")).is_ok());
    assert!(super::fatal(&Error::damaged("cut short")).is_ok());
    let source: Arc<dyn ReadAt> = Arc::new(TooLarge);
    let packed = crate::packed::unpack(&source, crate::packed::Packing::Gzip, 100, 0);
    assert_eq!(packed.err().map(|error| error.code()), Some(try_alloc::CODE));
}

#[test]
fn allowed_names_are_not_findings() {
    let pickle = b"\x80\x02cmymodel\nConfig\n)R.".to_vec();
    assert_eq!(scan("m.pkl", pickle.clone()).len(), 1);
    let options = ScanOptions { allow: ["mymodel.Config".to_owned()].into() };
    let files = FileSet::single("m.pkl", Memory::from(pickle));
    let found = super::scan(files, &Limits::default(), &options, &mut Unwatched).unwrap();
    assert_eq!(found, []);
}

/// Bytes designed to be tried as pickles again and again, or to decompress without end.
#[test]
fn hostile_bytes_are_scanned_in_bounded_time() {
    let times = |count: usize| count / statelens_fixtures::times(4, 1);
    for (name, bytes) in [
        ("starts", b"\x80\x02".repeat(times(2 << 20))),
        ("marks", b"\x80\x02(".repeat(times(1 << 20))),
        ("ends", b"PK\x05\x06".repeat(times(1 << 20))),
        ("headers", b"PK\x03\x04\x14\0\0\0\x08\0".repeat(times(1 << 18))),
        ("gzip", b"\x1f\x8b\x08\0".repeat(times(1 << 18))),
        ("zlib", b"\x78\x9c\x4b".repeat(times(1 << 18))),
        ("zlib in zlib", zlib(&[]).repeat(times(1 << 16))),
        ("lzma", b"\x5d\0\0\x10\0\xff\xff\xff\xff\xff\xff\xff\xff\0".repeat(times(1 << 16))),
        ("names", b"cos\nsystem\n".repeat(times(1 << 18))),
        ("stacks", b"\x8c\x02os\x8c\x02os\x93".repeat(times(1 << 18))),
        ("arrays", b"\x93NUMPY\x01\0\x02\0'O'".repeat(times(1 << 17))),
    ] {
        let start = busy();
        scan("file", bytes);
        let took = busy() - start;
        assert!(took.as_secs() < 30, "{name} takes {took:?} of processor time");
    }
}

#[test]
fn damaged_copies_never_panic() {
    let folder = statelens_fixtures::path("attacks2");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let whole = std::fs::read(&path).unwrap();
        for copy in damaged_copies(&whole, statelens_fixtures::times(3, 20)) {
            scan("file", copy);
            seen += 1;
        }
    }
    assert!(seen > statelens_fixtures::times(100, 500), "{seen}");
}
