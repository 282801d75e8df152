//! Tests with files of h5py, PyTables, pandas and netCDF4, whole and damaged.

use std::io::Read as _;
use std::path::PathBuf;

use statelens_checkpoint::{FileSet, Grade, Layout, Limits, Memory, Tensor, Unwatched, Value};

use super::read::read;

fn folder() -> PathBuf {
    statelens_fixtures::path("hdf5")
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

fn open(name: &str) -> statelens_checkpoint::Checkpoint {
    let files = FileSet::single(name, Memory::from(bytes(name)));
    read(files, &Limits::default(), &mut Unwatched).unwrap()
}

fn lines(name: &str) -> Vec<String> {
    let checkpoint = open(name);
    checkpoint
        .leaves()
        .iter()
        .map(|leaf| {
            let value = checkpoint.value(leaf.target);
            let alias = leaf.alias_of.as_ref().map_or(String::new(), |key| format!(" = {key}"));
            let what = match (value, checkpoint.tensor_of(leaf.id)) {
                (_, Some((_, tensor))) => format!("{} {:?}", tensor.dtype, tensor.shape),
                (Value::Str(text), _) => format!("{text:?}"),
                (Value::Opaque(opaque), _) => format!("{}", opaque.repr.clone().unwrap()),
                (value, _) => value.kind().to_owned(),
            };
            format!("{}: {what}{alias}", leaf.flat)
        })
        .collect()
}

#[test]
fn lists_links_with_their_targets() {
    assert_eq!(
        lines("links_e.h5"),
        [
            "dangling: a link to /nope, which does not exist",
            "ext: a link to /g/x in the file sb3.h5, which is not in this folder",
            "g.loop: dict = g",
            "g.rel: float32 [4] = hard",
            "g.x: float32 [4] = hard",
            "hard: float32 [4]",
            "soft: float32 [4] = hard",
            "softg: dict = g",
        ]
    );
}

#[test]
fn attributes_and_enum_names_are_losses() {
    let lost = |name: &str| super::losses::attributes_left_out(&open(name)).map(|loss| loss.keys);
    assert_eq!(lost("enum_e.h5").unwrap(), ["@flag", "enum @(datatype)"]);
    assert_eq!(lost("attrs_e.h5").unwrap().len(), 39);
    assert_eq!(lost("contiguous.h5"), None);
    assert_eq!(lost("netcdf4.h5").unwrap(), ["@title", "temp @_FillValue", "temp @units"]);
    assert_eq!(lost("pytables.h5"), None);
}

#[test]
fn texts_in_records_are_compared_by_value() {
    let texts = |data: Vec<u8>| {
        let files = FileSet::single("a.h5", Memory::from(data));
        let checkpoint = read(files, &Limits::default(), &mut Unwatched).unwrap();
        let leaves = checkpoint.leaves();
        let leaf = leaves.iter().find(|leaf| leaf.flat == "cv").unwrap();
        match checkpoint.value(leaf.target) {
            Value::Opaque(opaque) => opaque.repr.clone().unwrap().to_string(),
            value => value.kind().to_owned(),
        }
    };
    let mut data = bytes("compound_e.h5");
    let whole = texts(data.clone());
    assert!(whole.contains("'one'") && whole.contains("'two'"), "{whole}");
    let at = data.windows(3).rposition(|part| part == b"one").unwrap();
    data[at + 2] = b'o';
    assert_eq!(texts(data), whole.replace("'one'", "'ono'"));
}

fn open_packed(name: &str) -> statelens_checkpoint::Checkpoint {
    let mut data = Vec::new();
    let packed = bytes(name);
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut data).unwrap();
    let files = FileSet::single("a.h5", Memory::from(data));
    read(files, &Limits::default(), &mut Unwatched).unwrap()
}

/// Returns the text of an object, and the digests of its elements.
fn text_and_digests(
    checkpoint: &statelens_checkpoint::Checkpoint,
    key: &str,
) -> (String, statelens_checkpoint::Result<Vec<u8>>) {
    let leaves = checkpoint.leaves();
    let leaf = leaves.iter().find(|leaf| leaf.flat == key).unwrap_or_else(|| panic!("{key}"));
    let Value::Opaque(opaque) = checkpoint.value(leaf.target) else { panic!("{key}") };
    let tensor = checkpoint.tensor(opaque.contents.unwrap()).unwrap();
    let all = 0..tensor.numel().unwrap();
    let digests = match &tensor.layout {
        Layout::Missing(why) => Err(statelens_checkpoint::Error::unsupported(why.to_string())),
        _ => statelens_tensor::elements(&checkpoint.files, tensor, all),
    };
    (opaque.repr.clone().unwrap().to_string(), digests)
}

/// 600 records refer to one text of 20,000 bytes: together they are longer than the limit. The
/// file is h5py's, with the references of all records replaced by the first.
#[test]
fn repeated_texts_in_records_stay_within_a_limit() {
    let checkpoint = open_packed("repeated_text.h5.gz");
    let (text, _) = text_and_digests(&checkpoint, "records");
    assert!(text.starts_with("600 times record") && text.ends_with('…'), "{}", &text[..200]);
    assert!(text.len() < 9 << 20);
    let (text, digests) = text_and_digests(&checkpoint, "few");
    assert!(!text.ends_with('…') || text.len() < 100, "{}", &text[..100]);
    assert_eq!(digests.unwrap().len(), 16);
}

/// The files are h5py's. The second has the same content at other addresses, in other versions of
/// the format; in the third, one element of each dataset differs.
#[test]
fn heap_values_and_references_are_compared_by_what_they_refer_to() {
    let [one, moved, changed] = ["indirect", "indirect_moved", "indirect_changed"]
        .map(|name| open_packed(&format!("{name}.h5.gz")));
    for (key, len, at) in [
        ("many", 12_000, 11_000),
        ("flat", 70_000, 69_999),
        ("sequences", 12_000, 11_000),
        ("records", 12_000, 11_000),
        ("far", 11_000, 10_999),
        ("objects", 1, 0),
        ("regions", 1, 0),
    ] {
        let of = |checkpoint| {
            let (text, digests) = text_and_digests(checkpoint, key);
            let digests: Vec<_> = digests.unwrap().chunks(16).map(<[u8]>::to_vec).collect();
            assert_eq!(digests.len(), len, "{key}");
            (text, digests)
        };
        let (one, moved, changed) = (of(&one), of(&moved), of(&changed));
        assert_eq!(one, moved, "{key}");
        let differ: Vec<usize> = (0..len).filter(|at| one.1[*at] != changed.1[*at]).collect();
        assert_eq!(differ, [at], "{key}");
    }
    let text = |key| text_and_digests(&one, key).0;
    assert!(text("many").starts_with("12000 times string: ['first', '', "), "{}", text("many"));
    assert!(text("flat").starts_with("70000 times string: ['it\\'s', ''"), "{}", text("flat"));
    assert_eq!(text("objects"), "[reference to /g/grid, reference to /g, null reference]");
    assert_eq!(
        text("regions"),
        "[reference to [0:2, 1:3] of /g/grid, reference to [0:5:2, 3] of /g/grid, \
         reference to points (1, 2), (4, 5) of /g/grid, \
         reference to [0:4:3, 0:2] of /g/grid, null reference]"
    );
    let attributes = |checkpoint: &statelens_checkpoint::Checkpoint| {
        checkpoint.raw_attributes(checkpoint.root()).to_vec()
    };
    assert_eq!(attributes(&one), attributes(&moved));
    assert_ne!(attributes(&one), attributes(&changed));
}

#[test]
fn lists_of_texts_have_the_shape_of_the_dataset() {
    let checkpoint = open_packed("indirect.h5.gz");
    let leaves = checkpoint.leaves();
    let keys: Vec<String> = leaves
        .iter()
        .map(|leaf| leaf.flat.to_string())
        .filter(|key| key.starts_with("two"))
        .collect();
    assert_eq!(keys, ["two.0.0", "two.0.1", "two.0.2", "two.1.0", "two.1.1", "two.1.2"]);
}

/// The file is h5py's: an anonymous dataset has only references.
#[test]
fn references_to_anonymous_objects_are_not_compared() {
    let checkpoint = open_packed("anonymous.h5.gz");
    let (text, digests) = text_and_digests(&checkpoint, "objects");
    assert!(digests.is_err());
    assert!(text.starts_with("2 times object reference: [null reference"), "{text}");
    let attributes = checkpoint.raw_attributes(checkpoint.root());
    let text =
        |name: &str| attributes.iter().find(|(other, _)| *other == name).unwrap().1.to_string();
    assert!(text("object").starts_with(statelens_checkpoint::NOT_COMPARED), "{}", text("object"));
    assert_eq!(text("null"), "[null reference, null reference]");
}

#[test]
fn opens_every_fixture() {
    let mut opened = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".h5") {
            assert!(!open(&name).leaves().is_empty(), "{name}");
            opened += 1;
        }
    }
    assert_eq!(opened, 88);
}

/// The filter blosc is not supported: its data can't be read here, and is not damaged.
#[test]
fn data_with_an_unsupported_filter_is_not_damage() {
    for (name, unread) in [("pandas_blosc.h5", 3), ("numbers_blosc.h5", 0), ("pandas_plain.h5", 0)]
    {
        let bytes = statelens_fixtures::read(&format!("reports4/h5_blosc/{name}"));
        let files = FileSet::single(name, Memory::from(bytes));
        let opened = crate::open(files.clone(), &Limits::default(), &mut Unwatched).unwrap();
        let findings = opened.findings.iter().filter(|it| it.detail.contains("can't decode"));
        let left_out = findings.filter(|it| {
            it.grade == Grade::Warning && it.kind == statelens_checkpoint::FindingKind::LeftOut
        });
        assert_eq!(left_out.count(), unread, "{name}: {:?}", opened.findings);
        let scanned = crate::scan(files, &Limits::default(), &Default::default(), &mut Unwatched);
        let scanned = scanned.unwrap();
        assert!(scanned.iter().all(|it| it.grade != Grade::Damage), "{name}: {scanned:?}");
    }
}

#[test]
fn unreadable_objects_do_not_hide_the_rest() {
    let lines = lines("vds.h5");
    assert_eq!(lines.len(), 3, "{lines:?}");
}

#[test]
fn finds_containers_behind_user_blocks() {
    for power in 9..15 {
        // h5py leaves the user block empty.
        let mut file = vec![0; 1 << power];
        file.extend(bytes("contiguous.h5"));
        let files = FileSet::single("a.h5", Memory::from(file));
        let checkpoint = crate::open(files, &Limits::default(), &mut Unwatched).unwrap();
        assert_eq!(checkpoint.format.id, "hdf5", "{power}");
    }
}

fn is_damaged(data: Vec<u8>) -> bool {
    let files = FileSet::single("x.h5", Memory::from(data));
    match read(files, &Limits::default(), &mut Unwatched) {
        Err(_) => true,
        Ok(checkpoint) => {
            // Data is verified only when values are read.
            let files = &checkpoint.files;
            let is_lost = |tensor: &Tensor| match &tensor.layout {
                Layout::Chunked(chunked) => chunked.chunks.table(files).is_err(),
                Layout::Span(span) => {
                    span.offset.checked_add(span.len).is_none_or(|end| end > files.len(span.file))
                }
                _ => false,
            };
            checkpoint.findings.iter().any(|finding| finding.grade == Grade::Damage)
                || checkpoint.tensors().iter().any(is_lost)
        }
    }
}

/// The oldest layout has no checksums. The copies that libhdf5 2.0 refuses are listed with the
/// reasons.
#[test]
fn bit_flips_refused_by_libhdf5_are_damage() {
    let folder = folder().join("../hdf5_flips");
    let whole = std::fs::read(folder.join("oldest.h5")).unwrap();
    assert!(!is_damaged(whole.clone()));
    let listed = std::fs::read_to_string(folder.join("refused.tsv")).unwrap();
    let mut sound = Vec::new();
    for line in listed.lines() {
        let [at, bit, _] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let mut copy = whole.clone();
        copy[at.parse::<usize>().unwrap()] ^= 1 << bit.parse::<u8>().unwrap();
        if !is_damaged(copy) {
            sound.push(line);
        }
    }
    assert!(sound.is_empty(), "{} of {}: {sound:#?}", sound.len(), listed.lines().count());
}

/// h5py 3 (HDF5 1.14) can't fully read any of these copies. Chunks past the end of the file are not
/// considered.
#[test]
fn detects_changes_of_superblock_and_length() {
    for name in ["contiguous.h5", "bigheader.h5"] {
        let whole = bytes(name);
        assert!(!is_damaged(whole.clone()), "{name}");
        let user_block = [vec![0; 512], whole.clone()].concat();
        assert!(!is_damaged(user_block), "{name}, moved as h5jam does");
        // Version 0: the base address is at byte 24, the end at byte 40.
        for bit in (24 * 8..32 * 8).chain(40 * 8..48 * 8) {
            let mut copy = whole.clone();
            copy[bit / 8] ^= 1 << (bit % 8);
            assert!(is_damaged(copy), "{name}: bit {bit}");
        }
    }
}
