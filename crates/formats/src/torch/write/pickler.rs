//! Writes a state dict as a pickle of protocol 2 that `weights_only` can load.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use statelens_checkpoint::{
    Checkpoint, DType, Dict, DictClass, DictKey, Error, Int, List, ListClass, Losses, Opaque,
    Quantizer, Result, Set, Sparse, Tensor, TensorClass, TensorId, Text, Tuple, TupleClass, Value,
    ValueId,
};
use statelens_pickle::{Encoder, MemoId, TupleLen};

use super::losses;
use super::stand_in::{StandIn, is_torch, stand_in};
use super::storages::{Storages, storage_class};
use crate::advice;
use crate::object_text::pathlib_text;

pub(super) struct Pickler<'a> {
    source: &'a Checkpoint,
    storages: &'a Storages,
    encoder: Encoder,
    /// Values with several references.
    linked: HashSet<ValueId>,
    memo: HashMap<ValueId, MemoId>,
    /// Linked values whose contents are being written; they exist only after their contents.
    open: HashSet<ValueId>,
    globals: HashMap<(&'static str, &'static str), MemoId>,
    /// Memoised strings: those common to all tensors, and texts and byte strings that are longer
    /// than a memo reference. Each is written once.
    words: HashMap<&'static str, MemoId>,
    texts: HashMap<Text, MemoId>,
    strings: HashMap<Arc<[u8]>, MemoId>,
    losses: &'a mut Losses<ValueId>,
    /// Pending steps; the next one is last.
    todo: Vec<Todo>,
}

/// Texts of at least this many bytes are memoised.
const LONG: usize = 64;

enum Todo {
    Value(ValueId),
    Key(ValueId, DictKey),
    Mark,
    Appends,
    SetItems,
    /// The items of a list from this index on.
    Items(ValueId, usize),
    /// The entries of a dict from this index on.
    Entries(ValueId, usize),
    /// A tuple of all values since the mark.
    Tuple,
    /// A tuple of the value on top of the stack.
    Tuple1,
    Reduce,
    Build,
    Global(&'static str, &'static str),
    /// Memoises the value on top of the stack under this ID.
    Remember(ValueId),
    /// The rest of a quantised tensor, once its scales are on the stack.
    QuantizedTail(TensorId, u64),
    /// The shape of a sparse tensor, and whether it is coalesced if known.
    SparseTail(ValueId),
    Str(&'static str),
    EmptyList,
}

impl<'a> Pickler<'a> {
    pub(super) fn new(
        source: &'a Checkpoint,
        storages: &'a Storages,
        linked: HashSet<ValueId>,
        losses: &'a mut Losses<ValueId>,
    ) -> Self {
        Self {
            source,
            storages,
            encoder: Encoder::new(),
            linked,
            memo: HashMap::new(),
            open: HashSet::new(),
            globals: HashMap::new(),
            words: HashMap::new(),
            texts: HashMap::new(),
            strings: HashMap::new(),
            losses,
            todo: vec![Todo::Value(source.root())],
        }
    }

    pub(super) fn run(mut self) -> Result<Vec<u8>> {
        self.encoder.proto(2);
        while let Some(todo) = self.todo.pop() {
            match todo {
                Todo::Value(id) => self.value(self.source.resolve(id))?,
                Todo::Key(value, key) => self.key(value, &key)?,
                Todo::Mark => self.encoder.mark(),
                Todo::Appends => self.encoder.appends(),
                Todo::SetItems => self.encoder.setitems(),
                Todo::Items(id, from) => self.items(id, from),
                Todo::Entries(id, from) => self.entries(id, from),
                Todo::Tuple => self.encoder.marked_tuple(),
                Todo::Tuple1 => self.encoder.tuple(TupleLen::One),
                Todo::Reduce => self.encoder.reduce(),
                Todo::Build => self.encoder.build(),
                Todo::Global(module, name) => self.global(module, name)?,
                Todo::Remember(id) => self.remember(id),
                Todo::QuantizedTail(tensor, axis) => self.quantized_tail(tensor, axis)?,
                Todo::SparseTail(id) => self.sparse_tail(id)?,
                Todo::Str(text) => self.encoder.str(text)?,
                Todo::EmptyList => self.encoder.empty_list(),
            }
        }
        self.encoder.stop();
        Ok(self.encoder.into_bytes())
    }

    /// Schedules `steps` next, in this order.
    fn next(&mut self, steps: impl IntoIterator<Item = Todo, IntoIter: DoubleEndedIterator>) {
        self.todo.extend(steps.into_iter().rev());
    }

    fn value(&mut self, id: ValueId) -> Result<()> {
        if let Some(memo) = self.memo.get(&id) {
            self.encoder.memoized(*memo);
            return Ok(());
        }
        if self.open.contains(&id) {
            return Err(Error::refused(
                "a tuple or object that contains itself can't be written for safe loading",
            )
            .advice(advice::exclude()));
        }
        let source = self.source;
        match source.value(id) {
            Value::None | Value::Link(_) => self.encoder.none(),
            Value::Bool(value) => self.encoder.bool(*value),
            Value::Int(int) => self.int(id, int)?,
            Value::Float(float) => self.encoder.float(*float),
            Value::Complex(re, im) => {
                self.losses.add(losses::COMPLEX, id);
                self.global("builtins", "complex")?;
                self.encoder.float(*re);
                self.encoder.float(*im);
                self.call(TupleLen::Two);
            }
            Value::Str(text) => {
                self.text(text)?;
                self.remember(id);
            }
            Value::Bytes { data, mutable } => self.bytes(id, data, *mutable)?,
            Value::List(list) => self.list(id, list),
            Value::Tuple(tuple) => self.tuple(id, tuple),
            Value::Set(set) => self.set(id, set),
            Value::Dict(dict) => self.dict(id, dict)?,
            Value::Tensor(tensor) => self.tensor_value(id, *tensor)?,
            Value::Array(array) => self.array(id, array.tensor, array.scalar)?,
            Value::Sparse(sparse) => self.sparse(id, sparse),
            Value::DType { dtype, numpy: None } if is_torch(dtype) => {
                self.dtype(dtype)?;
            }
            Value::DType { dtype, .. } => {
                self.losses.add(losses::NUMPY_DTYPE, id);
                self.encoder.str(dtype.name())?;
            }
            Value::Device(device) => self.device(device)?,
            Value::Opaque(opaque) => self.object(id, opaque)?,
        }
        Ok(())
    }

    /// Memoises the value on top of the stack if it has further references.
    fn remember(&mut self, id: ValueId) {
        self.open.remove(&id);
        if self.linked.contains(&id) {
            let memo = self.encoder.memoize();
            self.memo.insert(id, memo);
        }
    }

    /// Marks a value whose contents are written before the value exists.
    fn open(&mut self, id: ValueId) {
        if self.linked.contains(&id) {
            self.open.insert(id);
        }
    }

    fn global(&mut self, module: &'static str, name: &'static str) -> Result<()> {
        let write = |encoder: &mut Encoder| encoder.named(module, name);
        memoized(&mut self.globals, &mut self.encoder, (module, name), write)
    }

    /// Writes a call of a class without arguments.
    fn made(&mut self, module: &'static str, name: &'static str) -> Result<()> {
        self.global(module, name)?;
        self.encoder.empty_tuple();
        self.encoder.reduce();
        Ok(())
    }

    fn call(&mut self, arguments: TupleLen) {
        self.encoder.tuple(arguments);
        self.encoder.reduce();
    }

    fn int(&mut self, id: ValueId, int: &Int) -> Result<()> {
        if self.encoder.int(int).is_err() {
            self.losses.add(losses::BIG_INT, id);
            self.encoder.str(&int.to_string())?;
        }
        Ok(())
    }

    fn text(&mut self, text: &Text) -> Result<()> {
        if text.as_bytes().len() < LONG {
            return self.encoder.text(text);
        }
        memoized(&mut self.texts, &mut self.encoder, text.clone(), |encoder| encoder.text(text))
    }

    fn word(&mut self, word: &'static str) -> Result<()> {
        memoized(&mut self.words, &mut self.encoder, word, |encoder| encoder.str(word))
    }

    fn byte_string(&mut self, data: &Arc<[u8]>) -> Result<()> {
        if data.len() < LONG {
            return self.encoder.bytes_as_text(data);
        }
        let write = |encoder: &mut Encoder| encoder.bytes_as_text(data);
        memoized(&mut self.strings, &mut self.encoder, data.clone(), write)
    }

    fn bytes(&mut self, id: ValueId, data: &Arc<[u8]>, mutable: bool) -> Result<()> {
        self.losses.add(losses::BYTES, id);
        if mutable {
            self.global("builtins", "bytearray")?;
        }
        self.byte_string(data)?;
        if mutable {
            self.call(TupleLen::One);
        }
        self.remember(id);
        Ok(())
    }

    fn list(&mut self, id: ValueId, list: &List) {
        if matches!(list.class, ListClass::Deque(_)) {
            self.losses.add(losses::DEQUE, id);
        }
        self.encoder.empty_list();
        self.remember(id);
        self.todo.push(Todo::Items(id, 0));
    }

    fn items(&mut self, id: ValueId, from: usize) {
        let Value::List(list) = self.source.value(id) else { return };
        let rest = list.items.get(from..).unwrap_or(&[]);
        let batch = &rest[..rest.len().min(Encoder::BATCH)];
        if !batch.is_empty() {
            self.todo.push(Todo::Items(id, from + batch.len()));
            self.append(batch);
        }
    }

    fn append(&mut self, items: &[ValueId]) {
        let batches = items.chunks(Encoder::BATCH).rev();
        for batch in batches {
            self.todo.push(Todo::Appends);
            self.todo.extend(batch.iter().rev().map(|item| Todo::Value(*item)));
            self.todo.push(Todo::Mark);
        }
    }

    fn tuple(&mut self, id: ValueId, tuple: &Tuple) {
        self.open(id);
        let size = tuple.class == TupleClass::Size;
        if matches!(tuple.class, TupleClass::Named(_)) {
            self.losses.add(losses::NAMED, id);
        }
        self.todo.push(Todo::Remember(id));
        if size {
            self.todo.extend([Todo::Reduce, Todo::Tuple1]);
        }
        self.todo.push(Todo::Tuple);
        self.todo.extend(tuple.items.iter().rev().map(|item| Todo::Value(*item)));
        self.todo.push(Todo::Mark);
        if size {
            self.todo.push(Todo::Global("torch", "Size"));
        }
    }

    /// Writes a call of `set` with a list. `weights_only` refuses the opcodes for sets, except that
    /// of an empty set, which torch 2.4 also accepts.
    fn set(&mut self, id: ValueId, set: &Set) {
        if set.frozen {
            self.losses.add(losses::FROZEN, id);
        }
        if set.items.is_empty() {
            self.encoder.empty_set();
            self.remember(id);
            return;
        }
        self.losses.add(losses::SET, id);
        self.open(id);
        self.next([Todo::Tuple1, Todo::Reduce, Todo::Remember(id)]);
        self.append(&set.items);
        self.next([Todo::Global("builtins", "set"), Todo::EmptyList]);
    }

    fn dict(&mut self, id: ValueId, dict: &Dict) -> Result<()> {
        match &dict.class {
            DictClass::Ordered => {
                self.made("collections", "OrderedDict")?;
                if let Some(attributes) = self.source.attributes(id) {
                    self.next([Todo::Value(attributes), Todo::Build]);
                }
            }
            DictClass::Counter => self.made("collections", "Counter")?,
            class => {
                match class {
                    DictClass::Dict => {}
                    DictClass::Object(_) => self.losses.add(losses::MODULE, id),
                    _ => self.losses.add(losses::DICT, id),
                }
                self.encoder.empty_dict();
            }
        }
        self.remember(id);
        self.todo.push(Todo::Entries(id, 0));
        Ok(())
    }

    /// Schedules a batch of entries, followed by the next batch. This keeps the list of pending
    /// steps short for a dict with a million entries.
    fn entries(&mut self, id: ValueId, from: usize) {
        let Value::Dict(dict) = self.source.value(id) else { return };
        let rest = dict.entries.get(from..).unwrap_or(&[]);
        let batch = &rest[..rest.len().min(Encoder::BATCH)];
        if batch.is_empty() {
            return;
        }
        self.todo.push(Todo::Entries(id, from + batch.len()));
        self.todo.push(Todo::SetItems);
        for (key, value) in batch.iter().rev() {
            self.todo.push(Todo::Value(*value));
            self.todo.push(Todo::Key(*value, key.clone()));
        }
        self.todo.push(Todo::Mark);
    }

    /// Writes the key of `value`.
    fn key(&mut self, value: ValueId, key: &DictKey) -> Result<()> {
        match key {
            DictKey::Str(text) => self.text(text)?,
            DictKey::Int(int) => self.int(value, int)?,
            DictKey::Bool(bool) => self.encoder.bool(*bool),
            DictKey::Float(float) => self.encoder.float(*float),
            DictKey::None => self.encoder.none(),
            DictKey::Bytes(bytes) => {
                self.losses.add(losses::BYTES, value);
                self.byte_string(bytes)?;
            }
            DictKey::Tuple(keys) if keys.iter().all(|key| !matches!(key, DictKey::Tuple(_))) => {
                self.encoder.mark();
                for key in keys {
                    self.key(value, key)?;
                }
                self.encoder.marked_tuple();
            }
            DictKey::Tuple(_) | DictKey::Other(_) => {
                self.losses.add(losses::KEY, value);
                self.encoder.str(&key.to_string())?;
            }
        }
        Ok(())
    }

    fn tensor_value(&mut self, id: ValueId, tensor_id: TensorId) -> Result<()> {
        let tensor = self.source.tensor(tensor_id)?;
        match &tensor.class {
            TensorClass::Other(_) => self.losses.add(losses::SUBCLASS, id),
            TensorClass::Parameter => {
                self.global("torch._utils", "_rebuild_parameter")?;
                self.encoder.mark();
                self.tensor(tensor_id, false)?;
                self.encoder.bool(tensor.requires_grad);
                self.made("collections", "OrderedDict")?;
                self.encoder.marked_tuple();
                self.encoder.reduce();
                self.remember(id);
                return Ok(());
            }
            TensorClass::Tensor => {}
        }
        if matches!(tensor.dtype, DType::F8E8M0FNU | DType::F4E2M1FNX2) {
            self.losses.add(losses::NEW_DTYPE, id);
        }
        match &tensor.quantizer {
            None => {
                if *written_dtype(tensor) != tensor.dtype {
                    self.losses.add(losses::UNSCALED, id);
                }
                self.tensor(tensor_id, tensor.requires_grad)?;
                self.remember(id);
            }
            Some(quantizer) => self.quantized(id, tensor_id, quantizer)?,
        }
        Ok(())
    }

    fn array(&mut self, id: ValueId, tensor_id: TensorId, scalar: bool) -> Result<()> {
        let tensor = self.source.tensor(tensor_id)?;
        if !is_torch(&tensor.dtype) {
            self.losses.add(losses::NUMPY_ONLY, id);
            self.encoder.none();
            return Ok(());
        }
        self.losses.add(if scalar { losses::SCALAR } else { losses::ARRAY }, id);
        self.tensor(tensor_id, false)?;
        self.remember(id);
        Ok(())
    }

    /// Writes a tensor rebuilt from its storage, as `torch.save` does.
    fn tensor(&mut self, id: TensorId, requires_grad: bool) -> Result<()> {
        let tensor = self.source.tensor(id)?;
        let typed = storage_class(written_dtype(tensor)).is_some();
        let rebuild = if typed { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" };
        self.global("torch._utils", rebuild)?;
        self.encoder.mark();
        self.storage_and_view(id, tensor)?;
        self.encoder.bool(requires_grad);
        self.made("collections", "OrderedDict")?;
        if !typed {
            self.dtype(&tensor.dtype)?;
        }
        self.encoder.marked_tuple();
        self.encoder.reduce();
        Ok(())
    }

    /// Writes the persistent ID of the storage, then offset, size and strides in elements.
    fn storage_and_view(&mut self, id: TensorId, tensor: &Tensor) -> Result<()> {
        let storages = self.storages;
        let view = storages
            .views
            .get(&id)
            .ok_or_else(|| Error::damaged("a tensor is named that has no place in the archive"))?;
        self.encoder.mark();
        self.word("storage")?;
        let elements = match storage_class(written_dtype(tensor)) {
            Some(class) => {
                self.global("torch", class)?;
                view.record_len / tensor.dtype.itemsize().max(1)
            }
            None => {
                self.global("torch.storage", "UntypedStorage")?;
                view.record_len
            }
        };
        self.encoder.str(&view.record.to_string())?;
        self.word("cpu")?;
        self.encoder.int(&elements.into())?;
        self.encoder.marked_tuple();
        self.encoder.binpersid();
        self.encoder.int(&view.offset.into())?;
        self.encoder.tuple_of(&tensor.shape, |encoder, dim| encoder.int(&(*dim).into()))?;
        self.encoder.tuple_of(&view.strides, |encoder, stride| {
            encoder.small_int(*stride);
            Ok(())
        })
    }

    fn quantized(&mut self, id: ValueId, tensor_id: TensorId, how: &Quantizer) -> Result<()> {
        let tensor = self.source.tensor(tensor_id)?;
        self.global("torch._utils", "_rebuild_qtensor")?;
        self.encoder.mark();
        self.storage_and_view(tensor_id, tensor)?;
        self.encoder.mark();
        match how {
            Quantizer::PerTensor { scale, zero_point } => {
                self.global("torch", "per_tensor_affine")?;
                self.encoder.float(*scale);
                self.encoder.small_int(*zero_point);
                self.encoder.marked_tuple();
                self.quantized_end(tensor)?;
                self.remember(id);
            }
            Quantizer::PerChannel { scales, zero_points, axis } => {
                self.global("torch", "per_channel_affine")?;
                self.open(id);
                self.next([
                    Todo::Value(*scales),
                    Todo::Value(*zero_points),
                    Todo::QuantizedTail(tensor_id, *axis),
                    Todo::Remember(id),
                ]);
            }
        }
        Ok(())
    }

    fn quantized_tail(&mut self, tensor: TensorId, axis: u64) -> Result<()> {
        self.encoder.int(&axis.into())?;
        self.encoder.marked_tuple();
        let tensor = self.source.tensor(tensor)?;
        self.quantized_end(tensor)
    }

    fn quantized_end(&mut self, tensor: &Tensor) -> Result<()> {
        self.encoder.bool(tensor.requires_grad);
        self.made("collections", "OrderedDict")?;
        self.encoder.marked_tuple();
        self.encoder.reduce();
        Ok(())
    }

    fn sparse(&mut self, id: ValueId, sparse: &Sparse) {
        self.open(id);
        let layout =
            SPARSE_LAYOUTS.split_ascii_whitespace().find(|name| name.ends_with(&sparse.layout));
        let mut steps = vec![
            Todo::Global("torch._utils", "_rebuild_sparse_tensor"),
            Todo::Mark,
            Todo::Global("torch.serialization", "_get_layout"),
            Todo::Str(layout.unwrap_or("torch.sparse_coo")),
            Todo::Tuple1,
            Todo::Reduce,
            Todo::Mark,
        ];
        steps.extend(sparse.parts.iter().map(|(_, part)| Todo::Value(*part)));
        steps.extend([
            Todo::SparseTail(id),
            Todo::Tuple,
            Todo::Tuple,
            Todo::Reduce,
            Todo::Remember(id),
        ]);
        self.next(steps);
    }

    fn sparse_tail(&mut self, id: ValueId) -> Result<()> {
        let Value::Sparse(sparse) = self.source.value(id) else { return Ok(()) };
        self.global("torch", "Size")?;
        self.encoder.tuple_of(&sparse.shape, |encoder, dim| encoder.int(&(*dim).into()))?;
        self.call(TupleLen::One);
        if let Some(coalesced) = sparse.coalesced {
            self.encoder.bool(coalesced);
        }
        Ok(())
    }

    fn dtype(&mut self, dtype: &DType) -> Result<()> {
        self.encoder.named("torch", dtype.name())
    }

    /// Writes a device such as `torch.device('cuda', 1)`.
    fn device(&mut self, device: &Text) -> Result<()> {
        self.global("torch", "device")?;
        let text = device.to_lossy();
        match text.split_once(':').and_then(|(kind, index)| Some((kind, index.parse().ok()?))) {
            Some((kind, index)) => {
                self.encoder.str(kind)?;
                self.encoder.small_int(index);
                self.call(TupleLen::Two);
            }
            None => {
                self.encoder.str(&text)?;
                self.call(TupleLen::One);
            }
        }
        Ok(())
    }

    fn object(&mut self, id: ValueId, opaque: &Opaque) -> Result<()> {
        let path = pathlib_text(self.source, opaque).is_some();
        let stand_in = stand_in(self.source, id, opaque);
        let kind = match &stand_in {
            StandIn::Text(_) if path => losses::PATH,
            StandIn::Text(_) => losses::OBJECT,
            _ => losses::MODULE,
        };
        self.losses.add(kind, id);
        match stand_in {
            StandIn::Text(text) => {
                self.encoder.text(&text)?;
                self.remember(id);
            }
            StandIn::Value(value) => {
                self.open(id);
                self.next([Todo::Value(value), Todo::Remember(id)]);
            }
            StandIn::Items(items) => {
                self.encoder.empty_list();
                self.remember(id);
                self.append(items);
            }
            StandIn::Entries(entries) => {
                self.encoder.empty_dict();
                self.remember(id);
                let mut steps = vec![Todo::Mark];
                for (key, value) in entries {
                    steps.extend([Todo::Value(*key), Todo::Value(*value)]);
                }
                steps.push(Todo::SetItems);
                self.next(steps);
            }
        }
        Ok(())
    }
}

/// Writes a value, or a reference to it if it was written before.
fn memoized<K: Eq + Hash>(
    memos: &mut HashMap<K, MemoId>,
    encoder: &mut Encoder,
    key: K,
    write: impl FnOnce(&mut Encoder) -> Result<()>,
) -> Result<()> {
    if let Some(memo) = memos.get(&key) {
        encoder.memoized(*memo);
        return Ok(());
    }
    write(encoder)?;
    memos.insert(key, encoder.memoize());
    Ok(())
}

const SPARSE_LAYOUTS: &str = "
    torch.sparse_coo torch.sparse_csr torch.sparse_csc torch.sparse_bsr torch.sparse_bsc
";

/// Returns the dtype with which a tensor is written: without a quantizer, quantised integers are
/// written as plain ones.
fn written_dtype(tensor: &Tensor) -> &DType {
    match (&tensor.dtype, &tensor.quantizer) {
        (DType::QInt8, None) => &DType::I8,
        (DType::QUInt8, None) => &DType::U8,
        (DType::QInt32, None) => &DType::I32,
        (dtype, _) => dtype,
    }
}
