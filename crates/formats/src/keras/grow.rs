//! One HDF5 container of weights, added to what is being built.

use statelens_checkpoint::{
    Builder, DType, FileId, FileSet, Finding, Limits, Progress, Result, Text, Value, ValueId,
};
use statelens_hdf5::{AttributeValues, Hdf5File, Object};

use super::order::{PathOrder, merge};
use crate::hdf5::read::{Grown, cut_short, grow, raw_attributes};

/// A checkpoint that is being built of one container or several.
pub(super) struct Growing {
    pub(super) builder: Builder,
    pub(super) findings: Vec<Finding>,
    pub(super) order: PathOrder,
    /// The root group of the first container, with which those of the others are merged.
    pub(super) root: Option<ValueId>,
    /// Attributes of the root groups.
    pub(super) attributes: Vec<(Text, Text)>,
    /// Whether layers are listed by name, as Keras 2 does.
    pub(super) legacy: bool,
}

impl Growing {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            builder: Builder::new(limits),
            findings: Vec::new(),
            order: PathOrder::default(),
            root: None,
            attributes: Vec::new(),
            legacy: false,
        }
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
            return Err(error.clone().context("the root group can't be read"));
        }
        self.findings.extend(cut_short(&file, &tree.groups));
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
                }
            }
            self.legacy |= object.attribute("layer_names").is_some();
            if *address == tree.groups.root {
                self.attributes.extend(raw_attributes(&file, object, &[]));
            }
        }
        match self.root {
            Some(first) => merge(&mut builder, first, root),
            None => self.root = Some(root),
        }
        Ok(Self { builder, findings, ..self })
    }
}

/// A list of names, which Keras cuts into `NAME0`, `NAME1` and so on where it is too long for one
/// attribute.
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

/// Keras 3 writes types that HDF5 lacks as opaque bytes, and names them in an attribute.
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
