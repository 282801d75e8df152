//! The manifest: every leaf with its type and a hash of its values, so that two checkpoints, or two
//! programs that read the same one, can be compared without having both at hand.
//!
//! ```json
//! {"statelens":1,"format":{"name":"torch-zip","version":"3","producer":""},"entries":[
//! {"key":"w","kind":"tensor","dtype":"float32","shape":[2],"nbytes":8,"sha256":"…"},
//! {"key":"step","kind":"int","value":"3"},
//! {"key":"tied","kind":"tensor",…,"alias_of":"w"}
//! ]}
//! ```
//!
//! One entry per leaf, in order. The fields by kind:
//!
//! - `tensor`, `ndarray` (numpy scalars too, with shape `[]`): `dtype` by torch's name, or numpy's
//!   where torch does not have the dtype; `shape`; `nbytes` and `sha256` of the logical values (C
//!   order, little-endian, dense). If the bytes are not available, `missing` has the reason instead
//!   of the hash. The same goes for tensors that take less than a thousandth of their size in the
//!   file, once 16 GiB of such repetition are hashed. A record has `fields`, a text. A
//!   quantised tensor has its integers and `quantizer`. A tensor whose Python attributes hold
//!   tensors has `attributes`, a hash of them.
//! - `sparse`: `dtype` and `shape` of the whole tensor, `layout`, and `parts`, an object of
//!   tensors.
//! - `int`, `float` (Python's repr, `nan`, `inf`, `-inf`), `str`: `value`, a string, so that no
//!   parser rounds it. An integer of more than 16 KiB is written in hexadecimal, as `0x…`.
//! - `bool`: `value`, a JSON bool. `complex`: `value`, two strings: real, imaginary.
//! - `bytes`: `nbytes`, `sha256`. `none` has no other fields.
//! - `object`: `type`, a dotted name. These are objects that could not be or were not built, and
//!   values that are not plain (a dtype, a device, a frozen set). `value` is the object as text; if
//!   the text is incomplete, `sha256` is a hash of the contents instead, or `missing` the reason why
//!   they are not known.
//! - `dict`, `list`, `tuple`, `set`: empty containers.
//!
//! Where `types` is present (in JSON only), it has the types that these fields leave open: of dict
//! keys that read like keys of another type (`int key`), of empty containers, of numbers in GGUF,
//! and the names in an enumeration.
//! Earlier manifests do not have it, and formats without such types have nothing to compare it with.
//!
//! If the manifest has `classes`, true, after `format`, a tensor whose class is not `torch.Tensor`
//! or `numpy.ndarray`, that requires a gradient, or that has Python attributes, has them as `class`,
//! a text. Only checkpoints of the same format are compared with it, because others do not have them.
//!
//! Bytes that can't be read have `error` with the reason instead of the hash.
//!
//! Attributes of HDF5 and metadata of safetensors are not part of it, because other formats do not
//! have them: `diff` compares them.
//!
//! A link has the fields of its target, and `alias_of`, the target's key; it does not repeat a
//! string longer than 4 KiB. A link to a container that is not empty has only its kind.

use std::collections::HashMap;

use sha2::{Digest, Sha256};
use statelens_checkpoint::{
    Checkpoint, Int, Leaf, Progress, PythonTypes, Quantizer, Result, Sparse, Tensor, TensorId,
    Text, Value, ValueId, float_repr, hex, shape_text,
};
use statelens_tensor::{BUFFER, Buffer, InOrder, drive};
use statelens_values::Json;
use statelens_values::reading::{Hashed, Hashing, Readable, TakesHashes, missing, tensors_of};

use crate::contents::{contents_hash, is_text_complete, tensor_class_text};
use crate::text::MISSING;
use crate::{dtype_of, fields_text, text_of, type_name, types_text};

/// Strings longer than this are not repeated by links: a file that links to one long string a
/// million times must not produce a million long strings.
const REPEATED: usize = 4 << 10;
/// Longest string that is shown as it is in a line for people.
const SHORT: usize = 72;
/// Longest integer written in decimal: printing takes quadratic time.
const DECIMAL: usize = 16 << 10;

/// Writes the manifest as JSON, entry by entry; reads every tensor once, through one small buffer.
/// `progress` counts logical bytes. Returns the keys that could not be read: a broken tensor does
/// not stop the others from being written.
pub fn write_manifest(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    progress: &mut dyn Progress,
    out: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Vec<Unread>> {
    let mut writer = ManifestWriter::json(checkpoint, leaves, out);
    drive(&mut writer, &mut Buffer::new(BUFFER), progress)?;
    writer.finish()
}

/// Writes the manifest for people and for `diff`: a line per leaf with tab-separated columns: hash
/// or value, kind or dtype, shape, key. Links have the columns of their targets. Returns the keys
/// that could not be read.
pub fn write_manifest_lines(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    progress: &mut dyn Progress,
    out: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Vec<Unread>> {
    let mut writer = ManifestWriter::lines(checkpoint, leaves, out);
    drive(&mut writer, &mut Buffer::new(BUFFER), progress)?;
    writer.finish()
}

statelens_tensor::in_order! {
    /// Hashes the contents of a checkpoint and writes each entry as soon as it is complete. At the end,
    /// [finish](ManifestWriter::finish) writes the rest.
    pub struct ManifestWriter<'a>(Hashing<'a, ManifestOutput<'a>>);
}

/// State and output of a [`ManifestWriter`].
pub struct ManifestOutput<'a> {
    hashes: Hashes<'a>,
    leaves: &'a [Leaf],
    /// For each leaf, the number of tensors that must be hashed before its entry is complete.
    known: Vec<usize>,
    /// Number of leaves written.
    written: usize,
    /// The manifest as JSON; `None` for lines.
    json: Option<Json>,
    unread: Vec<Unread>,
    out: &'a mut dyn FnMut(&str) -> Result<()>,
}

impl<'a> ManifestWriter<'a> {
    /// Writes JSON.
    pub fn json(
        checkpoint: &'a Checkpoint,
        leaves: &'a [Leaf],
        out: &'a mut dyn FnMut(&str) -> Result<()>,
    ) -> Self {
        let mut json = Json::new();
        json.open('{');
        json.name("statelens").number(1);
        json.name("format").object(|json| {
            json.name("name").str(checkpoint.format.id);
            json.name("version").str(&checkpoint.format.version);
            json.name("producer").str(&checkpoint.format.producer);
        });
        if checkpoint.format.traits.python_types != PythonTypes::None {
            json.name("classes").bool(true);
        }
        json.name("entries").open('[');
        Self::writing(checkpoint, leaves, Some(json), out)
    }

    /// Writes lines for people and for `diff`.
    pub fn lines(
        checkpoint: &'a Checkpoint,
        leaves: &'a [Leaf],
        out: &'a mut dyn FnMut(&str) -> Result<()>,
    ) -> Self {
        Self::writing(checkpoint, leaves, None, out)
    }

    fn writing(
        checkpoint: &'a Checkpoint,
        leaves: &'a [Leaf],
        json: Option<Json>,
        out: &'a mut dyn FnMut(&str) -> Result<()>,
    ) -> Self {
        let mut readable = Readable::of(checkpoint);
        let known = leaves.iter().map(|leaf| {
            tensors_of(checkpoint, leaf.target).into_iter().for_each(|(id, _)| readable.add(id));
            readable.tensors.len()
        });
        let known = known.collect();
        let hashes = Hashes::new(checkpoint, HashMap::new());
        let (written, unread) = (0, Vec::new());
        let writing = ManifestOutput { hashes, leaves, known, written, json, unread, out };
        Self(InOrder::of(Hashing::new(readable, false), writing))
    }

    /// Writes the remaining entries and returns the keys that could not be read.
    pub fn finish(self) -> Result<Vec<Unread>> {
        let (_, mut output) = self.0.into_parts();
        output.write(usize::MAX)?;
        if let Some(mut json) = output.json {
            json.newline();
            json.close(']');
            json.close('}');
            json.newline();
            (output.out)(&json.take())?;
        }
        Ok(output.unread)
    }
}

impl TakesHashes for ManifestOutput<'_> {
    fn take(&mut self, part: usize, id: TensorId, found: Result<Hashed>) -> Result<()> {
        match found {
            Ok(hashed) => self.hashes.tensors.insert(id, hashed.hash()),
            Err(error) => self
                .hashes
                .failed
                .insert(id, statelens_values::reading::of_one_tensor(error)?.to_string()),
        };
        self.write(part + 1)
    }
}

impl ManifestOutput<'_> {
    /// Writes the leaves that are complete once `hashed` tensors are hashed.
    fn write(&mut self, hashed: usize) -> Result<()> {
        let checkpoint = self.hashes.checkpoint;
        while let Some(leaf) = self.leaves.get(self.written)
            && self.known[self.written] <= hashed
        {
            self.written += 1;
            let facts = self.hashes.facts(leaf.target);
            self.unread.extend(Unread::of(leaf, &facts));
            let text = match &mut self.json {
                Some(json) => {
                    json.line();
                    json.object(|json| {
                        json.name("key").text(&leaf.flat);
                        entry(json, checkpoint, leaf, leaf.alias_of.is_some(), &facts);
                        types(json, checkpoint, leaf);
                        if let Some(target) = &leaf.alias_of {
                            json.name("alias_of").text(target);
                        }
                    });
                    json.take()
                }
                None => columns(checkpoint, leaf, &facts).join("\t") + "\n",
            };
            (self.out)(&text)?;
        }
        Ok(())
    }
}

/// A key whose bytes can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// The flat key.
    pub key: Text,
    /// The reason, as a sentence.
    pub why: String,
}

impl Unread {
    fn of(leaf: &Leaf, facts: &[Facts]) -> Option<Self> {
        let why = facts.iter().find_map(|facts| facts.failed.as_deref())?;
        Some(Self { key: leaf.flat.clone(), why: why.to_owned() })
    }
}

/// Returns the columns of a line for people: hash or value, kind or dtype, shape, key.
fn columns(checkpoint: &Checkpoint, leaf: &Leaf, facts: &[Facts]) -> [String; 4] {
    let value = match (facts, checkpoint.value(leaf.target)) {
        (facts, _) if facts.iter().any(|facts| facts.failed.is_some()) => "unreadable".to_owned(),
        (facts, _) if is_composed(checkpoint, leaf) && facts.iter().any(|f| f.hash.is_some()) => {
            let mut json = Json::new();
            json.object(|json| entry(json, checkpoint, leaf, false, facts));
            hex(&Sha256::digest(json.take().as_bytes()))
        }
        ([contents @ Facts { hash: None, .. }], Value::Opaque(_)) => {
            let why = why_missing(contents.of(checkpoint));
            format!("{MISSING}{}", statelens_checkpoint::visible(&why.to_lossy()))
        }
        ([Facts { hash: Some(hash), .. }], value) if value.kind() != "object" => hash.clone(),
        // Texts that would be cut short are hashed, so that differences at the end show.
        (_, Value::Str(text)) if text.as_bytes().len() > SHORT => {
            hex(&Sha256::digest(text.as_bytes()))
        }
        (_, value) if !shows(value) && !is_text_complete(checkpoint, leaf.target) => {
            hash_of(checkpoint, leaf, facts)
        }
        // Links are resolved, because formats differ in what they store as links.
        _ => text_of(checkpoint, leaf.target),
    };
    let kind = checkpoint.value(leaf.target).kind();
    let dtype = dtype_of(checkpoint, leaf.target).map_or(kind, |dtype| dtype.name());
    let shape = crate::shape_of(checkpoint, leaf.target).map_or(String::new(), shape_text);
    [value, dtype.to_owned(), shape, statelens_checkpoint::visible(&leaf.flat.to_lossy())]
}

/// Returns whether the values of a tensor depend on more than its own bytes: the parts of a sparse
/// tensor, the quantizer of a quantised one, tensors in its Python attributes, names of fields.
/// Their line has the hash of their entry in JSON.
fn is_composed(checkpoint: &Checkpoint, leaf: &Leaf) -> bool {
    matches!(checkpoint.value(leaf.target), Value::Sparse(_))
        || checkpoint.tensor_of(leaf.target).is_some_and(|(_, tensor)| {
            tensor.quantizer.is_some() || fields_text(&tensor.dtype).is_some()
        })
        || !checkpoint.attribute_tensors(leaf.target).is_empty()
}

/// Returns whether the value's text can't be cut short: tensors have a hash or a reason for its
/// absence, and containers are shown by their kind.
fn shows(value: &Value) -> bool {
    matches!(value, Value::Tensor(_) | Value::Array(_) | Value::Sparse(_)) || value.is_container()
}

/// The hash of a tensor or byte string that is part of a value.
struct Facts {
    tensor: Option<TensorId>,
    hash: Option<String>,
    /// Why the bytes could not be read.
    failed: Option<String>,
}

impl Facts {
    fn of<'a>(&self, checkpoint: &'a Checkpoint) -> Option<&'a Tensor> {
        checkpoint.tensor(self.tensor?).ok()
    }
}

/// The hashes of tensors and of values in memory.
pub struct Hashes<'a> {
    checkpoint: &'a Checkpoint,
    tensors: HashMap<TensorId, String>,
    /// Why each unreadable tensor could not be read.
    failed: HashMap<TensorId, String>,
    bytes: HashMap<ValueId, String>,
}

impl<'a> Hashes<'a> {
    /// Creates the table. Tensors that are not in `tensors` have no hash.
    pub fn new(checkpoint: &'a Checkpoint, tensors: HashMap<TensorId, String>) -> Self {
        Self { checkpoint, tensors, failed: HashMap::new(), bytes: HashMap::new() }
    }

    /// Returns the entry of a leaf as JSON, without `alias_of`.
    pub fn json(&mut self, leaf: &Leaf, alias: bool) -> String {
        let facts = self.facts(leaf.target);
        let mut json = Json::new();
        json.object(|json| {
            json.name("key").text(&leaf.flat);
            entry(json, self.checkpoint, leaf, alias, &facts);
            types(json, self.checkpoint, leaf);
        });
        json.take()
    }

    /// Returns the columns of a leaf, as in the manifest for people.
    pub fn columns(&mut self, leaf: &Leaf) -> [String; 4] {
        let facts = self.facts(leaf.target);
        columns(self.checkpoint, leaf, &facts)
    }

    /// Returns the hashes of all parts of a value, in the order of [`tensors_of`]: one for a tensor,
    /// several for a composed one, none for a plain value.
    fn facts(&mut self, id: ValueId) -> Vec<Facts> {
        let checkpoint = self.checkpoint;
        match checkpoint.value(id) {
            Value::Bytes { data, .. } => {
                let hash = self.bytes.entry(id).or_insert_with(|| hex(&Sha256::digest(data)));
                vec![Facts { tensor: None, hash: Some(hash.clone()), failed: None }]
            }
            _ => tensors_of(checkpoint, id).into_iter().map(|(part, _)| self.of(part)).collect(),
        }
    }

    fn of(&self, tensor: TensorId) -> Facts {
        let of = |of: &HashMap<TensorId, String>| of.get(&tensor).cloned();
        Facts { tensor: Some(tensor), hash: of(&self.tensors), failed: of(&self.failed) }
    }
}

/// Writes the fields between `key` and `alias_of`.
fn entry(json: &mut Json, checkpoint: &Checkpoint, leaf: &Leaf, alias: bool, facts: &[Facts]) {
    let value = checkpoint.value(leaf.target);
    json.name("kind").str(value.kind());
    match value {
        Value::Tensor(_) | Value::Array(_) => tensor(json, checkpoint, leaf.target, facts),
        Value::Sparse(sparse) => parts(json, checkpoint, sparse, facts),
        Value::Bool(value) => json.name("value").bool(*value),
        Value::Int(int) => {
            let text = int_text(int);
            if !(alias && text.len() > REPEATED) {
                json.name("value").str(&text);
            }
        }
        Value::Float(float) => json.name("value").str(&float_repr(*float)),
        Value::Complex(re, im) => json.name("value").array(|json| {
            json.str(&float_repr(*re));
            json.str(&float_repr(*im));
        }),
        Value::Str(text) if alias && text.as_bytes().len() > REPEATED => {}
        Value::Str(text) => json.name("value").text(text),
        Value::Bytes { data, .. } => {
            json.name("nbytes").number(data.len() as u64);
            if let [Facts { hash: Some(hash), .. }] = facts {
                json.name("sha256").str(hash);
            }
        }
        _ if value.kind() == "object" => {
            json.name("type").str(&type_name(checkpoint, leaf.target).unwrap_or_default());
            match facts {
                [contents] if contents.hash.is_none() => {
                    not_hashed(json, contents.of(checkpoint), contents);
                }
                _ if is_text_complete(checkpoint, leaf.target) => {
                    json.name("value").str(&text_of(checkpoint, leaf.target));
                }
                _ => json.name("sha256").str(&hash_of(checkpoint, leaf, facts)),
            }
        }
        _ => {}
    }
}

/// Writes the types that the other fields leave open, and the class of a tensor.
fn types(json: &mut Json, checkpoint: &Checkpoint, leaf: &Leaf) {
    if let Some(class) = tensor_class_text(checkpoint, leaf.target) {
        json.name("class").str(&class);
    }
    if let Some(types) = types_text(checkpoint, leaf) {
        json.name("types").str(&types);
    }
}

fn tensor(json: &mut Json, checkpoint: &Checkpoint, id: ValueId, facts: &[Facts]) {
    let [own, others @ ..] = facts else { return };
    let Some(tensor) = own.of(checkpoint) else { return };
    dense(json, tensor, own);
    let inner = checkpoint.attribute_tensors(id).len();
    let (of_quantizer, inner) = others.split_at(others.len().saturating_sub(inner));
    match &tensor.quantizer {
        None => {}
        Some(Quantizer::PerTensor { scale, zero_point }) => {
            json.name("quantizer").object(|json| {
                json.name("scale").str(&float_repr(*scale));
                json.name("zero_point").str(&zero_point.to_string());
            });
        }
        Some(Quantizer::PerChannel { axis, .. }) => json.name("quantizer").object(|json| {
            json.name("axis").number(*axis);
            for (name, part) in ["scales", "zero_points"].into_iter().zip(of_quantizer) {
                json.name(name).object(|json| part_fields(json, checkpoint, part));
            }
        }),
    }
    if let Some(attributes) = checkpoint.attributes(id).filter(|_| !inner.is_empty()) {
        let mut text = contents_hash(checkpoint, attributes, "");
        for part in inner {
            let why = || why_missing(part.of(checkpoint)).to_string();
            text.push_str(part.hash.as_ref().or(part.failed.as_ref()).unwrap_or(&why()));
        }
        json.name("attributes").str(&hex(&Sha256::digest(text)));
    }
}

fn parts(json: &mut Json, checkpoint: &Checkpoint, sparse: &Sparse, facts: &[Facts]) {
    json.name("dtype").str(sparse.dtype.name());
    json.name("shape").numbers(&sparse.shape);
    json.name("layout").str(&sparse.layout);
    json.name("parts").object(|json| {
        for ((name, _), part) in sparse.parts.iter().zip(facts) {
            json.name(name).object(|json| part_fields(json, checkpoint, part));
        }
    });
}

fn part_fields(json: &mut Json, checkpoint: &Checkpoint, part: &Facts) {
    if let Some(tensor) = part.of(checkpoint) {
        dense(json, tensor, part);
    }
}

fn dense(json: &mut Json, tensor: &Tensor, facts: &Facts) {
    json.name("dtype").str(tensor.dtype.name());
    json.name("shape").numbers(&tensor.shape);
    json.name("nbytes").number(tensor.nbytes().unwrap_or(0));
    if let Some(fields) = fields_text(&tensor.dtype) {
        json.name("fields").str(&fields);
    }
    match facts.hash.as_deref() {
        Some(hash) => json.name("sha256").str(hash),
        None => not_hashed(json, Some(tensor), facts),
    }
}

/// Writes why there is no hash.
fn not_hashed(json: &mut Json, tensor: Option<&Tensor>, facts: &Facts) {
    match &facts.failed {
        Some(why) => json.name("error").str(why),
        None => json.name("missing").text(&why_missing(tensor)),
    }
}

/// Returns why a tensor was not read.
fn why_missing(tensor: Option<&Tensor>) -> Text {
    let why = tensor.and_then(missing).cloned();
    why.unwrap_or_else(|| "a few bytes that are repeated too often".into())
}

/// Returns the hash of a value whose text is not complete.
fn hash_of(checkpoint: &Checkpoint, leaf: &Leaf, facts: &[Facts]) -> String {
    let contents = facts.first().and_then(|facts| facts.hash.as_deref());
    contents_hash(checkpoint, leaf.target, contents.unwrap_or_default())
}

fn int_text(int: &Int) -> String {
    let bytes = int.to_le_bytes();
    if bytes.len() <= DECIMAL {
        return int.to_string();
    }
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut magnitude = bytes;
    if negative {
        let mut carry = true;
        for byte in &mut magnitude {
            let (sum, over) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, over);
        }
    }
    magnitude.reverse();
    let digits = hex(&magnitude);
    format!("{}0x{}", if negative { "-" } else { "" }, digits.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{
        Builder, DType, Dict, DictKey, FileSet, Finding, FormatInfo, Global, Layout, Limits, List,
        Memory, Opaque, Span, TensorClass, Unwatched,
    };

    /// Returns a checkpoint whose root is a dict of these entries; ids count from 0 in order.
    fn checkpoint(tensors: Vec<Tensor>, entries: Vec<(&str, Value)>) -> Checkpoint {
        let mut builder = Builder::new(&Limits::default());
        for tensor in tensors {
            builder.push_tensor(tensor).unwrap();
        }
        let entries = entries
            .into_iter()
            .map(|(key, value)| (DictKey::from(key), builder.push(value).unwrap()))
            .collect();
        let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
        let mut format =
            FormatInfo { id: "torch-zip", version: "3".into(), ..FormatInfo::default() };
        format.traits.python_types = PythonTypes::All;
        let files = FileSet::single("x", Memory::from(vec![0, 0, 128, 63, 0, 0, 0, 64]));
        builder.finish(root, format, files, Vec::<Finding>::new()).unwrap()
    }

    fn manifest(checkpoint: &Checkpoint) -> (String, serde_json::Value) {
        let mut text = String::new();
        write_manifest(checkpoint, &checkpoint.leaves(), &mut Unwatched, &mut |piece| {
            text.push_str(piece);
            Ok(())
        })
        .unwrap();
        let parsed = serde_json::from_str(&text).unwrap();
        (text, parsed)
    }

    fn span(len: u64) -> Layout {
        Layout::Span(Span { file: statelens_checkpoint::FileId(0), offset: 0, len })
    }

    const ONE_AND_TWO: &str = "b9c80b5adeca450753a16950c3cc655d271f7bef7a485bc83f112b72fef21d37";

    #[test]
    fn each_kind_has_exactly_its_fields() {
        let mut quantized = Tensor::new(DType::QInt8, vec![8], span(8));
        quantized.quantizer = Some(Quantizer::PerTensor { scale: 0.5, zero_point: -1 });
        let gone = Tensor::new(DType::BF16, vec![3, 0], Layout::Missing("no file".into()));
        let object = Opaque {
            global: Global::new("a", "B.C"),
            form: statelens_checkpoint::Form::Instance,
            args: vec![],
            state: None,
            items: vec![],
            entries: vec![],
            repr: None,
            contents: None,
        };
        let checkpoint = checkpoint(
            vec![Tensor::new(DType::F32, vec![2], span(8)), gone, quantized],
            vec![
                ("t", Value::Tensor(TensorId(0))),
                ("tied", Value::Link(ValueId(0))),
                ("gone", Value::Tensor(TensorId(1))),
                ("q", Value::Tensor(TensorId(2))),
                ("i", Value::Int(Int::parse("-18446744073709551616").unwrap())),
                ("f", Value::Float(-0.0)),
                ("nan", Value::Float(f64::NAN)),
                ("b", Value::Bool(true)),
                ("n", Value::None),
                ("c", Value::Complex(1.0, f64::NEG_INFINITY)),
                ("y", Value::Bytes { data: [][..].into(), mutable: false }),
                ("o", Value::Opaque(Box::new(object))),
                ("l", Value::List(List::default())),
            ],
        );
        let (text, manifest) = manifest(&checkpoint);
        assert_eq!(text.lines().count(), 15);
        assert_eq!(
            manifest["format"],
            serde_json::json!({"name": "torch-zip", "version": "3", "producer": ""})
        );
        let entries = manifest["entries"].as_array().unwrap();
        let expected = [
            serde_json::json!({"key": "t", "kind": "tensor", "dtype": "float32", "shape": [2],
                "nbytes": 8, "sha256": ONE_AND_TWO}),
            serde_json::json!({"key": "tied", "kind": "tensor", "dtype": "float32", "shape": [2],
                "nbytes": 8, "sha256": ONE_AND_TWO, "alias_of": "t"}),
            serde_json::json!({"key": "gone", "kind": "tensor", "dtype": "bfloat16",
                "shape": [3, 0], "nbytes": 0, "missing": "no file"}),
            serde_json::json!({"key": "q", "kind": "tensor", "dtype": "qint8", "shape": [8],
                "nbytes": 8, "sha256": ONE_AND_TWO,
                "quantizer": {"scale": "0.5", "zero_point": "-1"}}),
            serde_json::json!({"key": "i", "kind": "int", "value": "-18446744073709551616"}),
            serde_json::json!({"key": "f", "kind": "float", "value": "-0.0"}),
            serde_json::json!({"key": "nan", "kind": "float", "value": "nan",
                "types": "str key"}),
            serde_json::json!({"key": "b", "kind": "bool", "value": true}),
            serde_json::json!({"key": "n", "kind": "none"}),
            serde_json::json!({"key": "c", "kind": "complex", "value": ["1.0", "-inf"]}),
            serde_json::json!({"key": "y", "kind": "bytes", "nbytes": 0, "sha256":
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "types": "bytes"}),
            serde_json::json!({"key": "o", "kind": "object", "type": "a.B.C", "value": "a.B.C()"}),
            serde_json::json!({"key": "l", "kind": "list", "types": "list"}),
        ];
        assert_eq!(*entries, expected);
    }

    #[test]
    fn lines_change_with_the_parts_of_tensors() {
        let lines = |checkpoint: &Checkpoint| {
            let mut text = String::new();
            let out = &mut |piece: &str| {
                text.push_str(piece);
                Ok(())
            };
            write_manifest_lines(checkpoint, &checkpoint.leaves(), &mut Unwatched, out).unwrap();
            text
        };
        let sparse = |values: [f32; 2]| {
            let values: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let inline = |dtype, data: Vec<u8>| {
                Tensor::new(dtype, vec![data.len() as u64 / 4], Layout::Inline(data.into()))
            };
            let parts = vec![("indices", ValueId(0)), ("values", ValueId(1))];
            let (dtype, layout, coalesced) = (DType::F32, "sparse_coo".to_owned(), Some(true));
            let whole = Sparse { layout, dtype, shape: vec![9], parts, coalesced };
            lines(&checkpoint(
                vec![inline(DType::I32, vec![0; 8]), inline(DType::F32, values)],
                vec![
                    ("i", Value::Tensor(TensorId(0))),
                    ("v", Value::Tensor(TensorId(1))),
                    ("s", Value::Sparse(Box::new(whole))),
                ],
            ))
        };
        let last = |text: String| text.lines().last().unwrap().to_owned();
        let (one, two) = (last(sparse([1.0, 2.0])), last(sparse([1.0, 3.0])));
        assert!(one != two && one.ends_with("\tfloat32\t[9]\ts"), "{one}\n{two}");
        assert_eq!(one.split('\t').next().unwrap().len(), 64, "{one}");
        let quantized = |scale: f64| {
            let mut tensor = Tensor::new(DType::QInt8, vec![8], span(8));
            tensor.quantizer = Some(Quantizer::PerTensor { scale, zero_point: 0 });
            lines(&checkpoint(vec![tensor], vec![("q", Value::Tensor(TensorId(0)))]))
        };
        assert_ne!(quantized(0.5), quantized(0.25));
        let with_scale = |scale: f32| {
            let own = Tensor::new(DType::U8, vec![8], span(8));
            let scale = Layout::Inline(scale.to_le_bytes()[..].into());
            let inner = Tensor::new(DType::F32, vec![], scale);
            let plain = checkpoint(vec![own, inner], vec![("w", Value::Tensor(TensorId(0)))]);
            let mut edit = plain.edit();
            let inner = edit.push(Value::Tensor(TensorId(1))).unwrap();
            edit.set_attributes(ValueId(0), inner);
            lines(&edit.rebuild(&plain).unwrap())
        };
        assert_ne!(with_scale(0.5), with_scale(0.25));
    }

    #[test]
    fn has_classes_of_tensors_and_names_in_enumerations() {
        let class = |change: &dyn Fn(&mut Tensor)| {
            let mut tensor = Tensor::new(DType::F32, vec![2], span(8));
            change(&mut tensor);
            let (_, manifest) =
                manifest(&checkpoint(vec![tensor], vec![("w", Value::Tensor(TensorId(0)))]));
            assert_eq!(manifest["classes"], true);
            manifest["entries"][0]["class"].clone()
        };
        assert!(class(&|_| {}).is_null());
        assert_eq!(class(&|tensor| tensor.requires_grad = true), "requires_grad");
        let parameter = class(&|tensor| {
            (tensor.class, tensor.requires_grad) = (TensorClass::Parameter, true);
        });
        assert_eq!(parameter, "torch.nn.Parameter, requires_grad");
        let types = |names: &str| {
            let mut builder = Builder::new(&Limits::default());
            let id = builder.push_tensor(Tensor::new(DType::I8, vec![8], span(8))).unwrap();
            let value = builder.push(Value::Tensor(id)).unwrap();
            builder.set_raw_attributes(value, vec![("(datatype)".into(), names.into())]);
            let files = FileSet::single("x", Memory::from(vec![0; 8]));
            let format = FormatInfo::default();
            let checkpoint = builder.finish(value, format, files, Vec::new()).unwrap();
            manifest(&checkpoint).1["entries"][0]["types"].clone()
        };
        assert_eq!(types("enum of int8 (A = 0)"), "enum of int8 (A = 0)");
        assert!(types("record (a int8)").is_null());
    }

    #[test]
    fn unreadable_tensor_does_not_stop_hashing() {
        let good = Tensor::new(DType::F32, vec![2], span(8));
        let bad = Tensor::new(DType::F32, vec![200], span(800));
        let checkpoint = checkpoint(
            vec![bad, good],
            vec![("bad", Value::Tensor(TensorId(0))), ("good", Value::Tensor(TensorId(1)))],
        );
        let mut text = String::new();
        let leaves = checkpoint.leaves();
        let unread = write_manifest(&checkpoint, &leaves, &mut Unwatched, &mut |piece| {
            text.push_str(piece);
            Ok(())
        });
        let unread = unread.unwrap();
        assert_eq!((unread.len(), unread[0].key.clone()), (1, "bad".into()));
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed["entries"][0]["error"], unread[0].why.as_str());
        assert!(parsed["entries"][1]["sha256"].is_string());
        let lines = write_manifest_lines(&checkpoint, &leaves, &mut Unwatched, &mut |_| Ok(()));
        assert_eq!(lines.unwrap(), unread);
    }

    #[test]
    fn lone_surrogates_are_escaped() {
        let text = Text::from_code_points([0x61, 0xd800]).unwrap();
        let checkpoint = checkpoint(vec![], vec![("s", Value::Str(text))]);
        let mut text = String::new();
        write_manifest(&checkpoint, &checkpoint.leaves(), &mut Unwatched, &mut |piece| {
            text.push_str(piece);
            Ok(())
        })
        .unwrap();
        // serde_json refuses lone surrogates; Python accepts them.
        assert!(text.contains(r#"{"key":"s","kind":"str","value":"a\ud800"}"#), "{text}");
    }

    #[test]
    fn does_not_hash_huge_constants() {
        let fill = Layout::Fill([0; 4][..].into());
        let bomb = Tensor::new(DType::F32, vec![1 << 50], fill);
        let checkpoint = checkpoint(vec![bomb], vec![("w", Value::Tensor(TensorId(0)))]);
        let (_, manifest) = manifest(&checkpoint);
        let entry = &manifest["entries"][0];
        assert!(entry["missing"].is_string() && entry["sha256"].is_null(), "{entry}");
    }

    #[test]
    fn long_strings_and_integers_take_linear_time() {
        let long: Text = "x".repeat(5_000).into();
        let mut bytes = vec![0; 20_000];
        bytes[19_999] = 0x80;
        let checkpoint = checkpoint(
            vec![],
            vec![
                ("s", Value::Str(long)),
                ("again", Value::Link(ValueId(0))),
                ("i", Value::Int(Int::from_le_bytes(&bytes))),
            ],
        );
        let (_, manifest) = manifest(&checkpoint);
        assert_eq!(manifest["entries"][0]["value"].as_str().unwrap().len(), 5_000);
        assert_eq!(
            manifest["entries"][1],
            serde_json::json!({"key": "again", "kind": "str", "alias_of": "s"})
        );
        let hex = manifest["entries"][2]["value"].as_str().unwrap();
        assert!(hex.starts_with("-0x800000") && hex.len() == 40_003, "{}", hex.len());
    }
}
