//! Structures of numpy: arrays, scalars, dtypes.

use std::sync::Arc;

use statelens_checkpoint::{
    ByteOrder, DType, DictKey, Field, Form, Global, Grade, Layout, Strided, Tensor, TensorClass,
    Value, fortran_strides,
};

use super::objects::{Fields, object_of, opaque_of};
use super::torch::RANK;
use super::{Assembly, LoweredNode, Lowering};
use crate::graph::is_dill;
use crate::{Node, NodeId};

/// The element type of a numpy dtype.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NumpyElement {
    pub(super) dtype: DType,
    pub(super) order: ByteOrder,
    /// Whether elements are Python objects, so that the array has no bytes.
    pub(super) objects: bool,
}

/// Maximum nesting of records.
const RECORD_DEPTH: usize = 8;

impl Lowering<'_> {
    pub(super) fn numpy(&mut self, id: NodeId) -> Option<LoweredNode> {
        let (global, args) = self.pickle.call(id)?;
        if global.is("numpy", "dtype") {
            let element = self.element(id)?;
            let dtype = if element.objects { DType::objects() } else { element.dtype };
            // The fields of a record have orders of their own.
            let is_record = matches!(&dtype, DType::Numpy(numpy) if !numpy.fields.is_empty());
            let numpy = Some(if is_record { ByteOrder::Little } else { element.order });
            let value = LoweredNode::Plain(Value::DType { dtype, numpy });
            return Some(self.with_metadata(value, id));
        }
        match (&*global.module, &*global.name) {
            (
                "numpy.core.multiarray"
                | "numpy._core.multiarray"
                | "numpy.core._multiarray_umath"
                | "numpy._core._multiarray_umath",
                name,
            ) => match (name, args) {
                ("_reconstruct", args) => self.array(args.first().copied(), self.pickle.state(id)?),
                ("scalar", [dtype, data]) => self.scalar(*dtype, *data),
                _ => None,
            },
            // `_create_array(_reconstruct, arguments, state)`: a matrix, or an array of records.
            (_, "_create_array") if is_dill(&global) => {
                let [function, args, state, ..] = args else { return None };
                let function = self.pickle.global(*function)?;
                let class = self.pickle.sequence(*args).and_then(|args| args.first()).copied();
                (&*function.name == "_reconstruct").then(|| self.array(class, *state))?
            }
            ("numpy.ma.core" | "numpy.ma", "_mareconstruct") => self.masked(self.pickle.state(id)?),
            ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => {
                let [data, dtype, shape, order] = args else { return None };
                let fortran = self.pickle.str(*order)? == "F";
                let array = self.dense(*dtype, *shape, *data, fortran)?;
                Some(self.described(array, None, *dtype))
            }
            _ => None,
        }
    }

    pub(super) fn array_tensor(&mut self, id: NodeId) -> Option<Tensor> {
        match self.numpy(id)? {
            LoweredNode::Parts(Assembly::Array { tensor, scalar: false }, _)
            | LoweredNode::With(Assembly::Array { tensor, scalar: false }, ..) => Some(*tensor),
            _ => None,
        }
    }

    /// Recognises an array by the class and the state of `_reconstruct(ndarray, (0,), b'b')`.
    fn array(&mut self, class: Option<NodeId>, state: NodeId) -> Option<LoweredNode> {
        let state = self.pickle.sequence(state)?;
        let [_version, shape, dtype, fortran, data] = state else { return None };
        let fortran = matches!(self.pickle.node(*fortran), Node::Bool(true) | Node::Int(_))
            && self.pickle.int(*fortran)? != 0;
        let element = self.element(*dtype)?;
        if element.objects {
            return self.object_array(*shape, *dtype, *data);
        }
        let array = self.dense(*dtype, *shape, *data, fortran)?;
        Some(self.described(array, class, *dtype))
    }

    /// Adds to an array its class, and the metadata of its dtype as attributes.
    fn described(
        &mut self,
        array: LoweredNode,
        class: Option<NodeId>,
        dtype: NodeId,
    ) -> LoweredNode {
        let LoweredNode::Parts(Assembly::Array { mut tensor, scalar }, parts) = array else {
            return array;
        };
        tensor.class = class.and_then(|class| self.subclass(class)).unwrap_or_default();
        self.with_metadata(LoweredNode::Parts(Assembly::Array { tensor, scalar }, parts), dtype)
    }

    /// Adds the metadata of a dtype, or else the fields of a record whose dtypes have some, as
    /// attributes.
    fn with_metadata(&mut self, node: LoweredNode, dtype: NodeId) -> LoweredNode {
        let (own, fields) = (self.metadata(dtype), self.described_fields(dtype, 0));
        if own.is_some() && fields.is_some() {
            let reason = "the record has metadata of its own, which is kept";
            self.state.problems.add(
                Grade::Note,
                "Metadata of a record's fields is left out",
                reason,
            );
        }
        let attributes = own.or(fields);
        match (node, attributes) {
            (LoweredNode::Parts(assembly, parts), Some(attributes)) => {
                LoweredNode::With(assembly, parts, attributes)
            }
            (LoweredNode::Plain(value), Some(attributes)) => {
                LoweredNode::With(Assembly::Plain(value), Vec::new(), attributes)
            }
            (node, _) => node,
        }
    }

    /// Returns the class of an array, unless it is `numpy.ndarray`, or `numpy.memmap`, which is one
    /// once it is pickled. NumPy's own classes have had other modules, such as
    /// `numpy.matrixlib.defmatrix`.
    fn subclass(&self, id: NodeId) -> Option<TensorClass> {
        let global = self.pickle.global(id)?;
        let is_own = &*global.module == "numpy" || global.module.starts_with("numpy.");
        Some(TensorClass::Other(match (is_own, &*global.name) {
            (true, "ndarray" | "memmap") => return None,
            (true, name) => format!("numpy.{name}").into(),
            (false, _) => global.to_string().into(),
        }))
    }

    /// Returns the `metadata` of a dtype, a dict that is not empty. In the state of a date, it is
    /// together with the unit.
    fn metadata(&self, dtype: NodeId) -> Option<NodeId> {
        let state = self.pickle.sequence(self.pickle.state(dtype)?)?;
        let metadata = *state.get(8)?;
        let metadata = match self.pickle.sequence(metadata) {
            Some([metadata, _unit]) => *metadata,
            _ => metadata,
        };
        self.pickle.dict(metadata).filter(|entries| !entries.is_empty()).map(|_| metadata)
    }

    /// Returns the fields of a record, a dict of tuples `(dtype, offset)`, if the dtype of one has
    /// metadata.
    fn described_fields(&self, dtype: NodeId, depth: usize) -> Option<NodeId> {
        let state = self.pickle.sequence(self.pickle.state(dtype)?)?;
        // A field can be an array: the dtype of its elements, and its shape.
        if let Some([base, _shape]) = state.get(2).and_then(|parts| self.pickle.sequence(*parts)) {
            return self.described_fields(*base, depth).or_else(|| self.metadata(*base));
        }
        let table = *state.get(4)?;
        let fields = self.pickle.dict(table)?;
        if depth == RECORD_DEPTH || !self.afford(fields.len()) {
            return None;
        }
        fields
            .iter()
            .filter_map(|(_, field)| self.pickle.sequence(*field)?.first().copied())
            .any(|field| {
                self.metadata(field).or_else(|| self.described_fields(field, depth + 1)).is_some()
            })
            .then_some(table)
    }

    /// Recognises an array with a mask, by the state of `_mareconstruct(MaskedArray, ndarray, (0,),
    /// b'b')`: the state of its data, the mask as bytes in the same order, the fill value for
    /// masked elements (`numpy/ma/core.py`, `MaskedArray.__getstate__`).
    fn masked(&mut self, state: NodeId) -> Option<LoweredNode> {
        let state = self.pickle.sequence(state)?;
        let [_version, shape, dtype, fortran, data, mask, fill] = state else { return None };
        let fortran = self.pickle.int(*fortran)? != 0;
        let LoweredNode::Parts(Assembly::Array { tensor: data, .. }, _) =
            self.dense(*dtype, *shape, *data, fortran)?
        else {
            return None;
        };
        let mask = self.bytes_of(*mask)?;
        // A record has a mask for each field.
        let count = data.numel()?;
        let each = (mask.len() as u64).checked_div(count).unwrap_or(1).max(1);
        if count.checked_mul(each)? != mask.len() as u64 {
            return None;
        }
        let (element, mut dims) = (DType::Bool, data.shape.clone());
        if each > 1 {
            dims.push(each);
        }
        let layout = match fortran && dims.len() > 1 && each == 1 {
            true => Layout::Strided(Strided {
                storage: Arc::new(Layout::Inline(mask.clone())),
                storage_len: mask.len() as u64,
                offset: 0,
                strides: fortran_strides(&dims)?,
            }),
            false => Layout::Inline(mask),
        };
        let mask = Box::new(Tensor::new(element, dims, layout));
        let masked = LoweredNode::Parts(Assembly::Masked { data, mask }, vec![*fill]);
        Some(self.with_metadata(masked, *dtype))
    }

    /// Converts an array of objects: to one leaf with its shape as argument if all items are plain.
    /// Otherwise its items in C order become leaves, together with its shape unless it has one
    /// dimension.
    fn object_array(&self, shape: NodeId, dtype: NodeId, data: NodeId) -> Option<LoweredNode> {
        let items = self.pickle.sequence(data).filter(|items| self.afford(items.len()))?;
        if items.iter().all(|item| self.is_plain(*item)) {
            let array = super::empty(Global::new("numpy", "ndarray"), Form::Call);
            let args = match self.is_string_dtype(dtype) || self.metadata(dtype).is_some() {
                true => vec![shape, dtype],
                false => vec![shape],
            };
            return Some(opaque_of(array, args, None, items));
        }
        let mut fields = Fields::default();
        if self.pickle.sequence(shape).is_none_or(|shape| shape.len() != 1) {
            fields.add("shape".into(), shape, "shape");
        }
        if self.metadata(dtype).is_some() {
            fields.add("dtype".into(), dtype, "dtype");
        }
        for (index, item) in (0u64..).zip(items) {
            fields.add(DictKey::Int(index.into()), *item, "items");
        }
        Some(object_of(Global::new("numpy", "ndarray"), Form::Instance, fields, None))
    }

    /// Returns whether a dtype is `numpy.dtypes.StringDType`, whose arrays are pickled as lists of
    /// strings.
    fn is_string_dtype(&self, id: NodeId) -> bool {
        self.pickle.call(id).is_some_and(|(global, _)| {
            matches!(&*global.module, "numpy._core._internal" | "numpy.core._internal")
                && &*global.name == "_convert_to_stringdtype_kwargs"
        })
    }

    /// Returns whether a value has no parts.
    fn is_plain(&self, id: NodeId) -> bool {
        matches!(
            self.pickle.node(id),
            Node::None
                | Node::Bool(_)
                | Node::Int(_)
                | Node::Float(_)
                | Node::Str(_)
                | Node::Bytes(_)
        )
    }

    fn scalar(&mut self, dtype: NodeId, data: NodeId) -> Option<LoweredNode> {
        let element = self.element(dtype)?;
        let data = self.bytes_of(data)?;
        if element.objects || data.len() as u64 != element.dtype.itemsize() {
            return None;
        }
        let mut tensor = Tensor::new(element.dtype, Vec::new(), Layout::Inline(data));
        tensor.byte_order = element.order;
        let scalar = Assembly::Array { tensor: Box::new(tensor), scalar: true };
        Some(self.with_metadata(LoweredNode::Parts(scalar, Vec::new()), dtype))
    }

    fn dense(
        &mut self,
        dtype: NodeId,
        shape: NodeId,
        data: NodeId,
        fortran: bool,
    ) -> Option<LoweredNode> {
        let element = self.element(dtype)?;
        let shape = self.lengths(shape)?;
        if element.objects {
            return None;
        }
        let numel = shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim))?;
        let len = numel.checked_mul(element.dtype.itemsize())?;
        let layout = if let Node::Buffer(_) = self.pickle.node(data) {
            let reason = "the array's bytes were passed outside the pickle";
            self.state.problems.add(Grade::Damage, "An array has no data", reason);
            Layout::Missing(reason.into())
        } else {
            let data = self.bytes_of(data)?;
            if data.len() as u64 != len {
                self.state.problems.add(
                    Grade::Damage,
                    "An array does not have as many bytes as its shape needs",
                    format!(
                        "{shape:?} of {} needs {len} bytes and has {}",
                        element.dtype,
                        data.len()
                    ),
                );
                return None;
            }
            match fortran && shape.len() > 1 {
                true => Layout::Strided(Strided {
                    storage: Arc::new(Layout::Inline(data)),
                    storage_len: len,
                    offset: 0,
                    strides: fortran_strides(&shape)?,
                }),
                false => Layout::Inline(data),
            }
        };
        let mut tensor = Tensor::new(element.dtype, shape, layout);
        tensor.byte_order = element.order;
        Some(LoweredNode::Parts(
            Assembly::Array { tensor: Box::new(tensor), scalar: false },
            Vec::new(),
        ))
    }

    /// Returns the lengths of a shape; a bare number is one dimension.
    pub(super) fn lengths(&self, id: NodeId) -> Option<Vec<u64>> {
        let one = |id: &NodeId| u64::try_from(self.pickle.int(*id)?).ok();
        match self.pickle.sequence(id) {
            Some(items) if items.len() > RANK => None,
            Some(items) => items.iter().map(one).collect(),
            None => Some(vec![one(&id)?]),
        }
    }

    pub(super) fn element(&mut self, id: NodeId) -> Option<NumpyElement> {
        self.element_within(id, RECORD_DEPTH)
    }

    /// Returns the element type of a dtype: `numpy.dtype('f4', False, True)` and its state.
    /// Descends at most `depth` records.
    fn element_within(&mut self, id: NodeId, depth: usize) -> Option<NumpyElement> {
        if let Some(element) = self.state.dtypes.get(&id) {
            return element.clone();
        }
        let element = self.parse_element(id, depth.checked_sub(1)?);
        self.state.dtypes.insert(id, element.clone());
        element
    }

    fn parse_element(&mut self, id: NodeId, depth: usize) -> Option<NumpyElement> {
        if self.is_string_dtype(id) {
            let (dtype, order) = (DType::U8, ByteOrder::Little);
            return Some(NumpyElement { dtype, order, objects: true });
        }
        let (global, args) = self.pickle.call(id)?;
        if !global.is("numpy", "dtype") {
            return None;
        }
        let first = *args.first()?;
        let state = match self.pickle.state(id) {
            Some(state) => self.pickle.sequence(state)?,
            None => &[],
        };
        let order = match state.get(1).and_then(|order| self.pickle.text(*order)) {
            Some(order) if order == ">" => ByteOrder::Big,
            _ => ByteOrder::Little,
        };
        let plain = |dtype| Some(NumpyElement { dtype, order, objects: false });
        let named = self.pickle.global(first);
        // The record class of a record array has a state like any other record.
        if let Some(global) = named.filter(|global| !global.is("numpy", "record")) {
            // The dtypes of `ml_dtypes` are named by their classes.
            return plain(extension_dtype(&global.name)?);
        }
        if let Some(names) = state.get(3).filter(|id| !matches!(self.pickle.node(**id), Node::None))
        {
            let dtype = self.record(*names, state, depth)?;
            return Some(NumpyElement { dtype, order: ByteOrder::Big, objects: false });
        }
        let code = self.pickle.text(first)?;
        let code = code.as_str()?;
        let (kind, digits) = code.split_at_checked(1)?;
        let size = match state.get(5).and_then(|size| self.pickle.int(*size)) {
            Some(size) if size > 0 => u64::try_from(size).ok()?,
            _ if digits.is_empty() => 8,
            _ => digits.split('[').next()?.parse().ok()?,
        };
        let code = match kind {
            "O" => return Some(NumpyElement { dtype: DType::U8, order, objects: true }),
            "U" => format!("U{}", size / 4),
            "S" | "a" | "V" => format!("{kind}{size}"),
            "M" | "m" => format!("{kind}8{}", self.time_unit(state)),
            _ => code.to_owned(),
        };
        plain(DType::from_numpy_code(&code)?)
    }

    /// Returns the unit of a date's dtype from its metadata: `[D]`, `[25s]`.
    fn time_unit(&self, state: &[NodeId]) -> String {
        let unit = || {
            let metadata = self.pickle.sequence(*state.get(8)?)?;
            let [_, unit] = metadata else { return None };
            let [name, count, ..] = self.pickle.sequence(*unit)? else { return None };
            let name = match self.pickle.node(*name) {
                Node::Bytes(name) => String::from_utf8_lossy(name).into_owned(),
                _ => self
                    .pickle
                    .call(*name)
                    .and_then(|(_, args)| self.pickle.text(*args.first()?))
                    .or_else(|| self.pickle.text(*name))?
                    .to_string(),
            };
            let count = self.pickle.int(*count)?;
            Some(match (name.as_str(), count) {
                ("generic", _) => String::new(),
                (_, 1) => format!("[{name}]"),
                _ => format!("[{count}{name}]"),
            })
        };
        unit().unwrap_or_default()
    }

    /// Returns a record, see [`DType::record`].
    fn record(&mut self, names: NodeId, state: &[NodeId], depth: usize) -> Option<DType> {
        let names = self.pickle.sequence(names)?;
        if !self.afford(names.len().checked_mul(names.len())?) {
            return None;
        }
        let table = *state.get(4)?;
        let itemsize = u64::try_from(self.pickle.int(*state.get(5)?)?).ok()?;
        let mut fields = Vec::new();
        for name in names {
            let name = self.pickle.text(*name)?.to_lossy().into_owned();
            if self.pickle.dict(table)?.len() > 2 * names.len() {
                return None;
            }
            let entry = self.pickle.field(table, &name)?;
            let [dtype, offset, title @ ..] = self.pickle.sequence(entry)? else { return None };
            let title = title.first().and_then(|title| self.pickle.text(*title));
            let title = title.map_or_else(String::new, |title| title.to_lossy().into_owned());
            let offset = u64::try_from(self.pickle.int(*offset)?).ok()?;
            let (NumpyElement { dtype, order, .. }, shape) = self.sub_array(*dtype, depth)?;
            fields.push((Field { name, title, offset, dtype, shape }, order));
        }
        DType::record(itemsize, fields)
    }

    /// Returns a field's dtype, which may be an array of another: `('<f4', (2, 3))`.
    fn sub_array(&mut self, id: NodeId, depth: usize) -> Option<(NumpyElement, Vec<u64>)> {
        let parts = self
            .pickle
            .state(id)
            .and_then(|state| self.pickle.sequence(state))
            .and_then(|state| self.pickle.sequence(*state.get(2)?));
        match parts {
            Some([base, shape]) => {
                let shape = self.lengths(*shape)?;
                Some((self.element_within(*base, depth)?, shape))
            }
            _ => Some((self.element_within(id, depth)?, Vec::new())),
        }
    }
}

/// Returns the dtype for a class of `ml_dtypes`, if torch has it.
fn extension_dtype(name: &str) -> Option<DType> {
    DType::from_torch_name(name).filter(DType::is_float)
}
