//! Compares whole files with what h5py read from them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use statelens_checkpoint::{
    Data, Error, FileSet, Layout, Limits, Memory, ReadAt, Result, Segment, TensorId, Unwatched,
};

use crate::{AttributeValues, Browse, Hdf5File, LinkValue, ObjectTree, write};

/// Rows of the manifest that differ from h5py, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("external_raw.h5 /x", "the raw file with its data is not among the fixtures"),
    ("filter_blosc2_e.h5 /x", "no decoder for blosc2"),
    ("filter_blosc_blosclz_e.h5 /x", "no decoder for blosc"),
    ("filter_blosc_lz4_e.h5 /x", "no decoder for blosc"),
    ("filter_blosc_zlib_e.h5 /x", "no decoder for blosc"),
    ("filter_blosc_zstd_e.h5 /x", "no decoder for blosc"),
    ("filter_bzip2_e.h5 /x", "no decoder for bzip2"),
    ("filter_zfp_e.h5 /x", "no decoder for zfp"),
    ("pytables.h5 /blosc", "no decoder for blosc"),
    ("links_e.h5 /ext", "links to other files are shown, not followed"),
    ("links_l.h5 /ext", "links to other files are shown, not followed"),
    ("netcdf4.h5 /name DIMENSION_LIST", "sequences of references: h5py converts what it reads"),
    ("netcdf4.h5 /temp DIMENSION_LIST", "sequences of references: h5py converts what it reads"),
    ("vds.h5 /v", "virtual datasets are shown, not followed"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/hdf5")
}

fn open(name: &str) -> (FileSet, Hdf5File, ObjectTree) {
    let files = FileSet::single(name, Memory::from(std::fs::read(folder().join(name)).unwrap()));
    let file = Hdf5File::open(&files, files.main().unwrap(), &Limits::default()).unwrap();
    let tree = file.tree(&mut Unwatched).unwrap();
    (files, file, tree)
}

/// Returns the bytes to compare with the manifest's checksum.
fn bytes(files: &FileSet, file: &Hdf5File, tree: &ObjectTree, row: &[&str]) -> Result<Vec<u8>> {
    let (path, attribute, kind) = (row[1], row[2], row[3]);
    let address = tree.find(path).ok_or_else(|| Error::damaged("no such object"))?;
    let object = match &tree.objects[&address] {
        Ok(object) => object,
        Err(error) => return Err(error.clone()),
    };
    let (datatype, data) = match attribute {
        "" => {
            let dataset = match &object.kind {
                crate::ObjectKind::Dataset(dataset) => dataset,
                crate::ObjectKind::Unreadable(error) => return Err(error.clone()),
                _ => return Err(Error::damaged("no dataset")),
            };
            (dataset.datatype.clone(), file.read(dataset, files)?)
        }
        name => {
            let attribute =
                object.attribute(name).ok_or_else(|| match object.troubles.first() {
                    Some(error) => error.clone(),
                    None => Error::damaged("no such attribute"),
                })?;
            (attribute.datatype.clone(), attribute.data.to_vec())
        }
    };
    match kind {
        "raw" => Ok(data),
        "str" => match file.values(&datatype, &data)? {
            AttributeValues::Text(texts) => {
                Ok(texts.iter().flat_map(|text| [text.as_bytes(), &[0]].concat()).collect())
            }
            values => Err(Error::damaged(format!("{values:?} are not strings"))),
        },
        "vlen" => {
            let elements = file.vlen_elements(&datatype, &data)?;
            Ok(elements
                .iter()
                .flat_map(|bytes| [&(bytes.len() as u64).to_le_bytes(), bytes.as_slice()].concat())
                .collect())
        }
        other => Err(Error::damaged(format!("a row of kind {other}"))),
    }
}

fn check(files: &FileSet, file: &Hdf5File, tree: &ObjectTree, row: &[&str]) -> Result<(), String> {
    let (path, attribute) = (row[1], row[2]);
    let object = tree.find(path).and_then(|address| tree.object(address));
    let expect = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
    match row[3] {
        "group" => expect(
            object.is_some_and(|object| matches!(object.kind, crate::ObjectKind::Group)),
            "no group",
        ),
        "type" => expect(
            object.is_some_and(|object| matches!(object.kind, crate::ObjectKind::Datatype(_))),
            "no datatype",
        ),
        "dangling" => expect(object.is_none(), "it leads somewhere"),
        "shape" => {
            let object = object.ok_or("no such object")?;
            let shape = match attribute {
                "" => object.dataset().ok_or("no dataset")?.shape.clone(),
                name => object.attribute(name).ok_or("no such attribute")?.shape.clone(),
            };
            let shape = match shape {
                None => "null".to_owned(),
                Some(shape) => shape.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
            };
            expect(shape == row[6], &format!("shape {shape}"))
        }
        _ => {
            let bytes = bytes(files, file, tree, row).map_err(|error| error.to_string())?;
            let sum = format!("{:08x}{:08x}", crc32fast::hash(&bytes), bytes.len());
            expect(sum == row[7], &format!("{} bytes, {sum} instead of {}", bytes.len(), row[7]))
        }
    }
}

#[test]
fn values_match_h5py() {
    let manifest = std::fs::read_to_string(folder().join("manifest.tsv")).unwrap();
    let mut by_file: BTreeMap<&str, Vec<Vec<&str>>> = BTreeMap::new();
    for line in manifest.lines() {
        let row: Vec<&str> = line.split('\t').collect();
        by_file.entry(row[0]).or_default().push(row);
    }
    let mut wrong = BTreeMap::new();
    for (name, rows) in by_file {
        let (files, file, tree) = open(name);
        for row in rows {
            if let Err(why) = check(&files, &file, &tree, &row) {
                wrong.insert(format!("{name} {} {}", row[1], row[2]).trim_end().to_owned(), why);
            }
        }
    }
    let unexpected: Vec<_> = wrong
        .iter()
        .filter(|(place, _)| !EXCEPTIONS.iter().any(|(known, _)| known == place))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    for (place, reason) in EXCEPTIONS {
        assert!(wrong.contains_key(*place), "{place} is read after all, though {reason}");
    }
}

/// Returns a file with another recorded end.
fn ending_at(mut bytes: Vec<u8>, end: u64) -> Vec<u8> {
    let at = if bytes[8] < 2 { 40 } else { 28 };
    bytes[at..at + 8].copy_from_slice(&end.to_le_bytes());
    if bytes[8] >= 2 {
        let sum = hdf5_reader::checksum::jenkins_lookup3(&bytes[..44]);
        bytes[44..48].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

#[test]
fn refuses_chunks_beyond_the_recorded_end() {
    let mut shown = 0;
    for name in ["btree1.h5", "btree2.h5", "ext_array.h5", "fixed_array.h5", "filter_deflate_l.h5"]
    {
        let bytes = std::fs::read(folder().join(name)).unwrap();
        let tables = |bytes: Vec<u8>| {
            let files = FileSet::single(name, Memory::from(bytes));
            let file = Hdf5File::open(&files, files.main().unwrap(), &Limits::default()).unwrap();
            let tree = file.tree(&mut Unwatched).unwrap();
            let datasets = tree.objects.values().flatten().filter_map(crate::Object::dataset);
            let tables =
                datasets.filter_map(|dataset| match file.tensor(dataset, &files).ok()?.layout {
                    Layout::Chunked(chunked) => Some(chunked.chunks.table(&files)),
                    _ => None,
                });
            tables.collect::<Vec<_>>()
        };
        let ends = tables(bytes.clone()).into_iter().flat_map(|table| table.unwrap());
        let Some(furthest) = ends.map(|chunk| chunk.span.offset + chunk.span.len).max() else {
            continue;
        };
        // The last chunk ends exactly at the recorded end, then one byte beyond it.
        assert!(tables(ending_at(bytes.clone(), furthest)).iter().all(Result::is_ok), "{name}");
        let refused = tables(ending_at(bytes, furthest - 1));
        let error = refused.into_iter().find_map(Result::err).expect(name);
        assert!(error.to_string().contains("past the end"), "{name}: {error}");
        shown += 1;
    }
    assert_eq!(shown, 5);
}

#[test]
fn distinguishes_soft_and_external_links() {
    for name in ["links_e.h5", "links_l.h5"] {
        let (_, _, tree) = open(name);
        let links = tree.groups.links[&tree.groups.root].as_ref().unwrap();
        let soft = links.iter().filter(|link| matches!(link.target, LinkValue::Soft(_))).count();
        let external =
            links.iter().filter(|link| matches!(link.target, LinkValue::External(_))).count();
        assert!(soft > 0 && external > 0, "{links:?}");
    }
}

#[derive(Debug)]
struct CountedBytes(Memory, AtomicU64);

impl ReadAt for CountedBytes {
    fn len(&self) -> u64 {
        self.0.len()
    }

    /// As in the page, where each read is expensive.
    fn overhead(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_at(offset, buffer)
    }
}

/// Returns a file of many small datasets with a few attributes each, and `gap` bytes of data in
/// each.
fn many(count: u32, gap: u64) -> Vec<u8> {
    use write::{Attribute, AttributeValue, Content, Dataset, Datatype, FilePlan, Space};
    let mut file = FilePlan::new();
    for index in 0..count {
        let dataset = Dataset {
            datatype: Datatype::F32,
            space: Space::Simple(vec![gap / 4]),
            content: Content::Tensor(TensorId(index)),
            attributes: vec![
                Attribute::new("__TYPE__", AttributeValue::Text("TorchTensorSerializer".into())),
                Attribute::new("shapes", AttributeValue::I64s(vec![1, 1], vec![4])),
                Attribute::new("dtypes", AttributeValue::Texts(vec!["torch.float32".into()])),
            ]
            .into(),
        };
        file.add(&format!("model.layers.{index}.weight"), dataset).unwrap();
    }
    let mut out = Vec::new();
    for segment in &file.plan(None).unwrap().segments {
        match segment {
            Segment::Bytes(bytes) => out.extend_from_slice(bytes),
            Segment::Zeros(len) => out.resize(out.len() + *len as usize, 0),
            Segment::Data(Data { .. }) => out.resize(out.len() + gap as usize, 1),
            Segment::Late { .. } => panic!("nothing depends on data that is not encoded"),
        }
    }
    out
}

#[test]
fn opens_20_000_datasets_with_few_reads() {
    let bytes = many(20_000, 16);
    let len = bytes.len() as u64;
    let source = Arc::new(CountedBytes(Memory::from(bytes), AtomicU64::new(0)));
    let mut files = FileSet::default();
    let id = files.push("many.h5", source.clone());
    let file = Hdf5File::open(&files, id, &Limits::default()).unwrap();
    let tree = file.tree(&mut Unwatched).unwrap();
    assert_eq!(tree.objects.len(), 20_001);
    for object in tree.objects.values() {
        let object = object.as_ref().unwrap();
        if let Some(dataset) = object.dataset() {
            assert_eq!(object.attributes.len(), 3);
            assert_eq!(
                object.attribute("__TYPE__").unwrap().describe(&file, None),
                "TorchTensorSerializer"
            );
            assert!(matches!(file.tensor(dataset, &files).unwrap().layout, Layout::Span(_)));
        }
    }
    let reads = source.1.load(Ordering::Relaxed);
    assert!(reads <= len.div_ceil(1 << 20) + 12, "{reads} reads of {len} bytes");
}

#[test]
fn reads_objects_on_demand_and_once() {
    let bytes = many(20_000, 16);
    let source = Arc::new(CountedBytes(Memory::from(bytes), AtomicU64::new(0)));
    let mut files = FileSet::default();
    let id = files.push("many.h5", source.clone());
    let reads = || source.1.load(Ordering::Relaxed);
    let file = Hdf5File::open(&files, id, &Limits::default()).unwrap();
    let mut browse = Browse::new(file).unwrap();
    let path = |index: u32| format!("model.layers.{index}.weight");
    let mut read = |numbers: std::ops::Range<u32>| {
        let addresses: Vec<u64> =
            numbers.clone().map(|index| browse.find(&path(index)).unwrap().unwrap()).collect();
        browse.ahead(addresses.clone()).unwrap();
        for address in addresses {
            let object = browse.object(address).unwrap();
            assert_eq!((object.address, object.attributes.len()), (address, 3));
        }
    };
    read(0..100);
    let first = reads();
    (1..200).for_each(|part| read(part * 100..part * 100 + 100));
    let all = reads();
    assert!(first * 2 < all, "{first} reads of {all} for the first hundred");
    // All objects have been read, so nothing is left.
    browse.rest(&mut Unwatched).unwrap();
    assert_eq!(reads(), all);
    assert_eq!(browse.find("model.layers.20000.weight").unwrap(), None);
    assert!(browse.groups().attributes.is_empty() && browse.groups().troubles.is_empty());
    assert_eq!(browse.file().end(browse.groups()), None);
}

#[test]
fn dense_attributes_are_found_by_name_and_all_checked() {
    let whole = std::fs::read(folder().join("attrs_dense.h5")).unwrap();
    let browse = |bytes: Vec<u8>| {
        let files = FileSet::single("attrs_dense.h5", Memory::from(bytes));
        let file = Hdf5File::open(&files, files.main().unwrap(), &Limits::default()).unwrap();
        Browse::new(file).unwrap()
    };
    let mut sound = browse(whole.clone());
    assert!(sound.root().unwrap().attributes.is_empty(), "all of them are in dense storage");
    for number in 0..60 {
        let found = sound.root_attribute(format!("r{number}").as_bytes()).unwrap().unwrap();
        assert_eq!(found.describe(sound.file(), None).to_lossy(), format!("val{number}"));
    }
    assert!(sound.root_attribute(b"r60").unwrap().is_none());
    sound.rest(&mut Unwatched).unwrap();
    assert!(sound.groups().attributes.is_empty());
    // Another letter in a name: the checksum of its block is wrong, or it is indexed under another
    // name.
    let mut bytes = whole.clone();
    for at in 0..whole.len() - 4 {
        if whole[at..].starts_with(b"r17\0") {
            bytes[at] = b's';
        }
    }
    assert_ne!(bytes, whole);
    let mut damaged = browse(bytes);
    damaged.rest(&mut Unwatched).unwrap();
    assert!(!damaged.groups().attributes.is_empty());
}

#[test]
fn checks_the_creation_order_index() {
    // For attributes and for links; 6 and 9 are the kinds of the tree in its header.
    for (name, header) in
        [("../cerebras/v2.10.0/bytes_70k.mdl", b"BTHD\0\x09"), ("track_order.h5", b"BTHD\0\x06")]
    {
        let mut bytes = std::fs::read(folder().join(name)).unwrap();
        let troubles = |bytes: &[u8]| {
            let files = FileSet::single(name, Memory::from(bytes.to_vec()));
            let file = Hdf5File::open(&files, files.main().unwrap(), &Limits::default()).unwrap();
            let mut browse = Browse::new(file).unwrap();
            browse.rest(&mut Unwatched).unwrap();
            let groups = browse.groups();
            let unlisted = groups.links.values().filter(|links| links.is_err()).count();
            groups.attributes.len() + groups.troubles.len() + unlisted
        };
        assert_eq!(troubles(&bytes), 0, "{name}");
        let at = bytes.windows(6).position(|window| window == header).unwrap();
        // The split percentage: not needed for reading, but covered by the checksum.
        bytes[at + 14] ^= 1;
        assert_ne!(troubles(&bytes), 0, "{name}");
    }
}

#[test]
fn reads_heaps_with_nested_indirect_blocks() {
    // The heaps have nested indirect blocks, which hdf5-reader 0.12 can't handle.
    let packed = std::fs::read(folder().join("many_links.h5.gz")).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    let files = FileSet::single("many_links.h5", Memory::from(bytes));
    let file = Hdf5File::open(&files, files.main().unwrap(), &Limits::default()).unwrap();
    let tree = file.tree(&mut Unwatched).unwrap();
    assert_eq!(tree.groups.links[&tree.groups.root].as_ref().unwrap().len(), 20_002);
    let first = tree.find("first").unwrap();
    for index in 0..20_000 {
        assert_eq!(tree.find(&format!("model.layers.{index:05}.attention.weight")), Some(first));
    }
    for other in ["", "a", "model.layers.00000", "zzz"] {
        assert_eq!(tree.find(&format!("{other}.none")), None);
    }
    let group = tree.object(tree.find("attributes").unwrap()).unwrap();
    assert!(group.troubles.is_empty());
    assert_eq!(group.attributes.len(), 9_000);
    for attribute in &group.attributes {
        let name = attribute.name.to_lossy();
        let number: i64 = name.rsplit_once('.').unwrap().1.parse().unwrap();
        assert_eq!(attribute.values(&file).unwrap(), AttributeValues::Int(vec![number.into(); 6]));
    }
}

#[test]
fn shared_structure_is_bounded_by_the_file_size() {
    // Three thousand headers of one message each, all of which continue in the same block of a
    // megabyte of attributes.
    let attribute = |index: u32| {
        let mut body = vec![1, 0, 8, 0, 8, 0, 8, 0];
        body.extend_from_slice(format!("a{index:06}\0").as_bytes());
        body.extend_from_slice(&[0x10, 0, 0, 0, 1, 0, 0, 0]);
        body.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        body.extend_from_slice(&[7; 8]);
        body
    };
    let message = |kind: u16, body: &[u8]| {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend_from_slice(&(body.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(body);
        bytes
    };
    let block: Vec<u8> = (0..20_000).flat_map(|index| message(0x0c, &attribute(index))).collect();
    let mut bytes = many(3_000, 16);
    let at = bytes.len() as u64;
    bytes.extend(&block);
    let mut place = at.to_le_bytes().to_vec();
    place.extend((block.len() as u64).to_le_bytes());
    // Every dataset's header starts with its dataspace, which is replaced with the link to the
    // block.
    let files = FileSet::single("many.h5", Memory::from(bytes.clone()));
    let file = Hdf5File::open(&files, files.main().unwrap(), &Limits::default()).unwrap();
    let tree = file.tree(&mut Unwatched).unwrap();
    for (address, object) in &tree.objects {
        if object.as_ref().unwrap().dataset().is_some() {
            let start = *address as usize + 16;
            bytes[start..start + 24].copy_from_slice(&message(0x10, &place));
            // The rest of the dataspace counts as one more message.
            bytes[start - 14] += 1;
        }
    }
    let files = FileSet::single("many.h5", Memory::from(bytes));
    let file = Hdf5File::open(&files, files.main().unwrap(), &Limits::default()).unwrap();
    let tree = file.tree(&mut Unwatched).unwrap();
    let kept: usize = tree.objects.values().flatten().map(|object| object.attributes.len()).sum();
    assert!((1..1_000_000).contains(&kept), "{kept} attributes");
    let refused = tree.objects.values().filter(|object| {
        object.as_ref().is_err_and(|error| error.kind() == statelens_checkpoint::ErrorKind::Limit)
    });
    assert!(refused.count() > 2_000);
}
