//! Format 0.5: JSON in attributes of the root group.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::rc::Rc;

use statelens_checkpoint::json::{Document, Id, JsonNode};
use statelens_checkpoint::{
    DType, Error, Interner, Layout, Limits, Progress, Result, Tensor, Text, Value, ValueId, room,
};
use statelens_hdf5::{AttributeValues, Object};

use super::elements::{Constant, constant, torch_dtype};
use super::spec::{NodeKind, Spec};
use super::{
    CerebrasFile, CerebrasReading, LeafReader, base_name, first, missing_file_text, unread,
};
use crate::cerebras::rtfx;

pub(super) fn read(
    reading: &mut CerebrasReading<'_>,
    spec: Text,
    progress: &mut dyn Progress,
) -> Result<ValueId> {
    let main = reading.main.clone();
    let spec = tree(spec, reading.limits)?;
    let mut current = Current::new(main);
    let (top, keys) = reading.walk(spec, progress, &mut current)?;
    reading.resolve(current.links, &keys, |_, key| {
        Err(Error::damaged(format!("it is a link to {key}, which does not exist")))
    })?;
    Ok(top)
}

/// Reports the first tensors of a large file, using only their metadata. Fails only if the user
/// cancelled: errors in the file are reported when it is read.
pub(super) fn report_first(
    main: &Rc<CerebrasFile>,
    spec: &Text,
    progress: &mut dyn Progress,
) -> Result<()> {
    let keys = first::keys(spec.as_bytes());
    let mut current = Current::new(main.clone());
    if keys.is_empty() || current.ahead(&keys.iter().collect::<Vec<_>>()).is_err() {
        return Ok(());
    }
    for key in &keys {
        if let Some((dtype, shape)) = current.described(key) {
            progress.found(key, &dtype, &shape);
        }
    }
    progress.check(0, 0)
}

/// Parses the tree, which is a JSON string within JSON. Either is as long as all keys together, so
/// both are freed on return.
fn tree(spec: Text, limits: &Limits) -> Result<Spec> {
    let document = Document::parse_sharing(spec.as_bytes(), &mut Interner::default())
        .map_err(|error| error.context("`__spec__`"))?;
    drop(spec);
    let text = document.items(document.root()).get(1).and_then(|id| document.node(*id).text());
    let text = text.cloned();
    drop(document);
    Spec::from_json(text.ok_or_else(|| Error::damaged("`__spec__` does not hold a tree"))?, limits)
}

struct Current {
    main: Rc<CerebrasFile>,
    /// Interned names and values that repeat in the metadata of every value.
    texts: Interner,
    /// Values that are links, with the flat keys of their targets.
    links: Vec<(ValueId, Text)>,
}

#[derive(Clone, Copy)]
struct Metadata<'a> {
    document: &'a Document,
    id: Id,
}

/// The maximum nesting of serialised values; the library nests three levels.
const DEEPEST: u32 = 16;

impl LeafReader for Current {
    fn address(&self, flat: &Text) -> Option<u64> {
        self.main.browse.borrow_mut().find(&flat.to_lossy()).ok().flatten()
    }

    fn ahead(&mut self, flat: &[&Text]) -> Result<()> {
        let names = room::collect(flat.iter().map(|flat| metadata_name(flat)))?;
        self.main.browse.borrow_mut().attributes_ahead(names.iter().map(Vec::as_slice))
    }

    fn value(
        &mut self,
        reading: &mut CerebrasReading<'_>,
        flat: &Text,
        progress: &mut dyn Progress,
    ) -> Result<ValueId> {
        let main = self.main.clone();
        let name = metadata_name(flat);
        let values = self
            .attribute(&name)?
            .ok_or_else(|| Error::damaged("its metadata attribute is missing"))?;
        let text = values.text().ok_or_else(|| Error::damaged("its metadata is not text"))?;
        let document = Document::parse_sharing(text.as_bytes(), &mut self.texts)
            .map_err(|error| error.context("its metadata"))?;
        if is_plain(&document, flat) {
            // The common case: the spec need not be parsed.
            let mut context = ReadContext { reading, container: &main, progress };
            let metadata = Metadata { document: &document, id: document.root() };
            return match document.get(document.root(), &name) {
                Some(id) => self.object(&mut context, Metadata { id, ..metadata }, flat),
                None => Err(metadata.without("__metadata__")),
            };
        }
        let spec = document
            .get(document.root(), "__spec__")
            .and_then(|id| document.items(id).get(1))
            .and_then(|id| document.node(*id).text());
        let spec = match spec {
            Some(text) => Some(Spec::from_json(text.clone(), reading.limits)?),
            None => None,
        };
        // The spec of a single value is a dict with one key, which is the value's own.
        let node =
            spec.as_ref().and_then(|spec| Some((spec, spec.nodes.first()?.children().next()?)));
        let mut context = ReadContext { reading, container: &main, progress };
        self.nested(&mut context, &document, node, flat, DEEPEST)
    }
}

impl Current {
    fn new(main: Rc<CerebrasFile>) -> Self {
        Self { main, texts: Interner::default(), links: Vec::new() }
    }

    /// Returns dtype and shape of a tensor from its metadata, without reading its object.
    fn described(&mut self, flat: &Text) -> Option<(DType, Vec<u64>)> {
        let name = metadata_name(flat);
        let values = self.attribute(&name).ok()??;
        let document = Document::parse_sharing(values.text()?.as_bytes(), &mut self.texts).ok()?;
        let id = document.get(document.root(), &name).filter(|_| is_plain(&document, flat))?;
        let metadata = Metadata { document: &document, id };
        let is_here = metadata.class().is_ok_and(|class| class == "TorchTensorSerializer");
        if !is_here || metadata.text("path").is_some() {
            return None;
        }
        Some((metadata.dtype()?, metadata.shape("shapes")?))
    }

    /// Reads the values of the root group's attribute with this name.
    fn attribute(&self, name: &[u8]) -> Result<Option<AttributeValues>> {
        let mut browse = self.main.browse.borrow_mut();
        let attribute = browse.root_attribute(name)?;
        attribute.map(|found| found.values(browse.file())).transpose()
    }

    /// Reads the value at a node of a nested spec: an object, or an object nested within the
    /// description of another.
    fn nested(
        &mut self,
        context: &mut ReadContext<'_, '_, '_>,
        document: &Document,
        node: Option<(&Spec, usize)>,
        key: &Text,
        depth: u32,
    ) -> Result<ValueId> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(Error::limit("serialised values nest too deeply"));
        };
        let metadata = |key: &Text| {
            let id = document.get(document.root(), metadata_name(key));
            id.map(|id| Metadata { document, id })
                .ok_or_else(|| Error::damaged(format!("the metadata of {key} is missing")))
        };
        let inner = node.and_then(|(spec, node)| {
            let node = &spec.nodes[node];
            let is_nested = node.0.as_ref().is_some_and(|it| it.shape == NodeKind::NestedObject);
            is_nested.then_some((spec, node.children().next()?))
        });
        let Some((spec, inner)) = inner else {
            return self.object(context, metadata(key)?, key);
        };
        let outer = metadata(&step(key, "1"))?;
        let id = match &*outer.class()? {
            "DeferredGraphTensor" => {
                let why = "it is computed by a TorchScript graph, which is never run";
                let value = match (outer.dtype(), outer.shape("shape")) {
                    (Some(dtype), Some(shape)) => {
                        context.reading.missing_tensor(dtype, shape, why.into())?
                    }
                    _ => unread(why),
                };
                context.reading.builder.push(value)?
            }
            _ => {
                let key = step(key, "0");
                match (spec.nodes[inner].0.is_none()).then(|| metadata(&key)).transpose()? {
                    Some(link) if link.text("path").is_some() => {
                        self.linked(context, link, Some(outer), &key)?
                    }
                    Some(metadata) => self.object(context, metadata, &key)?,
                    None => self.nested(context, document, Some((spec, inner)), &key, depth)?,
                }
            }
        };
        let raw = outer.raw(&mut self.texts);
        context.reading.builder.set_raw_attributes(id, raw);
        Ok(id)
    }

    fn object(
        &mut self,
        context: &mut ReadContext<'_, '_, '_>,
        metadata: Metadata<'_>,
        key: &Text,
    ) -> Result<ValueId> {
        if metadata.text("path").is_some() && metadata.text("key").is_some() {
            return self.linked(context, metadata, None, key);
        }
        let ReadContext { reading, container, .. } = context;
        let class = metadata.class()?;
        let mut raw = metadata.raw(&mut self.texts);
        let id = match &*class {
            "ScalarSerializer" => reading.builder.push(metadata.scalar()?)?,
            "StringSerializer" => {
                let text = metadata
                    .text("string_value")
                    .ok_or_else(|| metadata.without("string_value"))?;
                reading.builder.push(Value::Str(text.clone()))?
            }
            "NoneSerializer" => reading.builder.push(Value::None)?,
            "LinkedObject" => {
                let target = metadata.text("key").ok_or_else(|| metadata.without("key"))?;
                let id = reading.builder.push(Value::None)?;
                self.links.push((id, target.clone()));
                id
            }
            "DeferredFullTensor" => {
                let value = metadata.constant(reading, key)?;
                reading.builder.push(value)?
            }
            "DeferredFileTensor" if metadata.text("filepath").is_some() => {
                let path = metadata.text("filepath").ok_or_else(|| metadata.without("filepath"))?;
                let (dtype, shape) = metadata.dtype_and_shape("shape")?;
                let value = reading.raw_tensor(&path.to_lossy(), dtype, shape)?;
                reading.builder.push(value)?
            }
            "TorchTensorSerializer" | "NumpyArraySerializer" | "ObjectSerializer" => {
                let container = container.clone();
                let object = container.find(key)?;
                let id = stored(reading, &container, &object, metadata, key, &class)?;
                let own = container.raw_attributes(&object, &raw);
                raw.reserve_exact(own.len());
                raw.extend(own);
                id
            }
            _ => {
                return Err(Error::unsupported(format!(
                    "values of class {class} are not supported"
                )));
            }
        };
        reading.builder.set_raw_attributes(id, raw);
        Ok(id)
    }

    /// Reads an object in another checkpoint. `outer` describes the tensor to make of it.
    fn linked(
        &mut self,
        context: &mut ReadContext<'_, '_, '_>,
        link: Metadata<'_>,
        outer: Option<Metadata<'_>>,
        key: &Text,
    ) -> Result<ValueId> {
        let path = link.text("path").ok_or_else(|| link.without("path"))?.to_lossy().into_owned();
        let there = link.text("key").ok_or_else(|| link.without("key"))?;
        let known = outer.and_then(|outer| outer.dtype_and_shape("shapes").ok());
        if link.class()? == "DeferredSafeTensor" {
            let value = match context.reading.safetensor(&path, there, context.progress)? {
                Some(tensor) => context.reading.tensor(tensor)?,
                None => unread(&missing_file_text(base_name(&path))),
            };
            let id = context.reading.builder.push(value)?;
            let raw = link.raw(&mut self.texts);
            context.reading.builder.set_raw_attributes(id, raw);
            return Ok(id);
        }
        let Some(other) = context.reading.other(&path)? else {
            let why = missing_file_text(base_name(&path));
            let value = match known {
                Some((dtype, shape)) => context.reading.missing_tensor(dtype, shape, why)?,
                None => unread(&why),
            };
            return context.reading.builder.push(value);
        };
        let inner = link.document.get(link.id, "metadata");
        let inner = inner.map_or(link, |id| Metadata { document: link.document, id });
        let class = match (outer, inner.class()?) {
            (Some(_), _) => "TorchTensorSerializer".into(),
            (None, class) => class,
        };
        let object = other.find(there)?;
        let id = stored(context.reading, &other, &object, outer.unwrap_or(inner), key, &class)?;
        let mut raw = link.raw(&mut self.texts);
        raw.extend(other.raw_attributes(&object, &[]));
        context.reading.builder.set_raw_attributes(id, raw);
        Ok(id)
    }
}

/// The context in which a value is read: the shared state, its container, and the progress to
/// report to.
struct ReadContext<'r, 'a, 'p> {
    reading: &'r mut CerebrasReading<'a>,
    container: &'r Rc<CerebrasFile>,
    progress: &'p mut dyn Progress,
}

fn stored(
    reading: &mut CerebrasReading<'_>,
    container: &CerebrasFile,
    object: &Object,
    metadata: Metadata<'_>,
    key: &Text,
    class: &str,
) -> Result<ValueId> {
    if class == "ObjectSerializer" {
        let bytes = match container.values(object, "__BYTES__")? {
            Some(AttributeValues::Opaque(bytes)) => bytes,
            // A link may lead to a file of the older family.
            _ => super::legacy::pickled_bytes(container, object)
                .map_err(|_| Error::damaged("its pickled bytes are missing"))?
                .into(),
        };
        return reading.pickled(&bytes, key);
    }
    let dataset = reading.dataset(object, key)?;
    let value = match class {
        // The dataset's own attributes take precedence over the root's metadata, as in the library.
        "NumpyArraySerializer" => {
            let own = container.values(object, "is_bfloat16")?.and_then(|values| values.truth());
            let is_bfloat16 = own.unwrap_or_else(|| metadata.is_true("is_bfloat16"));
            reading.dataset_array(container, dataset, is_bfloat16, false)?
        }
        _ => {
            let own = match container.values(object, "dtypes")? {
                Some(AttributeValues::Text(names)) => {
                    names.first().and_then(|name| torch_dtype(&name.to_lossy()))
                }
                _ => None,
            };
            let dtype = own.or_else(|| metadata.dtype());
            reading.dataset_tensor(container, dataset, dtype)?
        }
    };
    reading.builder.push(value)
}

impl<'a> Metadata<'a> {
    fn field(&self, name: &str) -> Option<&'a JsonNode> {
        self.document.field(self.id, name)
    }

    fn text(&self, name: &str) -> Option<&'a Text> {
        self.field(name)?.text()
    }

    fn is_true(&self, name: &str) -> bool {
        self.field(name).is_some_and(JsonNode::is_true)
    }

    fn without(&self, name: &str) -> Error {
        Error::damaged(format!("its metadata has no `{name}`"))
    }

    fn class(&self) -> Result<Cow<'a, str>> {
        let class = self.text("__TYPE__").ok_or_else(|| self.without("__TYPE__"))?;
        Ok(class.to_lossy())
    }

    fn raw(&self, texts: &mut Interner) -> Vec<(Text, Text)> {
        let JsonNode::Object(entries) = self.document.node(self.id) else { return Vec::new() };
        let mut text = |id: Id| match self.document.node(id) {
            JsonNode::Str(text) => text.clone(),
            _ => {
                let mut text = String::with_capacity(64);
                // Writing to a `String` can't fail.
                let _ = write!(text, "{}", self.document.python(id));
                texts.text(text.as_bytes()).unwrap_or_else(|_| text.into())
            }
        };
        entries.iter().map(|(name, id)| (name.clone(), text(*id))).collect()
    }

    fn scalar(&self) -> Result<Value> {
        Ok(match self.field("scalar_value").ok_or_else(|| self.without("scalar_value"))? {
            JsonNode::Bool(value) => Value::Bool(*value),
            JsonNode::Int(int) => Value::Int(int.clone()),
            JsonNode::Float(float) => Value::Float(*float),
            JsonNode::Null => Value::None,
            JsonNode::Str(text) => Value::Str(text.clone()),
            _ => return Err(Error::damaged("a scalar whose value is not a scalar")),
        })
    }

    /// Returns the dtype: by its torch name, else by the number of the appliance's type.
    fn dtype(&self) -> Option<DType> {
        let first = |name: &str| {
            let id = self.document.get(self.id, name)?;
            Some(self.document.node(*self.document.items(id).first()?))
        };
        let named = first("dtypes").or_else(|| self.field("dtype"));
        let named = named.and_then(JsonNode::text).and_then(|name| torch_dtype(&name.to_lossy()));
        named.or_else(|| match first("rtfx_dtypes")? {
            JsonNode::Int(code) => rtfx::dtype(code.to_i64()?),
            _ => None,
        })
    }

    /// Returns the shape in this field. The field `shapes` has a list, of which the first counts.
    fn shape(&self, name: &str) -> Option<Vec<u64>> {
        let mut id = self.document.get(self.id, name)?;
        if name == "shapes" {
            id = *self.document.items(id).first()?;
        }
        let JsonNode::Array(dims) = self.document.node(id) else { return None };
        dims.iter()
            .map(|dim| match self.document.node(*dim) {
                JsonNode::Int(dim) => dim.to_u64(),
                _ => None,
            })
            .collect()
    }

    fn dtype_and_shape(&self, shape: &str) -> Result<(DType, Vec<u64>)> {
        let dtype = self.dtype().ok_or_else(|| self.without("dtype"))?;
        Ok((dtype, self.shape(shape).ok_or_else(|| self.without(shape))?))
    }

    fn constant(&self, reading: &mut CerebrasReading<'_>, key: &Text) -> Result<Value> {
        let (dtype, shape) = self.dtype_and_shape("shape")?;
        let value = match self.field("fill_value") {
            None | Some(JsonNode::Null) => {
                reading.without_value(key);
                Constant::Int(0i64.into())
            }
            Some(node) => Constant::from_json(node)
                .ok_or_else(|| Error::damaged("a fill value that is not a number"))?,
        };
        let bytes = constant(&dtype, &value)
            .ok_or_else(|| Error::damaged(format!("a fill value that {dtype} can't hold")))?;
        reading.tensor(Tensor::new(dtype, shape, Layout::Fill(bytes.into())))
    }
}

/// Returns whether the metadata describes a single object with the value's own key, and nothing
/// else.
fn is_plain(document: &Document, flat: &Text) -> bool {
    let root = document.root();
    let JsonNode::Object(entries) = document.node(root) else { return false };
    let objects = document.get(root, "__objects__");
    match objects.map(|objects| document.items(objects)) {
        Some([one]) => entries.len() == 3 && document.node(*one).text() == Some(flat),
        _ => false,
    }
}

fn metadata_name(key: &Text) -> Vec<u8> {
    [key.as_bytes(), b".__metadata__"].concat()
}

fn step(key: &Text, step: &str) -> Text {
    super::join(key, &step.into())
}
