//! Compressed data.

use std::io::Write as _;

use super::*;

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

/// Python's readers join consecutive streams, also with other bytes between them.
#[test]
fn joins_consecutive_streams() {
    let (first, second) = HIDDEN.split_at(4);
    let zstd = ZSTD_PARTS.map(hex);
    let skipped = b"\x5e\x2a\x4d\x18\x03\0\0\0abc";
    let mut cases = vec![
        ("gzip", join(&[&gzip(first), &gzip(second)])),
        ("bzip2", join(&[&bzip2(first), &bzip2(second)])),
        ("zstd", zstd.concat()),
        ("lz4", join(&[&lz4(first), &lz4(second)])),
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
    for (what, bytes) in cases {
        assert!(is_hidden_found(bytes), "{what}");
    }
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
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
    let x86 = "fd377a585a000004e6d6b44602010400210116000d86351f0100134301e852014b003030305d4b01614b004b0273\
               2e00193d4fd516a51e4a00012c14f80a6d031fb6f37d010000000004595a";
    let skipped = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
    for (what, bytes) in [
        ("a small window of zlib", small.clone()),
        ("a small window in a member", zip(&[member("a", &small)])),
        ("an old file of joblib", zf("", &small)),
        ("an old file of joblib by Python 2", zf(" ", &small)),
        ("lzma of other properties", props),
        ("xz by distances", hex(delta)),
        ("xz for x86", hex(x86)),
    ] {
        assert!(is_hidden_found(bytes), "{what}");
    }
    let missed = missed(vec![
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

/// Python continues with the bytes after LZMA data, and accepts any dictionary.
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
    // Integers that look like a header, and what decompresses from them by chance.
    let integers = "0200000010000000a80d0000000000000800000000000000000000000000000000000000";
    assert_eq!(worst("x.bin", hex(integers)), Some(Grade::Note));
    // The dictionary of a block of xz.
    let xz = "fd377a585a000004e6d6b44602002101200000000988a5760100095d4b01614b004b02732e0000002aa72b0a34\
              dd45100001220a151ae1671fb6f37d010000000004595a";
    let findings = scan("x.bin", hex(xz));
    assert!(findings.iter().any(|finding| finding.detail.contains("more memory")), "{findings:?}");
}

/// Low limits, which small files can reach.
pub(super) fn small_limits() -> Limits {
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
    // A pickle that continues after the bytes that are kept.
    let findings = unpacked(&join(&[b"(", &b"N0".repeat(64 << 10)]));
    assert!(findings.iter().any(|finding| finding.title.contains("too large")), "{findings:?}");
    // Data that is damaged after the bytes that are kept.
    let broken = gzip(&noise(200 << 10));
    let findings = scan_with("x.bin", broken[..150 << 10].to_vec(), &limits);
    assert!(is_unseen(&findings, "the rest of", ""), "{findings:?}");
}

/// Far more decompressed bytes than the file has, or far more places that may be compressed.
#[test]
fn exceeded_decompression_budget_is_a_finding() {
    let scan = |bytes| scan_within("x.bin", bytes, &small_limits(), 8 << 20);
    // 4 MB of zeros in 45 bytes.
    let findings = scan(bzip2(&vec![0; 4 << 20]));
    assert!(is_unseen(&findings, "the rest of", "far longer than the file"), "{findings:?}");
    // Each of the streams is small enough to be kept.
    let findings = scan(join(&[&bzip2(&vec![0; 60 << 10]), b"x"]).repeat(200));
    assert!(ends_early(&findings), "{findings:?}");
    let findings = scan(join(&[b"\0", &b"\x28\xb5\x2f\xfd".repeat(200)]));
    assert!(ends_early(&findings), "{findings:?}");
}
