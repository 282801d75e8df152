//! The model and the format of a checkpoint are recognised by its keys and its config alone, for
//! all cases of the original from and to Hugging Face.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::original::Case;
use statelens_checkpoint::{
    Builder, DType, Dict, DictKey, FileSet, FormatInfo, Layout, Limits, Memory, Span, Tensor,
    Unwatched, Value,
};
use statelens_recipes::config::Families;
use statelens_recipes::inference::{ModelInputs, parts_in};
use statelens_recipes::{Implementation, families, recognise};

/// Models for which another one is recognised, or which must be named; with the reason.
const NOT_TOLD: &[(&str, &str, &str)] = &[
    ("bloom-headless", "bloom", WHOLE),
    ("falcon-headless", "falcon", WHOLE),
    ("gpt-neox-headless", "gpt-neox", WHOLE),
    ("gpt2-headless", "gpt2", WHOLE),
    ("gptj-headless", "gptj", WHOLE),
    ("llama-headless", "llama", WHOLE),
    ("mistral-headless", "mistral", WHOLE),
    ("mixtral-headless", "mixtral", WHOLE),
    ("vit-headless", "vit", WHOLE),
    ("codegen-headless", "gptj", "Cerebras has CodeGen as a GPT-J, and its config says so"),
    ("codegen", "gptj", "Cerebras has CodeGen as a GPT-J, and its config says so"),
    ("codegen", "", "many have these keys, and configs of release 2.0 name no model"),
    ("btlm-headless", "", "BTLM and Jais have the same keys, and the config names neither"),
    ("llava", "", "Hugging Face's folders are the same for both of Cerebras's layouts"),
    ("mmsimple-llava", "", "Hugging Face's folders are the same for both of Cerebras's layouts"),
    ("dpr", "", "DPR and Dragon have the same keys, and configs before 2.9 name neither"),
    ("dragon", "", "DPR and Dragon have the same keys, and configs before 2.9 name neither"),
    ("gpt2", "", "the config has a name under which it is not looked for"),
];
const WHOLE: &str = "Cerebras has the head in any case";

#[test]
fn recognises_models_by_keys_and_config() {
    let (mut wrong, mut right) = (String::new(), BTreeMap::<String, usize>::new());
    let mut used = BTreeSet::new();
    for case in Case::all() {
        let formats = (case.format("src_fmt"), case.format("tgt_fmt"));
        let (Ok(from), Ok(to)) = formats else { continue };
        let is_converted =
            case.has_tensors() && case.text("status") == "ok" && case.family != "lora";
        if !is_converted || !(from.is_hf() || to.is_hf()) {
            continue;
        }
        let expected = families::find(&case.text("model")).unwrap().family;
        let (format, found) = recognised(&case, from, to);
        if (format, found.as_deref().ok()) == (from, Some(&*expected)) {
            *right.entry(expected).or_default() += 1;
            continue;
        }
        let known = NOT_TOLD.iter().find(|(family, other, _)| {
            *family == case.family && *other == found.as_deref().unwrap_or_default()
        });
        match known.filter(|_| format == from) {
            Some(known) => drop(used.insert(known)),
            None => writeln!(wrong, "{}: {found:?} in {format}", case.name()).unwrap(),
        }
    }
    println!("{right:#?}");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(right.len() > 30, "{right:#?}");
    assert!(used.len() > 10, "{used:#?}");
}

/// Returns the recognised format and model.
fn recognised(
    case: &Case,
    from: Implementation,
    to: Implementation,
) -> (Implementation, Result<String, String>) {
    let (checkpoint, config) = case.source(from).unwrap();
    let has = |name: &str| config.as_map().is_some_and(|map| map.contains(name));
    let parts = if from.is_hf() { parts_in(&has) } else { Vec::new() };
    let guesses = match parts.is_empty() {
        true => Families::known().unwrap().recognise(&config),
        false => Vec::new(),
    };
    let inputs = ModelInputs {
        checkpoint: &checkpoint,
        config: Some(&config),
        guesses: &guesses,
        unwrap: false,
        of_trainer: !parts.is_empty(),
        parts: &parts,
    };
    let format = inputs.source(None, to).unwrap();
    // Releases without differences are not distinguished.
    let format = if format.is_cerebras() && from.is_cerebras() { from } else { format };
    (format, inputs.model(format, to).map_err(|error| error.to_string()))
}

#[test]
fn distinguishes_training_states_of_hugging_face_and_cerebras() {
    let open = |name: &str| {
        let bytes = std::fs::read(statelens_fixtures::path(name)).unwrap();
        let files = FileSet::single(name, Memory::from(bytes));
        statelens_formats::open(files, &Limits::default(), &mut Unwatched).unwrap()
    };
    let state = open("trainer/plain/training_state.pt");
    assert!(recognise::is_cerebras(&state), "it has a state `model`");
    assert!(recognise::is_training_state(&state, false));
    let inputs = |of_trainer| ModelInputs {
        checkpoint: &state,
        config: None,
        guesses: &[],
        unwrap: false,
        of_trainer,
        parts: &[],
    };
    let target = Implementation::CURRENT;
    let format = inputs(true).source(None, target).unwrap();
    assert!(format.is_hf());
    // Without a config, the keys match three families.
    let error = inputs(true).model(format, target).unwrap_err().to_string();
    assert!(error.contains("expected one of llama, mistral, qwen2"), "{error}");
    assert!(!recognise::is_training_state(&open("cerebras/v2.10.0/gpt_small.mdl"), false));
}

#[test]
fn recognises_models_next_to_single_tensors() {
    // `torch.save({"model": model.state_dict(), "rng_state": torch.get_rng_state(), …})`
    let mut files = FileSet::default();
    let file = files.push("training_state.pt", std::sync::Arc::new(Memory::from(vec![0; 8])));
    let mut builder = Builder::new(&Limits::default());
    let tensor = |builder: &mut Builder| {
        let layout = Layout::Span(Span { file, offset: 0, len: 8 });
        let tensor = builder.push_tensor(Tensor::new(DType::U8, vec![8], layout)).unwrap();
        builder.push(Value::Tensor(tensor)).unwrap()
    };
    let entries = [
        "model.embed_tokens.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.norm.weight",
        "lm_head.weight",
    ];
    let entries = entries.map(|key| (DictKey::from(key), tensor(&mut builder))).to_vec();
    let model = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    let state = tensor(&mut builder);
    let entries = vec![(DictKey::from("model"), model), (DictKey::from("rng_state"), state)];
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    let state = builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap();
    let families = recognise::by_keys(&state, true, false);
    assert!(families.iter().any(|guess| guess.family == "llama"), "no family");
    assert!(recognise::is_training_state(&state, false));
}
