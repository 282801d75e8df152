//! Edits of small trees.

use super::*;
use statelens_checkpoint::{
    Array, Builder, Dict, DictKey, FileSet, Form, FormatInfo, Global, KeyPart, Layout, Limits,
    List, Opaque, Tensor,
};

struct TestTree(Builder);

impl TestTree {
    fn new() -> Self {
        Self(Builder::new(&Limits::default()))
    }

    fn int(&mut self, value: i64) -> ValueId {
        self.0.push(Value::Int(value.into())).unwrap()
    }

    fn tensor(&mut self, dtype: DType) -> ValueId {
        let item = vec![0; dtype.itemsize() as usize];
        let tensor = Tensor::new(dtype, vec![2], Layout::Fill(item.into()));
        let tensor = self.0.push_tensor(tensor).unwrap();
        self.0.push(Value::Tensor(tensor)).unwrap()
    }

    fn link(&mut self, target: ValueId) -> ValueId {
        self.0.push(Value::Link(target)).unwrap()
    }

    fn dict(&mut self, entries: &[(&str, ValueId)]) -> ValueId {
        let entries = entries.iter().map(|(key, id)| (DictKey::from(*key), *id)).collect();
        self.0.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap()
    }

    fn list(&mut self, items: &[ValueId]) -> ValueId {
        self.0.push(Value::List(List { items: items.to_vec(), ..List::default() })).unwrap()
    }

    fn finish(self, root: ValueId) -> Checkpoint {
        self.0.finish(root, FormatInfo::default(), FileSet::default(), Vec::new()).unwrap()
    }
}

fn edit(select: &[&str], exclude: &[&str]) -> Edit {
    let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Edit { select: parse(select), exclude: parse(exclude), ..Edit::default() }
}

fn flat(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint
        .leaves()
        .iter()
        .map(|leaf| match &leaf.alias_of {
            Some(key) => format!("{} = {key}", leaf.flat),
            None => format!("{} {}", leaf.flat, checkpoint.value(leaf.id).kind()),
        })
        .collect()
}

fn sample() -> Checkpoint {
    let mut tree = TestTree::new();
    let w = tree.tensor(DType::F32);
    let b = tree.tensor(DType::I64);
    let tied = tree.link(w);
    let again = tree.link(w);
    let one = tree.int(1);
    let empty = tree.list(&[]);
    let model = tree.dict(&[("w", w), ("b", b)]);
    let whole = tree.link(model);
    let list = tree.list(&[one, tied]);
    let root = tree.dict(&[
        ("model", model),
        ("list", list),
        ("again", again),
        ("e", empty),
        ("m", whole),
    ]);
    tree.finish(root)
}

#[test]
fn selection_keeps_structure_and_drops_empty_containers() {
    let source = sample();
    let apply = |select: &[&str], exclude: &[&str]| {
        edit(select, exclude).apply(&source).map(|checkpoint| flat(&checkpoint))
    };
    assert_eq!(apply(&["model.*"], &[]).unwrap(), ["model.w tensor", "model.b tensor"]);
    assert_eq!(
        apply(&[], &["model.b", "m"]).unwrap(),
        ["model.w tensor", "list.0 int", "list.1 = model.w", "again = model.w", "e list"]
    );
    assert_eq!(apply(&["list.0", "e"], &[]).unwrap(), ["list.0 int", "e list"]);
}

#[test]
fn link_without_target_becomes_the_value() {
    let source = sample();
    let left = edit(&["list.1", "again"], &[]).apply(&source).unwrap();
    assert_eq!(flat(&left), ["list.0 tensor", "again = list.0"]);
    // A whole dict that was linked to is kept whole.
    let left = edit(&["m", "again"], &[]).apply(&source).unwrap();
    assert_eq!(flat(&left), ["again tensor", "m.w = again", "m.b tensor"]);
}

#[test]
fn reports_patterns_without_matches() {
    let source = sample();
    let error = edit(&["model.w", "modle"], &[]).apply(&source).unwrap_err();
    assert!(error.to_string().contains("no key matches modle"), "{error}");
    let error = edit(&["model.w"], &["*w"]).apply(&source).unwrap_err();
    assert!(error.to_string().contains("nothing is left"), "{error}");
}

#[test]
fn casts_apply_to_floating_tensors_only() {
    let source = sample();
    let cast = Edit { casts: vec![CastRule::parse("bf16").unwrap()], ..Edit::default() };
    let left = cast.apply(&source).unwrap();
    let dtypes: Vec<&DType> = left.tensors().iter().map(|tensor| &tensor.dtype).collect();
    assert_eq!(dtypes, [&DType::BF16, &DType::I64]);
    assert_eq!(left.tensors()[0].stored, DType::F32);
    let int = Edit { casts: vec![CastRule::parse("int8").unwrap()], ..Edit::default() };
    assert!(int.apply(&source).is_err());
}

#[test]
fn moved_value_takes_its_new_name() {
    let mut tree = TestTree::new();
    let w = tree.tensor(DType::F32);
    let link = tree.link(w);
    let root = tree.dict(&[("w", w), ("v", link)]);
    tree.0.set_stored_key(w, "'w'".into());
    let left = edit(&["v"], &[]).apply(&tree.finish(root)).unwrap();
    assert_eq!(flat(&left), ["v tensor"]);
}

#[test]
fn objects_keep_their_links() {
    let mut tree = TestTree::new();
    let w = tree.tensor(DType::F32);
    let link = tree.link(w);
    let object = Value::Opaque(Box::new(Opaque {
        global: Global::new("a", "B"),
        form: Form::Call,
        args: vec![link],
        state: None,
        items: vec![],
        entries: vec![],
        repr: None,
        contents: None,
    }));
    let object = tree.0.push(object).unwrap();
    let root = tree.dict(&[("w", w), ("o", object)]);
    let left = edit(&["o"], &[]).apply(&tree.finish(root)).unwrap();
    assert_eq!(flat(&left), ["o object"]);
    assert!(left.holds_tensor(left.leaves()[0].id));
}

#[test]
fn cycles_are_kept() {
    let mut tree = TestTree::new();
    let one = tree.int(1);
    let two = tree.int(2);
    let root = tree.dict(&[]);
    let cycle = tree.link(root);
    let entries = [("a", one), ("b", two), ("self", cycle)];
    let entries = entries.iter().map(|(key, id)| (DictKey::from(*key), *id)).collect();
    *tree.0.value_mut(root).unwrap() = Value::Dict(Dict { entries, ..Dict::default() });
    let left = edit(&["b", "self"], &[]).apply(&tree.finish(root)).unwrap();
    assert_eq!(flat(&left), ["b int", "self = "]);
}

/// Returns a state dict as trainers write them: nested above, dotted names below.
fn trained() -> Checkpoint {
    let mut tree = TestTree::new();
    let w = tree.tensor(DType::F32);
    let b = tree.tensor(DType::F16);
    let tied = tree.link(w);
    let model = tree.dict(&[("layers.0.w", w), ("layers.0.b", b), ("head.w", tied)]);
    let (lr, moment) = (tree.int(3), tree.tensor(DType::F32));
    let group = tree.dict(&[("lr", lr)]);
    let groups = tree.list(&[group]);
    let zero = tree.dict(&[("exp_avg", moment)]);
    let state = Dict { entries: vec![(DictKey::Int(0i64.into()), zero)], ..Dict::default() };
    let state = tree.0.push(Value::Dict(state)).unwrap();
    let optimizer = tree.dict(&[("param_groups", groups), ("state", state)]);
    let version = tree.int(1);
    let root = tree.dict(&[("model", model), ("optimizer", optimizer), ("__v__", version)]);
    tree.finish(root)
}

/// Returns the path of each leaf, with the type of each step.
fn paths(checkpoint: &Checkpoint) -> Vec<String> {
    let step = |part: &KeyPart| match part {
        KeyPart::Field(DictKey::Str(text)) => text.to_string(),
        KeyPart::Field(key) => format!("<{key}>"),
        KeyPart::Index(index) => format!("[{index}]"),
        part => format!("({})", part.text()),
    };
    let path = |leaf: &Leaf| leaf.key.parts.iter().map(step).collect::<Vec<_>>().join("/");
    checkpoint.leaves().iter().map(path).collect()
}

fn renames(rules: &[&str]) -> Edit {
    let rename = rules.iter().map(|rule| Rename::parse(rule).unwrap()).collect();
    Edit { rename, ..Edit::default() }
}

#[test]
fn selects_states_as_the_trainer_does() {
    let states = |names: &[&str]| {
        let states = names.iter().map(|name| (*name).to_owned()).collect();
        Edit { states, ..Edit::default() }
    };
    let left = states(&["optimizer"]).apply(&trained()).unwrap();
    assert_eq!(
        flat(&left),
        ["optimizer.param_groups.0.lr int", "optimizer.state.0.exp_avg tensor", "__v__ int"]
    );
    let error = states(&["model", "optimiser"]).apply(&trained()).unwrap_err().to_string();
    assert!(error.contains("`optimiser`") && error.contains("model, optimizer, __v__"), "{error}");
    // If names contain dots and nothing is nested, the state is the part before the first dot.
    let mut tree = TestTree::new();
    let (a, b) = (tree.int(1), tree.int(2));
    let root = tree.dict(&[("model.x", a), ("modeling.y", b)]);
    let left = states(&["model"]).apply(&tree.finish(root)).unwrap();
    assert_eq!(flat(&left), ["model.x int"]);
}

#[test]
fn renamed_keys_keep_their_nesting() {
    let source = trained();
    let apply = |rules: &[&str]| paths(&renames(rules).apply(&source).unwrap());
    let optimizer = ["optimizer/param_groups/[0]/lr", "optimizer/state/<0>/exp_avg", "__v__"];
    let with = |model: [&str; 3]| -> Vec<String> {
        model.iter().chain(&optimizer).map(|path| (*path).to_owned()).collect()
    };
    // Dots in the names of a flat dict stay in names.
    assert_eq!(
        apply(&[r"layers\.(\d+)=>h.$1.attn"]),
        with(["model/h.0.attn.w", "model/h.0.attn.b", "model/head.w"])
    );
    // A dot between steps still separates them, and the text after it remains one name.
    assert_eq!(
        apply(&[r"^model\.=>net."]),
        with(["net/layers.0.w", "net/layers.0.b", "net/head.w"])
    );
    assert_eq!(
        apply(&[r"^model\.layers=>net.deep.layers"]),
        with(["net/deep/layers.0.w", "net/deep/layers.0.b", "model/head.w"])
    );
    // Without that dot, values move up.
    assert_eq!(apply(&[r"^model\.=>"]), with(["layers.0.w", "layers.0.b", "head.w"]));
    // Rules see the results of those before them.
    assert_eq!(
        apply(&["^model=>m", "^m=>n", "b$=>bias"]),
        with(["n/layers.0.w", "n/layers.0.bias", "n/head.w"])
    );
    // Numbers remain numbers, and lists remain lists while no item is moved.
    assert_eq!(
        apply(&["^optimizer=>opt", r"state\.0=>state.7"])[3..],
        ["opt/param_groups/[0]/lr", "opt/state/<7>/exp_avg", "__v__"]
    );
    assert_eq!(
        apply(&[r"groups\.0=>groups.first"])[3..],
        ["optimizer/param_groups/first/lr", "optimizer/state/<0>/exp_avg", "__v__"]
    );
}

#[test]
fn tied_tensors_stay_tied_after_renaming() {
    let left = renames(&["^model=>m", "head=>lm_head"]).apply(&trained()).unwrap();
    assert_eq!(
        flat(&left)[..3],
        ["m.layers.0.w tensor", "m.layers.0.b tensor", "m.lm_head.w = m.layers.0.w"]
    );
    // The link becomes the value if that is left out, under its new key.
    let edit = Edit { exclude: vec!["model.layers.0.w".parse().unwrap()], ..renames(&["head=>h"]) };
    let left = edit.apply(&trained()).unwrap();
    assert_eq!(flat(&left)[..2], ["model.layers.0.b tensor", "model.h.w tensor"]);
    let (_, changes) = edit.apply_and_preview(&trained()).unwrap();
    let keys = |change: &Change| (change.old.clone(), change.new.clone().unwrap_or_default());
    assert_eq!(
        changes[..3].iter().map(keys).collect::<Vec<_>>(),
        [
            ("model.layers.0.w".into(), String::new()),
            ("model.layers.0.b".into(), "model.layers.0.b".into()),
            ("model.head.w".into(), "model.h.w".into())
        ]
    );
    assert_eq!(changes[2].new_dtype, Some(DType::F32));
    assert_eq!(changes[0].new_dtype, None);
}

#[test]
fn adds_and_removes_prefixes() {
    let source = trained();
    let prefixed = Edit { prefix: "run.".into(), ..Edit::default() };
    let nested = prefixed.apply(&source).unwrap();
    assert_eq!(paths(&nested)[0], "run/model/layers.0.w");
    let strip = Edit { strip_prefix: "run.".into(), ..Edit::default() };
    assert_eq!(paths(&strip.apply(&nested).unwrap()), paths(&source));
    let error = Edit { strip_prefix: "model.".into(), ..Edit::default() }.apply(&source);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("`optimizer.param_groups.0.lr`") && !error.contains("`__v__`"),
        "{error}"
    );
    assert!(!error.contains("`model.`."), "two periods after each other: {error}");
    let only = Edit {
        select: vec!["model.*".parse().unwrap()],
        strip_prefix: "model.".into(),
        prefix: "m.".into(),
        ..Edit::default()
    };
    // The result is flat, and stays flat.
    assert_eq!(paths(&only.apply(&source).unwrap())[0], "m/layers.0.w");
    let mut tree = TestTree::new();
    let one = tree.int(1);
    let root = tree.dict(&[("a.b", one)]);
    let flat_one = tree.finish(root);
    assert_eq!(paths(&prefixed.apply(&flat_one).unwrap()), ["run.a.b"]);
}

#[test]
fn nests_flat_names() {
    let mut tree = TestTree::new();
    let values: Vec<ValueId> = (0..5).map(|at| tree.int(at)).collect();
    let tied = tree.link(values[0]);
    let names = ["m.0.w", "o.x", "m.1.w", "step", "m..", "m.0.tied"];
    let entries: Vec<(&str, ValueId)> =
        names.into_iter().zip(values.into_iter().chain([tied])).collect();
    let root = tree.dict(&entries);
    let source = tree.finish(root);
    let nest = Edit { nest: true, ..Edit::default() };
    let left = nest.apply(&source).unwrap();
    assert_eq!(paths(&left), ["m/0/w", "m/0/tied", "m/1/w", "m//", "o/x", "step"]);
    assert_eq!(flat(&left)[1], "m.0.tied = m.0.w");
    let mut tree = TestTree::new();
    let (a, b) = (tree.int(1), tree.int(2));
    let root = tree.dict(&[("a.b", a), ("a.b.c", b)]);
    let error = nest.apply(&tree.finish(root)).unwrap_err().to_string();
    assert!(error.contains("`a.b`") && error.contains("`a.b.c`"), "{error}");
    // A number that was a key is not split into two steps.
    let mut tree = TestTree::new();
    let a = tree.int(1);
    let entries = vec![(DictKey::Float(1.5), a)];
    let root = tree.0.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    assert_eq!(paths(&nest.apply(&tree.finish(root)).unwrap()), ["<1.5>"]);
}

#[test]
fn names_colliding_keys() {
    let error = renames(&[r"\.[wb]$=>.x"]).apply(&trained()).unwrap_err().to_string();
    assert!(
        error.contains("`model.layers.0.w` and `model.layers.0.b`")
            && error.contains("`model.layers.0.x`"),
        "{error}"
    );
    let error = renames(&["^__v__$=>model"]).apply(&trained()).unwrap_err().to_string();
    assert!(error.contains("`model` (`__v__` in the source)"), "{error}");
    assert!(renames(&["^__v__$=>"]).apply(&trained()).unwrap_err().to_string().contains("`__v__`"));
    assert!(Rename::parse("a->b").unwrap_err().to_string().contains("a->b"));
    assert!(Rename::parse("(=>b").unwrap_err().to_string().contains("`(`"));
}

#[test]
fn refuses_to_split_a_shared_container() {
    let source = sample();
    // As a whole it can move.
    let left = renames(&["^model=>n"]).apply(&source).unwrap();
    assert_eq!(flat(&left)[..2], ["n.w tensor", "n.b tensor"]);
    assert_eq!(flat(&left)[6], "m = n");
    let error = renames(&[r"^model\.=>"]).apply(&source).unwrap_err().to_string();
    assert!(error.contains("`m`, `model`"), "{error}");
}

#[test]
fn first_matching_cast_rule_wins() {
    let casts = |texts: &[&str]| {
        let casts = texts.iter().map(|text| CastRule::parse(text).unwrap()).collect();
        Edit { casts, ..renames(&["^model=>m"]) }
    };
    let dtypes = |edit: &Edit| -> Vec<String> {
        let (_, changes) = edit.apply_and_preview(&trained()).unwrap();
        changes.iter().filter_map(|change| Some(change.new_dtype.as_ref()?.to_string())).collect()
    };
    // w, b, head.w (the same as w), exp_avg.
    assert_eq!(dtypes(&casts(&["f64"])), ["float64"; 4]);
    assert_eq!(
        dtypes(&casts(&["bf16", "m.*.b=f32", "m.layers.*=f64"])),
        ["float64", "float32", "float64", "bfloat16"]
    );
    // A rule may also match the key of a link.
    assert_eq!(dtypes(&casts(&["/head/=bf16"])), ["bfloat16", "float16", "bfloat16", "float32"]);
    let error = casts(&["model.*=bf16"]).apply(&trained()).unwrap_err().to_string();
    assert!(error.contains("model.*"), "{error}");
    assert!(casts(&["bf16", "f16"]).apply(&trained()).is_err());
    assert!(CastRule::parse("a=b=float7").is_err());
    assert_eq!(CastRule::parse("a=b=half").unwrap().pattern.unwrap().as_str(), "a=b");
}

/// The lists of parameters in optimizers and of DeepSpeed have the new names, too.
#[test]
fn lists_of_parameters_follow_the_keys() {
    let mut tree = TestTree::new();
    let texts = |tree: &mut TestTree, names: &[&str]| {
        let items: Vec<ValueId> =
            names.iter().map(|name| tree.0.push(Value::Str((*name).into())).unwrap()).collect();
        tree.list(&items)
    };
    let tensor = |tree: &mut TestTree| tree.tensor(DType::F32);
    let weights = ["module.fc.weight", "module.fc.bias"].map(|name| (name, tensor(&mut tree)));
    let ema = ["module.fc.weight"].map(|name| (name, tensor(&mut tree)));
    let (model, ema) = (tree.dict(&weights), tree.dict(&ema));
    let named = texts(&mut tree, &["module.fc.weight", "module.fc.bias", "module.gone"]);
    let params = texts(&mut tree, &["module.fc.bias"]);
    let group = tree.dict(&[("param_names", named), ("params", params)]);
    let groups = tree.list(&[group]);
    let average = tensor(&mut tree);
    let average = tree.dict(&[("exp_avg", average)]);
    let state = tree.dict(&[("module.fc.weight", average)]);
    let optimizer = tree.dict(&[("state", state), ("param_groups", groups)]);
    let length = tree.int(2);
    let shapes = tree.dict(&[("module.fc.weight", length)]);
    let shapes = tree.list(&[shapes]);
    let tags = texts(&mut tree, &["module.fc.weight"]);
    let root = tree.dict(&[
        ("ema", ema),
        ("model", model),
        ("optimizer", optimizer),
        ("param_shapes", shapes),
        ("tags", tags),
    ]);
    let source = tree.finish(root);
    let keys = |rule: &str| -> Vec<String> {
        let edited = renames(&[rule]).apply(&source).unwrap();
        let text = |leaf: &Leaf| match edited.value(leaf.id) {
            Value::Str(text) => format!("{}={text}", leaf.flat),
            _ => leaf.flat.to_string(),
        };
        assert_eq!(edited.findings.len(), 1, "{:?}", edited.findings);
        edited.leaves().iter().map(text).collect()
    };
    let expected = |key: &str, names: [&str; 3], state: &str| -> Vec<String> {
        let [weight, bias, gone] = names;
        [
            "ema.module.fc.weight".to_owned(),
            format!("{key}{weight}"),
            format!("{key}{bias}"),
            format!("optimizer.state.{state}.exp_avg"),
            format!("optimizer.param_groups.0.param_names.0={weight}"),
            format!("optimizer.param_groups.0.param_names.1={bias}"),
            format!("optimizer.param_groups.0.param_names.2={gone}"),
            format!("optimizer.param_groups.0.params.0={bias}"),
            format!("param_shapes.0.{state}"),
            "tags.0=module.fc.weight".to_owned(),
        ]
        .into()
    };
    let names = ["fc.weight", "fc.bias", "module.gone"];
    assert_eq!(keys(r"^model\.module\.=>model."), expected("model.", names, "fc.weight"));
    // The keys move to the root.
    let names = ["net.fc.weight", "net.fc.bias", "module.gone"];
    assert_eq!(keys(r"^model\.module\.=>net."), expected("", names, "net.fc.weight"));
    // The dict has another name, and the names in it are new.
    let names = ["body.fc.weight", "body.fc.bias", "module.gone"];
    assert_eq!(keys(r"^model\.module\.=>net.body."), expected("net.", names, "body.fc.weight"));
}

/// Quadratic time would take minutes.
#[test]
fn a_listed_name_may_end_100_000_keys() {
    let mut tree = TestTree::new();
    let names: Vec<String> = (0..100_000).map(|at| format!("m{at}.weight")).collect();
    let ids: Vec<ValueId> = names.iter().map(|_| tree.int(1)).collect();
    let entries: Vec<(&str, ValueId)> = names.iter().map(String::as_str).zip(ids).collect();
    let model = tree.dict(&entries);
    let listed = tree.0.push(Value::Str("weight".into())).unwrap();
    let listed = tree.list(&[listed]);
    let root = tree.dict(&[("model", model), ("param_names", listed)]);
    let source = tree.finish(root);
    let edited = renames(&["weight$=>w"]).apply(&source).unwrap();
    let name = edited.value(edited.leaves().last().unwrap().id);
    assert!(matches!(name, Value::Str(name) if name.as_str() == Some("w")), "{name:?}");
}

#[test]
fn renames_200_000_keys_in_linear_time() {
    // Quadratic time would take hours.
    const COUNT: usize = 200_000;
    let mut tree = TestTree::new();
    let names: Vec<String> =
        (0..COUNT).map(|at| format!("model.layers.{at}.attn.weight")).collect();
    let ids: Vec<ValueId> = names.iter().map(|_| tree.int(1)).collect();
    let entries: Vec<(&str, ValueId)> = names.iter().map(String::as_str).zip(ids).collect();
    let root = tree.dict(&entries);
    let source = tree.finish(root);
    let edit = Edit {
        prefix: "x.".into(),
        nest: true,
        select: vec!["model.*".parse().unwrap()],
        ..renames(&[r"layers\.(\d+)=>h.$1", "attn=>a"])
    };
    let (_, changes) = edit.apply_and_preview(&source).unwrap();
    assert_eq!(changes[COUNT - 1].new.as_deref(), Some("x.model.h.199999.a.weight"));
}

#[test]
fn each_checkpoint_gets_its_matching_casts() {
    let casts = |texts: &[&str]| -> Vec<CastRule> {
        texts.iter().map(|text| CastRule::parse(text).unwrap()).collect()
    };
    let (one, other) = (trained(), renames(&["^model=>m"]).apply(&trained()).unwrap());
    let split = |texts: &[&str]| CastRule::for_each(casts(texts), &[&one, &other]);
    let all = split(&["model.*=bf16", "m.*=f16", "f32"]).unwrap();
    assert_eq!(all, [casts(&["model.*=bf16", "f32"]), casts(&["m.*=f16", "f32"])]);
    let error = split(&["m.*=f16", "n.*=f16"]).unwrap_err().to_string();
    assert!(error.contains("matches n.*"), "{error}");
}

#[test]
fn recognises_casts_of_all_tensors() {
    let of_all = |texts: &[&str]| -> Option<String> {
        let casts: Vec<CastRule> =
            texts.iter().map(|text| CastRule::parse(text).unwrap()).collect();
        CastRule::of_all(&casts).map(|dtype| dtype.name().to_owned())
    };
    for texts in [&["bf16"][..], &["*=bf16"], &["**=bf16"], &["a.*=bf16", "bf16"]] {
        assert_eq!(of_all(texts).as_deref(), Some("bfloat16"), "{texts:?}");
    }
    for texts in [&[][..], &["a.*=bf16"], &["a.*=f32", "bf16"], &["/norm/=bf16"]] {
        assert_eq!(of_all(texts), None, "{texts:?}");
    }
}

#[test]
fn casts_apply_to_arrays_without_tensors_or_by_pattern() {
    let source = |beside: Option<DType>| {
        let mut tree = TestTree::new();
        let mut array = |dtype: DType, scalar| {
            let item = vec![0; dtype.itemsize() as usize];
            let shape = if scalar { vec![] } else { vec![2] };
            let tensor = Tensor::new(dtype, shape, Layout::Fill(item.into()));
            let tensor = tree.0.push_tensor(tensor).unwrap();
            tree.0.push(Value::Array(Array { tensor, scalar })).unwrap()
        };
        let e3m4 = DType::from_ml_dtypes_name("float8_e3m4").unwrap();
        let int4 = DType::from_ml_dtypes_name("int4").unwrap();
        let mut entries = vec![("a", array(DType::F32, false)), ("s", array(DType::F32, true))];
        entries.extend([("e", array(e3m4, false)), ("i", array(int4, false))]);
        entries.extend(beside.map(|dtype| ("t", tree.tensor(dtype))));
        let root = tree.dict(&entries);
        tree.finish(root)
    };
    let cast = |text: &str, beside: Option<DType>| -> Vec<String> {
        let edit = Edit { casts: vec![CastRule::parse(text).unwrap()], ..Edit::default() };
        let edited = edit.apply(&source(beside)).unwrap();
        let name = |leaf: &statelens_checkpoint::Leaf| {
            edited.tensor_of(leaf.id).unwrap().1.dtype.name().to_owned()
        };
        edited.leaves().iter().map(name).collect()
    };
    assert_eq!(cast("bf16", None), ["bfloat16", "float32", "bfloat16", "int4"]);
    assert_eq!(cast("*=bf16", None), ["bfloat16", "bfloat16", "bfloat16", "int4"]);
    let beside = || Some(DType::F64);
    let names = cast("bf16", beside());
    assert_eq!(names, ["float32", "float32", "float8_e3m4", "int4", "bfloat16"]);
    assert_eq!(cast("a=f16", beside())[0], "float16");
}
