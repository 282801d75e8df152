//! Format 0.5: JSON in attributes of the root group.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::rc::Rc;

use statelens_checkpoint::json::{Document, Id, JsonNode};
use statelens_checkpoint::{
    DType, Error, Interner, Layout, Limits, Progress, Result, Tensor, Text, Value, ValueId,
    try_alloc,
};
use statelens_hdf5::{AttributeValues, Object};

use super::elements::{Constant, constant, torch_dtype};
use super::spec::{NodeKind, Spec};
use super::{
    CerebrasFile, CerebrasReading, LeafReader, address_of, base_name, elsewhere_text, first,
    missing_file_text, unread,
};
use crate::cerebras::metadata::{is_same, self_link};
use crate::cerebras::rtfx;

/// The container of a checkpoint: an HDF5 file, or a folder of objects. Texts about the values have
/// names in it, and so have the objects with their elements.
pub(super) trait Container {
    /// Returns a text by its name.
    fn text(&self, name: &[u8]) -> Result<Option<Text>>;

    /// Prefetches the texts about these values.
    fn texts_ahead(&self, flat: &[&Text]) -> Result<()>;

    /// Prefetches the structures of the objects of these values.
    fn objects_ahead(&self, flat: &[&Text]) -> Result<()>;

    /// Reads the value in the object `name`. Also returns the attributes of the object that the
    /// metadata does not have.
    fn object(
        &self,
        reading: &mut CerebrasReading<'_>,
        name: &Text,
        stored: StoredValue<'_>,
    ) -> Result<(ValueId, Vec<(Text, Text)>)>;

    /// Returns the container that a link leads to.
    fn target(&self, path: &str, link: StoredValue<'_>) -> LinkTarget;
}

/// A value with an object, as the metadata describes it.
#[derive(Clone, Copy)]
pub(super) struct StoredValue<'a> {
    /// The key of the value.
    pub(super) key: &'a Text,
    /// The serializer that restores it.
    pub(super) class: &'a str,
    pub(super) about: Metadata<'a>,
    /// The link that leads to it, if the value is one, and what that says about its target.
    pub(super) link: Option<Metadata<'a>>,
    pub(super) target: Option<Metadata<'a>>,
    /// The attributes that the value has from its metadata.
    pub(super) known: &'a [(Text, Text)],
}

/// A link to an object of the same checkpoint.
pub(super) struct OwnLink {
    /// Whether it names the address at which the checkpoint was before.
    pub(super) moved: bool,
}

impl StoredValue<'_> {
    /// Returns whether the link leads to the checkpoint at `address`, or to its former address.
    /// `flat` is the key of the value in the state dict.
    pub(super) fn own_link(&self, flat: &[u8], address: Option<&str>) -> Option<OwnLink> {
        let Metadata { document, id } = self.link?;
        self_link(document, id, flat, address)?;
        let path = document.field(id, "path")?.text()?.to_lossy();
        Some(OwnLink { moved: !address.is_some_and(|here| is_same(&path, here)) })
    }
}

/// Where a link leads.
pub(super) enum LinkTarget {
    /// A key of the same checkpoint.
    Same,
    /// A file, which may be in the set.
    File,
    /// An address that is not read.
    Elsewhere,
}

pub(super) fn read(
    reading: &mut CerebrasReading<'_>,
    main: Rc<dyn Container>,
    spec: Text,
    progress: &mut dyn Progress,
) -> Result<ValueId> {
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
    main: Rc<dyn Container>,
    spec: &Text,
    progress: &mut dyn Progress,
) -> Result<()> {
    let keys = first::keys(spec.as_bytes());
    if keys.is_empty() || main.texts_ahead(&keys.iter().collect::<Vec<_>>()).is_err() {
        return Ok(());
    }
    let mut current = Current::new(main);
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
    main: Rc<dyn Container>,
    /// Interned names and values that repeat in the metadata of every value.
    texts: Interner,
    /// Values that are links, with the flat keys of their targets.
    links: Vec<(ValueId, Text)>,
}

#[derive(Clone, Copy)]
pub(super) struct Metadata<'a> {
    pub(super) document: &'a Document,
    pub(super) id: Id,
}

/// The maximum nesting of serialised values; the library nests three levels.
const DEEPEST: u32 = 16;

impl LeafReader for Current {
    fn ahead(&mut self, flat: &[&Text]) -> Result<()> {
        self.main.texts_ahead(flat)?;
        self.main.objects_ahead(flat)
    }

    fn value(
        &mut self,
        reading: &mut CerebrasReading<'_>,
        flat: &Text,
        progress: &mut dyn Progress,
    ) -> Result<ValueId> {
        let main = self.main.clone();
        let name = metadata_name(flat);
        let text =
            main.text(&name)?.ok_or_else(|| Error::damaged("its metadata attribute is missing"))?;
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
    fn new(main: Rc<dyn Container>) -> Self {
        Self { main, texts: Interner::default(), links: Vec::new() }
    }

    /// Returns dtype and shape of a tensor from its metadata, without reading its object.
    fn described(&mut self, flat: &Text) -> Option<(DType, Vec<u64>)> {
        let name = metadata_name(flat);
        let text = self.main.text(&name).ok()??;
        let document = Document::parse_sharing(text.as_bytes(), &mut self.texts).ok()?;
        let id = document.get(document.root(), &name).filter(|_| is_plain(&document, flat))?;
        let metadata = Metadata { document: &document, id };
        let is_here = metadata.class().is_ok_and(|class| class == "TorchTensorSerializer");
        if !is_here || metadata.text("path").is_some() {
            return None;
        }
        Some((metadata.dtype()?, metadata.shape("shapes")?))
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
                let path = path.to_lossy();
                let (dtype, shape) = metadata.dtype_and_shape("shape")?;
                let link = StoredValue {
                    key,
                    class: &class,
                    about: metadata,
                    link: None,
                    target: None,
                    known: &[],
                };
                let value = match container.target(&path, link) {
                    LinkTarget::File => reading.raw_tensor(&path, dtype, shape)?,
                    _ => reading.elsewhere(&path, Some((dtype, shape)))?,
                };
                reading.builder.push(value)?
            }
            "TorchTensorSerializer" | "NumpyArraySerializer" | "ObjectSerializer" => {
                let stored = StoredValue {
                    key,
                    class: &class,
                    about: metadata,
                    link: None,
                    target: None,
                    known: &raw,
                };
                let container = container.clone();
                let (id, own) = container.object(reading, key, stored)?;
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
        let inner = link.document.get(link.id, "metadata");
        let inner = inner.map_or(link, |id| Metadata { document: link.document, id });
        let link_class = link.class()?;
        let (about, raw) = (outer.unwrap_or(inner), link.raw(&mut self.texts));
        let value = StoredValue {
            key,
            class: &link_class,
            about,
            link: Some(link),
            target: Some(inner),
            known: &[],
        };
        let target = context.container.target(&path, value);
        if matches!(target, LinkTarget::Elsewhere) {
            let value = context.reading.elsewhere(&path, known)?;
            let id = context.reading.builder.push(value)?;
            context.reading.builder.set_raw_attributes(id, raw);
            return Ok(id);
        }
        if link_class == "DeferredSafeTensor" {
            let value = match context.reading.safetensor(&path, there, context.progress)? {
                Some(tensor) => context.reading.tensor(tensor)?,
                None => unread(&missing_file_text(base_name(&path))),
            };
            let id = context.reading.builder.push(value)?;
            context.reading.builder.set_raw_attributes(id, raw);
            return Ok(id);
        }
        let other: Option<Rc<dyn Container>> = match target {
            LinkTarget::Same => Some(context.container.clone()),
            _ => match context.reading.other(&path)? {
                Some(file) => Some(file),
                None => None,
            },
        };
        let Some(other) = other else {
            let why = missing_file_text(base_name(&path));
            let value = match known {
                Some((dtype, shape)) => context.reading.missing_tensor(dtype, shape, why)?,
                None => unread(&why),
            };
            return context.reading.builder.push(value);
        };
        let class = match outer {
            Some(_) => "TorchTensorSerializer".into(),
            None => inner.class()?,
        };
        let value = StoredValue { class: &class, ..value };
        let (id, own) = other.object(context.reading, there, value)?;
        let mut raw = raw;
        raw.extend(own);
        context.reading.builder.set_raw_attributes(id, raw);
        Ok(id)
    }
}

impl CerebrasReading<'_> {
    /// Returns the value of a link to a checkpoint that is not read, and counts it.
    fn elsewhere(&mut self, path: &str, known: Option<(DType, Vec<u64>)>) -> Result<Value> {
        *self.elsewhere.entry(path.to_owned()).or_default() += 1;
        let why = elsewhere_text(path);
        match known {
            Some((dtype, shape)) => self.missing_tensor(dtype, shape, why),
            None => Ok(unread(&why)),
        }
    }
}

impl Container for CerebrasFile {
    fn text(&self, name: &[u8]) -> Result<Option<Text>> {
        let mut browse = self.browse.borrow_mut();
        let attribute = browse.root_attribute(name)?;
        let Some(found) = attribute else { return Ok(None) };
        let values = found.values(browse.file())?;
        let text = values.text().ok_or_else(|| Error::damaged("its metadata is not text"))?;
        Ok(Some(text.clone()))
    }

    fn texts_ahead(&self, flat: &[&Text]) -> Result<()> {
        let names = try_alloc::collect(flat.iter().map(|flat| metadata_name(flat)))?;
        self.browse.borrow_mut().attributes_ahead(names.iter().map(Vec::as_slice))
    }

    fn objects_ahead(&self, flat: &[&Text]) -> Result<()> {
        let address = |flat: &&Text| self.browse.borrow_mut().find(&flat.to_lossy()).ok().flatten();
        let addresses = try_alloc::collect(flat.iter().filter_map(address))?;
        self.browse.borrow_mut().ahead(addresses)
    }

    fn object(
        &self,
        reading: &mut CerebrasReading<'_>,
        name: &Text,
        value: StoredValue<'_>,
    ) -> Result<(ValueId, Vec<(Text, Text)>)> {
        let object = self.find(name)?;
        let id = stored(reading, self, &object, value.about, value.key, value.class)?;
        Ok((id, self.raw_attributes(&object, value.known)))
    }

    fn target(&self, path: &str, _: StoredValue<'_>) -> LinkTarget {
        if address_of(path).is_some() { LinkTarget::Elsewhere } else { LinkTarget::File }
    }
}

/// The context in which a value is read: the shared state, its container, and the progress to
/// report to.
struct ReadContext<'r, 'a, 'p> {
    reading: &'r mut CerebrasReading<'a>,
    container: &'r Rc<dyn Container>,
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

    pub(super) fn text(&self, name: &str) -> Option<&'a Text> {
        self.field(name)?.text()
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
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
