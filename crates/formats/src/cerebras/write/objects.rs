//! Pickles values that the format stores as pickles, with protocol 4 like the library's
//! `dill.dumps`.
//!
//! Supports only objects that Python constructs without running code of the checkpoint: builtin
//! values, dtypes of torch and numpy, and a few classes of the standard library. Anything else is
//! refused.

use std::borrow::Cow;

use statelens_checkpoint::{
    Array, ByteOrder, Checkpoint, DType, Dict, DictClass, DictKey, Form, Global, Layout, List,
    ListClass, Opaque, Set, Tensor, Tuple, TupleClass, Value, ValueId, has_word,
};
use statelens_pickle::{Encoder, TupleLen};

type Reason = Cow<'static, str>;

/// A pending step of the writer.
enum WriteTask {
    Value(ValueId),
    Key(DictKey),
    /// An opcode that consumes the preceding values.
    Do(fn(&mut Encoder)),
    /// Makes a tuple of this number of values. Tuples of more than three values start at a mark.
    Tuple(usize),
}

/// The maximum number of values in a pickle; without it, a cycle would never end.
const MAX_VALUES: usize = 1_000_000;

/// Pickles a value. Fails with the reason if it can't be pickled.
pub(super) fn pickle(source: &Checkpoint, id: ValueId) -> Result<Vec<u8>, Reason> {
    let mut encoder = Encoder::new();
    encoder.proto(4);
    let frame = encoder.begin_frame();
    let mut writer = ObjectWriter { source, out: encoder, tasks: vec![WriteTask::Value(id)] };
    let mut values = 0;
    while let Some(task) = writer.tasks.pop() {
        values += 1;
        if values > MAX_VALUES {
            return Err("an object that refers to itself, or holds millions of values".into());
        }
        match task {
            WriteTask::Value(id) => writer.value(id)?,
            WriteTask::Key(key) => writer.key(&key)?,
            WriteTask::Do(opcode) => opcode(&mut writer.out),
            WriteTask::Tuple(count) => tuple(&mut writer.out, count),
        }
    }
    let mut out = writer.out;
    out.stop();
    out.end_frame(frame);
    Ok(out.into_bytes())
}

fn tuple(out: &mut Encoder, count: usize) {
    match count {
        0 => out.empty_tuple(),
        1 => out.tuple(TupleLen::One),
        2 => out.tuple(TupleLen::Two),
        3 => out.tuple(TupleLen::Three),
        _ => out.marked_tuple(),
    }
}

struct ObjectWriter<'a> {
    source: &'a Checkpoint,
    out: Encoder,
    tasks: Vec<WriteTask>,
}

impl ObjectWriter<'_> {
    fn value(&mut self, id: ValueId) -> Result<(), Reason> {
        let source = self.source;
        match source.value(source.resolve(id)) {
            Value::None => self.out.none(),
            Value::Bool(value) => self.out.bool(*value),
            Value::Int(value) => self.out.int(value).map_err(reason)?,
            Value::Float(value) => self.out.float(*value),
            Value::Complex(re, im) => {
                self.global("builtins", "complex")?;
                self.out.float(*re);
                self.out.float(*im);
                self.call(TupleLen::Two);
            }
            Value::Str(text) => self.out.text(text).map_err(reason)?,
            Value::Bytes { data, mutable: false } => self.out.binbytes(data),
            Value::Bytes { data, mutable: true } => {
                self.global("builtins", "bytearray")?;
                self.out.binbytes(data);
                self.call(TupleLen::One);
            }
            Value::List(list) => self.list(list)?,
            Value::Tuple(tuple) => self.tuple(tuple)?,
            Value::Set(Set { frozen, items }) => {
                if *frozen {
                    self.out.mark();
                    self.tasks.push(WriteTask::Do(Encoder::frozenset));
                } else {
                    self.out.empty_set();
                    self.out.mark();
                    self.tasks.push(WriteTask::Do(Encoder::additems));
                }
                self.push_values(items);
            }
            Value::Dict(dict) => self.dict(dict)?,
            Value::DType { dtype, numpy } => self.dtype(dtype, *numpy)?,
            Value::Device(name) => {
                self.global("torch", "device")?;
                self.out.text(name).map_err(reason)?;
                self.call(TupleLen::One);
            }
            Value::Array(Array { tensor, scalar: true }) => {
                let tensor = source.tensor(*tensor).map_err(reason)?;
                let bytes = element(tensor).ok_or("a numpy scalar inside an object")?;
                self.global("numpy.core.multiarray", "scalar")?;
                self.dtype(&tensor.dtype, Some(ByteOrder::Little))?;
                self.out.binbytes(&bytes);
                self.call(TupleLen::Two);
            }
            Value::Opaque(opaque) => self.opaque(opaque)?,
            Value::Tensor(_) | Value::Array(_) | Value::Sparse(_) => {
                return Err("an object with tensors in it, which would have to be pickled".into());
            }
            // Links are resolved and never lead to another link.
            Value::Link(_) => return Err("a broken link".into()),
        }
        Ok(())
    }

    fn list(&mut self, list: &List) -> Result<(), Reason> {
        if let ListClass::Deque(maxlen) = list.class {
            self.global("collections", "deque")?;
            self.out.empty_list();
            self.out.mark();
            self.tasks.push(WriteTask::Do(Encoder::reduce));
            self.tasks.push(WriteTask::Tuple(1 + usize::from(maxlen.is_some())));
            if let Some(maxlen) = maxlen {
                // The task holds the value itself, as it is not a value of the checkpoint.
                self.tasks.push(WriteTask::Key(DictKey::Int(maxlen.into())));
            }
        } else {
            self.out.empty_list();
            self.out.mark();
        }
        self.tasks.push(WriteTask::Do(Encoder::appends));
        self.push_values(&list.items);
        Ok(())
    }

    fn tuple(&mut self, tuple: &Tuple) -> Result<(), Reason> {
        match &tuple.class {
            TupleClass::Tuple => {}
            TupleClass::Size => {
                self.global("torch", "Size")?;
                self.tasks.push(WriteTask::Do(Encoder::reduce));
                self.tasks.push(WriteTask::Tuple(1));
            }
            TupleClass::Named(class) => return Err(unknown(class)),
        }
        if tuple.items.len() > 3 {
            self.out.mark();
        }
        self.tasks.push(WriteTask::Tuple(tuple.items.len()));
        self.push_values(&tuple.items);
        Ok(())
    }

    fn dict(&mut self, dict: &Dict) -> Result<(), Reason> {
        match &dict.class {
            DictClass::Dict => self.out.empty_dict(),
            DictClass::Ordered => self.made("collections", "OrderedDict")?,
            DictClass::Counter => self.made("collections", "Counter")?,
            DictClass::Default(None) => self.made("collections", "defaultdict")?,
            DictClass::Default(Some(factory)) => {
                if !is_known(factory) {
                    return Err(unknown(factory));
                }
                self.global("collections", "defaultdict")?;
                self.global(&factory.module, &factory.name)?;
                self.call(TupleLen::One);
            }
            DictClass::Object(class) if is_known(class) => {
                self.global(&class.module, &class.name)?;
                self.out.empty_tuple();
                match dict.entries.iter().any(|(key, _)| *key == DictKey::from("__reduce__")) {
                    true => self.out.reduce(),
                    false => self.out.newobj(),
                }
                self.out.empty_dict();
                self.tasks.push(WriteTask::Do(Encoder::build));
            }
            DictClass::Other(class) | DictClass::Object(class) => return Err(unknown(class)),
        }
        self.out.mark();
        self.tasks.push(WriteTask::Do(Encoder::setitems));
        let source = self.source;
        for entry in dict.entries.iter().rev().filter(|entry| !names_class(source, dict, entry)) {
            let (key, id) = entry;
            self.tasks.push(WriteTask::Value(*id));
            self.tasks.push(WriteTask::Key(key.clone()));
        }
        Ok(())
    }

    fn key(&mut self, key: &DictKey) -> Result<(), Reason> {
        match key {
            DictKey::Str(text) => self.out.text(text).map_err(reason)?,
            DictKey::Int(int) => self.out.int(int).map_err(reason)?,
            DictKey::Bool(value) => self.out.bool(*value),
            DictKey::Float(value) => self.out.float(*value),
            DictKey::None => self.out.none(),
            DictKey::Bytes(bytes) => self.out.binbytes(bytes),
            DictKey::Tuple(keys) => {
                if keys.len() > 3 {
                    self.out.mark();
                }
                self.tasks.push(WriteTask::Tuple(keys.len()));
                self.tasks.extend(keys.iter().rev().cloned().map(WriteTask::Key));
            }
            DictKey::Other(_) => return Err("a dict whose keys are objects".into()),
        }
        Ok(())
    }

    fn dtype(&mut self, dtype: &DType, numpy: Option<ByteOrder>) -> Result<(), Reason> {
        let Some(order) = numpy else {
            return match dtype {
                DType::Numpy(_) => Err("a dtype that torch does not have".into()),
                dtype => self.global("torch", dtype.name()),
            };
        };
        let numpy =
            NumpyDType::of(dtype).ok_or("a numpy dtype other than numbers, strings and bytes")?;
        self.global("numpy", "dtype")?;
        self.out.str(&numpy.code).map_err(reason)?;
        self.out.bool(false);
        self.out.bool(true);
        self.call(TupleLen::Three);
        // The state in numpy's format, without fields.
        self.out.mark();
        self.out.small_int(3);
        let order = if order == ByteOrder::Big && numpy.order == "<" { ">" } else { numpy.order };
        self.out.str(order).map_err(reason)?;
        for _ in 0..3 {
            self.out.none();
        }
        for number in numpy.layout {
            self.out.small_int(number);
        }
        self.out.marked_tuple();
        self.out.build();
        Ok(())
    }

    fn opaque(&mut self, opaque: &Opaque) -> Result<(), Reason> {
        let Opaque { global, form, args, state, items, entries, repr, .. } = opaque;
        if global.is("cerebras", "unreadable") {
            // The reader's placeholder for a value that could not be read.
            let text = repr.as_ref().map_or("it could not be read".into(), |text| text.to_lossy());
            return Err(format!("there is no value to write: {text}").into());
        }
        if !is_known(global) || !items.is_empty() || !entries.is_empty() {
            return Err(unknown(global));
        }
        if *form == Form::Reference {
            // A range that dill wrote as an expression has only its text.
            let range = repr.as_ref().and_then(|text| text.as_str()?.strip_prefix("range("));
            self.global(&global.module, &global.name)?;
            let Some(numbers) = range.and_then(|text| text.strip_suffix(')')) else {
                return Ok(());
            };
            let numbers: Vec<i64> =
                numbers.split(", ").map_while(|number| number.parse().ok()).collect();
            for number in &numbers {
                self.out.small_int(*number);
            }
            if !(1..=3).contains(&numbers.len()) {
                return Err(unknown(global));
            }
            tuple(&mut self.out, numbers.len());
            self.out.reduce();
            return Ok(());
        }
        self.global(&global.module, &global.name)?;
        if args.len() > 3 {
            self.out.mark();
        }
        if let Some(state) = state {
            self.tasks.push(WriteTask::Do(Encoder::build));
            self.tasks.push(WriteTask::Value(*state));
        }
        let call = if *form == Form::Call { Encoder::reduce } else { Encoder::newobj };
        self.tasks.push(WriteTask::Do(call));
        self.tasks.push(WriteTask::Tuple(args.len()));
        self.push_values(args);
        Ok(())
    }

    fn made(&mut self, module: &str, name: &str) -> Result<(), Reason> {
        self.global(module, name)?;
        self.out.empty_tuple();
        self.out.reduce();
        Ok(())
    }

    fn call(&mut self, args: TupleLen) {
        self.out.tuple(args);
        self.out.reduce();
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), Reason> {
        // A private module of a single Python release.
        let module = if module == "pathlib._local" { "pathlib" } else { module };
        self.out.short_str(module).map_err(reason)?;
        self.out.short_str(name).map_err(reason)?;
        self.out.stack_global();
        Ok(())
    }

    fn push_values(&mut self, ids: &[ValueId]) {
        self.tasks.extend(ids.iter().rev().map(|id| WriteTask::Value(*id)));
    }
}

fn reason(error: statelens_checkpoint::Error) -> Reason {
    error.what().to_owned().into()
}

fn unknown(class: &Global) -> Reason {
    if &*class.module == "?" {
        return "an object of a class that its pickle creates by running code".into();
    }
    format!("an object of the class {class}, which runs code when it is loaded").into()
}

/// Returns whether an entry of an object holds its class.
pub(super) fn names_class(source: &Checkpoint, dict: &Dict, entry: &(DictKey, ValueId)) -> bool {
    let (key, id) = entry;
    let DictClass::Object(class) = &dict.class else { return false };
    let is_named = *key == DictKey::from("__class__") || *key == DictKey::from("__reduce__");
    is_named && matches!(source.value(*id), Value::Opaque(opaque) if opaque.global == **class)
}

/// Returns whether this is a class or function of the standard library whose instances are plain
/// data.
fn is_known(global: &Global) -> bool {
    const BUILTINS: &str = "
        Ellipsis NotImplemented bool bytearray bytes complex dict float frozenset int list object
        range set slice str tuple
    ";
    let known = match &*global.module {
        "builtins" => BUILTINS,
        "datetime" => "date datetime time timedelta timezone",
        "pathlib" | "pathlib._local" => "Path PosixPath PurePath PurePosixPath PureWindowsPath",
        "collections" => "Counter OrderedDict defaultdict deque",
        "decimal" => "Decimal",
        "fractions" => "Fraction",
        "uuid" => "UUID",
        "argparse" => "Namespace",
        "types" => "SimpleNamespace",
        "torch" => "Size device strided sparse_coo",
        "numpy" => {
            return DType::from_torch_name(&global.name).is_some_and(|dtype| {
                dtype.is_int() || matches!(dtype, DType::F16 | DType::F32 | DType::F64)
            });
        }
        _ => return false,
    };
    has_word(known, &global.name)
}

/// Returns the little-endian bytes of a scalar or of the repeated element of a constant tensor, if
/// they are in memory and need no conversion.
pub(super) fn element(tensor: &Tensor) -> Option<Vec<u8>> {
    let bytes = match &tensor.layout {
        Layout::Inline(bytes) | Layout::Fill(bytes) => bytes,
        _ => return None,
    };
    let size = tensor.dtype.itemsize();
    if bytes.len() as u64 != size || tensor.dtype != tensor.stored {
        return None;
    }
    if tensor.conjugate || tensor.negate {
        return None;
    }
    let mut bytes = bytes.to_vec();
    if tensor.byte_order == ByteOrder::Big {
        if matches!(tensor.dtype, DType::Numpy(_)) {
            return None;
        }
        let word = usize::try_from(tensor.dtype.word()).ok()?;
        bytes.chunks_mut(word).for_each(<[u8]>::reverse);
    }
    Some(bytes)
}

/// numpy's pickle representation of a dtype.
struct NumpyDType {
    /// Kind and size.
    code: Cow<'static, str>,
    /// Byte order.
    order: &'static str,
    /// Size, alignment and flags; numbers don't specify the first two.
    layout: [i64; 3],
}

impl NumpyDType {
    fn of(dtype: &DType) -> Option<Self> {
        if let DType::Numpy(numpy) = dtype {
            let size = i64::try_from(numpy.itemsize).ok()?;
            let (order, layout) = match numpy.code.as_bytes().first()? {
                b'S' | b'V' if numpy.fields.is_empty() => ("|", [size, 1, 0]),
                b'U' => ("<", [size, 4, 8]),
                _ => return None,
            };
            return Some(Self { code: numpy.code.clone().into(), order, layout });
        }
        let code = match dtype {
            DType::Bool => "b1",
            DType::U8 => "u1",
            DType::U16 => "u2",
            DType::U32 => "u4",
            DType::U64 => "u8",
            DType::I8 => "i1",
            DType::I16 => "i2",
            DType::I32 => "i4",
            DType::I64 => "i8",
            DType::F16 => "f2",
            DType::F32 => "f4",
            DType::F64 => "f8",
            DType::C64 => "c8",
            DType::C128 => "c16",
            _ => return None,
        };
        let order = if dtype.itemsize() == 1 { "|" } else { "<" };
        Some(Self { code: code.into(), order, layout: [-1, -1, 0] })
    }
}

/// Returns the value of a float of 16, 32 or 64 bits.
pub(super) fn real(dtype: &DType, bytes: &[u8]) -> Option<f64> {
    Some(match dtype {
        DType::F16 => half::f16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
        DType::BF16 => half::bf16::from_le_bytes(bytes.try_into().ok()?).to_f64(),
        DType::F32 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
        DType::F64 => f64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}
