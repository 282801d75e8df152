//! Each reader on its own: a pickle without any marker is found only where a reader leads to it.

mod hdf5;

use statelens_checkpoint::{FileSet, Finding, Grade, Limits, Memory, Unwatched};

use super::tests::{
    MARKED, PLAIN, ZipMember, bzip2, gzip, hex, join, member, noise, npy, tar, zip, zip_by,
};
use crate::ScanOptions;

/// Replaces an item of a list. It names nothing, so that the search through all bytes does not find
/// it.
const HIDDEN: &[u8] = b"]K\x01aK\x00K\x02s.";

/// A pickle that a loader begins and can't finish.
const CUT: &[u8] = b"(";

fn scan_with(name: &str, bytes: Vec<u8>, limits: &Limits) -> Vec<Finding> {
    let files = FileSet::single(name, Memory::from(bytes));
    super::scan(files, limits, &ScanOptions::default(), &mut Unwatched).unwrap()
}

fn scan(name: &str, bytes: Vec<u8>) -> Vec<Finding> {
    scan_with(name, bytes, &Limits::default())
}

fn worst(name: &str, bytes: Vec<u8>) -> Option<Grade> {
    scan(name, bytes).into_iter().map(|finding| finding.grade).max()
}

/// Returns the cases that do not end with exit status 1.
fn missed(cases: Vec<(&str, Vec<u8>)>) -> Vec<&str> {
    let missed = cases
        .into_iter()
        .filter(|(_, bytes)| worst("x.bin", bytes.clone()) <= Some(Grade::Warning));
    missed.map(|(what, _)| what).collect()
}

/// Whether a finding says that something was not examined, for a reason with these words.
fn is_unseen(findings: &[Finding], what: &str, why: &str) -> bool {
    findings.iter().any(|finding| {
        finding.grade == Grade::UnknownCode
            && finding.title.contains("could not examine")
            && finding.title.contains(what)
            && finding.detail.contains(why)
    })
}

#[test]
fn byte_search_alone_misses_the_hidden_pickle() {
    let weights = noise(1000);
    assert_eq!(worst("x.bin", join(&[&weights, HIDDEN, &weights])), Some(Grade::Note));
    assert_eq!(worst("x.bin", join(&[&weights, CUT, &weights])), Some(Grade::Note));
}

#[test]
fn readers_lead_to_hidden_pickles() {
    let zip = |bytes: &[u8]| zip(&[member("a", bytes)]);
    let escaped = b"\x93NUMPY\x01\0\x12\0{'descr': '\\x7cO'\n\n";
    let missed = missed(vec![
        ("a file", HIDDEN.to_vec()),
        ("behind another pickle", join(&[b"N.", HIDDEN])),
        ("behind another pickle in the middle", join(&[&noise(99), PLAIN, HIDDEN])),
        ("a member", zip(HIDDEN)),
        ("a member of tar", tar(&[("a", HIDDEN)], true)),
        ("a member of the first kind of tar", tar(&[("a", HIDDEN)], false)),
        ("objects", npy("'|O'", HIDDEN)),
        ("objects in a member", zip(&npy("'|O'", HIDDEN))),
        ("objects behind weights", join(&[&noise(99), &npy("'|O'", HIDDEN)])),
        ("objects, with an escape", join(&[escaped, HIDDEN])),
        ("a header that is not understood", npy("'<f4x'", HIDDEN)),
        ("an array of version 2", {
            join(&[b"\x93NUMPY\x02\0\x14\0\0\0{'descr': '<f4x', }\n", HIDDEN])
        }),
    ]);
    assert_eq!(missed, Vec::<&str>::new());
}

/// Where a loader certainly unpickles, a pickle that can't be read is a finding.
#[test]
fn reports_truncated_pickles_that_a_loader_reads() {
    for name in ["a.pkl", "a.PICKLE", "a.joblib", "a/.metadata", ".metadata"] {
        assert_eq!(worst(name, CUT.to_vec()), Some(Grade::Damage), "{name}");
    }
    assert_eq!(worst("x.bin", CUT.to_vec()), Some(Grade::Note));
    let stream = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.";
    let padded = |version: u8, len: usize, text: &[u8]| {
        let len_bytes = (len as u32).to_le_bytes();
        let mut header = join(&[
            b"\x93NUMPY",
            &[version, 0],
            &len_bytes[..if version > 1 { 4 } else { 2 }],
            text,
        ]);
        header.resize(header.len() + len - text.len(), b' ');
        join(&[&header, CUT])
    };
    let missed = missed(vec![
        ("marked", b"\x80\x02(".to_vec()),
        ("a stream in a member", zip(&[member("a", &join(&[stream, CUT]))])),
        ("the fourth of a stream", zip(&[member("a", &join(&[stream, b"N.", CUT]))])),
        ("the fifth of a stream", zip(&[member("a", &join(&[stream, b"N.N.", CUT]))])),
        ("objects", npy("'|O'", CUT)),
        ("a header with an escape", padded(1, 90, b"{'descr': '\\x7c")),
        ("a header with the letter", padded(1, 90, b"{'descr': '|O'")),
        ("a header that is too long", padded(2, (1 << 20) + 1, b"{'descr': ")),
    ]);
    assert_eq!(missed, Vec::<&str>::new());
    // Behind the five pickles are the storages.
    let whole = zip(&[member("a", &join(&[stream, b"N.N.N.", CUT]))]);
    assert_eq!(worst("x.bin", whole), None);
}

/// The two parts of [`HIDDEN`], as `lzma.compress` of Python 3.11 compresses them with each check,
/// and `zstd` 1.5.
const XZ_PARTS: [[&str; 2]; 4] = [
    [
        "fd377a585a000000ff12d9410200210116000000742fe5a30100035d4b0161000001140467a6450906729e7a01\
         0000000000595a",
        "fd377a585a000000ff12d9410200210116000000742fe5a30100054b004b02732e00000000011606c9a57dd506\
         729e7a010000000000595a",
    ],
    [
        "fd377a585a0000016922de360200210116000000742fe5a30100035d4b016100cd0a4247000118046be9f0a590\
         42990d010000000001595a",
        "fd377a585a0000016922de360200210116000000742fe5a30100054b004b02732e000000a477084300011a06c5\
         eac8799042990d010000000001595a",
    ],
    [
        "fd377a585a000004e6d6b4460200210116000000742fe5a30100035d4b016100e03ffc4dbe56fcbd00011c046f\
         2c9cc11fb6f37d010000000004595a",
        "fd377a585a000004e6d6b4460200210116000000742fe5a30100054b004b02732e0000007965f7d850fb258e00\
         011e06c12fa41d1fb6f37d010000000004595a",
    ],
    [
        "fd377a585a00000ae1fb0ca10200210116000000742fe5a30100035d4b01610095243314cdb243a88d33087201\
         188b66c7b3946416d5546ac232d6659ca524a500013404c582c19c189b4b9a01000000000a595a",
        "fd377a585a00000ae1fb0ca10200210116000000742fe5a30100054b004b02732e00000062998fce2b4c764684\
         954e4e714daa1a2fd0d49f4823abb21e651f13964b114f000136066b81f940189b4b9a01000000000a595a",
    ],
];
const ZSTD_PARTS: [&str; 2] =
    ["28b52ffd24042100005d4b0161cdddcabf", "28b52ffd24063100004b004b02732e6edbaa44"];

/// Python's readers join streams that follow each other, with what may lie between them.
#[test]
fn joins_consecutive_streams() {
    let (first, second) = HIDDEN.split_at(4);
    let zstd = ZSTD_PARTS.map(hex);
    let skipped = b"\x5e\x2a\x4d\x18\x03\0\0\0abc";
    let mut cases = vec![
        ("gzip", join(&[&gzip(first), &gzip(second)])),
        ("bzip2", join(&[&bzip2(first), &bzip2(second)])),
        ("zstd", zstd.concat()),
        ("zstd with a frame that is skipped", join(&[&zstd[0], skipped, &zstd[1]])),
    ];
    for parts in XZ_PARTS {
        let parts = parts.map(hex);
        cases.push(("xz", parts.concat()));
        cases.push(("xz with padding", join(&[&parts[0], &[0; 8], &parts[1]])));
    }
    // Several blocks in one stream, by `xz --block-list=4` and `xz --block-size=4 -T2`, which also
    // writes their sizes.
    for blocks in [
        "fd377a585a0000016922de360200210116000000742fe5a30100035d4b016100cd0a42470200210116000000742f\
         e5a30100034b004b0200c2f7d2900200210116000000742fe5a3010001732e00000005351d9900031804180416\
         0295e0fd2e3e300d8b020000000001595a",
        "fd377a585a0000016922de3602c008042101160089741df70100035d4b016100cd0a424702c008042101160089741d\
         f70100034b004b0200c2f7d29002c006022101160059e05742010001732e00000005351d990003180418041602\
         95e0fd2e3e300d8b020000000001595a",
    ] {
        cases.push(("blocks of xz", hex(blocks)));
    }
    assert_eq!(missed(cases), Vec::<&str>::new());
}

/// Compressed files that only their first bytes identify, and filters of xz.
#[test]
fn examines_everything_that_a_loader_decompresses() {
    // By `zlib.compressobj` with a window of 8 KiB.
    let small = hex("58c38bf5664cf466f0662ad603000d060244");
    let zf =
        |space: &str, packed: &[u8]| join(&[b"ZF0x9                ", space.as_bytes(), packed]);
    // Other properties than usual, by `lzma.compress` with `lc=1, lp=1, pb=0`.
    let props = hex("0a00100000ffffffffffffffff002e93522a771ce958edfefe045658ffffb5ec0000");
    // A filter of distances of 2, and the one for x86, by `lzma.compress`.
    let delta = "fd377a585a000004e6d6b44602010301012101004df2aca20100095d4ba4164a9f0002282c0000002aa72b\
                 0a34dd45100001220a151ae1671fb6f37d010000000004595a";
    let x86 = "fd377a585a000004e6d6b4460201040021010000da33ad03e0001900185d0021027c1a080521d2f34b34280c\
               83844c7d82425da954ac000090a771c381e3ab350001341aa6bfce661fb6f37d010000000004595a";
    let skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
    let missed = missed(vec![
        ("a small window of zlib", small.clone()),
        ("a small window in a member", zip(&[member("a", &small)])),
        ("an old file of joblib", zf("", &small)),
        ("an old file of joblib by Python 2", zf(" ", &small)),
        ("lzma of other properties", props),
        ("xz by distances", hex(delta)),
        ("xz for x86", hex(x86)),
        // Bytes that a loader decompresses and that are not whole.
        ("an empty stream before one of bzip2", {
            join(&[&hex("425a683917724538509000000000"), &bzip2(b"N.")[..20]])
        }),
        ("a skipped frame before one of zstd", join(&[skipped, &hex(ZSTD_PARTS[0])[..9]])),
        ("a skipped frame that is cut short", skipped[..9].to_vec()),
        ("other bytes behind xz", join(&[&hex(XZ_PARTS[0][0]), b"and so on, and so on"])),
        ("a filter of xz that is not known", {
            let mut xz = hex(delta);
            // The filter with the number 12, and the checksum of the header.
            xz[14] = 12;
            let crc = crc32fast::hash(&xz[12..20]).to_le_bytes();
            xz[20..24].copy_from_slice(&crc);
            xz
        }),
    ]);
    assert_eq!(missed, Vec::<&str>::new());
    assert_eq!(worst("x.bin", join(&[skipped, &hex(ZSTD_PARTS[0])])), Some(Grade::Note));
}

/// `lzma.compress(b"N." * 20, format=lzma.FORMAT_ALONE)`.
const LZMA: &str = "5d00008000ffffffffffffffff00270ba850183dfffffffc200000";

/// Python continues with the bytes behind LZMA data, and has room for any dictionary.
#[test]
fn reports_lzma_with_trailing_data() {
    let lzma = hex(LZMA);
    assert_eq!(worst("x.bin", lzma.clone()), Some(Grade::Note));
    assert_eq!(worst("x.bin", join(&[&lzma, b"and so on, and so on"])), Some(Grade::Damage));
    // 10,000 bytes and 24 random ones, cut short.
    let long = "5d00008000ffffffffffffffff00270babfc1dfff7ffd4810a9f747384fa3011a669a78f910be445a443bddf6ab0\
                16701e562d0beab826ee03ab9fc776ed404016b984ccc92b0d4a8915f60f2c462d0b588cd27c7cb2ffffe7868000";
    let mut large = hex(long)[..60].to_vec();
    assert_eq!(worst("x.bin", large.clone()), Some(Grade::Note));
    large[1..5].copy_from_slice(&(256_u32 << 20).to_le_bytes());
    assert_eq!(worst("x.bin", large), Some(Grade::Damage));
    // The dictionary of a block of xz.
    let xz = "fd377a585a000004e6d6b44602002101200000000988a5760100095d4b01614b004b02732e0000002aa72b0a34\
              dd45100001220a151ae1671fb6f37d010000000004595a";
    let findings = scan("x.bin", hex(xz));
    assert!(findings.iter().any(|finding| finding.detail.contains("more memory")), "{findings:?}");
}

/// Low limits, which small files can reach.
fn small_limits() -> Limits {
    let mut limits = Limits::default();
    limits.structure = 64 << 10;
    limits
}

/// Data that is too long to keep is examined in pieces, which overlap.
#[test]
fn finds_pickles_across_piece_boundaries() {
    let limits = small_limits();
    let unpacked = |bytes: &[u8]| scan_with("x.bin", gzip(bytes), &limits);
    let zeros = |len: usize| vec![0; len];
    for first in [64 << 10, (64 << 10) + (8 << 20)] {
        // The pickle begins a few bytes before the end of a piece.
        let bytes = join(&[&zeros(first - 5), MARKED, &zeros(9 << 20)]);
        let findings = unpacked(&bytes);
        assert!(findings.iter().any(|finding| finding.grade == Grade::Danger), "{first}");
    }
    // A pickle that goes on behind the bytes that are kept.
    let findings = unpacked(&join(&[b"(", &b"N0".repeat(64 << 10)]));
    assert!(findings.iter().any(|finding| finding.title.contains("too large")), "{findings:?}");
    // Data that is damaged behind the bytes that are kept.
    let broken = gzip(&noise(200 << 10));
    let findings = scan_with("x.bin", broken[..150 << 10].to_vec(), &limits);
    assert!(is_unseen(&findings, "the rest of", ""), "{findings:?}");
}

/// Far more decompressed bytes than the file has, or far more places that may be compressed.
#[test]
fn exceeded_decompression_budget_is_a_finding() {
    // 4 MB of zeros in 45 bytes, 40 times.
    let bomb = bzip2(&vec![0; 4 << 20]).repeat(40);
    let findings = scan_with("x.bin", bomb, &small_limits());
    assert!(is_unseen(&findings, "the rest of", "far longer than the file"), "{findings:?}");
    let starts = join(&[b"\0", &b"\x28\xb5\x2f\xfd".repeat(20_000)]);
    let findings = scan("x.bin", starts);
    assert!(is_unseen(&findings, "may be compressed", "too much"), "{findings:?}");
}

/// Returns the offsets of the directory and of the end record.
fn places(zip: &[u8]) -> (usize, usize) {
    let of = |magic: &[u8]| zip.windows(4).position(|bytes| bytes == magic).unwrap();
    (of(b"PK\x01\x02"), of(b"PK\x05\x06"))
}

/// Whether the scan ran [`HIDDEN`].
fn is_hidden_found(bytes: Vec<u8>) -> bool {
    scan("x.bin", bytes).iter().any(|finding| finding.title.contains("replaces items of a list"))
}

fn titles(name: &str, bytes: Vec<u8>) -> Vec<(Grade, String)> {
    scan(name, bytes).into_iter().map(|finding| (finding.grade, finding.title)).collect()
}

/// Python finds a directory by its size, before the end record; torch by its offset.
#[test]
fn reads_every_central_directory() {
    let plain = zip(&[member("a", b"N.")]);
    let hidden = zip(&[member("a", HIDDEN)]);
    let (start, end_of_hidden) = places(&hidden);
    // Python moves all offsets by the length of what lies before the archive.
    assert!(is_hidden_found(join(&[&[b'x'; 40], &hidden])));
    let before = (Grade::Warning, "There are bytes before the archive".to_owned());
    assert!(titles("x.bin", join(&[&[b'x'; 40], &plain])).contains(&before));
    assert_eq!(worst("x.bin", join(&[&[b'x'; 40], &plain])), Some(Grade::Warning));
    // Something lies between the directory and the end record.
    assert!(is_hidden_found(join(&[
        &hidden[..end_of_hidden],
        &[b'x'; 40],
        &hidden[end_of_hidden..]
    ])));

    // With Zip64 records: of the two directories, one has the hidden pickle.
    let mut two = zip(&[member("a", HIDDEN), member("b", b"N.")]);
    let (directory, end) = places(&two);
    let len = (end - directory) / 2;
    let record = |size: usize, offset: usize| {
        let mut record = join(&[b"PK\x06\x06\x2c", &[0; 35]]);
        record.extend((size as u64).to_le_bytes());
        record.extend((offset as u64).to_le_bytes());
        record
    };
    let locator =
        |at: usize| join(&[b"PK\x06\x07\0\0\0\0", &(at as u64).to_le_bytes(), b"\x01\0\0\0"]);
    let mut tail = two.split_off(end);
    // The size and the offset of the end record lead nowhere.
    tail[12..20].fill(0xff);
    let (first, second) = (record(len, directory), record(len, directory + len));
    for (records, what) in [
        ([&first, &second], "by the offset in the locator"),
        ([&second, &first], "before the locator"),
    ] {
        let bytes = join(&[&two, records[0], records[1], &locator(end), &tail]);
        assert!(is_hidden_found(bytes), "{what}");
    }
    // The record is where the locator says, and the directory before where Python looks for it.
    let moved = record(end_of_hidden - start, start);
    let bytes = join(&[&moved, &hidden[..end_of_hidden], &[b'x'; 56], &locator(0), &tail]);
    assert!(is_hidden_found(bytes));

    // Lengths and offsets in the extra field.
    let enlarged = |bytes: &[u8]| {
        let mut zip = zip(&[member("a", bytes)]);
        let (start, end) = places(&zip);
        zip[start + 20..start + 28].fill(0xff);
        zip[start + 42..start + 46].fill(0xff);
        zip[start + 30] = 28;
        let len = (bytes.len() as u64).to_le_bytes();
        let extra = join(&[b"\x01\0\x18\0", &len, &len, &[0; 8]]);
        zip.splice(end..end, extra);
        zip[end + 28 + 12] += 28;
        zip
    };
    assert!(is_hidden_found(enlarged(HIDDEN)));
    assert_eq!(worst("x.bin", enlarged(b"N.")), None);
}

/// Readers choose between the directory and the header of a member.
#[test]
fn reads_members_by_both_headers() {
    let whole = zip(&[ZipMember { deflated: true, ..member("a", HIDDEN) }]);
    let (directory, _) = places(&whole);
    for (method, what) in [(8, "the header is stored"), (directory + 10, "the directory is stored")]
    {
        let mut zip = whole.clone();
        zip[method] = 0;
        assert!(is_hidden_found(zip), "{what}");
    }
}

#[test]
fn reports_irregular_archives() {
    let zip_of =
        |names: &[&str]| zip(&names.iter().map(|name| member(name, b"N.")).collect::<Vec<_>>());
    let changed = |name: &str, offset: usize, value: u8| {
        let mut zip = zip_of(&[name]);
        let (directory, _) = places(&zip);
        zip[directory + offset] = value;
        zip
    };
    let package = zip_of(&["p/.data/extern_modules", "p/x.py"]);
    for (grade, title, bytes) in [
        (Grade::Damage, "A member of the archive is not where it should be", changed("a", 43, 9)),
        (Grade::Damage, "A member of the archive runs past the end", changed("a", 21, 9)),
        (Grade::Damage, "The checksum of a.pkl is wrong", changed("a.pkl", 16, 9)),
        (Grade::UnknownCode, "The archive contains Python code that loading would run", package),
        (Grade::Warning, "The archive holds more than one checkpoint", {
            zip_of(&["a/data.pkl", "b/data.pkl"])
        }),
        (
            Grade::Warning,
            "The archive's directory and the header of a member disagree",
            changed("a", 46, b'b'),
        ),
        // What a loader decompresses, but can't.
        (
            Grade::Damage,
            "\"archive/data.pkl\" can't be unpacked to its end",
            zip_by(12, b"no bzip2"),
        ),
        (
            Grade::Damage,
            "\"archive/data.pkl\" can't be unpacked to its end",
            zip_by(93, b"no zstd"),
        ),
        (
            Grade::Damage,
            "\"archive/data.pkl\" can't be unpacked to its end",
            zip_by(95, b"no xz in it"),
        ),
        (Grade::UnknownCode, "Statelens could not examine \"archive/data.pkl\"", zip_by(99, b"N.")),
    ] {
        let found = titles("x.bin", bytes);
        assert!(found.contains(&(grade, title.to_owned())), "{title}: {found:?}");
    }
}

/// torch reads a storage from either of two members of one name.
#[test]
fn checks_the_shorter_of_duplicate_records() {
    let pickle =
        b"\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x03tQ.";
    let longer = (Grade::Damage, "A storage is longer than its bytes in the file".to_owned());
    for (lens, expected) in [([12, 12], false), ([12, 8], true), ([8, 12], true)] {
        let [first, second] = lens.map(|len| vec![0; len]);
        let zip = zip(&[
            member("a/data.pkl", pickle),
            member("a/data/0", &first),
            member("a/data/0", &second),
        ]);
        assert_eq!(titles("x.pt", zip).contains(&longer), expected, "{lens:?}");
    }
}

/// Returns a header of a tar archive without a magic number, so that only a walk finds it.
fn header(name: &[u8], kind: u8, size: usize) -> [u8; 512] {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name);
    header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    header[156] = kind;
    header
}

/// Sets the checksum of a header.
fn summed(mut header: [u8; 512]) -> [u8; 512] {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

/// Returns a header and data, padded.
fn entry(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut entry = join(&[&summed(header(name.as_bytes(), kind, data.len())), data]);
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

/// Returns records of an extended header.
fn records(records: &[(&str, &str)]) -> Vec<u8> {
    let record = |(key, value): &(&str, &str)| {
        let rest = format!(" {key}={value}\n");
        // The length counts its own digits.
        let lens = (1..).map(|digits| rest.len() + digits);
        let len = lens.into_iter().find(|len| len.to_string().len() + rest.len() == *len).unwrap();
        format!("{len}{rest}").into_bytes()
    };
    records.iter().flat_map(record).collect()
}

/// torch 0.1 unpickles members by name, which several headers may give.
#[test]
fn tar_member_names_match_tarfile() {
    let cut = entry("x", b'0', CUT);
    let path = records(&[("path", "pickle")]);
    let damage = |parts: &[&[u8]]| worst("x.bin", parts.concat()) == Some(Grade::Damage);
    assert!(!damage(&[&cut]));
    assert!(damage(&[&entry("pickle", b'0', CUT)]));
    assert!(damage(&[&entry("./pickle", b'0', CUT)]));
    assert!(damage(&[&entry("tensors", b'0', CUT)]) && damage(&[&entry("storages", b'0', CUT)]));
    assert!(damage(&[&entry("", b'L', b"pickle\0"), &cut]), "long name");
    assert!(damage(&[&entry("", b'g', &path), &cut]), "for all members");
    for kind in [b'x', b'X'] {
        assert!(damage(&[&entry("", kind, &path), &cut]), "{kind}");
    }
    let twice = records(&[("path", "x"), ("path", "pickle")]);
    assert!(damage(&[&entry("", b'x', &twice), &cut]), "the last record counts");
    let mut prefixed = header(b"pickle", b'0', CUT.len());
    prefixed[345] = b'x';
    assert!(!damage(&[&summed(prefixed), CUT, &[0; 511]]), "a prefix is a part of the name");
    // A link has the content of another member.
    let linked = |parts: &[&[u8]]| is_unseen(&scan("x.bin", parts.concat()), "pickle", "link");
    let mut link = header(b"pickle", b'2', 0);
    assert!(!linked(&[&summed(link)]));
    link[157] = b'y';
    assert!(linked(&[&summed(link)]));
    let link = entry("pickle", b'2', b"");
    assert!(linked(&[&entry("", b'K', b"y\0"), &link]));
    assert!(linked(&[&entry("", b'x', &records(&[("linkpath", "y")])), &link]));
}

/// Where the data of a member ends, and the next header begins.
#[test]
fn tar_member_offsets_match_tarfile() {
    let hidden = entry("b", b'0', HIDDEN);
    let next = |parts: &[&[u8]]| is_hidden_found(join(&[&parts.concat(), &hidden, &[0; 1024]]));
    for kind in *b"123456" {
        assert!(next(&[&summed(header(b"a", kind, 700))]), "no data: {kind}");
    }
    assert!(next(&[&summed(header(b"a/", 0, 700))]), "an old folder");
    assert!(next(&[
        &entry("", b'x', &records(&[("size", "0")])),
        &summed(header(b"a", b'0', 700))
    ]));
    // tarfile takes what is not a number for 0.
    assert!(next(&[
        &entry("", b'x', &records(&[("size", "no")])),
        &summed(header(b"a", b'0', 700))
    ]));
    let size = records(&[("size", "700")]);
    assert!(next(&[&entry("", b'x', &size), &summed(header(b"a", b'0', 0)), &[0; 1024]]));
    let mut binary = header(b"a", b'0', 0);
    binary[124..136].copy_from_slice(b"\x80\0\0\0\0\0\0\0\0\0\x02\xbc");
    assert!(next(&[&summed(binary), &[0; 1024]]));
    // Checksums may be of signed bytes.
    let mut signed = summed(header(b"\xff", b'0', 0));
    let sum: i32 = signed
        .iter()
        .enumerate()
        .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { i32::from(byte.cast_signed()) })
        .sum();
    signed[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    assert!(next(&[&signed]));
    let mut after = hidden.clone();
    after[148..156].copy_from_slice(b"00000000");
    assert!(!is_hidden_found(after), "the checksum of the header is wrong");
}

/// Programs read these in different ways.
#[test]
fn reports_ambiguous_tar_archives() {
    let member = entry("a", b'0', b"N.");
    let pax = |pairs: &[(&str, &str)]| join(&[&entry("", b'x', &records(pairs)), &member]);
    let sparse = |pairs: &[(&str, &str)], data: &[u8]| {
        join(&[&entry("", b'x', &records(pairs)), &entry("a", b'0', data)])
    };
    let one = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9")];
    let many = join(&[b"65537\n", &b"0\n".repeat(2 * 65_537)]);
    let long = join(&[b"40000\n", &b"00000000000000\n".repeat(80_000)]);
    let mut negative = header(b"a", b'0', 0);
    negative[124..136].fill(0xff);
    let mut old = header(b"a", b'S', 0);
    old[386] = 0xff;
    let mut endless = header(b"a", b'S', 0);
    endless[482] = 1;
    let mut blocks = vec![0; 512 * 3_200];
    blocks.iter_mut().skip(504).step_by(512).take(3_199).for_each(|byte| *byte = 1);
    for (what, why, bytes) in [
        ("two names", "several extended headers", {
            join(&[&entry("", b'L', b"x\0"), &entry("", b'L', b"y\0"), &member])
        }),
        ("a name and records", "several extended headers", {
            join(&[&entry("", b'L', b"x\0"), &pax(&[("path", "y")])])
        }),
        ("no records", "consist of records", join(&[&entry("", b'x', b"no"), &member])),
        ("records that overlap", "consist of records", {
            join(&[&entry("", b'x', b"9 path=abcd\n"), &member])
        }),
        ("a negative size", "not written in digits", pax(&[("size", "-5")])),
        ("digits of another script", "not written in digits", pax(&[("size", "\u{661}")])),
        ("a real size", "not written in digits", pax(&[("GNU.sparse.realsize", "no")])),
        ("a negative binary size", "negative or too large", summed(negative).to_vec()),
        ("a long name", "too long", summed(header(b"a", b'L', 2 << 20)).to_vec()),
        ("a map of 0.1", "can't be read", pax(&[("GNU.sparse.map", "0,no")])),
        ("a map of 1.0", "can't be read", sparse(&one, b"no\n")),
        ("a map of 1.0 with many parts", "can't be read", sparse(&one, &many)),
        ("a long map of 1.0", "can't be read", sparse(&one, &long)),
        ("an old map", "can't be read", summed(old).to_vec()),
        ("an old map of many blocks", "can't be read", join(&[&summed(endless), &blocks])),
    ] {
        let findings = scan("x.bin", bytes);
        assert!(is_unseen(&findings, "tar archive", why), "{what}: {findings:?}");
    }
    assert!(worst("x.bin", pax(&[("path", "b"), ("mtime", "no")])) <= Some(Grade::Warning));
}

/// A string of 64 zeros, which are a hole in the file, before [`HIDDEN`].
#[test]
fn reads_sparse_members_with_holes() {
    let data = join(&[b"C\x40", b"0", HIDDEN]);
    assert!(!is_hidden_found(data.clone()));
    let len = 2 + 64 + 1 + HIDDEN.len();
    let number = |header: &mut [u8; 512], at: usize, number: usize| {
        header[at..at + 11].copy_from_slice(format!("{number:011o}").as_bytes());
    };
    // The kind of GNU tar, with the map in the header and in a block behind it.
    for behind in [false, true] {
        let (mut first, mut block) = (header(b"a", b'S', data.len()), [0; 512]);
        let rest = [66, 1 + HIDDEN.len()];
        // Unused entries have the length 0.
        let second = if behind { [2, 0] } else { rest };
        let unused = [if behind { 2 } else { len }, 0];
        for (place, value) in [[0, 2], second, unused, unused].concat().into_iter().enumerate() {
            number(&mut first, 386 + 12 * place, value);
        }
        number(&mut first, 483, len);
        first[482] = u8::from(behind);
        number(&mut block, 0, rest[0]);
        number(&mut block, 12, rest[1]);
        let block = if behind { &block[..] } else { &[] };
        assert!(is_hidden_found(join(&[&summed(first), block, &data, &[0; 512]])), "{behind}");
    }
    // Versions 0.0, 0.1 and 1.0 of the extended headers.
    let (real, end) = (len.to_string(), (1 + HIDDEN.len()).to_string());
    let map = format!("0,2,66,{end}");
    let lines = format!("2\n0\n2\n66\n{end}\n");
    let mut padded = lines.into_bytes();
    padded.resize(512, 0);
    padded.extend(&data);
    let zero = [
        ("GNU.sparse.size", &*real),
        ("GNU.sparse.numblocks", "2"),
        ("GNU.sparse.offset", "0"),
        ("GNU.sparse.numbytes", "2"),
        ("GNU.sparse.offset", "66"),
        ("GNU.sparse.numbytes", &end),
    ];
    let one = [("GNU.sparse.size", &*real), ("GNU.sparse.map", &*map)];
    let last =
        [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", &*real)];
    for (version, pairs, data) in
        [("0.0", &zero[..], &data), ("0.1", &one, &data), ("1.0", &last, &padded)]
    {
        let bytes = join(&[&entry("", b'x', &records(pairs)), &entry("a", b'0', data), &[0; 1024]]);
        assert!(is_hidden_found(bytes), "{version}");
    }
    // Maps that readers follow in different ways, and files that are far too long.
    for (what, size, map) in [
        ("out of order", "9", "4,2,0,2"),
        ("overlapping", "9", "0,4,2,4"),
        ("past the end of the file", "3", "0,4"),
        ("past the end of the archive", "9000", "0,9000"),
        ("a terabyte", "1000000000000", "0,2"),
    ] {
        let pairs = [("GNU.sparse.size", size), ("GNU.sparse.map", map)];
        let bytes = join(&[&entry("", b'x', &records(&pairs)), &entry("a", b'0', b"N.N.")]);
        let findings = scan("x.bin", bytes);
        assert!(is_unseen(&findings, "\"a\"", "sparse member"), "{what}: {findings:?}");
    }
    // Sparse members in each other.
    let nested = (0..6).fold(b"N.".to_vec(), |data, _| {
        let mut sparse = header(b"a", b'S', data.len());
        for (place, value) in
            [0, data.len(), data.len(), 0, data.len(), 0, data.len(), 0].into_iter().enumerate()
        {
            number(&mut sparse, 386 + 12 * place, value);
        }
        number(&mut sparse, 483, data.len());
        let mut sparse = join(&[&summed(sparse), &data]);
        sparse.resize(sparse.len().next_multiple_of(512), 0);
        sparse
    });
    assert!(is_unseen(&scan("x.bin", nested), "\"a\"", "sparse member"));
}

/// The budgets for archives and for pickles.
#[test]
fn reports_archives_with_too_many_members() {
    let mut limits = Limits::default();
    limits.members = 2;
    let names = ["a", "b", "c", "d", "e", "f"];
    let members = names.map(|name| member(name, b"1"));
    let findings = scan_with("x.bin", zip(&members), &limits);
    assert!(is_unseen(&findings, "the rest of the archives", "more members"), "{findings:?}");
    let findings = scan_with("x.bin", tar(&names.map(|name| (name, &b"1"[..])), true), &limits);
    assert!(is_unseen(&findings, "the rest of the archives", "more members"), "{findings:?}");
    // Small pickles use up the budget for pickles, and headers count.
    let pickles = b"N.".repeat(300_000);
    let findings = scan("x.bin", tar(&[("pickle", &pickles), ("a", b""), ("b", HIDDEN)], true));
    assert!(is_unseen(&findings, "all that looks like a pickle", "too much"), "{findings:?}");
    assert!(is_unseen(&findings, "the rest of a tar archive", "too many"), "{findings:?}");
}

/// `storages` ends with a pickle of views.
#[test]
fn reads_views_of_torch_0_1() {
    let storages = |bytes: &[u8]| worst("x.bin", tar(&[("storages", bytes)], true));
    assert!(storages(b"K\0.N.") <= Some(Grade::Warning));
    assert_eq!(storages(b"K\0.("), Some(Grade::Damage));
}

/// Returns a pickle of protocol 2: texts in guillemets are strings, any other character is a byte.
fn pickle(parts: &str) -> Vec<u8> {
    let mut bytes = b"\x80\x02".to_vec();
    for (index, part) in parts.split(['«', '»']).enumerate() {
        match index % 2 {
            0 => bytes.extend(part.chars().map(|c| u8::try_from(u32::from(c)).unwrap())),
            _ => {
                bytes.push(b'X');
                bytes.extend((part.len() as u32).to_le_bytes());
                bytes.extend(part.as_bytes());
            }
        }
    }
    bytes
}

/// Returns the opcodes of a dtype for joblib.
fn dtype(text: &str) -> String {
    format!("cnumpy\ndtype\n(«{text}»\u{89}\u{88}tR")
}

/// Returns the opcodes of joblib's description of an array of two elements.
fn wrapper(dtype: &str, more: &str) -> String {
    format!(
        "cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\u{81}q\x07}}(«subclass»cnumpy\nndarray\n«shape»\
         K\x02\u{85}«order»«C»«allow_mmap»\u{88}{more}«dtype»{dtype}ub"
    )
}

/// [`HIDDEN`] is found if joblib's arrays have the length that joblib reads.
#[test]
fn joblib_array_lengths_match_joblib() {
    let plain = "I3\n«|»NNNI8\nI1\nI0\n";
    let described = |text: &str, state: &str| format!("{}({state}tb", dtype(text));
    let file = |wrapper: &str, data: &[u8], rest: &[u8]| join(&[&pickle(wrapper), data, rest]);
    let hidden = join(&[b"0", HIDDEN]);
    for (what, wrapper, len) in [
        ("floats", wrapper(&dtype("f8"), ""), 16),
        ("texts", wrapper(&dtype("U3"), ""), 24),
        ("bytes that are described", wrapper(&described("V8", plain), ""), 16),
        ("padding", wrapper(&dtype("f8"), "«numpy_array_alignment_bytes»K\x10"), 1 + 0x5d + 16),
        ("no padding", wrapper(&dtype("f8"), "«numpy_array_alignment_bytes»N"), 16),
        // The array is read again, by what the second state says.
        (
            "two states",
            {
                format!(
                    "{}{}0h\x07}}«dtype»{}sb",
                    wrapper(&dtype("i1"), ""),
                    "\u{5d}\u{5d}",
                    dtype("i4")
                )
            },
            8,
        ),
    ] {
        let data = vec![0x5d; len];
        assert!(is_hidden_found(file(&wrapper, &data, &hidden)), "{what}");
        // Libraries set a state once.
        let found = worst("x.bin", file(&wrapper, &data, b"."));
        assert_eq!(found <= Some(Grade::Warning), what != "two states", "{what}: {found:?}");
    }
    // A pickle in place of an array of objects.
    assert!(is_hidden_found(file(&wrapper(&dtype("O"), ""), HIDDEN, b".")));
    for (what, wrapper) in [
        ("another letter", wrapper(&dtype("T8"), "")),
        ("no dtype", wrapper("ccollections\nOrderedDict\n(«f8»tR", "")),
        ("another size", wrapper(&described("V8", "I3\n«|»NNNI4\nI1\nI0\n"), "")),
        ("another version", wrapper(&described("V8", &plain.replace("I3", "I9")), "")),
        ("two descriptions", wrapper(&format!("{}({plain}tb", described("V8", plain)), "")),
        ("described as objects", wrapper(&described("V8", "I3\n«|»NNNI8\nI1\nI1\n"), "")),
        (
            "a state that is no dict",
            "cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\u{81}Nb".to_owned(),
        ),
        ("past the end", wrapper(&dtype("S9999"), "")),
    ] {
        let findings = scan("x.bin", file(&wrapper, &[b']'; 16], b"."));
        assert!(is_unseen(&findings, "looks like a pickle", "joblib"), "{what}: {findings:?}");
    }
    // The class as a value, which may be called out of sight.
    for (what, parts) in [
        ("a tuple", "cjoblib.numpy_pickle\nNumpyArrayWrapper\n\u{85}"),
        ("a dict", "}cjoblib.numpy_pickle\nNumpyArrayWrapper\nNs"),
        ("a value of a dict", "}Ncjoblib.numpy_pickle\nNumpyArrayWrapper\ns"),
        ("a set", "\u{8f}(cjoblib.numpy_pickle\nNumpyArrayWrapper\n\u{90}"),
    ] {
        let alone = scan("x.bin", join(&[&pickle(parts), b"."]));
        assert!(is_unseen(&alone, "looks like a pickle", "joblib"), "{what}: {alone:?}");
        let both = format!("{parts}0{}", wrapper(&dtype("f8"), ""));
        let both = scan("x.bin", file(&both, &[0; 16], b"."));
        assert!(is_unseen(&both, "looks like a pickle", "joblib"), "{what}: {both:?}");
    }
    // More arrays than the budget allows.
    let many = file(&wrapper(&dtype("f8"), ""), &[0; 16], b"0").repeat(2_000);
    let findings = scan("x.bin", join(&[&many, b"N."]));
    assert!(is_unseen(&findings, "looks like a pickle", "joblib"), "{}", findings.len());
}

/// Sparse tensors are checked when the file is opened, or they are findings.
#[test]
fn reports_unchecked_sparse_indices() {
    let sparse = b"ctorch._utils\n_rebuild_sparse_tensor\n)R.";
    let array = join(&[&pickle(&wrapper(&dtype("f8"), "")), &[0; 16], b"0", sparse]);
    for (what, bytes) in [
        ("a pickle", sparse.to_vec()),
        ("in tar", tar(&[("a", sparse)], true)),
        ("in gzip", gzip(sparse)),
        ("behind an array of joblib", array),
    ] {
        let titles = titles("x.bin", bytes);
        let unchecked = titles.iter().any(|(_, title)| title.contains("could not be checked"));
        assert!(unchecked, "{what}: {titles:?}");
    }
}

/// All files of a set are scanned, and what opening it reports is reported.
#[test]
fn scans_every_file_of_a_set() {
    let scan = |files: &[(&str, &[u8])]| {
        let (name, bytes) = files[0];
        let mut set = FileSet::single(name, Memory::from(bytes.to_vec()));
        for (name, bytes) in &files[1..] {
            set.push(*name, std::sync::Arc::new(Memory::from(bytes.to_vec())));
        }
        let options = ScanOptions::default();
        super::scan(set, &Limits::default(), &options, &mut Unwatched).unwrap()
    };
    let worst = |files: &[(&str, &[u8])]| scan(files).iter().map(|finding| finding.grade).max();
    let index = br#"{"weight_map":{"a":"pytorch_model-00001-of-00002.bin","b":"pytorch_model-00002-of-00002.bin"}}"#;
    let (index, first, second) = (
        ("pytorch_model.bin.index.json", &index[..]),
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
    );
    let plain = zip(&[member("archive/data.pkl", PLAIN), member("archive/version", b"3\n")]);
    let evil = zip(&[member("archive/data.pkl", MARKED), member("archive/version", b"3\n")]);
    assert!(worst(&[index, (first, &plain), (second, &plain)]) <= Some(Grade::Warning));
    assert_eq!(worst(&[index, (first, &plain), (second, &evil)]), Some(Grade::Danger));
    let missing = scan(&[index, (first, &plain)]);
    assert!(
        missing
            .iter()
            .any(|finding| finding.detail.contains(second) || finding.title.contains(second)),
        "{missing:?}"
    );
    assert_eq!(worst(&[(index.0, b"{")]), Some(Grade::Damage));
    // A file of a known format that can't be opened.
    assert_eq!(worst(&[("x.bin", b"GGUF\x03\0\0\0\x01")]), Some(Grade::Damage));
}

/// torch loads parts of the files of a distributed checkpoint, which its metadata locates.
#[test]
fn scans_distributed_files_with_their_metadata() {
    let read =
        |name: &str| std::fs::read(statelens_fixtures::path("dcp_single").join(name)).unwrap();
    let (metadata, mut data) = (read(".metadata"), read("__0_0.distcp"));
    let found = |main: &str, files: &[(&str, &[u8])], title: &str| {
        let bytes = files.iter().find(|(name, _)| *name == main).unwrap().1;
        let mut set = FileSet::single(main, Memory::from(bytes.to_vec()));
        for (name, bytes) in files.iter().filter(|(name, _)| *name != main) {
            set.push(*name, std::sync::Arc::new(Memory::from(bytes.to_vec())));
        }
        let options = ScanOptions::default();
        let findings = super::scan(set, &Limits::default(), &options, &mut Unwatched).unwrap();
        findings
            .iter()
            .any(|finding| finding.grade > Grade::Warning && finding.title.contains(title))
    };
    let whole = [(".metadata", &metadata[..]), ("__0_0.distcp", &data)];
    assert!(!found(".metadata", &whole, ""));
    assert!(!found("__0_0.distcp", &whole, ""));
    // A file that the metadata does not name.
    let more = join(&[&[0; 99], MARKED]);
    let with_more = [whole[0], whole[1], ("__7_0.distcp", &more)];
    assert!(found(".metadata", &with_more, "os.system"));
    // A pickle at the start of a part, and not at the start of the file.
    data[1261..1261 + HIDDEN.len()].copy_from_slice(HIDDEN);
    let changed = [(".metadata", &metadata[..]), ("__0_0.distcp", &data)];
    assert!(found(".metadata", &changed, "replaces items of a list"));
    assert!(found("__0_0.distcp", &changed, "replaces items of a list"));
}

/// What opening a file reports is reported, too.
#[test]
fn includes_findings_of_opening() {
    let path = statelens_fixtures::path("tf/saver_v2_basic/model.ckpt-1.index");
    let bytes = std::fs::read(path).unwrap();
    let files = || FileSet::single("model.ckpt-1.index", Memory::from(bytes.clone()));
    let opened = crate::open(files(), &Limits::default(), &mut Unwatched).unwrap().findings;
    let scanned = scan("model.ckpt-1.index", bytes.clone());
    assert!(!opened.is_empty());
    assert!(opened.iter().all(|finding| scanned.contains(finding)), "{opened:?}: {scanned:?}");
}

/// Code that is not a pickle.
#[test]
fn finds_code_outside_pickles() {
    let lambda = br#"{"class_name":"Lambda","config":{"function":["4wEA",null,null]}}"#;
    let list = br#"[{"idx": 0, "name": "0", "path": "", "type": "os.Thing"}]"#;
    let template = b"{{ ''.__class__ }}";
    let elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0";
    let mut windows = vec![0; 0x44];
    windows[..2].copy_from_slice(b"MZ");
    windows[0x3c] = 0x40;
    windows[0x40..].copy_from_slice(b"PE\0\0");
    let mut silent = Vec::new();
    for (name, bytes) in [
        ("config.json", &lambda[..]),
        ("config.json", b"{'not': JSON"),
        ("config.json\0.txt", lambda),
        ("modules.json", list),
        ("tokenizer_config.json", br#"{"chat_template": "{{ ''.__class__ }}"}"#),
        ("tokenizer_config.json", br#"{"chat_template": {"a": "{{ ''.__class__ }}"}}"#),
        ("config.json", br#"{"auto_map": {"AutoModel": "modeling.X"}}"#),
        ("chat_template.jinja", template),
        ("chat_template.jinja2", template),
        ("model.yaml", b"_target_: os.system\n"),
        ("model.yml", b"a: !!python/object/apply:os.system [id]\n"),
        ("model.yml", b"a: !<tag:yaml.org,2002:p%79thon/object/apply:os.system> [id]\n"),
        ("a", elf),
        ("a", &windows),
        ("a", b"\xcf\xfa\xed\xfe\x0c\0\0\x01\0\0\0\0"),
        ("a", b"\xfe\xed\xfa\xcf\x01\0\0\x0c\0\0\0\0"),
        ("a", b"\xca\xfe\xba\xbe\0\0\0\x02\x01\0\0\x07"),
        ("libx.so", b"text"),
        ("libx.so.1", b"text"),
        ("x.DLL", b"text"),
        ("x.dylib", b"text"),
        ("x.pyd", b"text"),
    ] {
        if worst("x.bin", zip(&[member(name, bytes)])) <= Some(Grade::Warning) {
            silent.push(format!("a member {name:?}: {:?}", String::from_utf8_lossy(bytes)));
        }
        // A library that is a file of its own is loaded by nobody.
        let is_library = name == "a" || bytes == b"text";
        if !is_library && worst(name, bytes.to_vec()) <= Some(Grade::Warning) {
            silent.push(format!("a file {name:?}: {:?}", String::from_utf8_lossy(bytes)));
        }
    }
    // A configuration of any name.
    if worst("x.bin", lambda.to_vec()) <= Some(Grade::Warning) {
        silent.push("a file without a name".to_owned());
    }
    assert_eq!(silent, Vec::<String>::new());
    let long = b"a: 1\n".repeat((32 << 20) / 5 + 1);
    assert!(is_unseen(&scan("a.yaml", long), "a configuration", "longer"));
}
