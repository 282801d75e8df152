//! Compares written files with those of the real library for the same state dict, and tests
//! refusals.

use std::collections::BTreeMap;
use std::sync::Arc;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictClass, DictKey, FileSet, Form, FormatInfo, Global, Int,
    Layout, Limits, List, ListClass, Memory, Opaque, Result, Segment, Set, Tensor, Text, Tuple,
    TupleClass, Unwatched, Value, ValueId,
};
use statelens_hdf5::{AttributeValues, Hdf5File, Object, ObjectTree};

use super::{Compression, Version, WriteOptions, plan};

const FIXTURES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/cerebras/v2.10.0");

fn open(name: &str) -> Result<Checkpoint> {
    let bytes = std::fs::read(format!("{FIXTURES}/{name}")).unwrap();
    crate::open(FileSet::single(name, Memory::from(bytes)), &Limits::default(), &mut Unwatched)
}

/// Builds a checkpoint in a few lines.
struct Make(Builder);

impl Make {
    fn new() -> Self {
        Self(Builder::new(&Limits::default()))
    }

    fn value(&mut self, value: Value) -> ValueId {
        self.0.push(value).unwrap()
    }

    fn int(&mut self, value: i64) -> ValueId {
        self.value(Value::Int(value.into()))
    }

    fn tensor(&mut self, dtype: DType, shape: &[u64]) -> ValueId {
        let len = shape.iter().product::<u64>() * dtype.itemsize();
        let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
        self.push_tensor(Tensor::new(dtype, shape.to_vec(), Layout::Inline(bytes.into())))
    }

    fn push_tensor(&mut self, tensor: Tensor) -> ValueId {
        let id = self.0.push_tensor(tensor).unwrap();
        self.value(Value::Tensor(id))
    }

    fn dict(&mut self, class: DictClass, entries: Vec<(DictKey, ValueId)>) -> ValueId {
        self.value(Value::Dict(Dict { class, entries }))
    }

    fn named(&mut self, entries: Vec<(&str, ValueId)>) -> ValueId {
        let entries = entries.into_iter().map(|(key, id)| (key.into(), id)).collect();
        self.dict(DictClass::Dict, entries)
    }

    fn done(self, root: ValueId) -> Arc<Checkpoint> {
        let info = FormatInfo::default();
        Arc::new(self.0.finish(root, info, FileSet::default(), Vec::new()).unwrap())
    }
}

/// Returns the file of a plan without compression.
fn file(source: &Arc<Checkpoint>, version: Version) -> Result<Vec<u8>> {
    let plan =
        plan(source.clone(), &WriteOptions { version, compression: Compression::None }, "x.mdl")?;
    let mut out = Vec::new();
    for segment in plan.segments() {
        match segment {
            Segment::Bytes(bytes) => out.extend_from_slice(bytes),
            Segment::Zeros(len) => out.resize(out.len() + *len as usize, 0),
            Segment::Data(data) => {
                let tensor = source.tensor(data.tensor)?;
                let count = tensor.numel().unwrap();
                out.extend(statelens_tensor::elements(&source.files, tensor, 0..count)?);
            }
            Segment::Late { .. } => panic!("nothing is late without compression"),
        }
    }
    assert_eq!(plan.size().unwrap().bytes(), out.len() as u64);
    Ok(out)
}

fn refusal(source: &Arc<Checkpoint>, version: Version) -> String {
    let options = WriteOptions { version, compression: Compression::None };
    plan(source.clone(), &options, "x.mdl").unwrap_err().to_string()
}

/// An HDF5 file that was read back.
struct Read {
    file: Hdf5File,
    tree: ObjectTree,
}

impl Read {
    fn new(bytes: Vec<u8>) -> Self {
        let files = FileSet::single("x", Memory::from(bytes));
        let file = Hdf5File::open(&files, files.main().unwrap(), &Limits::default()).unwrap();
        let tree = file.tree(&mut Unwatched).unwrap();
        Self { file, tree }
    }

    /// Returns the attributes of an object by name.
    fn attributes(
        &self,
        object: &Object,
    ) -> BTreeMap<String, (String, Option<Vec<u64>>, AttributeValues)> {
        assert!(object.troubles.is_empty());
        let attributes = object.attributes.iter().map(|one| {
            let values = one.values(&self.file).unwrap();
            (one.name.to_string(), (one.datatype.describe(), one.shape.clone(), values))
        });
        attributes.collect()
    }

    fn root(&self) -> BTreeMap<String, (String, Option<Vec<u64>>, AttributeValues)> {
        self.attributes(self.tree.object(self.tree.groups.root).unwrap())
    }

    fn text(&self, name: &str) -> String {
        self.root()[name].2.text().unwrap().to_string()
    }

    /// Returns the datasets by path.
    fn datasets(&self) -> BTreeMap<String, &Object> {
        let mut found = BTreeMap::new();
        let mut open = vec![(String::new(), self.tree.groups.root)];
        while let Some((path, group)) = open.pop() {
            for link in self.tree.groups.links[&group].as_ref().unwrap() {
                let path = format!("{path}/{}", link.name);
                let address = self.tree.find(&path).unwrap();
                match self.tree.object(address).unwrap() {
                    object if object.dataset().is_some() => {
                        found.insert(path, object);
                    }
                    _ => open.push((path, address)),
                }
            }
        }
        found
    }
}

/// Fixtures whose content format 0.5 can't hold, with a word of the refusal. The library saves some
/// of them, but can't load them.
const REFUSED: [(&str, &str); 3] = [
    ("keys_collide", "same name"),
    ("keys_collide_tensor", "same name"),
    ("keys_int_str_collide", "same name"),
];

/// Every attribute and every dataset must be as the library wrote it, with these exceptions:
/// - there is no release of the library;
/// - a value that Python happened to share is a link in the library's file;
/// - tensors that share all their memory are tied here, but in the library's file only if they were
///   one object;
/// - pickles are encoded differently, and only a loader can compare them;
/// - arrays are little-endian.
#[test]
fn written_attributes_match_the_library() {
    let mut compared = 0;
    for entry in std::fs::read_dir(FIXTURES).unwrap() {
        let path = entry.unwrap().path();
        let theirs = path.with_extension("mdl");
        if path.extension().is_none_or(|extension| extension != "pt") || !theirs.exists() {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let Ok(source) = open(&format!("{name}.pt")) else {
            // Written by a torch release without these dtypes: an empty zip file.
            assert!(["dtype_uint16", "dtype_uint32", "dtype_uint64"].contains(&name), "{name}");
            continue;
        };
        let source = Arc::new(source);
        if let Some((_, word)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            let refused = refusal(&source, Version::V05);
            assert!(refused.contains(word), "{name}: {refused}");
            continue;
        }
        if name == "custom" {
            // The library pickles the object; here it is a dict of its attributes.
            let plan = plan(source, &WriteOptions::default(), "x.mdl").unwrap();
            assert_eq!(plan.losses[0].keys, ["c.__class__"]);
            continue;
        }
        if name == "keys_tuple" {
            // The library can't load its own file for this; here the key becomes a string.
            let plan = plan(source, &WriteOptions::default(), "x.mdl").unwrap();
            assert_eq!(plan.losses[0].what, "keys of other types become strings");
            continue;
        }
        let ours = Read::new(file(&source, Version::V05).unwrap());
        let theirs = Read::new(std::fs::read(theirs).unwrap());
        let (mine, mut real) = (ours.root(), theirs.root());
        real.remove("__cstorch_version__");
        let names = |attributes: &BTreeMap<String, _>| -> Vec<String> {
            attributes.keys().cloned().collect()
        };
        assert_eq!(names(&mine), names(&real), "{name}");
        for (attribute, value) in &mine {
            let real = &real[attribute];
            let links = |value: &AttributeValues| {
                value.text().is_some_and(|text| text.to_string().contains("\"__LINKED__\": true"))
            };
            let tied = matches!(
                (name, attribute.as_str()),
                ("gpt_small", "model.model.lm_head.weight.__metadata__")
                    | ("tied", "model.view.__metadata__")
            );
            if tied {
                assert!(links(&value.2) && !links(&real.2));
            } else if !links(&real.2) || links(&value.2) {
                assert_eq!(value, real, "{name} {attribute}");
            }
        }
        let real = theirs.datasets();
        for (path, object) in ours.datasets() {
            let (mine, real) = (object, real[&path]);
            let (a, b) = (mine.dataset().unwrap(), real.dataset().unwrap());
            assert_eq!(a.shape, b.shape, "{name} {path}");
            if (name, path.as_str()) != ("numpy", "/bigend") {
                assert_eq!(a.datatype.describe(), b.datatype.describe(), "{name} {path}");
            }
            let (mut mine, mut real) = (ours.attributes(mine), theirs.attributes(real));
            assert_eq!(mine.remove("__BYTES__").is_some(), real.remove("__BYTES__").is_some());
            assert_eq!(mine, real, "{name} {path}");
        }
        compared += 1;
    }
    assert!(compared >= 45, "only {compared}");
}

#[test]
fn constants_are_stored_without_data() {
    let mut make = Make::new();
    let mut entries = Vec::new();
    for (name, dtype, element) in [
        ("f", DType::F32, 0.1f32.to_le_bytes().to_vec()),
        ("b", DType::BF16, vec![0x80, 0x3f]),
        ("i", DType::I64, (-7i64).to_le_bytes().to_vec()),
        ("u", DType::U64, u64::MAX.to_le_bytes().to_vec()),
        ("t", DType::Bool, vec![1]),
        ("nan", DType::F32, f32::NAN.to_le_bytes().to_vec()),
    ] {
        let layout = Layout::Fill(element.into());
        entries.push((name, make.push_tensor(Tensor::new(dtype, vec![1 << 20], layout))));
    }
    // Only NaN, whose bits may carry meaning, is written as elements.
    let root = make.named(entries);
    let source = make.done(root);
    let read = Read::new(file(&source, Version::V05).unwrap());
    let value = |key: &str| {
        let about = read.text(&format!("{key}.__metadata__"));
        assert_eq!(about.contains("DeferredFullTensor"), key != "nan");
        let value = about.split("\"fill_value\": ").nth(1)?;
        value.split(',').next().map(str::to_owned)
    };
    assert_eq!(value("f").unwrap(), "0.10000000149011612");
    assert_eq!(value("b").unwrap(), "1.0");
    assert_eq!(value("i").unwrap(), "-7");
    assert_eq!(value("u").unwrap(), "18446744073709551615");
    assert_eq!(value("t").unwrap(), "true");
    assert_eq!(value("nan"), None);
    assert_eq!(read.datasets().keys().collect::<Vec<_>>(), ["/nan"]);

    let read = Read::new(file(&source, Version::V04).unwrap());
    let datasets = read.datasets();
    assert_eq!(datasets.len(), 6);
    let kind = |path: &str| read.attributes(datasets[path])["__H5_TYPE__"].2.text().cloned();
    for path in ["/f", "/b", "/i", "/t"] {
        assert_eq!(kind(path), Some("DeferredFullTensor".into()));
    }
    // No attribute type holds more than 63 bits.
    for path in ["/u", "/nan"] {
        assert_eq!(kind(path), Some("TorchTensorH5Type".into()));
    }
}

#[test]
fn expands_linked_containers_and_refuses_cycles() {
    let mut make = Make::new();
    let tensor = make.tensor(DType::F32, &[3]);
    let inner = make.named(vec![("w", tensor)]);
    let again = make.value(Value::Link(inner));
    let root = make.named(vec![("a", inner), ("b", again)]);
    let source = make.done(root);
    let read = Read::new(file(&source, Version::V05).unwrap());
    let about = read.text("b.w.__metadata__");
    assert!(about.contains("\"key\": \"a.w\",\n        \"__LINKED__\": true"), "{about}");
    assert_eq!(read.datasets().len(), 1);
    // Format 0.4 has no links; instead, one dataset has two names.
    let read = Read::new(file(&source, Version::V04).unwrap());
    assert_eq!(read.datasets().len(), 2);
    assert_eq!(read.tree.find("/a.w"), read.tree.find("/b.w"));

    let mut make = Make::new();
    let list = make.value(Value::List(List::default()));
    let back = make.value(Value::Link(list));
    *make.0.value_mut(list).unwrap() =
        Value::List(List { class: ListClass::List, items: vec![back] });
    let root = make.named(vec![("self", list)]);
    let refused = refusal(&make.done(root), Version::V05);
    assert!(refused.contains("`self.0`: a container that holds itself"), "{refused}");
}

/// Twenty lists, each of which holds the previous one ten times.
#[test]
fn limits_exponential_expansion() {
    let mut make = Make::new();
    let mut last = make.int(1);
    for _ in 0..20 {
        let mut items = vec![last];
        for _ in 0..9 {
            items.push(make.value(Value::Link(last)));
        }
        last = make.value(Value::List(List { class: ListClass::List, items }));
    }
    let source = make.done(last);
    for version in [Version::V04, Version::V05] {
        let refused = refusal(&source, version);
        assert!(refused.contains("more than"), "{refused}");
    }
}

#[test]
fn refusal_names_keys_and_a_remedy() {
    let mut make = Make::new();
    let mut entries = Vec::new();
    for (name, dtype) in
        [("i8", DType::I8), ("c", DType::C64), ("f8", DType::F8E4M3FN), ("q", DType::QInt8)]
    {
        entries.push((name, make.tensor(dtype, &[2])));
    }
    let missing = Layout::Missing("a meta tensor".into());
    entries.push(("meta", make.push_tensor(Tensor::new(DType::F32, vec![2], missing))));
    let opaque = Opaque {
        global: Global::new("os", "system"),
        form: Form::Reference,
        args: Vec::new(),
        state: None,
        items: Vec::new(),
        entries: Vec::new(),
        repr: Some("x".into()),
        contents: None,
    };
    entries.push(("o", make.value(Value::Opaque(Box::new(opaque)))));
    for name in ["a", "a/b", "t/", "n\0"] {
        entries.push((name, make.tensor(DType::F32, &[1])));
    }
    let root = make.named(entries);
    let refused = refusal(&make.done(root), Version::V05);
    for word in [
        "`i8`: a tensor of int8",
        "`c`: a tensor of complex64",
        "`f8`: a tensor of float8_e4m3fn",
        "`q`: a tensor of qint8",
        "`meta`: there is no data to write: a meta tensor",
        "`o`: an object of the class os.system",
        "`a/b`",
        "`t/`",
        "`n\\0`",
        "--cast",
        "--format-version 0.4",
        "--exclude",
    ] {
        assert!(refused.contains(word), "{word} is not in: {refused}");
    }

    // A cast is advised only if the tensor can be cast.
    for (dtype, advised) in
        [(DType::F8E4M3FN, true), (DType::F4E2M1FNX2, false), (DType::QInt8, false)]
    {
        let mut make = Make::new();
        let tensor = make.tensor(dtype.clone(), &[2]);
        let root = make.named(vec![("t", tensor)]);
        let source = make.done(root);
        for version in [Version::V04, Version::V05] {
            let refused = refusal(&source, version);
            assert_eq!(refused.contains("--cast"), advised, "{dtype}: {refused}");
        }
    }

    let mut make = Make::new();
    let entries: Vec<(DictKey, ValueId)> = (0..25)
        .map(|index| (Text::from(format!("t{index}")), make.tensor(DType::I8, &[1])))
        .map(|(key, id)| (DictKey::Str(key), id))
        .collect();
    let root = make.dict(DictClass::Dict, entries);
    let refused = refusal(&make.done(root), Version::V05);
    assert!(refused.contains("`t9`") && refused.contains("and 15 more"), "{refused}");
}

#[test]
fn refuses_output_that_python_cannot_load() {
    let mut make = Make::new();
    let mut deep = make.int(1);
    for _ in 0..460 {
        deep = make.value(Value::List(List { class: ListClass::List, items: vec![deep] }));
    }
    let source = make.done(deep);
    for version in [Version::V04, Version::V05] {
        assert!(refusal(&source, version).contains("nested deeper"));
    }

    let mut make = Make::new();
    let mut digits = "9".repeat(4299);
    let fits = make.value(Value::Int(Int::parse(&digits).unwrap()));
    digits.push_str("99");
    let long = make.value(Value::Int(Int::parse(&digits).unwrap()));
    let root = make.named(vec![("fits", fits), ("long", long)]);
    let refused = refusal(&make.done(root), Version::V05);
    assert!(refused.contains("`long`") && !refused.contains("`fits`"), "{refused}");
}

#[test]
fn version_0_4_stores_int8_and_complex() {
    let mut make = Make::new();
    let entries = vec![
        ("i8", make.tensor(DType::I8, &[2])),
        ("c", make.tensor(DType::C128, &[2])),
        ("k%/é", make.int(5)),
    ];
    let root = make.named(entries);
    let read = Read::new(file(&make.done(root), Version::V04).unwrap());
    assert_eq!(read.datasets().keys().collect::<Vec<_>>(), ["/c", "/i8", "/k%25%2F%C3%A9"]);
}

#[test]
fn unknown_containers_are_losses() {
    let mut make = Make::new();
    let items = vec![make.int(1)];
    let class = TupleClass::Named(Global::new("m", "Point").into());
    let point = make.value(Value::Tuple(Tuple { class, items }));
    let items = vec![make.int(2)];
    let deque = make.value(Value::List(List { class: ListClass::Deque(Some(3)), items }));
    let one = make.int(1);
    let factory = Some(Global::new("builtins", "int").into());
    let default = make.dict(DictClass::Default(factory.clone()), vec![("k".into(), one)]);
    let entries = ["x", "y", "z"].map(|key| (DictKey::from(key), make.int(9))).into();
    let large = make.dict(DictClass::Default(factory), entries);
    let items = vec![make.int(4)];
    let frozen = make.value(Value::Set(Set { frozen: true, items }));
    let root =
        make.named(vec![("p", point), ("q", deque), ("d", default), ("l", large), ("f", frozen)]);
    let source = make.done(root);
    let plan = plan(source.clone(), &WriteOptions::default(), "x.mdl").unwrap();
    let losses: Vec<_> =
        plan.losses.iter().map(|loss| (loss.keys.join(" "), loss.what.as_str())).collect();
    assert_eq!(
        losses,
        [
            ("p".into(), "named tuples become plain tuples"),
            ("q".into(), "deques lose their maximum length"),
            ("l".into(), "defaultdicts become plain dicts"),
        ]
    );
    assert!(plan.loses());
    let read = Read::new(file(&source, Version::V05).unwrap());
    // The name that the library gives the only entry of a defaultdict.
    assert!(read.root().contains_key("d.<class 'int'>.__metadata__"));
    assert!(read.text("f.__metadata__").contains("ObjectSerializer"));
    assert!(read.text("__spec__").contains("collections.defaultdict"));
}

/// More keys than an object header of version 1 can count attributes. Mixture-of-experts models
/// have that many.
#[test]
fn round_trips_70_000_keys() {
    const KEYS: usize = 70_000;
    let mut make = Make::new();
    let names: Vec<String> = (0..KEYS).map(|n| format!("experts.{n}.weight")).collect();
    let entries = names.iter().map(|name| (name.as_str(), make.int(7))).collect();
    let root = make.named(entries);
    let bytes = file(&make.done(root), Version::V05).unwrap();
    let files = FileSet::single("x.mdl", Memory::from(bytes));
    let limits = Limits::default().fitted(files.len(files.main().unwrap()));
    let back = crate::open(files, &limits, &mut Unwatched).unwrap();
    assert!(back.findings.is_empty(), "{:?}", back.findings);
    let leaves = back.leaves();
    assert_eq!(leaves.len(), KEYS);
    assert_eq!(leaves[KEYS - 1].flat.to_string(), names[KEYS - 1]);
}
