//! `statelens show`.

mod code;
mod slice;

pub use code::snippet;

use statelens::PathText as _;
use statelens::parts::checkpoint::{
    Checkpoint, Leaf, Quantizer, Tensor, float_repr, known_key, shape_text,
};
use statelens::parts::describe::{
    Attributes, Parameter, Parameters, attribute_text, dtype_of, element_json, fields_text, group,
    kind_of, layout_text, leaf_json, link_text, near_keys, shape_of, text_of, type_name,
};
use statelens::parts::quantised::reinterpreted;
use statelens::parts::values::{Json, element_text};
use statelens::{Error, Result, Value};

use crate::args::Show;
use crate::print::{CommandResult, Failure, Printer, TextTable, grouped};

use slice::ShownSlice;

pub(crate) fn run(args: &Show) -> CommandResult {
    let keys: Vec<&str> = args.keys.iter().map(String::as_str).collect();
    let (file, with) = (&args.input.file, &args.input.common.with);
    let opened = match args.shown_as {
        // The stored bytes are shown.
        Some(_) => super::open_for_good(file, with)?,
        None => super::quantised::open_for_good(file, with, &keys)?,
    };
    let other;
    let checkpoint: &Checkpoint = match &args.shown_as {
        Some(dtype) => {
            other = reinterpret(opened.inner(), dtype, args)?;
            &other
        }
        None => opened.inner(),
    };
    let leaves = checkpoint.leaves();
    // All keys are looked up before anything is printed.
    let mut found = Vec::new();
    for key in &args.keys {
        match find(checkpoint, &leaves, key, args) {
            Ok(leaves) => {
                found.extend(leaves.into_iter().map(|(leaf, slice)| (leaf.clone(), slice)))
            }
            // A group is not a leaf, but may have attributes.
            Err(error) => match group(checkpoint, key) {
                Some(leaf) => found.push((leaf, None)),
                None => return Err(error.into()),
            },
        }
    }
    let mut printer = Printer::new();
    if let Some(library) = &args.code {
        for (index, (leaf, slice)) in found.iter().enumerate() {
            printer.text(if index > 0 { "\n" } else { "" })?;
            let (slice, given) = (slice.as_ref().map(|it| &it.slice), &args.input.file);
            let (sources, library) = (opened.sources(), library.as_deref());
            let code = code::snippet((checkpoint, sources), leaf, slice, library, given)?;
            printer.text(&code)?;
        }
        return printer.success();
    }
    let parameters = parameters(checkpoint, &leaves, &found);
    let mut json = Json::new();
    if args.input.common.json {
        json.open('{');
        json.name("statelens").number(1);
        json.name("entries").open('[');
    }
    for (index, (leaf, slice)) in found.iter().enumerate() {
        let values = ShownElements::of(checkpoint, leaf, slice.as_ref(), args.values);
        if args.input.common.json {
            json.line();
            let parameter = parameters.of_key(&leaf.flat.to_lossy());
            object(&mut json, &mut printer, checkpoint, leaf, parameter, values.as_ref())?;
            printer.text(&json.take())?;
        } else {
            printer.text(if index > 0 { "\n" } else { "" })?;
            let parameter = parameters.of_key(&leaf.flat.to_lossy());
            facts(checkpoint, leaf, parameter, values.as_ref(), &mut printer)?;
        }
    }
    if args.input.common.json {
        json.newline();
        json.close(']');
        json.close('}');
        printer.line(&json.take())?;
    }
    printer.success()
}

/// Returns a checkpoint in which the bytes of the tensors to show are elements of another dtype.
fn reinterpret(checkpoint: &Checkpoint, dtype: &str, args: &Show) -> Result<Checkpoint> {
    let leaves = checkpoint.leaves();
    let mut builder = checkpoint.edit();
    for key in &args.keys {
        let mut found = named(&leaves, key, args)?;
        if let (true, Some((key, _))) = (found.is_empty(), key.rsplit_once('[')) {
            found = named(&leaves, key, args)?;
        }
        for leaf in found {
            let Some((id, tensor)) = checkpoint.tensor_of(leaf.target) else { continue };
            let read = reinterpreted(tensor, dtype, args.shape.as_deref())
                .map_err(|error| error.context(format!("`{key}`")))?;
            if let Some(place) = builder.tensor_mut(id) {
                *place = read;
            }
        }
    }
    builder.rebuild(checkpoint)
}

/// Returns the parameters that the numbers of optimizers refer to, if any shown key needs them.
fn parameters(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    shown: &[(Leaf, Option<ShownSlice>)],
) -> Parameters {
    match shown.iter().any(|(leaf, _)| leaf.flat.to_lossy().contains("state.")) {
        true => Parameters::of(checkpoint, leaves),
        false => Parameters::default(),
    }
}

/// Called with the number and the bytes of each element in turn.
type EachElement<'a> = &'a mut dyn FnMut(u64, &[u8]) -> std::result::Result<(), Failure>;

/// Returns the leaves that a key names, and the slice that follows the key. A key that itself ends
/// with the brackets takes precedence.
fn find<'a>(
    checkpoint: &Checkpoint,
    leaves: &'a [Leaf],
    text: &str,
    args: &Show,
) -> Result<Vec<(&'a Leaf, Option<ShownSlice>)>> {
    let whole = named(leaves, text, args)?;
    if !whole.is_empty() {
        return Ok(whole.into_iter().map(|leaf| (leaf, None)).collect());
    }
    let parts = text.strip_suffix(']').and_then(|text| text.rsplit_once('['));
    let Some((key, inner)) = parts else { return Err(unknown(leaves, text, args)) };
    let found = named(leaves, key, args)?;
    if found.is_empty() {
        return Err(unknown(leaves, key, args));
    }
    let sliced = |leaf: &'a Leaf| {
        let tensor = checkpoint.tensor_of(leaf.target).map(|(_, tensor)| tensor);
        let numbers = tensor.and_then(statelens::parts::tensor::numbers).ok_or_else(|| {
            Error::refused(format!("`{key}` has no numbers, so it can't be sliced"))
        })?;
        Ok((leaf, Some(ShownSlice::parse(inner, &numbers.shape)?)))
    };
    found.into_iter().map(sliced).collect()
}

fn named<'a>(leaves: &'a [Leaf], key: &str, args: &Show) -> Result<Vec<&'a Leaf>> {
    // Flat keys need not be unique: a name with a dot looks like nesting.
    let found: Vec<&Leaf> = leaves.iter().filter(|leaf| leaf.flat.to_lossy() == key).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let short: Vec<&Leaf> =
        leaves.iter().filter(|leaf| known_key(&leaf.flat.to_lossy()) == key).collect();
    if short.len() > 1 {
        return Err(Error::refused(format!("{} keys have the short form `{key}`", short.len()))
            .in_file(args.input.file.to_text())
            .advice("`statelens ls` lists the full keys."));
    }
    Ok(short)
}

fn unknown(leaves: &[Leaf], key: &str, args: &Show) -> Error {
    let error =
        Error::refused(format!("there is no key `{key}`")).in_file(args.input.file.to_text());
    let near: Vec<String> = near_keys(leaves, key, 5)
        .iter()
        .map(|leaf| format!("`{}`", leaf.flat.to_lossy()))
        .collect();
    match near.as_slice() {
        [] => error.advice("`statelens ls` lists the keys."),
        near => error.advice(format!("Similar keys: {}.", near.join(", "))),
    }
}

/// The elements of a tensor to show.
struct ShownElements<'a> {
    checkpoint: &'a Checkpoint,
    tensor: std::borrow::Cow<'a, Tensor>,
    slice: Option<&'a ShownSlice>,
    /// Number of elements to show.
    count: u64,
    /// Whether the tensor or slice has more elements.
    more: bool,
}

/// Values that are shown by default: of a tensor, and of a slice.
const DEFAULT_VALUES: u64 = 16;
const DEFAULT_SLICE_VALUES: u64 = 1_000;

impl<'a> ShownElements<'a> {
    /// Returns `None` if the leaf has no elements or they can't be read.
    fn of(
        checkpoint: &'a Checkpoint,
        leaf: &Leaf,
        slice: Option<&'a ShownSlice>,
        requested: Option<u64>,
    ) -> Option<Self> {
        let (_, tensor) = checkpoint.tensor_of(leaf.target)?;
        let tensor = statelens::parts::tensor::numbers(tensor)?;
        if statelens::parts::values::missing(&tensor).is_some() {
            return None;
        }
        let all = slice.map_or_else(|| tensor.numel().unwrap_or(0), |slice| slice.places.count());
        let usual = if slice.is_some() { DEFAULT_SLICE_VALUES } else { DEFAULT_VALUES };
        let count = all.min(requested.unwrap_or(usual));
        Some(Self { checkpoint, tensor, slice, count, more: all > count })
    }

    /// Calls `out` with the number and the bytes of each element.
    fn each(&self, out: EachElement<'_>) -> std::result::Result<(), Failure> {
        let files = &self.checkpoint.files;
        let item = usize::try_from(self.tensor.dtype.itemsize()).unwrap_or(usize::MAX).max(1);
        if let Some(slice) = self.slice {
            return slice.places.each(files, &self.tensor, 0..self.count, out);
        }
        let at_once = (AT_ONCE / item as u64).max(1);
        let mut at = 0;
        while at < self.count {
            let end = self.count.min(at + at_once);
            let bytes = statelens::parts::tensor::elements(files, &self.tensor, at..end)?;
            for (number, element) in (at..).zip(bytes.chunks(item)) {
                out(number, element)?;
            }
            at = end;
        }
        Ok(())
    }

    /// Returns the number of elements per line: the last dimension of a slice of several
    /// dimensions.
    fn width(&self) -> Option<u64> {
        let shape = self.slice?.places.shape();
        (shape.len() > 1).then(|| shape.last().copied().unwrap_or(1).max(1))
    }
}

/// Bytes of elements that are read at once.
const AT_ONCE: u64 = 8 << 20;

/// Returns the whole text of a plain value that `ls` would shorten to one line.
fn whole(checkpoint: &Checkpoint, leaf: &Leaf) -> Option<String> {
    match checkpoint.value(leaf.target) {
        Value::Str(text) => Some(text.to_lossy().into_owned()),
        Value::Opaque(opaque) => opaque.repr.as_ref().map(|text| text.to_lossy().into_owned()),
        _ => None,
    }
}

/// Returns the first plain values of a container, such as a list of texts.
fn values_text(
    checkpoint: &Checkpoint,
    children: Vec<statelens::parts::checkpoint::ValueId>,
) -> String {
    let plain = |id: &statelens::parts::checkpoint::ValueId| {
        !matches!(checkpoint.value(*id), Value::Tensor(_) | Value::Array(_) | Value::Link(_))
            && !checkpoint.value(*id).is_container()
    };
    if !children.iter().all(plain) {
        return String::new();
    }
    let shown = children.iter().take(DEFAULT_VALUES as usize).map(|id| text_of(checkpoint, *id));
    let mut text = shown.collect::<Vec<_>>().join(" ");
    text.push_str(if children.len() > DEFAULT_VALUES as usize { " …" } else { "" });
    text
}

/// Characters of an attribute that are shown; `--json` has all.
const MAX_ATTRIBUTE: usize = 2_000;

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_ATTRIBUTE) {
        Some((at, _)) => {
            format!("{} … ({} characters)", &text[..at], grouped(text.chars().count() as u64))
        }
        None => text.to_owned(),
    }
}

fn tensor_facts(checkpoint: &Checkpoint, tensor: &Tensor) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("parameters", grouped(tensor.numel().unwrap_or(0))),
        ("bytes", grouped(tensor.nbytes().unwrap_or(0))),
        ("stored in", layout_text(&checkpoint.files, tensor)),
    ];
    if tensor.requires_grad {
        facts.push(("gradient", "required".into()));
    }
    match &tensor.quantizer {
        None => {}
        Some(Quantizer::PerTensor { scale, zero_point }) => facts
            .push(("quantised", format!("scale {}, zero point {zero_point}", float_repr(*scale)))),
        Some(Quantizer::PerChannel { axis, .. }) => {
            facts.push((
                "quantised",
                format!("a scale and zero point for each index of axis {axis}"),
            ));
        }
    }
    facts
}

fn facts(
    checkpoint: &Checkpoint,
    leaf: &Leaf,
    parameter: Option<&Parameter>,
    values: Option<&ShownElements<'_>>,
    printer: &mut Printer,
) -> std::result::Result<(), Failure> {
    let mut table = TextTable::new(&["", ""]);
    let mut row = |name: &str, text: String| {
        if !text.is_empty() {
            table.row(vec![name.into(), text]);
        }
    };
    let key = leaf.flat.to_lossy();
    row("key", key.clone().into_owned());
    row("short", Some(known_key(&key)).filter(|short| **short != *key).unwrap_or_default().into());
    row("kind", kind_of(checkpoint, leaf).into());
    row("type", type_name(checkpoint, leaf.target).unwrap_or_default());
    row("dtype", dtype_of(checkpoint, leaf.target).map_or(String::new(), ToString::to_string));
    row("shape", shape_of(checkpoint, leaf.target).map_or(String::new(), shape_text));
    row("of", parameter.map_or(String::new(), |of| format!("{} ({})", of.key, of.basis)));
    row("link", link_text(leaf).unwrap_or_default());
    let value = checkpoint.value(leaf.target);
    match value.children() {
        children if value.is_container() && !children.is_empty() => {
            row("entries", grouped(children.len() as u64));
            row("holds", values_text(checkpoint, children));
        }
        _ => row(
            "value",
            whole(checkpoint, leaf).unwrap_or_else(|| text_of(checkpoint, leaf.target)),
        ),
    }
    if let Some(fields) = dtype_of(checkpoint, leaf.target).and_then(fields_text) {
        row("fields", fields);
    }
    let tensor = checkpoint.tensor_of(leaf.target).map(|(_, tensor)| tensor);
    for (name, text) in tensor.map_or(Vec::new(), |tensor| tensor_facts(checkpoint, tensor)) {
        row(name, text);
    }
    if let Value::Sparse(sparse) = checkpoint.value(leaf.target) {
        for (name, part) in &sparse.parts {
            if let Some((_, part)) = checkpoint.tensor_of(*part) {
                let place = layout_text(&checkpoint.files, part);
                row(name, format!("{} {}, {place}", part.dtype, shape_text(&part.shape)));
            }
        }
    }
    for (name, text) in checkpoint.raw_attributes(leaf.id) {
        row(&format!("@{name}"), cut(&text.to_lossy()));
    }
    for (name, id) in checkpoint.named_attributes(leaf.target) {
        row(&format!("@{name}"), attribute_text(checkpoint, id));
    }
    if let Some(slice) = values.and_then(|values| values.slice) {
        row("slice", format!("[{}] of shape {}", slice.text, shape_text(slice.places.shape())));
    }
    let label = table.width(0);
    table.print_body(printer)?;
    let Some(values) = values.filter(|values| values.count > 0) else { return Ok(()) };
    let width = values.width();
    let dtype = &values.tensor.dtype;
    printer.text(&format!("{:label$} ", "values"))?;
    values.each(&mut |number, element| {
        if number > 0 && width.is_some_and(|width| number.is_multiple_of(width)) {
            printer.text(&format!("\n{:label$} ", ""))?;
        }
        printer.text(" ")?;
        printer.text(&element_text(dtype, element))
    })?;
    printer.line(if values.more { " …" } else { "" })
}

fn object(
    json: &mut Json,
    printer: &mut Printer,
    checkpoint: &Checkpoint,
    leaf: &Leaf,
    parameter: Option<&Parameter>,
    values: Option<&ShownElements<'_>>,
) -> std::result::Result<(), Failure> {
    json.open('{');
    leaf_json(json, checkpoint, leaf);
    if let Some((_, tensor)) = checkpoint.tensor_of(leaf.target) {
        json.name("stored_in").str(&layout_text(&checkpoint.files, tensor));
        json.name("requires_grad").bool(tensor.requires_grad);
    }
    if let Some(parameter) = parameter {
        json.name("parameter").value(parameter);
    }
    json.name("attributes").value(&Attributes::of(checkpoint, leaf.id));
    if let Some(values) = values {
        if let Some(slice) = values.slice {
            json.name("slice").str(&slice.text);
            json.name("slice_shape").numbers(slice.places.shape());
        }
        json.name("values").open('[');
        values.each(&mut |number, element| {
            element_json(json, &values.tensor.dtype, element);
            match number % 4_096 {
                4_095 => printer.text(&json.take()),
                _ => Ok(()),
            }
        })?;
        json.close(']');
    }
    json.close('}');
    Ok(())
}
