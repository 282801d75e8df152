//! Adds an HDF5 container of weights, or a NumPy archive of them, to a checkpoint.

use std::collections::HashSet;

use statelens_checkpoint::{
    Builder, ByteOrder, DType, FileId, FileSet, Finding, Layout, Limits, Memory, Progress, Result,
    Span, TensorId, Text, Value, ValueId,
};
use statelens_hdf5::{AttributeValues, Hdf5File, Object};

use super::config::ConfigLayer;
use super::order::{PathOrder, merge};
use crate::hdf5::read::{Grown, about_file, grow, raw_attributes};
use crate::numpy::{self, read::ArchiveContents};

/// A checkpoint that is being built from one or more containers.
pub(super) struct Growing {
    pub(super) builder: Builder,
    pub(super) findings: Vec<Finding>,
    pub(super) order: PathOrder,
    /// The names in the lists of layers and weights.
    pub(super) lists: PathOrder,
    /// The names of layers in lists.
    pub(super) layer_names: HashSet<Text>,
    /// The layers of the model, if they have groups by class.
    pub(super) layers: Vec<ConfigLayer>,
    /// The root group of the first container, into which the others are merged.
    pub(super) root: Option<ValueId>,
    /// Attributes of all root groups.
    pub(super) attributes: Vec<(Text, Text)>,
    /// Whether the files list their layers by name, as in Keras 2.
    pub(super) legacy: bool,
}

impl Growing {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            builder: Builder::new(limits),
            findings: Vec::new(),
            order: PathOrder::default(),
            lists: PathOrder::default(),
            layer_names: HashSet::new(),
            layers: Vec::new(),
            root: None,
            attributes: Vec::new(),
            legacy: false,
        }
    }

    /// Adds a container that was decompressed; its content stays in memory.
    pub(super) fn add_unpacked(
        self,
        name: &str,
        bytes: Vec<u8>,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let files = FileSet::single(name, Memory::from(bytes));
        let before = self.builder.tensors();
        let main = files.main()?;
        let mut growing = match name.ends_with(".npz") {
            true => {
                self.add_npz(&files, Span { file: main, offset: 0, len: files.len(main) }, progress)
            }
            false => self.add(&files, main, 0, progress),
        }?;
        for index in before..growing.builder.tensors() {
            let Some(tensor) = growing.builder.tensor_mut(TensorId(index)) else { continue };
            if matches!(tensor.layout, Layout::Missing(_) | Layout::Inline(_) | Layout::Fill(_)) {
                continue;
            }
            let count = tensor.numel().unwrap_or(u64::MAX);
            match statelens_tensor::elements(&files, tensor, 0..count) {
                Ok(bytes) => {
                    tensor.layout = Layout::Inline(bytes.into());
                    tensor.byte_order = ByteOrder::Little;
                }
                Err(error) => tensor.layout = Layout::Missing(error.to_string().as_str().into()),
            }
        }
        Ok(growing)
    }

    /// Adds the NumPy archive at `span`.
    pub(super) fn add_npz(
        mut self,
        files: &FileSet,
        span: Span,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let ArchiveContents { builder, root, findings, .. } =
            numpy::read::archive(files, span, self.builder, progress)?;
        self.findings.extend(findings);
        self.root = Some(root);
        Ok(Self { builder, ..self })
    }

    /// Adds the container that begins at byte `start` of a file.
    pub(super) fn add(
        mut self,
        files: &FileSet,
        id: FileId,
        start: u64,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let limits = self.builder.limits().clone();
        let file = Hdf5File::open_at(files, id, start, &limits)?;
        let tree = file.tree(progress)?;
        if let Some(Err(error)) = tree.objects.get(&tree.groups.root) {
            return Err(file.root_error(error.clone()));
        }
        self.findings.extend(about_file(&file, &tree.groups));
        let Grown { mut builder, root, places, findings } =
            grow(files, &file, &tree, self.builder, self.findings)?;
        for (address, object) in &tree.objects {
            let (Ok(object), Some(place)) = (object, places.get(address)) else { continue };
            if object.dataset().is_some() {
                retype(&file, object, &mut builder, *place);
                continue;
            }
            for list in ["layer_names", "weight_names"] {
                for name in names(&file, object, list) {
                    self.legacy = true;
                    self.order.push(*place, name.to_lossy().into_owned());
                    self.lists.push(*place, name.to_lossy().into_owned());
                    if list == "layer_names" {
                        self.layer_names.insert(name);
                    }
                }
            }
            self.legacy |= object.attribute("layer_names").is_some();
            if *address == tree.groups.root {
                self.attributes.extend(raw_attributes(&file, Some(&tree), object, &[]));
            }
        }
        match self.root {
            Some(first) => merge(&mut builder, first, root),
            None => self.root = Some(root),
        }
        Ok(Self { builder, findings, ..self })
    }
}

/// Reads a list of names. Keras splits a list that is too long for one attribute into `NAME0`,
/// `NAME1` etc.
fn names(file: &Hdf5File, object: &Object, list: &str) -> Vec<Text> {
    let read = |name: &str| match object.attribute(name)?.values(file) {
        Ok(AttributeValues::Text(texts)) => Some(texts),
        _ => None,
    };
    if let Some(texts) = read(list) {
        return texts;
    }
    (0..object.attributes.len())
        .map_while(|part| read(&format!("{list}{part}")))
        .flatten()
        .collect()
}

/// Restores types that HDF5 lacks. Keras 3 writes them as opaque bytes, with their name in an
/// attribute.
fn retype(file: &Hdf5File, object: &Object, builder: &mut Builder, place: ValueId) {
    let Some(Ok(AttributeValues::Text(texts))) =
        object.attribute("dtype").map(|text| text.values(file))
    else {
        return;
    };
    let dtype = texts.first().and_then(|name| DType::from_torch_name(&name.to_lossy()));
    let Some(Value::Array(array)) = builder.value(place) else { return };
    let tensor = array.tensor;
    if let (Some(dtype), Some(tensor)) = (dtype, builder.tensor_mut(tensor))
        && matches!(tensor.stored, DType::Numpy(_))
        && tensor.stored.itemsize() == dtype.itemsize()
    {
        tensor.dtype = dtype.clone();
        tensor.stored = dtype;
    }
}
