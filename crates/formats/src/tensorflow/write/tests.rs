//! Compares written files byte for byte with TensorFlow's own files, and reads them again.
//! `tests/interop` checks that TensorFlow itself restores them.

use std::sync::Arc;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictKey, ErrorKind, FileSet, FormatInfo, Layout, Limits,
    List, Memory, Outcomes, Plan, Result, Segment, Size, Tensor, Unwatched, Value, ValueId,
    WrittenSegment,
};

use super::{WriteOptions, plan};
use crate::counted::CountedFile;
use crate::shards::Shards;
use crate::tensorflow::dtype;
use crate::tensorflow::tests::{expected, files, logical_bytes, open, open_files};

/// Returns the files of a plan.
fn run(plan: &Plan) -> Vec<(String, Vec<u8>)> {
    let mut done: Vec<(String, Vec<u8>)> = Vec::new();
    let mut outcomes: Vec<Vec<WrittenSegment>> = Vec::new();
    for file in &plan.files {
        let mut out = Vec::new();
        outcomes.push(Vec::new());
        for segment in &file.segments {
            let bytes = match segment {
                Segment::Bytes(bytes) => bytes.to_vec(),
                Segment::Zeros(len) => vec![0; *len as usize],
                Segment::Data(data) => {
                    logical_bytes(&plan.source, plan.source.tensor(data.tensor).unwrap()).unwrap()
                }
                Segment::Late { len, make } => {
                    let bytes = make(&Outcomes::new(&outcomes)).unwrap();
                    assert_eq!(bytes.len() as u64, len.unwrap_or(bytes.len() as u64));
                    bytes
                }
            };
            let outcome = WrittenSegment {
                offset: out.len() as u64,
                len: bytes.len() as u64,
                checksum: Some(crc32c::crc32c(&bytes)),
                chunks: Vec::new(),
            };
            outcomes.last_mut().unwrap().push(outcome);
            out.extend(bytes);
        }
        done.push((file.name.clone(), out));
    }
    done
}

#[test]
fn reports_losses_of_tensorflow_dtypes() {
    let source = Arc::new(open("tf/saver_v2_dtypes", "all.index").unwrap());
    let reported_loss = |target: &str| {
        let target =
            crate::writing(target).unwrap().target(&crate::RequestedOptions::default()).unwrap();
        let plan = crate::plan(source.clone(), &target, "out").unwrap();
        let reported_loss =
            plan.losses.into_iter().find(|loss| loss.what.contains("plain integers"));
        reported_loss.map(|loss| (loss.keys.join(" "), loss.what))
    };
    let lost = "qint16, qint32, qint8, quint16, quint8, uint4";
    let what = format!("{lost} tensors become plain integers");
    for target in ["torch", "safetensors", "npz"] {
        assert_eq!(reported_loss(target), Some((lost.replace(',', ""), what.clone())), "{target}");
    }
    assert_eq!(reported_loss("tensorflow"), None);
}

/// Returns the files of a plan, the index first.
fn written(source: Checkpoint, options: &WriteOptions, name: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = run(&plan(Arc::new(source), options, name).unwrap());
    files.sort_by_key(|(name, _)| !name.ends_with(".index"));
    files
}

fn checkpoint(builder: Builder, root: ValueId) -> Checkpoint {
    builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap()
}

fn dict(entries: &[(&str, ValueId)]) -> Value {
    let entries = entries.iter().map(|(key, id)| (DictKey::from(*key), *id)).collect();
    Value::Dict(Dict { entries, ..Dict::default() })
}

#[test]
fn output_matches_the_saver_byte_for_byte() {
    for prefix in ["model.ckpt-1", "model.ckpt-200"] {
        let index = format!("{prefix}.index");
        let theirs = files("tf/saver_v2_basic", &index);
        let source = open("tf/saver_v2_basic", &index).unwrap();
        let ours = written(source, &WriteOptions::default(), prefix);
        assert_eq!(ours.len(), 2);
        for ours in ours {
            assert!(theirs.contains(&ours), "{}", ours.0);
        }
    }
}

#[test]
fn round_trips_every_fixture() {
    let (mut compared, mut real_dtypes) = (0, 0);
    for (folder, main, _) in expected() {
        let source = open(&folder, &main).unwrap();
        if source.tensors().iter().any(|t| matches!(t.layout, Layout::Missing(_))) {
            let error = plan(Arc::new(source), &WriteOptions::default(), "m").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            continue;
        }
        let again =
            open_files(&written(source.clone(), &WriteOptions::default(), "again")).unwrap();
        assert_eq!(again.findings, [], "{folder}");
        let (ours, theirs) = (again.leaves(), source.leaves());
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert_eq!(ours.flat, theirs.flat);
            match (again.tensor_of(ours.id), source.tensor_of(theirs.id)) {
                (Some((_, one)), Some((_, other))) => {
                    assert_eq!((&one.dtype, &one.shape), (&other.dtype, &other.shape));
                    let [dtype, expected] = [
                        dtype::original(&again, ours.target, one),
                        dtype::original(&source, theirs.target, other),
                    ];
                    assert_eq!(dtype, expected, "{folder} {}", ours.flat);
                    real_dtypes += usize::from(dtype.is_some());
                    let bytes = [logical_bytes(&again, one), logical_bytes(&source, other)];
                    let [one, other] = bytes.map(Result::unwrap);
                    assert_eq!(one, other, "{folder} {}", ours.flat);
                    compared += 1;
                }
                // Values that only TensorFlow has become text, which is reported as a loss.
                _ if folder == "tf/variant" => {}
                _ => assert_eq!(again.value(ours.id).kind(), source.value(theirs.id).kind()),
            }
        }
    }
    assert!(compared > 400, "{compared}");
    assert!(real_dtypes >= 6, "{real_dtypes}");
}

/// A state with values of all kinds.
fn sample() -> Checkpoint {
    let mut builder = Builder::new(&Limits::default());
    let weights: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let weight = Tensor::new(DType::F32, vec![2], Layout::Inline(weights.into()));
    let weight = builder.push_tensor(weight).unwrap();
    let weight = builder.push(Value::Tensor(weight)).unwrap();
    let tied = builder.push(Value::Link(weight)).unwrap();
    let layer = builder.push(dict(&[("a.b/c", weight), ("tied", tied)])).unwrap();
    let layers = builder.push(Value::List(List { items: vec![layer], ..List::default() })).unwrap();
    let step = builder.push(Value::Int(7i64.into())).unwrap();
    let rate = builder.push(Value::Float(0.5)).unwrap();
    let name = builder.push(Value::Str("ä".into())).unwrap();
    let on = builder.push(Value::Bool(true)).unwrap();
    let none = builder.push(Value::None).unwrap();
    let words = DType::from_numpy_code("U2").unwrap();
    let letters: Vec<u8> =
        ['h', 'i', 'ö', '\0'].iter().flat_map(|c| u32::from(*c).to_le_bytes()).collect();
    let words = Tensor::new(words, vec![2], Layout::Inline(letters.into()));
    let words = builder.push_tensor(words).unwrap();
    let array = statelens_checkpoint::Array { tensor: words, scalar: false };
    let words = builder.push(Value::Array(array)).unwrap();
    let root = builder.push(dict(&[
        ("layers", layers),
        ("step", step),
        ("rate", rate),
        ("name", name),
        ("on", on),
        ("none", none),
        ("words", words),
    ]));
    checkpoint(builder, root.unwrap())
}

#[test]
fn plain_values_become_tensors_and_losses_are_reported() {
    let plan = plan(Arc::new(sample()), &WriteOptions::default(), "m.index").unwrap();
    let lost: Vec<_> = plan.losses.iter().filter(|loss| !loss.harmless).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!((&lost[0].keys[..], &*lost[0].what), (&["none".to_owned()][..], "None is left out"));
    assert!(matches!(plan.size(), Ok(Size::Exact(_))));
    let mut files = run(&plan);
    assert_eq!(files[0].0, "m.data-00000-of-00001");
    files.reverse();
    let again = open_files(&files).unwrap();
    let leaves = again.leaves();
    let found: Vec<String> = leaves
        .iter()
        .map(|leaf| match again.tensor_of(leaf.id) {
            Some((_, tensor)) => {
                let bytes = logical_bytes(&again, tensor).unwrap();
                format!("{} {} {:?} {bytes:?}", leaf.flat, tensor.dtype, tensor.shape)
            }
            None => format!("{} {:?}", leaf.flat, again.value(leaf.id)),
        })
        .collect();
    let weight = [0, 0, 192, 63, 0, 0, 0, 192];
    assert_eq!(
        found,
        [
            format!("layers.0.a.b/c float32 [2] {weight:?}"),
            format!("layers.0.tied float32 [2] {weight:?}"),
            "name Bytes { data: [195, 164], mutable: false }".into(),
            "on bool [] [1]".into(),
            "rate float64 [] [0, 0, 0, 0, 0, 0, 224, 63]".into(),
            "step int64 [] [7, 0, 0, 0, 0, 0, 0, 0]".into(),
            "words bytes16 [2] [104, 105, 195, 182]".into(),
        ]
    );
    // Tied tensors are stored once.
    let spans: Vec<_> = again.tensors().iter().map(|tensor| &tensor.layout).collect();
    assert_eq!(spans[0], spans[1]);
}

#[test]
fn shards_equal_a_single_data_file() {
    let whole = open("tf/saver_v2_dtypes", "all.index").unwrap();
    let key = |checkpoint: &Checkpoint| -> Vec<_> {
        checkpoint.leaves().iter().map(|leaf| leaf.flat.clone()).collect()
    };
    let names = whole.leaves().into_iter().map(|leaf| (leaf.flat, "one".to_owned()));
    for shards in [Shards::BySize(64), Shards::Named(Arc::new(names.skip(5).collect()))] {
        let options = WriteOptions { shards, ..WriteOptions::default() };
        let files = written(whole.clone(), &options, "m");
        let count = files.len() - 1;
        assert!(count > 1 && files[1].0 == format!("m.data-00000-of-{count:05}"), "{count}");
        let again = open_files(&files).unwrap();
        assert_eq!(again.findings, []);
        assert_eq!(key(&again), key(&whole));
        for (ours, theirs) in again.tensors().iter().zip(whole.tensors()) {
            let bytes = [logical_bytes(&again, ours), logical_bytes(&whole, theirs)];
            let [ours, theirs] = bytes.map(Result::unwrap);
            assert_eq!(ours, theirs);
        }
    }
}

#[test]
fn tied_tensors_share_their_data() {
    let mut builder = Builder::new(&Limits::default());
    let mut tensor = || {
        let layout = Layout::Inline((0..40).collect::<Vec<u8>>().into());
        let tensor = builder.push_tensor(Tensor::new(DType::F32, vec![10], layout)).unwrap();
        builder.push(Value::Tensor(tensor)).unwrap()
    };
    let (one, other) = (tensor(), tensor());
    let tied = builder.push(Value::Link(one)).unwrap();
    let root = builder.push(dict(&[("a", one), ("b", other), ("c", tied)])).unwrap();
    let source =
        builder.finish(root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap();
    let options = WriteOptions { shards: Shards::BySize(40), ..WriteOptions::default() };
    let files = written(source, &options, "m");
    let lengths: Vec<usize> = files.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths[1..], [40, 40]);
    assert_eq!(open_files(&files).unwrap().leaves().len(), 3);
}

/// Strings in a file are read only when they are written.
#[test]
fn strings_are_read_only_when_written() {
    let mut builder = Builder::new(&Limits::default());
    let files = FileSet::single("s", Memory::from(b"xxabc\0de".to_vec()));
    let span = statelens_checkpoint::Span { file: files.main().unwrap(), offset: 2, len: 6 };
    let dtype = DType::from_numpy_code("S3").unwrap();
    let tensor = builder.push_tensor(Tensor::new(dtype, vec![2], Layout::Span(span))).unwrap();
    let array = statelens_checkpoint::Array { tensor, scalar: false };
    let value = builder.push(Value::Array(array)).unwrap();
    let root = builder.push(dict(&[("s", value)])).unwrap();
    let source = builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap();
    let files = written(source, &WriteOptions::default(), "m");
    // The zero in the middle is part of the string. Trailing zeros would not be.
    assert!(files[1].1.ends_with(b"abc\0de"), "{:?}", files[1].1);
    let again = open_files(&files).unwrap();
    assert_eq!(again.findings, []);
    let (_, tensor) = again.tensor_of(again.leaves()[0].id).unwrap();
    assert_eq!(logical_bytes(&again, tensor).unwrap(), b"abc\0de");
}

#[test]
fn object_graph_describes_the_path_of_each_value() {
    let options = WriteOptions { object_graph: true, state_file: true, ..WriteOptions::default() };
    let files = written(sample(), &options, "m");
    let state = files.iter().find(|(name, _)| name == "checkpoint").unwrap();
    let text = String::from_utf8(state.1.clone()).unwrap();
    assert_eq!(text, "model_checkpoint_path: \"m\"\nall_model_checkpoint_paths: \"m\"\n");
    let again = open_files(&files).unwrap();
    let leaves = again.leaves();
    let leaf = &leaves[1];
    assert_eq!(leaf.flat, "layers/0/a..b.Sc/.ATTRIBUTES/VARIABLE_VALUE");
    assert_eq!(leaves[0].flat, "_CHECKPOINTABLE_OBJECT_GRAPH");
    assert!(leaves.iter().any(|leaf| leaf.flat == "save_counter/.ATTRIBUTES/VARIABLE_VALUE"));
    let raw = again.raw_attributes(leaf.id);
    assert!(raw.iter().any(|(name, text)| *name == "object" && *text == "layers.0.a.b/c"));
    // A checkpoint that has a graph keeps it.
    let error = plan(Arc::new(again.clone()), &options, "m").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(plan(Arc::new(again), &WriteOptions::default(), "m").is_ok());
}

#[test]
fn refuses_colliding_names_with_both_keys() {
    let mut builder = Builder::new(&Limits::default());
    let one = builder.push(Value::Bool(true)).unwrap();
    let other = builder.push(Value::Bool(false)).unwrap();
    let inner = builder.push(dict(&[("b", one)])).unwrap();
    let root = builder.push(dict(&[("a", inner), ("a.b", other)])).unwrap();
    let source = Arc::new(checkpoint(builder, root));
    let error = plan(source.clone(), &WriteOptions::default(), "m").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("a > b; a.b"), "{error}");
    for name in ["", ".index", "m.data-00000-of-00001"] {
        assert!(plan(source.clone(), &WriteOptions::default(), name).is_err());
    }
}

/// Twenty thousand tensors take several blocks of the table. They must open quickly.
#[test]
fn splits_a_large_index_into_blocks() {
    let mut builder = Builder::new(&Limits::default());
    let mut entries = Vec::new();
    for index in 0..20_000u32 {
        let layout = Layout::Inline(index.to_le_bytes().into());
        let tensor = builder.push_tensor(Tensor::new(DType::I32, vec![1], layout)).unwrap();
        let value = builder.push(Value::Tensor(tensor)).unwrap();
        let name = format!("transformer/layer_{index}/attention/output/kernel");
        entries.push((DictKey::Str(name.into()), value));
    }
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    let files = written(checkpoint(builder, root), &WriteOptions::default(), "m");
    assert!(files[0].1.len() > 3 * (256 << 10));
    let mut set = FileSet::default();
    let mut sources = Vec::new();
    for (name, bytes) in &files {
        sources.push(Arc::new(CountedFile::new(bytes.clone())));
        set.push(name.clone(), sources[sources.len() - 1].clone());
    }
    let again = crate::open(set, &Limits::default(), &mut Unwatched).unwrap();
    sources[0].assert_read_at_most(3, "the index");
    assert_eq!(again.findings, []);
    let leaves = again.leaves();
    assert_eq!(leaves.len(), 20_000);
    for leaf in leaves.iter().step_by(997) {
        let number: u32 = leaf.flat.to_string().split(['_', '/']).nth(2).unwrap().parse().unwrap();
        let (_, tensor) = again.tensor_of(leaf.id).unwrap();
        assert_eq!(logical_bytes(&again, tensor).unwrap(), number.to_le_bytes());
    }
}
