//! Compares checkpoints that the real library wrote to S3 with what it read back from there.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use serde_json::Value as Json;
use statelens_checkpoint::{
    Checkpoint, Error, FileId, FileSet, Grade, Layout, Leaf, Limits, Memory, ObjectHeader, Plan,
    PlannedFile, ReadAt, Result, Segment, Unwatched, Workers,
};

use super::super::tests::{differences, expected_structure, spelled, structure};
use super::super::write;
use super::{
    FORMAT, METADATA, checks, first_metadata, headers, is_prefix, may_be_prefix, metadata, objects,
    split,
};
use crate::{ScanOptions, scan};

/// Values that differ from those of the real library, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("full_tensors none", "saved without values: the library gives whatever is in memory"),
    ("graph_tensor g", "the library runs a TorchScript graph; shown without data"),
    ("numpy_obj s", "the library fails to load it, too"),
    ("numpy_struct s", "the library fails to load it, too"),
    ("objects", "a Counter in it has a line for each item here; the command's tests compare it"),
    ("link_s3 ", "links to other addresses are not followed"),
];

fn folder() -> PathBuf {
    statelens_fixtures::path("cerebras_s3")
}

fn json(path: &std::path::Path) -> Json {
    serde_json::from_str(&spelled(&std::fs::read_to_string(path).unwrap())).unwrap()
}

/// An object of the fixtures. Requests for others than `__METADATA__` are counted.
#[derive(Debug)]
struct Recorded {
    body: Memory,
    header: Option<String>,
    requests: Arc<Requests>,
}

/// Numbers of reads and of lookups of headers.
#[derive(Debug, Default)]
struct Requests {
    reads: AtomicU64,
    headers: AtomicU64,
}

impl ReadAt for Recorded {
    fn len(&self) -> u64 {
        self.body.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.requests.reads.fetch_add(1, Relaxed);
        self.body.read_at(offset, buffer)
    }

    fn described(&self) -> Result<Option<ObjectHeader>> {
        self.requests.headers.fetch_add(1, Relaxed);
        Ok(Some(ObjectHeader { metadata: self.header.clone(), len: self.len() }))
    }
}

/// Returns the objects of a checkpoint at an address, as in a bucket.
fn recorded(name: &str, address: &str) -> (FileSet, Arc<Requests>) {
    let (bucket, key) = split(address).unwrap();
    let (top, start) = (folder().join(name), format!("{key}/"));
    let requests = Arc::<Requests>::default();
    let mut all = Vec::new();
    for object in json(&top.join("objects.json"))["objects"].as_array().unwrap() {
        let text = |name: &str| object[name].as_str().unwrap().to_owned();
        let Some(rest) = text("key").strip_prefix(&start).map(str::to_owned) else { continue };
        let mut body = std::fs::read(top.join(text("file"))).unwrap();
        if object["gzip"] == true {
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut unpacked).unwrap();
            body = unpacked;
        }
        let header = object["metadata"]["metadata"].as_str().map(str::to_owned);
        let requests = match &*rest {
            "__METADATA__" => Arc::default(),
            _ => requests.clone(),
        };
        let source = Recorded { body: Memory::from(body), header, requests };
        all.push((rest, source));
    }
    all.sort_by_key(|(name, _)| name != "__METADATA__");
    let mut files = FileSet::default();
    for (name, source) in all {
        files.push(format!("s3://{bucket}/{key}/{name}"), Arc::new(source));
    }
    (files, requests)
}

fn open(files: FileSet) -> Result<Checkpoint> {
    crate::open(files, &Limits::default(), &mut Unwatched)
}

fn opened(name: &str) -> Checkpoint {
    open(recorded(name, &format!("s3://bucket/{name}")).0).unwrap()
}

fn broken(name: &str) -> Result<Checkpoint> {
    open(recorded(&format!("errors/{name}"), &format!("s3://bucket/{name}")).0)
}

fn texts(checkpoint: &Checkpoint) -> String {
    checkpoint.findings.iter().map(|finding| format!("{finding:?}\n")).collect()
}

/// Returns every address with what the library read from it.
fn expected() -> BTreeMap<String, Json> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(stem) = name.strip_suffix(".expected.json") else { continue };
        let json = json(&folder().join(&name));
        if json["address"].as_str().is_some_and(|address| address.starts_with("s3://")) {
            found.insert(stem.to_owned(), json);
        }
    }
    found
}

#[test]
fn values_match_the_library() {
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut compared, mut checkpoints) = (0, 0);
    for (name, json) in expected() {
        let (files, _) = recorded(&name, json["address"].as_str().unwrap());
        let checkpoint = open(files).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(checkpoint.format.id, "cerebras-s3");
        checkpoints += 1;
        let leaves = checkpoint.leaves();
        let leaves: Vec<&Leaf> =
            leaves.iter().filter(|leaf| !checkpoint.value(leaf.target).is_container()).collect();
        let entries = json["entries"].as_array().unwrap();
        if leaves.len() != entries.len() {
            let found = format!("{} leaves instead of {}", leaves.len(), entries.len());
            wrong.entry(name.clone()).or_default().push(found);
            continue;
        }
        for (leaf, entry) in leaves.iter().zip(entries) {
            let key = entry[0].as_str().unwrap();
            let mut found = differences(&checkpoint, leaf, key, &entry[1]);
            let alias = leaf.alias_of.as_ref().map(|key| key.to_string());
            let want = entry[1].get("alias_of").map(|key| key.as_str().unwrap().to_owned());
            if alias != want {
                found.push(format!("alias of {alias:?} instead of {want:?}"));
            }
            compared += 1;
            if !found.is_empty() {
                wrong.insert(format!("{name} {key}"), found);
            }
        }
        let want = expected_structure(&json["structure"]);
        assert_eq!(structure(&checkpoint, checkpoint.root()), want, "{name}");
    }
    let is_known = |place: &str| EXCEPTIONS.iter().any(|(known, _)| place.starts_with(known));
    wrong.retain(|place, _| !is_known(place));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!((checkpoints, compared) >= (34, 1_400), "{checkpoints} checkpoints, {compared} values");
}

#[test]
fn opening_reads_no_tensor_and_no_header() {
    for name in ["gpt_small", "dtypes_zstd", "csx_rtfx", "many_1100", "keys_hard"] {
        let (files, requests) = recorded(name, &format!("s3://bucket/{name}"));
        let checkpoint = open(files).unwrap();
        assert!(!checkpoint.leaves().is_empty());
        assert_eq!(requests.reads.load(Relaxed), 0, "{name}");
        // Booleans of Cerebras systems are the only values whose width only the header gives.
        let headers = u64::from(name == "csx_rtfx");
        assert_eq!(requests.headers.load(Relaxed), headers, "{name}");
    }
}

#[test]
fn weights_of_a_moved_run_are_read_next_to_the_metadata() {
    let checkpoint = broken("csx_moved").unwrap();
    let text = texts(&checkpoint);
    assert!(text.contains("was moved") && text.contains("s3://bucket/csx_first"), "{text}");
    let json = json(&folder().join("csx_rtfx.expected.json"));
    for (leaf, entry) in checkpoint.leaves().iter().zip(json["entries"].as_array().unwrap()) {
        let key = entry[0].as_str().unwrap();
        assert_eq!(differences(&checkpoint, leaf, key, &entry[1]), Vec::<String>::new(), "{key}");
    }
}

#[test]
fn links_to_other_addresses_are_shown_and_not_followed() {
    let checkpoint = opened("link_s3");
    let text = texts(&checkpoint);
    assert!(text.contains("s3://bucket/target-link_s3"), "{text}");
    let leaves = checkpoint.leaves();
    let leaf = |key: &str| leaves.iter().find(|leaf| leaf.flat == key).unwrap();
    let (_, tensor) = checkpoint.tensor_of(leaf("x.model.w").target).unwrap();
    assert!(matches!(&tensor.layout, Layout::Missing(why) if why.to_lossy().contains("s3://")));
    assert_eq!(tensor.shape, [3, 4]);
    let (_, tensor) = checkpoint.tensor_of(leaf("extra").target).unwrap();
    assert!(matches!(tensor.layout, Layout::Span(_)));
    let text = texts(&broken("link_local").unwrap());
    assert!(text.contains("target.mdl"), "{text}");

    let bytes = std::fs::read(folder().join("mdl_link_s3.mdl")).unwrap();
    let mut files = FileSet::single("mdl_link_s3.mdl", Memory::from(bytes));
    // A file with the last part of the address is not the target.
    files.push("target-mdl_link_s3", Arc::new(Memory::from(vec![0; 100])));
    let text = texts(&open(files).unwrap());
    assert!(text.contains("s3://bucket/target-mdl_link_s3"), "{text}");
}

#[test]
fn a_copy_on_disk_opens_without_headers() {
    for name in ["gpt_small", "dtypes_zstd", "numpy", "csx_rtfx", "values"] {
        let (recorded, _) = recorded(name, &format!("s3://bucket/{name}"));
        let mut files = FileSet::default();
        for (id, file) in recorded.iter() {
            let bytes = recorded.read_vec(id, 0, recorded.len(id)).unwrap();
            let base = file.name.strip_prefix(&format!("s3://bucket/{name}/")).unwrap();
            files.push(format!("copy/{base}"), Arc::new(Memory::from(bytes)));
        }
        let sets = crate::sets::sort(&files);
        assert_eq!(sets.len(), 1, "{name}");
        assert_eq!((&*sets[0].main, &*sets[0].name), ("copy/__METADATA__", "copy"));
        assert_eq!(sets[0].members.len(), files.count());
        let checkpoint = open(files).unwrap();
        let json = json(&folder().join(format!("{name}.expected.json")));
        let leaves = checkpoint.leaves();
        let leaves = leaves.iter().filter(|leaf| !checkpoint.value(leaf.target).is_container());
        for (leaf, entry) in leaves.zip(json["entries"].as_array().unwrap()) {
            let key = entry[0].as_str().unwrap();
            let found = differences(&checkpoint, leaf, key, &entry[1]);
            assert_eq!(found, Vec::<String>::new(), "{name} {key}");
        }
        let checks = checks(&checkpoint, &checkpoint.files, &Limits::default()).unwrap().unwrap();
        assert!(checks.broken.is_empty(), "{name}: {:?}", checks.broken);
    }
}

#[test]
fn broken_metadata_is_refused() {
    for (name, words) in [
        ("metadata_empty", "empty"),
        ("metadata_json", "is not what the Cerebras library writes"),
        ("metadata_list", "is not what the Cerebras library writes"),
        ("no_spec", "`__spec__`"),
    ] {
        let error = broken(name).unwrap_err().to_string();
        assert!(error.contains(words), "{name}: {error}");
    }
    for (name, words) in [
        ("partial", "not written to its end"),
        ("no_success", "not written to its end"),
        ("no_version", "does not give its format version"),
        ("version_04", "does not match"),
        ("unknown_type", "Nonsense"),
        ("link_missing", "nowhere"),
        ("keys_collide", "share the name"),
        ("object_missing", "is missing"),
    ] {
        let checkpoint = broken(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let text = texts(&checkpoint);
        let missing = checkpoint.tensors().iter().any(|tensor| {
            matches!(&tensor.layout, Layout::Missing(why) if why.to_lossy().contains(words))
        });
        assert!(text.contains(words) || missing, "{name}: {text}");
    }
    assert_eq!(broken("metadata_proto5").unwrap().findings, []);
    let (files, _) = recorded("evil/evil_metadata", "s3://bucket/evil_metadata");
    assert!(open(files).unwrap_err().to_string().contains("is not what the Cerebras library"));
}

#[test]
fn verification_compares_headers_sizes_and_frames() {
    for (name, key, words) in [
        ("body_short", "w", "40 bytes"),
        ("body_long", "w", "52 bytes"),
        ("body_empty", "w", "0 bytes"),
        ("header_shape", "w", "[4, 3]"),
        ("header_shape_bad", "w", "[3, 5]"),
        ("header_dtype", "w", "float16"),
        ("numpy_dtype_only", "w", "int32"),
        ("numpy_true", "w", "no `__NUMPY__`"),
        ("headers_lost", "b", "is missing"),
        ("header_not_json", "w", "the header `metadata`"),
        ("zstd_magic", "z", "not a Zstandard frame"),
        ("zstd_raw_flagged", "w", "not a Zstandard frame"),
        ("zstd_not_flagged", "z", "`compressed`"),
        ("zstd_no_size", "z", "does not state the size"),
        ("zstd_two_frames", "z", "after its Zstandard frame"),
        ("zstd_shorter", "z", "1996 bytes"),
    ] {
        let checkpoint = broken(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let checks = checks(&checkpoint, &checkpoint.files, &Limits::default()).unwrap().unwrap();
        let found: Vec<String> =
            checks.broken.iter().map(|(key, error)| format!("{key}: {error}")).collect();
        let hit = found.iter().any(|text| text.starts_with(key) && text.contains(words));
        assert!(hit, "{name}: {found:#?}");
    }
    for (name, json) in expected() {
        let (files, _) = recorded(&name, json["address"].as_str().unwrap());
        let checkpoint = open(files).unwrap();
        let checks = checks(&checkpoint, &checkpoint.files, &Limits::default()).unwrap().unwrap();
        // Its headers are the least that the library accepts.
        let broken: Vec<_> = checks.broken.iter().filter(|_| name != "numpy_obj").collect();
        assert!(broken.is_empty(), "{name}: {broken:?}");
    }
    for name in ["good", "zstd_good", "type_gone"] {
        let checkpoint = broken(name).unwrap();
        let checks = checks(&checkpoint, &checkpoint.files, &Limits::default()).unwrap().unwrap();
        assert!(checks.broken.is_empty(), "{name}: {:?}", checks.broken);
    }
}

/// An object whose header is available only after a request for another header.
#[derive(Debug)]
struct Waiting(Arc<(Mutex<u64>, Condvar)>);

impl ReadAt for Waiting {
    fn len(&self) -> u64 {
        4
    }

    fn read_at(&self, _: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(0);
        Ok(())
    }

    fn described(&self) -> Result<Option<ObjectHeader>> {
        let (requests, changed) = &*self.0;
        let mut count = requests.lock().unwrap();
        *count += 1;
        changed.notify_all();
        let (count, _) =
            changed.wait_timeout_while(count, Duration::from_secs(20), |it| *it < 2).unwrap();
        match *count {
            0 | 1 => Err(Error::io("no other header was requested")),
            _ => Ok(Some(ObjectHeader { metadata: None, len: 4 })),
        }
    }
}

#[derive(Debug)]
struct Threads;

impl Workers for Threads {
    fn count(&self) -> usize {
        2
    }

    fn each(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            (0..parts).for_each(|at| drop(scope.spawn(move || part(at))));
        });
    }
}

#[test]
fn headers_are_requested_side_by_side() {
    let (recorded, _) = recorded("gpt_small", "s3://bucket/gpt_small");
    let main = recorded.read_vec(FileId(0), 0, recorded.len(FileId(0))).unwrap();
    let requests = Arc::new((Mutex::new(0), Condvar::new()));
    let mut files = FileSet::default().with_workers(Arc::new(Threads));
    for (id, file) in recorded.iter() {
        match id.0 {
            0 => files.push(&*file.name, Arc::new(Memory::from(main.clone()))),
            _ => files.push(&*file.name, Arc::new(Waiting(requests.clone()))),
        };
    }
    let count = files.count() as u64 - 1;
    let found = super::scan(&files, &Limits::default(), &mut |_, _| Ok(())).unwrap();
    let text: String = found.findings.iter().map(|finding| format!("{finding:?}")).collect();
    assert!(text.contains(&format!("{count} objects without a header")), "{text}");
    assert_eq!(*requests.0.lock().unwrap(), count);
}

#[test]
fn damaged_bodies_are_errors_when_they_are_read() {
    for name in ["body_short", "body_empty", "zstd_magic", "zstd_shorter", "zstd_checksum_wrong"] {
        let checkpoint = broken(name).unwrap();
        let failed = checkpoint.tensors().iter().filter(|tensor| {
            let files = &checkpoint.files;
            statelens_tensor::drain(files, tensor, 1 << 16, &mut Unwatched, &mut |_| Ok(()))
                .is_err()
        });
        assert_eq!(failed.count(), 1, "{name}");
    }
}

#[test]
fn scan_judges_headers_and_pickles() {
    let worst = |files: FileSet| {
        let found =
            scan(files, &Limits::default(), &ScanOptions::default(), &mut Unwatched).unwrap();
        let text: String = found.iter().map(|finding| format!("{finding:?}\n")).collect();
        (found.iter().map(|finding| finding.grade).max(), text)
    };
    for name in ["evil_metadata", "evil_object", "evil_header"] {
        let (files, _) = recorded(&format!("evil/{name}"), &format!("s3://bucket/{name}"));
        let (grade, text) = worst(files);
        assert!(grade == Some(Grade::Danger) && text.contains("posix.system"), "{name}: {text}");
    }
    for name in ["gpt_small", "values", "tied_zstd", "keys_hard"] {
        let (files, requests) = recorded(name, &format!("s3://bucket/{name}"));
        let objects = files.count() as u64 - 1;
        let (grade, text) = worst(files);
        assert!(grade <= Some(Grade::Note), "{name}: {text}");
        assert_eq!(requests.headers.load(Relaxed), objects, "{name}: one for each object");
    }
    let (files, _) = recorded("errors/headers_lost", "s3://bucket/headers_lost");
    let (grade, text) = worst(files);
    assert!(grade == Some(Grade::Damage) && text.contains("without a header"), "{text}");
}

#[test]
fn lengths_come_from_the_metadata() {
    let (files, _) = recorded("dtypes_zstd", "s3://bucket/dtypes_zstd");
    let main = files.main().unwrap();
    let metadata = files.read_vec(main, 0, files.len(main)).unwrap();
    let found = objects(&metadata, Some("s3://bucket/dtypes_zstd")).unwrap();
    assert_eq!(found.len(), files.count() - 1);
    for (name, len) in found {
        let id = files.find(&format!("s3://bucket/dtypes_zstd/{name}")).unwrap();
        assert_eq!(len, Some(files.len(id)), "{name}");
    }
}

#[test]
fn names_of_files_are_not_prefixes() {
    for name in ["run/checkpoint_100.mdl", "run/step 5", "a.b/c", ""] {
        assert!(may_be_prefix(name), "{name}");
    }
    for name in ["model.safetensors", "a/model.PT", "x.index.json", "m.gguf"] {
        assert!(!may_be_prefix(name), "{name}");
    }
    assert_eq!(FORMAT.ids, ["cerebras-s3"]);
}

/// Returns the bodies of a plan by name. Nothing in it is made late.
fn bodies(plan: &Plan) -> BTreeMap<String, Vec<u8>> {
    let body = |file: &PlannedFile| {
        let mut out = Vec::new();
        for segment in &file.segments {
            match segment {
                Segment::Bytes(bytes) => out.extend_from_slice(bytes),
                Segment::Data(data) => {
                    let tensor = plan.source.tensor(data.tensor).unwrap();
                    let all = 0..tensor.numel().unwrap();
                    let files = &plan.source.files;
                    out.extend(statelens_tensor::elements(files, tensor, all).unwrap());
                }
                _ => panic!("{}: neither bytes nor data", file.name),
            }
        }
        (file.name.clone(), out)
    };
    plan.files.iter().map(body).collect()
}

#[test]
fn written_objects_and_headers_are_those_of_the_library() {
    for name in [
        "gpt_small",
        "dtypes",
        "dtypes_empty",
        "tied",
        "keys_hard",
        "keys_slash",
        "keys_empty",
        "keys_int",
        "many_1100",
        "numpy_str",
        "seed",
        "top_list",
    ] {
        let (files, _) = recorded(name, &format!("s3://bucket/{name}"));
        let source = Arc::new(open(files.clone()).unwrap());
        let plan = write::plan_objects(source).unwrap();
        assert!(plan.losses.is_empty() && is_prefix(&plan), "{name}: {:?}", plan.losses);
        let metadata = metadata(&plan).unwrap();
        let headers = headers(&metadata).unwrap();
        let bodies = bodies(&plan);
        let top = format!("s3://bucket/{name}/");
        let names: Vec<&str> = files.names().map(|(_, name)| &name[top.len()..]).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert!(bodies.keys().eq(sorted), "{name}: {:?} {names:?}", bodies.keys());
        for (id, file) in files.iter() {
            let key = &file.name[top.len()..];
            if key != METADATA {
                let described = file.source.described().unwrap().unwrap();
                // The library's pickles also have frames and memo entries that are never read.
                if described.metadata.as_ref().unwrap().contains("ObjectSerializer") {
                    continue;
                }
                let body = files.read_vec(id, 0, files.len(id)).unwrap();
                assert_eq!(bodies[key], body, "{name} {key}");
                assert_eq!(headers.get(key), described.metadata.as_ref(), "{name} {key}");
            }
        }
        // The written objects open with the same values; without the last object they do not open.
        let first = first_metadata(&metadata).unwrap();
        for (metadata, is_complete) in [(metadata, true), (first, false)] {
            let mut files = FileSet::single(format!("{top}{METADATA}"), Memory::from(metadata));
            for (key, body) in bodies.iter().filter(|(key, _)| *key != METADATA) {
                files.push(format!("{top}{key}"), Arc::new(Memory::from(body.clone())));
            }
            let checkpoint = open(files).unwrap();
            let text = texts(&checkpoint);
            assert_eq!(!text.contains("not written to its end"), is_complete, "{name}: {text}");
            let entries = json(&folder().join(format!("{name}.expected.json")));
            let leaves = checkpoint.leaves();
            let leaves = leaves.iter().filter(|leaf| !checkpoint.value(leaf.target).is_container());
            for (leaf, entry) in leaves.zip(entries["entries"].as_array().unwrap()) {
                if is_complete {
                    let key = entry[0].as_str().unwrap();
                    let found = differences(&checkpoint, leaf, key, &entry[1]);
                    assert_eq!(found, Vec::<String>::new(), "{name} {key}");
                }
            }
        }
    }
}

#[test]
fn refuses_what_the_library_could_not_load() {
    use statelens_checkpoint::{Builder, DType, Dict, FormatInfo, Tensor, Value};
    let plan = |key: &str, dtype: DType| {
        let mut builder = Builder::new(&Limits::default());
        let bytes = vec![1; dtype.itemsize() as usize];
        let tensor = Tensor::new(dtype, Vec::new(), Layout::Inline(bytes.into()));
        let tensor = builder.push_tensor(tensor).unwrap();
        let value = builder.push(Value::Tensor(tensor)).unwrap();
        let entries = vec![(key.into(), value)];
        let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
        let source =
            builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap();
        write::plan_objects(Arc::new(source)).map(|plan| plan.files.len())
    };
    assert_eq!(plan("../w", DType::F32).unwrap(), 2);
    let error = |key: &str, dtype| plan(key, dtype).unwrap_err().to_string();
    assert!(error(METADATA, DType::F32).contains("can't have the name"));
    assert!(error(&"k".repeat(1_025), DType::F32).contains("1024 bytes"));
    assert!(error("w", DType::I8).contains("int8"));
}
