//! One-line descriptions of values, types and locations.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use statelens_checkpoint::{
    ByteOrder, Checkpoint, Chunked, Concat, DType, Field, FileSet, Form, Global, Layout, Leaf,
    Opaque, Set, Strided, Tensor, TensorClass, Text, Tuple, TupleClass, Value, ValueId, float_repr,
    shape_text, visible,
};
use statelens_values::{complex_text, element_text};

/// Maximum length of the text of a value, in characters; longer ones end in `…`.
const WIDTH: usize = 80;
/// Maximum number of arguments in the text of an object.
pub(crate) const SHOWN_ARGS: usize = 6;

/// Returns the kind of a leaf, with links followed: `tensor`, `int`, `object`, …
pub fn kind_of(checkpoint: &Checkpoint, leaf: &Leaf) -> &'static str {
    checkpoint.value(leaf.target).kind()
}

/// Returns the dtype of a tensor, array or sparse tensor, with links followed.
pub fn dtype_of(checkpoint: &Checkpoint, id: ValueId) -> Option<&DType> {
    match checkpoint.value(checkpoint.resolve(id)) {
        Value::Sparse(sparse) => Some(&sparse.dtype),
        _ => checkpoint.tensor_of(id).map(|(_, tensor)| &tensor.dtype),
    }
}

/// Describes the fields of a record: `id int32, x float64 [2], label bytes24`.
pub fn fields_text(dtype: &DType) -> Option<String> {
    let DType::Numpy(numpy) = dtype else { return None };
    let field = |field: &Field| {
        let name = match field.title.as_str() {
            "" => field.name.clone(),
            title => format!("{} ({title})", field.name),
        };
        match field.shape.as_slice() {
            [] => format!("{name} {}", field.dtype),
            shape => format!("{name} {} {}", field.dtype, shape_text(shape)),
        }
    };
    let fields: Vec<String> = numpy.fields.iter().map(field).collect();
    (!fields.is_empty()).then(|| fields.join(", "))
}

/// Returns the shape of a tensor, array or sparse tensor, with links followed.
pub fn shape_of(checkpoint: &Checkpoint, id: ValueId) -> Option<&[u64]> {
    match checkpoint.value(checkpoint.resolve(id)) {
        Value::Sparse(sparse) => Some(&sparse.shape),
        _ => checkpoint.tensor_of(id).map(|(_, tensor)| tensor.shape.as_slice()),
    }
}

/// Returns the dotted name of a value's Python type if the kind does not determine it: for objects,
/// subclasses of tensors and dicts, named tuples. For a class or function as a value, returns its
/// own name.
pub fn type_name(checkpoint: &Checkpoint, id: ValueId) -> Option<String> {
    use statelens_checkpoint::{DictClass, ListClass};
    let id = checkpoint.resolve(id);
    Some(match checkpoint.value(id) {
        Value::Opaque(opaque) => opaque.global.to_string(),
        Value::Set(Set { frozen: true, .. }) => "builtins.frozenset".into(),
        Value::DType { numpy, .. } => {
            if numpy.is_some() { "numpy.dtype" } else { "torch.dtype" }.into()
        }
        Value::Device(_) => "torch.device".into(),
        Value::Bytes { mutable: true, .. } => "builtins.bytearray".into(),
        Value::Tuple(Tuple { class: TupleClass::Size, .. }) => "torch.Size".into(),
        Value::Tuple(Tuple { class: TupleClass::Named(global), .. }) => global.to_string(),
        Value::List(list) if matches!(list.class, ListClass::Deque(_)) => {
            "collections.deque".into()
        }
        Value::Dict(dict) => match &dict.class {
            DictClass::Dict => return None,
            DictClass::Ordered => "collections.OrderedDict".into(),
            DictClass::Default(_) => "collections.defaultdict".into(),
            DictClass::Counter => "collections.Counter".into(),
            DictClass::Other(global) | DictClass::Object(global) => global.to_string(),
        },
        Value::Array(array) if array.scalar => {
            format!("numpy.{}", checkpoint.tensor_of(id)?.1.dtype.name())
        }
        Value::Tensor(_) | Value::Array(_) => match &checkpoint.tensor_of(id)?.1.class {
            TensorClass::Tensor => return None,
            TensorClass::Parameter => "torch.nn.Parameter".into(),
            TensorClass::Other(name) => name.to_lossy().into_owned(),
        },
        _ => return None,
    })
}

/// Describes the value of a leaf in one short line: a number, a quoted string, an object as Python
/// prints it. For a link, describes the target and adds `= target`. For a tensor, shows only what
/// is known without reading it: a constant value, or why its bytes are missing. The text does not
/// contain control characters.
pub fn value_text(checkpoint: &Checkpoint, leaf: &Leaf) -> String {
    let value = text_of(checkpoint, leaf.target);
    match (link_text(leaf), value.as_str()) {
        (None, _) => value,
        (Some(link), "") => link,
        (Some(link), value) => format!("{value} ({link})"),
    }
}

/// Returns `= target` if a leaf is a link.
pub fn link_text(leaf: &Leaf) -> Option<String> {
    Some(match leaf.alias_of.as_ref()? {
        target if target.is_empty() => "= the root".into(),
        target => clip(&format!("= {}", visible(&target.to_lossy()))),
    })
}

/// Describes a value in one short line, like [`value_text`] for a leaf that is not a link.
pub fn text_of(checkpoint: &Checkpoint, id: ValueId) -> String {
    let text = match checkpoint.value(id) {
        Value::None => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Int(int) => match int.to_i64() {
            Some(small) => small.to_string(),
            None => long_int(&int.to_le_bytes(), || int.to_string()),
        },
        Value::Float(float) => float_repr(*float),
        Value::Complex(re, im) => complex_text(*re, *im),
        Value::Str(text) => quote(text),
        Value::Bytes { data, mutable } => {
            let head = &data[..data.len().min(WIDTH)];
            let text = format!("b'{}'", head.escape_ascii());
            if *mutable { format!("bytearray({text})") } else { text }
        }
        Value::List(_) => "[]".into(),
        Value::Tuple(_) => "()".into(),
        Value::Set(Set { frozen: false, .. }) => "set()".into(),
        Value::Set(set) if set.items.is_empty() => "frozenset()".into(),
        Value::Set(set) => format!("frozenset({{{}}})", few(checkpoint, &set.items, 10)),
        Value::Dict(_) => "{}".into(),
        Value::DType { dtype, numpy: Some(ByteOrder::Little) } => format!("dtype('{dtype}')"),
        Value::DType { dtype, numpy: Some(ByteOrder::Big) } => {
            format!("dtype('{dtype}').newbyteorder('>')")
        }
        Value::DType { dtype, numpy: None } => format!("torch.{dtype}"),
        Value::Device(name) => device_text(&visible(&name.to_lossy())),
        Value::Opaque(opaque) => opaque_text(checkpoint, opaque),
        Value::Sparse(sparse) => sparse.layout.clone(),
        Value::Tensor(_) | Value::Array(_) => {
            checkpoint.tensor_of(id).map_or(String::new(), |(_, tensor)| known(tensor))
        }
        Value::Link(_) => String::new(),
    };
    clip(&text)
}

/// Returns torch's `repr` of a device such as `cuda:1`.
fn device_text(name: &str) -> String {
    match name.rsplit_once(':') {
        Some((kind, index)) => format!("device(type='{kind}', index={index})"),
        None => format!("device(type='{name}')"),
    }
}

/// Describes an attribute of a value in one short line: a tensor by its dtype and shape, a
/// container without its contents.
pub fn attribute_text(checkpoint: &Checkpoint, id: ValueId) -> String {
    match (dtype_of(checkpoint, id), shape_of(checkpoint, id)) {
        (Some(dtype), Some(shape)) => {
            let kind = checkpoint.value(checkpoint.resolve(id)).kind();
            format!("{kind} {dtype} {}", shape_text(shape))
        }
        _ => scalar(checkpoint, id),
    }
}

/// Describes a value inside another one, without the contents of containers.
fn scalar(checkpoint: &Checkpoint, id: ValueId) -> String {
    match checkpoint.value(checkpoint.resolve(id)) {
        Value::List(list) if !list.items.is_empty() => "[…]".into(),
        Value::Tuple(tuple) if !tuple.items.is_empty() => "(…)".into(),
        Value::Dict(dict) if !dict.entries.is_empty() => "{…}".into(),
        Value::Set(set) if !set.items.is_empty() => "{…}".into(),
        Value::Opaque(opaque) if opaque.repr.is_none() => format!("{}(…)", global(&opaque.global)),
        Value::Tensor(_) => "tensor".into(),
        Value::Array(_) => "array".into(),
        _ => text_of(checkpoint, checkpoint.resolve(id)),
    }
}

fn opaque_text(checkpoint: &Checkpoint, opaque: &Opaque) -> String {
    if let Some(repr) = &opaque.repr {
        return visible(&repr.to_lossy());
    }
    let name = global(&opaque.global);
    match opaque.form {
        Form::Reference => name,
        Form::Call | Form::Instance => {
            if opaque.global.is("numpy", "ndarray") {
                let items = opaque.items.iter().take(WIDTH / 2);
                let items: Vec<_> = items.map(|item| scalar(checkpoint, *item)).collect();
                let shape = opaque.args.first().map(|id| checkpoint.value(checkpoint.resolve(*id)));
                if let (Some(Value::Tuple(shape)), [item]) = (shape, &items[..])
                    && shape.items.is_empty()
                {
                    return format!("array({item}, dtype=object)");
                }
                return format!("array([{}], dtype=object)", items.join(", "));
            }
            format!("{name}({})", few(checkpoint, &opaque.args, SHOWN_ARGS))
        }
    }
}

/// Describes the first `most` values, with an ellipsis if there are more.
fn few(checkpoint: &Checkpoint, values: &[ValueId], most: usize) -> String {
    let mut texts: Vec<String> =
        values.iter().take(most).map(|value| scalar(checkpoint, *value)).collect();
    if values.len() > most {
        texts.push("\u{2026}".into());
    }
    texts.join(", ")
}

fn global(global: &Global) -> String {
    visible(&global.to_string())
}

/// The start of the description of a tensor whose data are missing.
pub const MISSING: &str = "missing: ";

/// Describes the values of a tensor as far as the layout determines them.
fn known(tensor: &Tensor) -> String {
    match &tensor.layout {
        Layout::Fill(element) => {
            let mut element = element.to_vec();
            if tensor.byte_order == ByteOrder::Big {
                for (offset, size) in tensor.stored.words() {
                    let word = offset as usize..offset.saturating_add(size) as usize;
                    if let Some(word) = element.get_mut(word) {
                        word.reverse();
                    }
                }
            }
            format!("all {}", element_text(&tensor.stored, &element))
        }
        Layout::Missing(why) => format!("{MISSING}{}", visible(&why.to_lossy())),
        _ => String::new(),
    }
}

/// Describes where and how a tensor's bytes are stored.
pub fn layout_text(files: &FileSet, tensor: &Tensor) -> String {
    let mut text = place(files, tensor, &tensor.layout, &tensor.shape);
    if tensor.byte_order == ByteOrder::Big && tensor.stored.itemsize() > 1 {
        text.push_str(", big-endian");
    }
    if tensor.stored != tensor.dtype {
        let _ = write!(text, ", {} there, cast to {}", tensor.stored, tensor.dtype);
    }
    if tensor.conjugate {
        text.push_str(", conjugated");
    }
    if tensor.negate {
        text.push_str(", negated");
    }
    text
}

fn place(files: &FileSet, tensor: &Tensor, layout: &Layout, shape: &[u64]) -> String {
    match layout {
        Layout::Span(span) => format!(
            "{}, bytes {} to {}",
            visible(files.name(span.file)),
            span.offset,
            span.offset.saturating_add(span.len)
        ),
        Layout::Packed(packed) => format!(
            "{}, bytes {} to {}, {}",
            visible(files.name(packed.span.file)),
            packed.span.offset,
            packed.span.offset.saturating_add(packed.span.len),
            packed.packing.past()
        ),
        Layout::Strided(strided) => view(files, tensor, strided),
        Layout::Deferred(deferred) => {
            let span = deferred.span();
            format!(
                "{}, within bytes {} to {}",
                visible(files.name(span.file)),
                span.offset,
                span.offset.saturating_add(span.len)
            )
        }
        Layout::Chunked(chunked) => chunks(chunked, shape),
        Layout::Concat(concat) => parts(concat),
        Layout::Computed(computed) => {
            format!("computed from {}", place(files, &computed.of, &computed.of.layout, shape))
        }
        Layout::Dequantised(parts) => {
            let codes = &parts.codes.tensor;
            format!("codes in {}", place(files, codes, &codes.layout, &codes.shape))
        }
        Layout::Fill(element) => {
            format!("not stored: every element is {}", element_text(&tensor.stored, element))
        }
        Layout::Inline(_) => "the file's structure".into(),
        Layout::Missing(why) => format!("{MISSING}{}", visible(&why.to_lossy())),
    }
}

fn view(files: &FileSet, tensor: &Tensor, strided: &Strided) -> String {
    let mut text = String::from("view of ");
    match tensor.storage {
        Some(number) => {
            let _ = write!(text, "storage {number}");
        }
        None => text.push_str("a storage"),
    }
    let strides: Vec<String> = strided.strides.iter().map(i64::to_string).collect();
    let _ = write!(
        text,
        " of {} bytes ({}), from element {}, stride ({})",
        strided.storage_len,
        // The storage of a view is never a view itself, so this does not recurse further.
        match &*strided.storage {
            Layout::Strided(_) => "a view".into(),
            storage => place(files, tensor, storage, &[]),
        },
        strided.offset,
        strides.join(", ")
    );
    text
}

/// Describes parts, including those that are in parts themselves.
fn parts(concat: &Concat) -> String {
    let (mut count, mut axes, mut open) = (0u64, BTreeSet::new(), vec![concat]);
    while let Some(concat) = open.pop() {
        axes.insert(concat.axis);
        for part in &concat.parts {
            match &part.layout {
                Layout::Concat(inner) => open.push(inner),
                _ => count += 1,
            }
        }
    }
    let word = if axes.len() == 1 { "axis" } else { "axes" };
    let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
    format!("{count} parts along {word} {}", axes.join(", "))
}

fn chunks(chunked: &Chunked, shape: &[u64]) -> String {
    let grid: Vec<String> = shape
        .iter()
        .zip(&chunked.shape)
        .map(|(dim, chunk)| dim.div_ceil((*chunk).max(1)).to_string())
        .collect();
    let filters = chunked.chunks.describe();
    let chunk = if grid.iter().all(|count| count == "1") { "chunk" } else { "chunks" };
    // A single chunk is shown as 1, whatever the number of dimensions.
    let count = if chunk == "chunk" { "1".to_owned() } else { grid.join(" x ") };
    format!(
        "{count} {chunk} of {}{}{}",
        shape_text(&chunked.shape),
        if filters.is_empty() { "" } else { ", " },
        filters
    )
}

/// Quotes a string like Python.
fn quote(text: &Text) -> String {
    let head: String = text.to_lossy().chars().take(WIDTH + 1).collect();
    let quote = if head.contains('\'') && !head.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in head.chars() {
        match c {
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            '\\' if text.as_str().is_some() => out.push_str("\\\\"),
            c => out.push_str(&visible(c.encode_utf8(&mut [0; 4]))),
        }
    }
    out.push(quote);
    out
}

/// Printing takes quadratic time, so only the length of a huge integer is shown.
fn long_int(bytes: &[u8], digits: impl FnOnce() -> String) -> String {
    match bytes.len() {
        0..=64 => digits(),
        len => format!("an integer of {len} bytes"),
    }
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(WIDTH) {
        None => text.to_owned(),
        Some(_) => {
            let end = text.char_indices().nth(WIDTH - 1).map_or(text.len(), |(at, _)| at);
            format!("{}…", &text[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::{Builder, FormatInfo, Limits, Part};

    #[test]
    fn fill_values_are_in_the_byte_order_of_the_tensor() {
        let filled = |dtype, bytes: &[u8]| {
            let tensor = Tensor::new(dtype, vec![3], Layout::Fill(bytes.into()));
            known(&Tensor { byte_order: ByteOrder::Big, ..tensor })
        };
        assert_eq!(filled(DType::I32, &[0, 0, 0, 5]), "all 5");
        let complex = [1f32.to_be_bytes(), 2f32.to_be_bytes()].concat();
        assert_eq!(filled(DType::C64, &complex), "all (1+2j)");
    }

    #[test]
    fn parts_of_parts_are_counted_once() {
        let concat = |axis, layouts: Vec<Layout>| {
            let part = |layout| Part { shape: vec![1, 1], layout };
            Concat { axis, parts: layouts.into_iter().map(part).collect() }
        };
        let one = || Layout::Fill([0][..].into());
        let row = || concat(1, vec![one(), one(), one()]);
        assert_eq!(parts(&row()), "3 parts along axis 1");
        let rows = vec![Layout::Concat(row()), one(), Layout::Concat(row())];
        assert_eq!(parts(&concat(0, rows)), "7 parts along axes 0, 1");
    }

    #[test]
    fn sets_with_more_members_than_are_shown_end_in_an_ellipsis() {
        for (count, text) in [
            (0, "frozenset()"),
            (2, "frozenset({0, 1})"),
            (10, "frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, 9})"),
            (11, "frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …})"),
        ] {
            let mut builder = Builder::new(&Limits::default());
            let items =
                (0..count).map(|at: i64| builder.push(Value::Int(at.into())).unwrap()).collect();
            let root = builder.push(Value::Set(Set { frozen: true, items })).unwrap();
            let format = FormatInfo::default();
            let checkpoint = builder.finish(root, format, FileSet::default(), Vec::new()).unwrap();
            assert_eq!(text_of(&checkpoint, root), text);
        }
        assert_eq!(device_text("cpu"), "device(type='cpu')");
        assert_eq!(device_text("cuda:1"), "device(type='cuda', index=1)");
    }

    #[test]
    fn prints_complex_numbers_as_python_does() {
        for (re, im, text) in [
            (1.0, -2.0, "(1-2j)"),
            (0.0, 1.5, "1.5j"),
            (-0.0, 1.0, "(-0+1j)"),
            (1.0, f64::NAN, "(1+nanj)"),
            (0.5, f64::NEG_INFINITY, "(0.5-infj)"),
            (1.0, -0.0, "(1-0j)"),
        ] {
            assert_eq!(complex_text(re, im), text);
        }
    }

    #[test]
    fn quotes_clips_and_escapes_strings() {
        assert_eq!(quote(&"it's".into()), "\"it's\"");
        assert_eq!(quote(&"a'\"b\\".into()), "'a\\'\"b\\\\'");
        assert_eq!(quote(&"\u{1b}[31m\u{202e}\n".into()), "'\\x1b[31m\\u202e\\n'");
        assert_eq!(quote(&Text::from_code_points([0x61, 0xd800]).unwrap()), "'a\\ud800'");
        let hidden = "\u{61c}\u{2028}\u{2029}\u{feff}\u{ad}\u{2060}\u{e0041}\u{202e}é";
        assert_eq!(visible(hidden), "\\u061c\\u2028\\u2029\\ufeff\\xad\\u2060\\U000e0041\\u202eé");
        assert_eq!(clip(&"x".repeat(200)).chars().count(), WIDTH);
        assert_eq!(clip("é"), "é");
    }
}
