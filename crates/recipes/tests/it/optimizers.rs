//! Moments are converted with their parameters, or refused with the key if the conversion is not
//! well defined.

use std::collections::BTreeMap;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictKey, FileSet, FormatInfo, Layout, Limits, List, Memory,
    Result, Span, Tensor, Value, ValueId,
};
use statelens_recipes::config::{self, Language};
use statelens_recipes::conversion::{
    ModelConversion, ModelOptions, OPTIMIZER_FILE, RouteStep, StepConfigs, convert,
};
use statelens_recipes::families;

const GPT2: &[(&str, &[u64])] = &[
    ("embedding_layer.word_embeddings.weight", &[5, 4]),
    ("transformer_decoder.layers.0.self_attn.proj_q_dense_layer.weight", &[4, 4]),
    ("transformer_decoder.layers.0.self_attn.proj_k_dense_layer.weight", &[4, 4]),
    ("transformer_decoder.layers.0.self_attn.proj_v_dense_layer.weight", &[4, 4]),
    ("transformer_decoder.norm.weight", &[4]),
];
const CONFIG: &str = r#"{"num_heads": 2, "max_position_embeddings": 2}"#;

/// Builds the checkpoint of a made-up training.
struct Training {
    builder: Builder,
    files: FileSet,
    offset: u64,
}

impl Training {
    fn new() -> Self {
        let files = FileSet::single("checkpoint.mdl", Memory::from(vec![0u8; 1 << 16]));
        Self { builder: Builder::new(&Limits::default()), files, offset: 0 }
    }

    fn tensor(&mut self, shape: &[u64]) -> ValueId {
        let len = 4 * shape.iter().product::<u64>();
        let span = Span { file: self.files.main().unwrap(), offset: self.offset, len };
        self.offset += len;
        let tensor = Tensor::new(DType::F32, shape.to_vec(), Layout::Span(span));
        let tensor = self.builder.push_tensor(tensor).unwrap();
        self.builder.push(Value::Tensor(tensor)).unwrap()
    }

    fn number(&mut self, number: i64) -> ValueId {
        self.builder.push(Value::Int(number.into())).unwrap()
    }

    fn list(&mut self, items: Vec<ValueId>) -> ValueId {
        self.builder.push(Value::List(List { items, ..List::default() })).unwrap()
    }

    fn dict(&mut self, entries: Vec<(String, ValueId)>) -> ValueId {
        let entries = entries.into_iter().map(|(key, id)| (DictKey::from(&*key), id)).collect();
        self.builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap()
    }

    fn finish(self, root: ValueId) -> Checkpoint {
        self.builder.finish(root, FormatInfo::default(), self.files, Vec::new()).unwrap()
    }
}

/// Returns a model with an optimizer: one entry of `steps` per parameter, in groups of these sizes.
fn trained(tensors: &[(&str, &[u64])], steps: &[i64], groups: &[usize], named: bool) -> Checkpoint {
    let mut made = Training::new();
    let model = tensors.iter().map(|(key, shape)| ((*key).to_owned(), made.tensor(shape)));
    let model = model.collect();
    let model = made.dict(model);
    let mut states = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let step = made.number(*step);
        let moment = made.tensor(tensors[number].1);
        let state = made.dict(vec![("step".to_owned(), step), ("exp_avg".to_owned(), moment)]);
        states.push((number.to_string(), state));
    }
    let states = made.dict(states);
    let mut next = 0;
    let mut all = Vec::new();
    for size in groups {
        let numbers: Vec<usize> = (next..next + size).collect();
        next += size;
        let params = numbers.iter().map(|number| made.number(*number as i64)).collect();
        let mut group = vec![("params".to_owned(), made.list(params))];
        if named {
            let names = numbers
                .iter()
                .map(|number| made.builder.push(Value::Str(tensors[*number].0.into())).unwrap());
            let names = names.collect();
            group.push(("param_names".to_owned(), made.list(names)));
        }
        all.push(made.dict(group));
    }
    let groups = made.list(all);
    let optimizer =
        made.dict(vec![("state".to_owned(), states), ("param_groups".to_owned(), groups)]);
    let root = made.dict(vec![("model".to_owned(), model), ("optimizer".to_owned(), optimizer)]);
    made.finish(root)
}

fn to_hf(family: &str, source: &Checkpoint, config: &str) -> Result<ModelConversion> {
    let json = |text: &str| config::parse(text, Language::Json).unwrap();
    let step = RouteStep { from: "cs-2.9".parse().unwrap(), to: "hf".parse().unwrap() };
    let left = json(r#"{"max_position_embeddings": 2, "n_positions": 2}"#);
    let stage = StepConfigs { step, left, right: json(config) };
    let requested = ModelOptions { with_optimizer: true, ..ModelOptions::default() };
    convert(source, &families::find(family).unwrap(), &[stage], &config::Value::Null, requested)
}

fn layouts(checkpoint: &Checkpoint) -> BTreeMap<String, Layout> {
    let leaves = checkpoint.leaves().into_iter();
    leaves
        .filter_map(|leaf| {
            let (_, tensor) = checkpoint.tensor_of(leaf.target)?;
            Some((leaf.flat.to_string(), tensor.layout.clone()))
        })
        .collect()
}

/// Formats a layout with its bytes moved by `by`.
fn moved(layout: &Layout, by: u64) -> String {
    let text = format!("{layout:?}");
    let mut parts = text.split("offset: ");
    let mut found = parts.next().unwrap().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = part[..digits].parse().unwrap();
        // The offset of a span; that of a view counts elements from the start of the span.
        let span = part[digits..].starts_with(", len");
        found += &format!("offset: {}{}", number + if span { by } else { 0 }, &part[digits..]);
    }
    found
}

#[test]
fn moments_are_converted_like_their_parameters() {
    let source = trained(GPT2, &[7; 5], &[5], false);
    let done = to_hf("gpt2", &source, CONFIG).unwrap();
    let part = |name: Option<&str>| {
        done.parts.iter().find(|(own, _)| own.as_deref() == name).map(|(_, part)| part).unwrap()
    };
    let (model, optimizer) = (layouts(part(None)), layouts(part(Some(OPTIMIZER_FILE))));
    // The moments follow the model's tensors in the same order, without gaps.
    let len: u64 = GPT2.iter().map(|(_, shape)| 4 * shape.iter().product::<u64>()).sum();
    let names =
        ["transformer.wte.weight", "transformer.h.0.attn.c_attn.weight", "transformer.ln_f.weight"];
    for (number, name) in names.iter().enumerate() {
        let own = &optimizer[&format!("state.{number}.exp_avg")];
        assert_eq!(format!("{own:?}"), moved(&model[*name], len), "{name}");
    }
    assert_eq!(optimizer.len(), names.len());
    let leaves = part(Some(OPTIMIZER_FILE)).leaves();
    let value = |key: &str| {
        let leaf = leaves.iter().find(|leaf| leaf.flat == key);
        part(Some(OPTIMIZER_FILE)).value(leaf.unwrap().target).clone()
    };
    assert_eq!(value("state.1.step"), Value::Int(7i64.into()));
    assert_eq!(value("param_groups.0.param_names.1"), Value::Str(names[1].into()));
    assert_eq!(value("param_groups.0.params.2"), Value::Int(2i64.into()));
}

#[test]
fn parameter_names_identify_entries_of_several_groups() {
    let source = trained(GPT2, &[7; 5], &[1, 4], true);
    let done = to_hf("gpt2", &source, CONFIG).unwrap();
    let (_, optimizer) =
        done.parts.iter().find(|(own, _)| own.as_deref() == Some(OPTIMIZER_FILE)).unwrap();
    let keys: Vec<String> = optimizer.leaves().iter().map(|leaf| leaf.flat.to_string()).collect();
    assert!(keys.contains(&"param_groups.1.params.1".to_owned()), "{keys:?}");
    assert!(!keys.contains(&"param_groups.1.params.2".to_owned()), "{keys:?}");
}

#[test]
fn refuses_ambiguous_optimizer_states() {
    let error = |source: &Checkpoint, family: &str, config: &str| {
        to_hf(family, source, config).unwrap_err().to_string()
    };
    let numbers = trained(GPT2, &[7; 4], &[4], false);
    assert!(error(&numbers, "gpt2", CONFIG).contains("numbers 4 parameters, the model has 5"));
    let groups = trained(GPT2, &[7; 5], &[1, 4], false);
    assert!(error(&groups, "gpt2", CONFIG).contains("2 groups of parameters by number"));
    let steps = trained(GPT2, &[7, 7, 8, 7, 7], &[5], false);
    assert!(error(&steps, "gpt2", CONFIG).contains("c_attn.weight` joins parameters at different"));
    let apart = trained(GPT2, &[7; 5], &[2, 3], true);
    assert!(error(&apart, "gpt2", CONFIG).contains("c_attn.weight` joins parameters of several"));
    let mup = r#"{"num_heads": 2, "max_position_embeddings": 2, "hidden_size": 4, "mup_base_hidden_size": 2}"#;
    let source = trained(GPT2, &[7; 5], &[5], false);
    assert!(error(&source, "gpt2", mup).contains("is scaled, so its moments can't be converted"));
    let gemma = [("transformer_decoder.layers.0.norm1.weight", &[4u64][..])];
    let source = trained(&gemma, &[7], &[1], false);
    let said = error(&source, "gemma2", r#"{"num_heads": 2}"#);
    assert!(said.contains("norm1.weight` is part of a computation"), "{said}");
}

/// The original converter turns the sparsity optimizer of 2.0 into `sparsity.step`,
/// `sparsity.sparsity.NAME.index` and `model.NAME_mask`.
#[test]
fn keeps_the_original_names_of_the_sparsity_state() {
    let (name, shape) = GPT2[1];
    let mut made = Training::new();
    let weight = made.tensor(shape);
    let model = made.dict(vec![(name.to_owned(), weight)]);
    let mask = made.tensor(shape);
    let mask = made.dict(vec![("mask".to_owned(), mask)]);
    let states = made.dict(vec![(name.to_owned(), mask)]);
    let mut groups = Vec::new();
    for (name, step) in [("other", 4), (name, 5)] {
        let step = made.number(step);
        let step = made.dict(vec![("step".to_owned(), step)]);
        let text = made.builder.push(Value::Str(name.into())).unwrap();
        let names = made.list(vec![text]);
        let entries = vec![("param_names".to_owned(), names), ("sparsity".to_owned(), step)];
        groups.push(made.dict(entries));
    }
    let groups = made.list(groups);
    let step = made.number(7);
    let sparsity = made.dict(vec![
        ("step".to_owned(), step),
        ("state".to_owned(), states),
        ("param_groups".to_owned(), groups),
    ]);
    let optimizer = made.dict(vec![("sparsity".to_owned(), sparsity)]);
    let root = made.dict(vec![("model".to_owned(), model), ("optimizer".to_owned(), optimizer)]);
    let source = made.finish(root);
    let step = RouteStep { from: "cs-2.0".parse().unwrap(), to: "cs-2.1".parse().unwrap() };
    let config = || config::parse(CONFIG, Language::Json).unwrap();
    let stage = StepConfigs { step, left: config(), right: config() };
    let family = families::find("gpt2").unwrap();
    let done =
        convert(&source, &family, &[stage], &config::Value::Null, ModelOptions::default()).unwrap();
    let (_, found) = &done.parts[0];
    let leaves: BTreeMap<String, Value> = found
        .leaves()
        .into_iter()
        .map(|leaf| (leaf.flat.to_string(), found.value(leaf.target).clone()))
        .collect();
    assert_eq!(leaves["sparsity.step"], Value::Int(7i64.into()));
    assert_eq!(leaves["sparsity.sparsity.other.index"], Value::Int(4i64.into()));
    assert_eq!(leaves[&format!("sparsity.sparsity.{name}.index")], Value::Int(5i64.into()));
    assert!(leaves.contains_key(&format!("model.{name}_mask")), "{leaves:?}");
    assert!(!leaves.keys().any(|key| key.starts_with("optimizer.sparsity")), "{leaves:?}");
}
