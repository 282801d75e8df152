//! Compares written files with those of the reference library, reads them again, and tests
//! refusals.

use std::sync::Arc;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictKey, FileSet, FormatInfo, Int, Layout, Limits, List,
    Memory, Plan, Result, Segment, Tensor, Text, Unwatched, Value, ValueId,
};

use super::{WriteOptions, plan};
use crate::shards::Shards;
use crate::torch::tests::{fixtures, open};

/// Returns the files of a plan: names and bytes.
fn files(plan: &Plan) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for file in &plan.files {
        let mut out = Vec::new();
        for segment in &file.segments {
            match segment {
                Segment::Bytes(bytes) => out.extend_from_slice(bytes),
                Segment::Data(data) => {
                    let tensor = plan.source.tensor(data.tensor).unwrap();
                    let source = &plan.source.files;
                    let mut put = |bytes: &[u8]| {
                        out.extend_from_slice(bytes);
                        Ok(())
                    };
                    statelens_tensor::drain(source, tensor, 1 << 16, &mut Unwatched, &mut put)
                        .unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        files.push((file.name.clone(), out));
    }
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(plan.size().unwrap().bytes(), total as u64);
    files
}

fn set(files: Vec<(String, Vec<u8>)>) -> FileSet {
    let mut set = FileSet::default();
    for (name, bytes) in files {
        set.push(name, Arc::new(Memory::from(bytes)));
    }
    set
}

fn reopen(files: Vec<(String, Vec<u8>)>) -> Checkpoint {
    crate::open(set(files), &Limits::default(), &mut Unwatched).unwrap()
}

/// Returns key, kind or value, and link target of each leaf.
fn described(checkpoint: &Checkpoint) -> Vec<String> {
    let describe = |leaf: &statelens_checkpoint::Leaf| {
        let value = checkpoint.value(leaf.target);
        let text = match value {
            Value::Tensor(_) => {
                let (_, tensor) = checkpoint.tensor_of(leaf.target).unwrap();
                format!("{} {:?}", tensor.dtype, tensor.shape)
            }
            value => format!("{value:?}"),
        };
        let tied = leaf.alias_of.as_ref().map_or(String::new(), |key| format!(" = {key}"));
        format!("{}: {text}{tied}", leaf.flat)
    };
    checkpoint.leaves().iter().map(describe).collect()
}

/// Returns a checkpoint whose root is a dict.
fn checkpoint(make: impl FnOnce(&mut Builder) -> Vec<(DictKey, ValueId)>) -> Arc<Checkpoint> {
    let mut builder = Builder::new(&Limits::default());
    let entries = make(&mut builder);
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    Arc::new(builder.finish(root, FormatInfo::default(), FileSet::default(), vec![]).unwrap())
}

fn tensor(builder: &mut Builder, dtype: DType, shape: &[u64]) -> ValueId {
    let len = shape.iter().product::<u64>() * dtype.itemsize();
    let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let tensor = Tensor::new(dtype, shape.to_vec(), Layout::Inline(bytes.into()));
    let id = builder.push_tensor(tensor).unwrap();
    builder.push(Value::Tensor(id)).unwrap()
}

fn written(source: Arc<Checkpoint>) -> Result<(Vec<u8>, Plan)> {
    let target = crate::writing("safetensors").unwrap().target(&Default::default()).unwrap();
    let plan = crate::plan(source, &target, "m.safetensors")?;
    let mut files = files(&plan);
    assert_eq!(files.len(), 1);
    Ok((files.remove(0).1, plan))
}

#[test]
fn rewrites_reference_files_byte_for_byte() {
    let names = [
        "f4",
        "no_tensors",
        "order",
        "save_model_tied",
        "scalar_empty",
        "unicode",
        "x_newdt",
        "x_f4",
    ];
    for name in names {
        let name = format!("safetensors/{name}.safetensors");
        let (bytes, plan) = written(Arc::new(open(&name).unwrap())).unwrap();
        let original = std::fs::read(fixtures().join(&name)).unwrap();
        // These fixtures were written by hand, with spaces. Writing them again removes the spaces.
        match name.contains("/x_") {
            true => {
                let again = reopen(vec![("m.safetensors".into(), bytes.clone())]);
                assert_eq!(written(Arc::new(again)).unwrap().0, bytes);
            }
            false => assert!(bytes == original, "{name}: {}", String::from_utf8_lossy(&bytes)),
        }
        assert!(plan.losses.is_empty(), "{name}: {:?}", plan.losses);
    }
}

#[test]
fn shards_by_size_match_hugging_face() {
    let folder = fixtures().join("hf_sharded_safetensors");
    let names = [1, 2, 3].map(|n| format!("model-{n:05}-of-00003.safetensors"));
    let read = |name: &str| (name.to_owned(), std::fs::read(folder.join(name)).unwrap());
    let index = "model.safetensors.index.json";
    let mut all = vec![read(index)];
    all.extend(names.iter().map(|name| read(name)));
    let source = Arc::new(reopen(all.clone()));
    let options = WriteOptions { shards: Shards::BySize(512) };
    let out = files(&plan(source.clone(), &options, "model.safetensors").unwrap());
    assert_eq!(out.len(), 4);
    for (name, bytes) in &out[..3] {
        assert!(read(name).1 == *bytes, "{name}: {}", String::from_utf8_lossy(bytes));
    }
    let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
    assert_eq!((out[3].0.as_str(), json(&out[3].1)), (index, json(&all[0].1)));
}

#[test]
fn ties_and_plain_values_are_read_back_by_flat_key() {
    let source = checkpoint(|builder| {
        let bias = tensor(builder, DType::F16, &[3]);
        let weight = tensor(builder, DType::F32, &[2, 2]);
        let tied = builder.push(Value::Link(weight)).unwrap();
        let layer = vec![("weight".into(), weight), ("bias".into(), bias)];
        let layer = builder.push(Value::Dict(Dict { entries: layer, ..Dict::default() })).unwrap();
        let lr = builder.push(Value::Float(1e-3)).unwrap();
        let big = builder.push(Value::Int(Int::parse("-123456789012345678901").unwrap())).unwrap();
        let list =
            builder.push(Value::List(List { items: vec![lr, big], ..List::default() })).unwrap();
        let half = Text::from_code_points([0xd800]).unwrap();
        let others = [
            Value::None,
            Value::Bool(true),
            Value::Str(half),
            Value::Bytes { data: Arc::new([0, 255]), mutable: true },
            Value::Complex(f64::INFINITY, -0.0),
            Value::List(List::default()),
            Value::Device("cuda:0".into()),
            Value::DType { dtype: DType::BF16, numpy: None },
        ];
        let others = others.map(|value| builder.push(value).unwrap());
        let mut entries = vec![("z".into(), layer), ("head".into(), tied), ("opt".into(), list)];
        entries.extend(
            others
                .into_iter()
                .enumerate()
                .map(|(n, id)| (Int::from(n as i64), id))
                .map(|(n, id)| (DictKey::Int(n), id)),
        );
        entries
    });
    let (bytes, plan) = written(source).unwrap();
    assert!(!plan.loses(), "{:?}", plan.losses);
    let mut found = described(&reopen(vec![("m.safetensors".into(), bytes)]));
    found.sort();
    assert_eq!(
        found,
        [
            "0: None",
            "1: Bool(true)",
            "2: Str(\"\\\\ud800\")",
            "3: Bytes { data: [0, 255], mutable: true }",
            "4: Complex(inf, -0.0)",
            "5: List(List { class: List, items: [] })",
            "6: Device(\"cuda:0\")",
            "7: DType { dtype: BF16, numpy: None }",
            "head: float32 [2, 2]",
            "opt.0: Float(0.001)",
            "opt.1: Int(-123456789012345678901)",
            "z.bias: float16 [3]",
            "z.weight: float32 [2, 2] = head",
        ]
    );
}

#[test]
fn ties_views_of_one_storage_as_save_model_does() {
    let source = Arc::new(open("torch/zip_tied.pt").unwrap());
    let (bytes, _) = written(source.clone()).unwrap();
    let back = reopen(vec![("m.safetensors".into(), bytes)]);
    let tied = back.leaves().iter().filter(|leaf| leaf.alias_of.is_some()).count();
    assert!(tied > 0, "{:?}", described(&back));
    let mut names: Vec<Text> = source.leaves().into_iter().map(|leaf| leaf.flat).collect();
    let mut found: Vec<Text> = back.leaves().into_iter().map(|leaf| leaf.flat).collect();
    names.sort();
    found.sort();
    assert_eq!(found, names);
}

#[test]
fn reports_unsupported_dtypes() {
    let source = checkpoint(|builder| {
        let wide = tensor(builder, DType::C128, &[1]);
        let also = tensor(builder, DType::C128, &[2]);
        let quantised = tensor(builder, DType::QInt8, &[2]);
        let fine = tensor(builder, DType::C64, &[1]);
        vec![
            ("wide".into(), wide),
            ("also".into(), also),
            ("q".into(), quantised),
            ("fine".into(), fine),
        ]
    });
    let (bytes, plan) = written(source).unwrap();
    assert!(plan.loses());
    let lost: Vec<(String, Vec<String>)> =
        plan.losses.iter().map(|loss| (loss.what.clone(), loss.keys.clone())).collect();
    assert_eq!(
        lost,
        [
            ("tensors of dtype complex128 are left out".into(), vec!["wide".into(), "also".into()]),
            ("tensors of dtype qint8 are left out".into(), vec!["q".into()]),
        ]
    );
    assert_eq!(described(&reopen(vec![("m.safetensors".into(), bytes)])), ["fine: complex64 [1]"]);
}

#[test]
fn quoted_keys_are_a_loss() {
    let source = checkpoint(|builder| {
        let (one, other) = (tensor(builder, DType::F32, &[1]), tensor(builder, DType::F32, &[2]));
        vec![(DictKey::Int(1i64.into()), one), ("1".into(), other)]
    });
    let losses = |to| {
        let target = crate::writing(to).unwrap().target(&Default::default()).unwrap();
        let plan = crate::plan(source.clone(), &target, "m").unwrap();
        plan.losses.iter().filter(|loss| !loss.harmless).map(|loss| loss.keys.join(" ")).collect()
    };
    for to in ["safetensors", "npz", "tensorflow"] {
        let lost: Vec<String> = losses(to);
        assert_eq!(lost, ["'1'"], "{to}");
    }
    assert!(losses("torch").is_empty());
}

#[test]
fn refuses_colliding_and_reserved_names() {
    let refusal = |source| plan(source, &WriteOptions::default(), "m").unwrap_err().to_string();
    let source = checkpoint(|builder| {
        let one = tensor(builder, DType::F32, &[1]);
        let inner = vec![("b".into(), one)];
        let a = builder.push(Value::Dict(Dict { entries: inner, ..Dict::default() })).unwrap();
        let other = tensor(builder, DType::F32, &[1]);
        vec![("a".into(), a), ("a.b".into(), other)]
    });
    let clash = refusal(source);
    assert!(clash.contains("the name `a.b`: `a` > `b` and `a.b`"));
    assert!(clash.contains("convert to PyTorch") && !clash.contains("--exclude"), "{clash}");
    let source =
        checkpoint(|builder| vec![("__metadata__".into(), tensor(builder, DType::U8, &[1]))]);
    assert!(refusal(source).contains("__metadata__"));
    let source = checkpoint(|builder| {
        let half = Text::from_code_points([0xd800]).unwrap();
        vec![(DictKey::Str(half), tensor(builder, DType::U8, &[1]))]
    });
    assert!(refusal(source).contains("half a character"));
    let source = checkpoint(|builder| {
        let missing = Layout::Missing("a meta tensor".into());
        let id = builder.push_tensor(Tensor::new(DType::F32, vec![2], missing)).unwrap();
        vec![("w".into(), builder.push(Value::Tensor(id)).unwrap())]
    });
    assert!(refusal(source).contains("no data to write"));
}

#[test]
fn shards_with_ties_and_values_open_as_one() {
    let source = checkpoint(|builder| {
        let weight = tensor(builder, DType::F32, &[4]);
        let other = tensor(builder, DType::F32, &[4]);
        let tied = builder.push(Value::Link(other)).unwrap();
        let step = builder.push(Value::Int(7i64.into())).unwrap();
        vec![("a".into(), weight), ("b".into(), other), ("c".into(), tied), ("step".into(), step)]
    });
    let options = WriteOptions { shards: Shards::BySize(16) };
    let plan = plan(source, &options, "m.safetensors").unwrap();
    let out = files(&plan);
    let names: Vec<&str> = out.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "m-00001-of-00002.safetensors",
            "m-00002-of-00002.safetensors",
            "m.safetensors.index.json"
        ]
    );
    let back = reopen(out.clone());
    let mut found = described(&back);
    found.sort();
    assert_eq!(found, ["a: float32 [4]", "b: float32 [4]", "c: float32 [4] = b", "step: Int(7)"]);
    assert!(back.findings.is_empty(), "{:?}", back.findings);
    // Splitting it again gives the same files.
    let again = files(&super::plan(Arc::new(back), &options, "m.safetensors").unwrap());
    assert!(again == out);
}

#[test]
fn reports_metadata_that_other_formats_lose() {
    let file = |metadata: &str| {
        let header = format!(
            r#"{{"__metadata__":{metadata},"w":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#
        );
        let len = (header.len() as u64).to_le_bytes();
        let bytes = [&len[..], header.as_bytes(), b"x"].concat();
        Arc::new(reopen(vec![("m.safetensors".into(), bytes)]))
    };
    let losses = |source, target: &crate::WriteTarget| {
        let plan = crate::plan(source, target, "out").unwrap();
        let described = plan.losses.iter().map(|loss| (loss.keys.join(" "), loss.harmless));
        described.collect::<Vec<_>>()
    };
    let torch = crate::writing("torch").unwrap().target(&Default::default()).unwrap();
    let format = ("__metadata__.format".to_owned(), true);
    assert_eq!(losses(file(r#"{"format":"pt"}"#), &torch), [format]);
    let both = ("__metadata__.by __metadata__.format".to_owned(), false);
    assert_eq!(losses(file(r#"{"by":"me","format":"pt"}"#), &torch), [both]);
    assert_eq!(losses(file("{}"), &torch), []);
    let safetensors = crate::writing("safetensors").unwrap().target(&Default::default()).unwrap();
    assert_eq!(losses(file(r#"{"by":"me"}"#), &safetensors), []);
}
