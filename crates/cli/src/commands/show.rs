//! `statelens show`.

use statelens_checkpoint::{
    Checkpoint, Error, Leaf, Quantizer, Result, Tensor, Value, float_repr, known_key,
};
use statelens_inspect::{
    Json, dtype_of, element_text, kind_of, layout_text, link_text, near_keys, shape_of, shape_text,
    text_of, type_name,
};
use statelens_tensor::elements;

use crate::args::Show;
use crate::print::{Failure, Outcome, Printer, Table, grouped};

pub(crate) fn run(args: &Show) -> Outcome {
    let checkpoint = super::open_for_good(&args.input.file, &args.input.common.with)?;
    let leaves = checkpoint.leaves();
    // Flat keys need not be unique: a name with a dot looks like nesting.
    let mut found: Vec<&Leaf> =
        leaves.iter().filter(|leaf| leaf.flat.to_lossy() == args.key).collect();
    if found.is_empty() {
        let known = leaves.iter().filter(|leaf| known_key(&leaf.flat.to_lossy()) == args.key);
        found = known.collect();
        if found.len() > 1 {
            let error =
                Error::refused(format!("{} keys are `{}` for short", found.len(), args.key))
                    .in_file(args.input.file.display().to_string())
                    .advice("`statelens ls` lists the whole keys.");
            return Err(error.into());
        }
    }
    if found.is_empty() {
        return Err(unknown(&leaves, args).into());
    }
    let mut printer = Printer::new();
    let mut json = Json::new();
    for (index, leaf) in found.iter().enumerate() {
        let values = first_values(checkpoint, leaf, args.values)?;
        if args.input.common.json {
            printer.text(if index > 0 { ",\n" } else { "[" })?;
            object(&mut json, checkpoint, leaf, &values);
            printer.text(&std::mem::take(&mut json).take())?;
        } else {
            printer.text(if index > 0 { "\n" } else { "" })?;
            facts(checkpoint, leaf, &values, &mut printer)?;
        }
    }
    if args.input.common.json {
        printer.line("]")?;
    }
    printer.finish()?;
    Ok(true)
}

fn unknown(leaves: &[Leaf], args: &Show) -> Error {
    let error = Error::refused(format!("there is no key `{}`", args.key))
        .in_file(args.input.file.display().to_string());
    let near: Vec<String> = near_keys(leaves, &args.key, 5)
        .iter()
        .map(|leaf| format!("`{}`", leaf.flat.to_lossy()))
        .collect();
    match near.as_slice() {
        [] => error.advice("`statelens ls` lists the keys."),
        near => error.advice(format!("Near to it: {}.", near.join(", "))),
    }
}

/// The text of the first `most` elements of a tensor; none for anything else.
fn first_values(checkpoint: &Checkpoint, leaf: &Leaf, most: u64) -> Result<Vec<String>> {
    let Some((_, tensor)) = checkpoint.tensor_of(leaf.target) else { return Ok(Vec::new()) };
    let Some(tensor) = statelens_tensor::numbers(tensor) else { return Ok(Vec::new()) };
    let tensor = &*tensor;
    let count = tensor.numel().unwrap_or(0).min(most).min(MOST_VALUES);
    if count == 0 || statelens_inspect::missing(tensor).is_some() {
        return Ok(Vec::new());
    }
    let bytes = elements(&checkpoint.files, tensor, 0..count)?;
    let item = usize::try_from(tensor.dtype.itemsize()).unwrap_or(usize::MAX).max(1);
    Ok(bytes.chunks(item).map(|element| element_text(&tensor.dtype, element)).collect())
}

/// More than this is no look any more.
const MOST_VALUES: u64 = 100_000;

/// The whole text of a plain value where the one line of `ls` would cut it.
fn whole(checkpoint: &Checkpoint, leaf: &Leaf) -> Option<String> {
    match checkpoint.value(leaf.target) {
        Value::Str(text) => Some(text.to_lossy().into_owned()),
        Value::Opaque(opaque) => opaque.repr.as_ref().map(|text| text.to_lossy().into_owned()),
        _ => None,
    }
}

fn tensor_facts(checkpoint: &Checkpoint, tensor: &Tensor) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("parameters", grouped(tensor.numel().unwrap_or(0))),
        ("bytes", grouped(tensor.nbytes().unwrap_or(0))),
        ("lies in", layout_text(&checkpoint.files, tensor)),
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
                format!("a scale and zero point for each place of axis {axis}"),
            ));
        }
    }
    facts
}

fn facts(
    checkpoint: &Checkpoint,
    leaf: &Leaf,
    values: &[String],
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut table = Table::new(&["", ""]);
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
    row("link", link_text(leaf).unwrap_or_default());
    row("value", whole(checkpoint, leaf).unwrap_or_else(|| text_of(checkpoint, leaf.target)));
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
        row(&format!("@{name}"), text.to_lossy().into_owned());
    }
    if let Some(tensor) = tensor.filter(|_| !values.is_empty()) {
        let more = tensor.numel().is_some_and(|numel| numel > values.len() as u64);
        row("values", format!("{}{}", values.join(" "), if more { " …" } else { "" }));
    }
    table.print_body(printer)
}

fn object(json: &mut Json, checkpoint: &Checkpoint, leaf: &Leaf, values: &[String]) {
    json.object(|json| {
        json.name("key").text(&leaf.flat);
        json.name("kind").str(kind_of(checkpoint, leaf));
        if let Some(name) = type_name(checkpoint, leaf.target) {
            json.name("type").str(&name);
        }
        if let Some(dtype) = dtype_of(checkpoint, leaf.target) {
            json.name("dtype").str(dtype.name());
        }
        if let Some(shape) = shape_of(checkpoint, leaf.target) {
            json.name("shape").numbers(shape);
        }
        match checkpoint.value(leaf.target) {
            Value::Str(text) => json.name("value").text(text),
            _ => json.name("value").str(&text_of(checkpoint, leaf.target)),
        }
        if let Some(target) = &leaf.alias_of {
            json.name("alias_of").text(target);
        }
        if let Some((_, tensor)) = checkpoint.tensor_of(leaf.target) {
            json.name("nbytes").number(tensor.nbytes().unwrap_or(0));
            json.name("lies_in").str(&layout_text(&checkpoint.files, tensor));
            json.name("requires_grad").bool(tensor.requires_grad);
            json.name("values").array(|json| values.iter().for_each(|value| json.str(value)));
        }
        json.name("attributes").object(|json| {
            for (name, text) in checkpoint.raw_attributes(leaf.id) {
                json.name(&name.to_lossy()).text(text);
            }
        });
    });
}
