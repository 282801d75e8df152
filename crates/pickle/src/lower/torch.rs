//! Structures of torch: tensors as calls of `torch._utils._rebuild_*` on views of storages.

use std::sync::Arc;

use statelens_checkpoint::{
    ByteOrder, DType, Global, Grade, Layout, Limits, Quantizer, Result, Span, Strided, Tensor,
    TensorClass, Text, TupleClass, Value, contiguous_strides, numel,
};

use super::{Assembly, BACKWARDS, LoweredNode, Lowering, reference, sub_byte};
use crate::storages::StorageName;
use crate::{Node, NodeId, Storage, read_stream};

/// How many rebuilding functions may be nested.
const WRAPPERS: usize = 4;
/// Maximum number of dimensions that are accepted; the checkpoint's limit is the same or higher.
pub(super) const RANK: usize = 64;

/// A tensor, the parameters of its quantizer, and the attributes set on it.
struct Rebuilt {
    tensor: Tensor,
    channels: Option<Channels>,
    attributes: Option<NodeId>,
}

struct Channels {
    scales: NodeId,
    zero_points: NodeId,
    axis: u64,
}

/// The reason why a tensor can't be rebuilt.
type Reason = String;

impl Lowering<'_> {
    pub(super) fn torch(&mut self, id: NodeId) -> Result<Option<LoweredNode>> {
        let Some((global, args)) = self.pickle.call(id) else { return Ok(None) };
        let shape = match (&*global.module, &*global.name, args) {
            ("torch", "Size", [items]) => self.size(*items),
            ("torch", "device", args) => self.device(args),
            ("torch.serialization", "_get_layout", [name]) => self.pickle.str(*name).map(|name| {
                let short = name.strip_prefix("torch.").unwrap_or(name);
                reference("torch", short, Some(name.to_owned()))
            }),
            ("torch._utils", "_rebuild_sparse_tensor", [layout, data]) => {
                self.sparse(*layout, *data)
            }
            ("torch._utils", "_rebuild_parameter", [data, ..]) if self.is_sparse(*data) => {
                Some(LoweredNode::Same(*data))
            }
            (module, "_rebuild_from_type_v2", [function, _class, data, _state])
                if rebuilds(module, "_rebuild_") && self.names_sparse(*function) =>
            {
                let [layout, data] = self.pickle.sequence(*data).unwrap_or_default() else {
                    return Ok(None);
                };
                self.sparse(*layout, *data)
            }
            (
                "torch._utils",
                "_rebuild_parameter" | "_rebuild_parameter_with_state",
                [data, ..],
            ) if self.is_distributed(*data) => Some(LoweredNode::Same(*data)),
            (_, "_rebuild_from_type_v2", [_, _, args, state]) if self.is_distributed(id) => {
                self.held_part(id, *args, *state)
            }
            (module, "_rebuild_from_type_v2", [function, class, args, state])
                if rebuilds(module, "_rebuild_") && self.wraps(*function) =>
            {
                match self.rebuilt(id) {
                    None => self.wrapper(*class, *args, *state),
                    whole => whole,
                }
            }
            (module, name, _) if rebuilds(module, name) => self.rebuilt(id),
            _ => None,
        };
        Ok(shape)
    }

    /// Converts an object that the loader would look up: a storage, a whole tensor, a class with
    /// its source. `id` names it; `node` is the reference to it.
    pub(super) fn persistent(&mut self, node: NodeId, id: NodeId) -> Result<LoweredNode> {
        let key = match self.pickle.node(id) {
            Node::Int(key) => Some(key.to_string().into()),
            _ => self.pickle.text(id),
        };
        if let Some(key) = key {
            // The loader's table returns the same object every time.
            if let Some(first) = self.state.looked_up.get(&key).filter(|first| **first != node) {
                return Ok(LoweredNode::Same(*first));
            }
            if let Some(tensor) = self.storages.tensor(&key.to_lossy()) {
                self.state.looked_up.insert(key, node);
                return Ok(LoweredNode::Parts(
                    Assembly::Tensor(Box::new(tensor), None),
                    Vec::new(),
                ));
            }
        }
        // `('module', class, file, source)`; the oldest files omit the word.
        match self.pickle.sequence(id) {
            Some([kind, class, ..]) if self.pickle.str(*kind) == Some("module") => {
                return Ok(LoweredNode::Same(*class));
            }
            Some([class, _file, _source]) if self.pickle.global(*class).is_some() => {
                return Ok(LoweredNode::Same(*class));
            }
            _ => {}
        }
        let Some(name) = self.pickle.storage_name(id) else {
            self.state.problems.add(
                Grade::Warning,
                "A persistent id is unknown",
                "The loader would look it up in a table of its own",
            );
            return Ok(LoweredNode::Same(id));
        };
        // A storage as a value: a tensor of one dimension that covers all of it.
        // A storage with several elements in a byte is counted in bytes.
        let dtype = name.dtype.clone().filter(|dtype| sub_byte::per_byte(Some(dtype)) == 1);
        let dtype = dtype.unwrap_or(DType::U8);
        let class = TensorClass::Other(name.class.to_string().into());
        let numel = name.numel;
        let storage = name.len().map(|len| self.storages.storage(&name.key, len));
        let view =
            storage.and_then(|storage| self.view(&name, storage, dtype, 0, vec![numel], vec![1]));
        Ok(match view {
            Ok(tensor) => {
                let tensor = Tensor { class, ..tensor };
                LoweredNode::Parts(Assembly::Tensor(Box::new(tensor), None), Vec::new())
            }
            Err(reason) => {
                self.problem(reason);
                LoweredNode::Same(id)
            }
        })
    }

    fn rebuilt(&mut self, id: NodeId) -> Option<LoweredNode> {
        match self.rebuild(id, WRAPPERS) {
            Ok(Rebuilt { tensor, channels, attributes }) => {
                self.count_missing(&tensor);
                let (axis, parts) = match channels {
                    Some(Channels { scales, zero_points, axis }) => {
                        (Some(axis), vec![scales, zero_points])
                    }
                    None => (None, Vec::new()),
                };
                let assembly = Assembly::Tensor(Box::new(tensor), axis);
                Some(match attributes {
                    Some(attributes) => LoweredNode::With(assembly, parts, attributes),
                    None => LoweredNode::Parts(assembly, parts),
                })
            }
            Err(Some(reason)) => {
                self.problem(reason);
                None
            }
            Err(None) => None,
        }
    }

    fn problem(&mut self, reason: Reason) {
        self.state.problems.add(
            Grade::Damage,
            "A tensor can't be rebuilt as the file says",
            reason,
        );
    }

    fn count_missing(&mut self, tensor: &Tensor) {
        match &tensor.layout {
            Layout::Missing(reason) if *reason != META && *reason != PACKED => {
                let reason = reason.to_lossy().into_owned();
                self.state.problems.add(Grade::Damage, "A tensor has no data", reason);
            }
            Layout::Strided(view) => {
                let logical = tensor.nbytes().unwrap_or(u64::MAX);
                if logical > 64 << 20 && logical / 1000 > view.storage_len {
                    self.state.problems.add(
                        Grade::Warning,
                        "A tensor repeats a few bytes very many times",
                        format!(
                            "Shape {:?} would take {logical} bytes; {} are stored",
                            tensor.shape, view.storage_len
                        ),
                    );
                }
            }
            _ => {}
        }
    }

    /// Returns the tensor that a call makes; `Err(None)` if the call does not make one. `depth`
    /// limits the nesting of calls.
    fn rebuild(&mut self, id: NodeId, depth: usize) -> Result<Rebuilt, Option<Reason>> {
        let depth = depth.checked_sub(1).ok_or(None)?;
        let pickle = self.pickle;
        let object = pickle.object(id).ok_or(None)?;
        let (global, args) = pickle.call(id).ok_or(None)?;
        let mut rebuilt = self.rebuild_call(&global, args, depth)?;
        if let Some(state) = object.states.last() {
            rebuilt.attributes = Some(*state);
        }
        Ok(rebuilt)
    }

    fn rebuild_call(
        &mut self,
        global: &Global,
        args: &[NodeId],
        depth: usize,
    ) -> Result<Rebuilt, Option<Reason>> {
        let pickle = self.pickle;
        let flag = |id: &NodeId| matches!(pickle.node(*id), Node::Bool(true));
        if !rebuilds(&global.module, &global.name) {
            return Err(None);
        }
        let plain = |tensor| Ok(Rebuilt { tensor, channels: None, attributes: None });
        match (&*global.name, args) {
            ("_rebuild_tensor", [storage, offset, size, stride]) => {
                plain(self.tensor(*storage, None, *offset, *size, *stride)?)
            }
            ("_rebuild_tensor_v2", [storage, offset, size, stride, grad, _hooks, rest @ ..]) => {
                let mut tensor = self.tensor(*storage, None, *offset, *size, *stride)?;
                tensor.requires_grad = flag(grad);
                self.lazy_bits(&mut tensor, rest.first());
                plain(tensor)
            }
            (
                "_rebuild_tensor_v3",
                [storage, offset, size, stride, grad, _hooks, dtype, rest @ ..],
            ) => {
                let dtype = self.dtype(*dtype)?;
                let mut tensor = self.tensor(*storage, Some(dtype), *offset, *size, *stride)?;
                tensor.requires_grad = flag(grad);
                self.lazy_bits(&mut tensor, rest.first());
                plain(tensor)
            }
            ("_rebuild_parameter", [data, grad, _hooks])
            | ("_rebuild_parameter_with_state", [data, grad, _hooks, _]) => {
                let mut rebuilt = self.rebuild(*data, depth)?;
                rebuilt.tensor.requires_grad = flag(grad);
                rebuilt.tensor.class = TensorClass::Parameter;
                rebuilt.attributes = args.get(3).copied().or(rebuilt.attributes);
                Ok(rebuilt)
            }
            ("_rebuild_from_type_v2", [function, class, args, state]) => {
                let function = pickle.global(*function).ok_or(None)?;
                let args = pickle.sequence(*args).ok_or(None)?;
                let depth = depth.checked_sub(1).ok_or(None)?;
                let mut rebuilt = match (&*function.name, args) {
                    // If one rank holds all of it, the result is that rank's tensor.
                    ("_rebuild_wrapper_subclass", [_, _, size, .., grad]) => {
                        let mut local = self.rebuild(self.local(*state).ok_or(None)?, depth)?;
                        if local.tensor.shape != self.shape_of(*size)? {
                            return Err(None);
                        }
                        local.tensor.requires_grad = flag(grad);
                        local
                    }
                    _ => self.rebuild_call(&function, args, depth)?,
                };
                if let Some(class) = pickle.global(*class) {
                    if class.is("torch.nn.parameter", "Parameter") {
                        rebuilt.tensor.class = TensorClass::Parameter;
                    } else if !class.is("torch", "Tensor") {
                        rebuilt.tensor.class = TensorClass::Other(class.to_string().into());
                    }
                }
                let empty = pickle.dict(*state).is_some_and(<[_]>::is_empty);
                rebuilt.attributes = (!empty).then_some(*state).or(rebuilt.attributes);
                Ok(rebuilt)
            }
            ("_rebuild_qtensor", [storage, offset, size, stride, params, grad, _hooks]) => {
                let mut tensor = self.tensor(*storage, None, *offset, *size, *stride)?;
                tensor.requires_grad = flag(grad);
                let params = pickle.sequence(*params).ok_or(None)?;
                let (quantizer, channels) = self.quantizer(params).ok_or(None)?;
                tensor.quantizer = quantizer;
                Ok(Rebuilt { tensor, channels, attributes: None })
            }
            ("_rebuild_meta_tensor_no_storage", [dtype, size, _stride, grad]) => {
                let mut tensor = self.without_data(*dtype, *size, META)?;
                tensor.requires_grad = flag(grad);
                plain(tensor)
            }
            (
                "_rebuild_wrapper_subclass",
                [class, dtype, size, _stride, _offset, _layout, _device, grad],
            ) => {
                let reason = "a tensor subclass that only wraps others has no data of its own";
                let mut tensor = self.without_data(*dtype, *size, reason)?;
                tensor.requires_grad = flag(grad);
                if let Some(class) = pickle.global(*class) {
                    tensor.class = TensorClass::Other(class.to_string().into());
                }
                plain(tensor)
            }
            (
                "_rebuild_device_tensor_from_numpy" | "_rebuild_xla_tensor",
                [array, dtype, _device, grad],
            ) => {
                let mut tensor = self.array_tensor(*array).ok_or(None)?;
                tensor.dtype = self.dtype(*dtype)?;
                tensor.requires_grad = flag(grad);
                plain(tensor)
            }
            ("_rebuild_device_tensor_from_cpu_tensor", [data, dtype, _device, grad]) => {
                let mut rebuilt = self.rebuild(*data, depth)?;
                rebuilt.tensor.dtype = self.dtype(*dtype)?;
                rebuilt.tensor.requires_grad = flag(grad);
                Ok(rebuilt)
            }
            _ => Err(None),
        }
    }

    fn tensor(
        &mut self,
        storage: NodeId,
        dtype: Option<DType>,
        offset: NodeId,
        size: NodeId,
        stride: NodeId,
    ) -> Result<Tensor, Option<Reason>> {
        let (name, storage) = self.storage(storage)?;
        let number = |id: NodeId| self.pickle.int(id);
        let offset = number(offset).and_then(|offset| u64::try_from(offset).ok());
        let offset = offset.ok_or_else(|| Some("Its offset is not a natural number".into()))?;
        let shape = self.shape_of(size)?;
        let strides: Option<Vec<i64>> = self
            .pickle
            .sequence(stride)
            .and_then(|strides| strides.iter().map(|id| number(*id)).collect());
        let strides = strides.ok_or_else(|| Some("Its strides are not integers".into()))?;
        let dtype = dtype.or_else(|| name.dtype.clone()).unwrap_or(DType::U8);
        self.view(&name, storage, dtype, offset, shape, strides).map_err(Some)
    }

    /// Returns the storage that a tensor is a view of.
    fn storage(&mut self, id: NodeId) -> Result<(StorageName, Storage), Option<Reason>> {
        if let Node::Persistent(name) = self.pickle.node(id) {
            let name = self.pickle.storage_name(*name);
            let name = name.ok_or_else(|| Some("Its storage has no valid name".into()))?;
            let storage = self.storages.storage(&name.key, name.len().map_err(Some)?);
            return Ok((name, storage));
        }
        self.nested_storage(id).ok_or_else(|| Some("Its storage is not a persistent id".into()))
    }

    /// Returns a storage that is pickled by itself, in a stream of its own: Python's `pickle`
    /// writes tensors like that without the help of `torch.save`.
    fn nested_storage(&mut self, id: NodeId) -> Option<(StorageName, Storage)> {
        let (global, args) = self.pickle.call(id)?;
        let [bytes] = args else { return None };
        if !global.is("torch.storage", "_load_from_bytes") {
            return None;
        }
        let spelled = self.pickle.spelled(*bytes)?;
        if let Some(known) = self.state.nested.get(&spelled) {
            return known.clone();
        }
        let number = u32::MAX - self.state.nested.len() as u32;
        let bytes = self.bytes_of(*bytes)?;
        let found = stream_storage(&bytes, number, &self.pickle.limits);
        self.state.nested.insert(spelled, found.clone());
        found
    }

    fn shape_of(&self, size: NodeId) -> Result<Vec<u64>, Option<Reason>> {
        let size = match self.pickle.call(size) {
            Some((global, [items])) if global.is("torch", "Size") => *items,
            _ => size,
        };
        let count = self.pickle.sequence(size).map_or(0, <[_]>::len);
        if count > RANK {
            return Err(Some(format!("It has {count} dimensions, torch has at most {RANK}")));
        }
        self.pickle
            .sequence(size)
            .and_then(|_| self.lengths(size))
            .ok_or_else(|| Some("Its shape is not a list of natural numbers".into()))
    }

    /// Returns a view of a storage, after checking that it is inside.
    fn view(
        &mut self,
        name: &StorageName,
        storage: Storage,
        dtype: DType,
        offset: u64,
        shape: Vec<u64>,
        strides: Vec<i64>,
    ) -> Result<Tensor, Reason> {
        let overflow = || "Its size does not fit 64 bits".to_owned();
        let claimed = name.len()?;
        let missing = matches!(storage.layout, Layout::Missing(_));
        if storage.len != claimed && name.offset == 0 && !missing {
            self.state.problems.add(
                Grade::Damage,
                "A storage does not have the length that the pickle gives",
                format!("Storage {} should have {claimed} bytes and has {}", name.key, storage.len),
            );
        }
        let per_byte = sub_byte::per_byte(Some(&dtype));
        if per_byte > 1 {
            return self.packed_view(name, &storage, dtype, offset, shape, &strides);
        }
        // The view's offset is in elements of the storage's class, the tensor's offset in its own.
        let base = name.offset.checked_mul(name.unit()).ok_or_else(overflow)?;
        let itemsize = dtype.itemsize();
        if base % itemsize != 0 {
            return Err("Its storage begins inside an element".into());
        }
        let offset = offset.checked_add(base / itemsize).ok_or_else(overflow)?;
        if strides.iter().any(|stride| *stride < 0) {
            self.state.problems.add(
                Grade::Warning,
                BACKWARDS,
                format!("Its strides are {strides:?}; torch refuses negative ones"),
            );
        }
        let layout = view(&storage.layout, storage.len, itemsize, offset, &shape, &strides)?;
        if !missing {
            self.note_use(&storage, itemsize, offset, &shape, &strides);
        }
        let mut tensor = Tensor::new(dtype, shape, layout);
        tensor.storage = Some(storage.number);
        tensor.byte_order = self.storages.byte_order();
        if itemsize == 1 {
            tensor.byte_order = ByteOrder::Little;
        }
        Ok(tensor)
    }

    /// Returns a tensor with several elements in a byte.
    fn packed_view(
        &mut self,
        name: &StorageName,
        storage: &Storage,
        dtype: DType,
        offset: u64,
        shape: Vec<u64>,
        strides: &[i64],
    ) -> Result<Tensor, Reason> {
        let offset = offset.saturating_add(name.offset);
        let per_byte = sub_byte::per_byte(Some(&dtype));
        let layout = match sub_byte::layout(storage, per_byte, offset, &shape, strides)? {
            Some(layout) => layout,
            None => {
                self.state.problems.add(
                    Grade::Warning,
                    PACKED,
                    "Statelens reads them only if they are dense and not compressed",
                );
                Layout::Missing(PACKED.into())
            }
        };
        if !matches!(storage.layout, Layout::Missing(_)) {
            self.state.uses.add(storage.number, storage.len, (0, storage.len), storage.len);
        }
        let mut tensor = Tensor::new(dtype, shape, layout);
        tensor.storage = Some(storage.number);
        Ok(tensor)
    }

    /// Records the bytes of a storage that a view uses; the view must lie inside.
    fn note_use(
        &mut self,
        storage: &Storage,
        itemsize: u64,
        offset: u64,
        shape: &[u64],
        strides: &[i64],
    ) {
        if shape.contains(&0) {
            return;
        }
        let (mut first, mut last, mut elements) = (offset, offset, itemsize);
        for (dim, stride) in shape.iter().zip(strides) {
            let reach = (dim - 1).saturating_mul(stride.unsigned_abs());
            match *stride < 0 {
                true => first = first.saturating_sub(reach),
                false => last = last.saturating_add(reach),
            }
            elements = elements.saturating_mul(if *stride == 0 { 1 } else { *dim });
        }
        let range = (first * itemsize, last.saturating_add(1).saturating_mul(itemsize));
        self.state.uses.add(storage.number, storage.len, range, elements);
    }

    fn without_data(
        &mut self,
        dtype: NodeId,
        size: NodeId,
        reason: &str,
    ) -> Result<Tensor, Option<Reason>> {
        let dtype = self.dtype(dtype)?;
        let shape = self.shape_of(size)?;
        let fits = numel(&shape).and_then(|numel| numel.checked_mul(dtype.itemsize()));
        if fits.is_none_or(|bytes| bytes > i64::MAX as u64) {
            return Err(Some("Its size does not fit 64 bits".into()));
        }
        Ok(Tensor::new(dtype, shape, Layout::Missing(reason.into())))
    }

    fn lazy_bits(&self, tensor: &mut Tensor, metadata: Option<&NodeId>) {
        let small =
            metadata.filter(|id| self.pickle.dict(**id).is_some_and(|dict| dict.len() < 16));
        let flag = |name| {
            let field = small.and_then(|metadata| self.pickle.field(*metadata, name));
            field.is_some_and(|id| matches!(self.pickle.node(id), Node::Bool(true)))
        };
        tensor.conjugate = flag("conj");
        tensor.negate = flag("neg");
    }

    fn quantizer(&self, params: &[NodeId]) -> Option<(Option<Quantizer>, Option<Channels>)> {
        let (scheme, rest) = params.split_first()?;
        let scheme = self.pickle.global(*scheme)?;
        match (&*scheme.name, rest) {
            ("per_tensor_affine" | "per_tensor_symmetric", [scale, zero_point]) => {
                let scale = self.pickle.float(*scale)?;
                let zero_point = self.pickle.int(*zero_point)?;
                Some((Some(Quantizer::PerTensor { scale, zero_point }), None))
            }
            (_, [scales, zero_points, axis]) => {
                let axis = u64::try_from(self.pickle.int(*axis)?).ok()?;
                let channels = Channels { scales: *scales, zero_points: *zero_points, axis };
                Some((None, Some(channels)))
            }
            _ => None,
        }
    }

    /// Returns whether a function makes a tensor of others, which are in its state.
    fn wraps(&self, function: NodeId) -> bool {
        let global = self.pickle.global(function);
        global.is_some_and(|global| {
            &*global.name == "_rebuild_wrapper_subclass" || !rebuilds(&global.module, &global.name)
        })
    }

    /// Returns a rank's part of a distributed tensor.
    fn local(&self, state: NodeId) -> Option<NodeId> {
        self.local_of(state, "_local_tensor")
    }

    /// Returns the field `name` of a state, which may be a pair of attributes and slots.
    fn local_of(&self, state: NodeId, name: &str) -> Option<NodeId> {
        let parts = match self.pickle.node(state) {
            Node::Tuple(parts) => self.pickle.items(*parts),
            _ => std::slice::from_ref(&state),
        };
        let small = |id: &&NodeId| self.pickle.dict(**id).is_some_and(|dict| dict.len() < 64);
        let mut small = parts.iter().take(2).filter(small);
        small.find_map(|part| self.pickle.field(*part, name))
    }

    /// Returns whether a call makes a distributed tensor, if those are lowered as their parts.
    fn is_distributed(&self, id: NodeId) -> bool {
        let class = || {
            let (global, args) = self.pickle.call(id)?;
            let [_, class, ..] = args else { return None };
            (&*global.name == "_rebuild_from_type_v2").then(|| self.pickle.global(*class))?
        };
        self.state.parts.is_some()
            && class().is_some_and(|class| {
                class.module.starts_with("torch.distributed")
                    && matches!(&*class.name, "DTensor" | "ShardedTensor")
            })
    }

    /// Returns the part of a distributed tensor that this file holds, and records it. The state of
    /// a `DTensor` has the part under `_local_tensor`; that of a `ShardedTensor` begins with a list
    /// of parts, usually one, each with a `tensor`.
    fn held_part(&mut self, id: NodeId, args: NodeId, state: NodeId) -> Option<LoweredNode> {
        let shard = || {
            let shards = self.pickle.sequence(*self.pickle.sequence(state)?.first()?)?;
            let [shard] = shards else { return None };
            self.local_of(self.pickle.state(*shard)?, "tensor")
        };
        let local = self.local(state).or_else(shard);
        let tensor = match local {
            Some(local) => {
                let tensor = self.rebuild(local, WRAPPERS).ok()?.tensor;
                self.count_missing(&tensor);
                tensor
            }
            None => {
                let [_, dtype, size, ..] = *self.pickle.sequence(args)? else { return None };
                self.without_data(dtype, size, "this file holds no part of it").ok()?
            }
        };
        self.state.parts.as_mut()?.push(id);
        Some(LoweredNode::Parts(Assembly::Tensor(Box::new(tensor), None), Vec::new()))
    }

    /// Returns a tensor that consists of others, as an object with those.
    fn wrapper(&mut self, class: NodeId, args: NodeId, state: NodeId) -> Option<LoweredNode> {
        let class = self.pickle.global(class)?;
        if self.local(state).is_some() {
            let size =
                self.pickle.sequence(args).and_then(|args| self.shape_of(*args.get(2)?).ok());
            self.state.problems.add(
                Grade::Warning,
                "Only a part of a distributed tensor is here",
                format!("All ranks together hold shape {:?}", size.unwrap_or_default()),
            );
        }
        Some(self.with_fields((*class).clone(), state))
    }

    fn is_sparse(&self, id: NodeId) -> bool {
        self.pickle.object(id).is_some_and(|object| self.names_sparse(object.callable))
    }

    fn names_sparse(&self, function: NodeId) -> bool {
        let global = self.pickle.global(function);
        global.is_some_and(|global| global.is("torch._utils", "_rebuild_sparse_tensor"))
    }

    fn sparse(&mut self, layout: NodeId, data: NodeId) -> Option<LoweredNode> {
        let layout = match self.pickle.call(layout) {
            Some((_, [name])) => self.pickle.str(*name)?,
            _ => self.pickle.str(layout)?,
        };
        let layout = layout.strip_prefix("torch.").unwrap_or(layout);
        let data = self.pickle.sequence(data)?;
        let (parts, names, size, coalesced) = match (layout, data) {
            ("sparse_coo", [indices, values, size, rest @ ..]) => {
                let coalesced = rest.first().and_then(|id| match self.pickle.node(*id) {
                    Node::Bool(value) => Some(*value),
                    _ => None,
                });
                (vec![*indices, *values], vec!["indices", "values"], *size, coalesced)
            }
            ("sparse_csr" | "sparse_bsr", [crow, col, values, size]) => (
                vec![*crow, *col, *values],
                vec!["crow_indices", "col_indices", "values"],
                *size,
                None,
            ),
            ("sparse_csc" | "sparse_bsc", [ccol, row, values, size]) => (
                vec![*ccol, *row, *values],
                vec!["ccol_indices", "row_indices", "values"],
                *size,
                None,
            ),
            _ => return None,
        };
        let shape = self.shape_of(size).ok()?;
        let layout = layout.to_owned();
        Some(LoweredNode::Parts(Assembly::Sparse { layout, shape, names, coalesced }, parts))
    }

    fn size(&self, items: NodeId) -> Option<LoweredNode> {
        let items = self.pickle.sequence(items)?.to_vec();
        Some(LoweredNode::Parts(Assembly::Tuple(TupleClass::Size), items))
    }

    fn device(&self, args: &[NodeId]) -> Option<LoweredNode> {
        let text: Text = match args {
            [kind] => self.pickle.text(*kind)?,
            [kind, index] => {
                format!("{}:{}", self.pickle.str(*kind)?, self.pickle.int(*index)?).into()
            }
            _ => return None,
        };
        Some(LoweredNode::Plain(Value::Device(text)))
    }

    fn dtype(&self, id: NodeId) -> Result<DType, Option<Reason>> {
        let global = self.pickle.global(id);
        global.and_then(|global| dtype(&global)).ok_or_else(|| Some("Its dtype is unknown".into()))
    }
}

/// Returns the storage of a stream that contains nothing else.
fn stream_storage(bytes: &[u8], number: u32, limits: &Limits) -> Option<(StorageName, Storage)> {
    let stream = read_stream(bytes, 0, limits).ok()?;
    let Node::Persistent(name) = stream.pickle.node(stream.pickle.root()) else { return None };
    let name = stream.pickle.storage_name(*name)?;
    let data = stream.storage(bytes, &name.key)?;
    let len = data.len() as u64;
    Some((name, Storage { number, layout: Layout::Inline(data.into()), len }))
}

/// The reason why a meta tensor's layout is missing, which is not a problem.
const META: &str = "a meta tensor has no data";

/// The title of the warning about elements of less than a byte that are not read, and the reason
/// why their layout is missing.
const PACKED: &str = "Packed elements of less than a byte are only listed";

/// Returns a torch dtype that is used as a value.
pub(crate) fn dtype(global: &Global) -> Option<DType> {
    if &*global.module != "torch" {
        return None;
    }
    let name = match &*global.name {
        "float" => "float32",
        "double" => "float64",
        "half" => "float16",
        "long" => "int64",
        "int" => "int32",
        "short" => "int16",
        "cfloat" => "complex64",
        "cdouble" => "complex128",
        name => name,
    };
    DType::from_torch_name(name)
}

fn rebuilds(module: &str, name: &str) -> bool {
    matches!(module, "torch._utils" | "torch._tensor" | "torch.tensor")
        && name.starts_with("_rebuild_")
}

/// Returns the layout of a view, after checking that it is inside the `len` bytes of a storage.
/// `offset` and `strides` are in elements. The error is a message.
pub fn view(
    storage: &Layout,
    len: u64,
    itemsize: u64,
    offset: u64,
    shape: &[u64],
    strides: &[i64],
) -> Result<Layout, String> {
    if shape.len() != strides.len() {
        return Err(format!("It has {} dimensions and {} strides", shape.len(), strides.len()));
    }
    let overflow = || "Its size does not fit 64 bits".to_owned();
    let numel = numel(shape).ok_or_else(overflow)?;
    let nbytes = numel.checked_mul(itemsize).filter(|bytes| *bytes <= i64::MAX as u64);
    let nbytes = nbytes.ok_or_else(overflow)?;
    if numel == 0 {
        return Ok(Layout::Inline(Arc::new([])));
    }
    let (mut first, mut last) = (i128::from(offset), i128::from(offset));
    for (dim, stride) in shape.iter().zip(strides) {
        let reach = i128::from(dim - 1) * i128::from(*stride);
        if reach < 0 { first += reach } else { last += reach }
    }
    let held = i128::from(len / itemsize);
    if first < 0 || last >= held {
        return Err(format!(
            "It reaches from element {first} to {last} of a storage that holds {held}"
        ));
    }
    if let Layout::Missing(reason) = storage {
        return Ok(Layout::Missing(reason.clone()));
    }
    let start = offset.checked_mul(itemsize).ok_or_else(overflow)?;
    let dense = contiguous_strides(shape).is_some_and(|dense| {
        dense
            .iter()
            .zip(strides)
            .zip(shape)
            .all(|((dense, stride), dim)| *dim == 1 || dense == stride)
    });
    Ok(match storage {
        Layout::Span(span) if dense => {
            let offset = span.offset.checked_add(start).ok_or_else(overflow)?;
            Layout::Span(Span { file: span.file, offset, len: nbytes })
        }
        Layout::Packed(_) | Layout::Inline(_) if dense && start == 0 && nbytes == len => {
            storage.clone()
        }
        _ => Layout::Strided(Strided {
            storage: Arc::new(storage.clone()),
            storage_len: len,
            offset,
            strides: strides.to_vec(),
        }),
    })
}
