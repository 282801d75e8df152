//! The edits of `statelens convert`: what is asked for, what it does to keys, what casts did.

use std::collections::HashMap;

use statelens_checkpoint::{Checkpoint, DType, Result, TensorId};
use statelens_convert::{Cast, Change, Edit, Pattern, Rename, Report};
use statelens_inspect::{Json, visible};

use crate::args::Edits;
use crate::commands::convert::keys_text;
use crate::print::{Failure, Printer, Table, grouped};

/// Keys that the JSON names with what casts did to them.
const NAMED: usize = 1000;

pub(super) fn edit(args: &Edits) -> Result<Edit> {
    let patterns = |texts: &[String]| -> Result<Vec<Pattern>> {
        texts.iter().map(|text| Pattern::parse(text)).collect()
    };
    Ok(Edit {
        states: args.states.clone(),
        select: patterns(&args.select)?,
        exclude: patterns(&args.exclude)?,
        strip_prefix: args.strip_prefix.clone(),
        rename: args.rename.iter().map(|text| Rename::parse(text)).collect::<Result<_>>()?,
        prefix: args.prefix.clone(),
        nest: args.nest,
        casts: args.cast.iter().map(|text| Cast::parse(text)).collect::<Result<_>>()?,
    })
}

/// Old and new keys, where they differ.
pub(super) fn changes_text(changes: &[Change], printer: &mut Printer) -> Result<(), Failure> {
    if changes.is_empty() {
        return Ok(());
    }
    let changed: Vec<&Change> = changes.iter().filter(|change| change.is_any()).collect();
    printer.line("")?;
    printer.line(&format!(
        "{} of {} keys change",
        grouped(changed.len() as u64),
        grouped(changes.len() as u64)
    ))?;
    if changed.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["key", "", "new key", "dtype"]);
    for change in changed {
        let (arrow, new) = match &change.new {
            Some(new) if *new == change.old => ("", "the same"),
            Some(new) => ("->", new.as_str()),
            None => ("", "left out"),
        };
        let dtype = match (&change.old_dtype, &change.new_dtype) {
            (Some(old), Some(new)) if old != new => format!("{old} -> {new}"),
            (_, dtype) => dtype.as_ref().map(DType::to_string).unwrap_or_default(),
        };
        table.row(vec![change.old.clone(), arrow.into(), new.into(), dtype]);
    }
    table.print(printer)
}

pub(super) fn changes_json(json: &mut Json, changes: &[Change]) {
    let dtype = |json: &mut Json, dtype: &Option<DType>| match dtype {
        Some(dtype) => json.str(dtype.name()),
        None => json.null(),
    };
    json.name("keys").array(|json| {
        for change in changes {
            json.object(|json| {
                json.name("old").str(&change.old);
                match &change.new {
                    Some(new) => json.name("new").str(new),
                    None => json.name("new").null(),
                }
                dtype(json.name("old_dtype"), &change.old_dtype);
                dtype(json.name("new_dtype"), &change.new_dtype);
            });
        }
    });
}

pub(super) fn cast_json(json: &mut Json, source: &Checkpoint, report: &Report) {
    let cast = &report.cast;
    json.name("cast").object(|json| {
        json.name("elements").number(cast.elements);
        json.name("changed").number(cast.changed);
        json.name("overflowed").number(cast.overflowed);
        let keys = keys(source, report.changed.iter().map(|(id, _)| *id));
        json.name("keys").array(|json| {
            for ((_, cast), key) in report.changed.iter().zip(&keys).take(NAMED) {
                json.object(|json| {
                    json.name("key").str(key);
                    json.name("elements").number(cast.elements);
                    json.name("changed").number(cast.changed);
                    json.name("overflowed").number(cast.overflowed);
                });
            }
        });
    });
}

pub(super) fn cast_text(
    source: &Checkpoint,
    report: &Report,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let cast = &report.cast;
    if cast.elements > 0 {
        let rounded = keys(source, report.changed.iter().map(|(id, _)| *id));
        let within = match rounded.as_slice() {
            [] => String::new(),
            rounded => format!(", in {}", visible(&keys_text(rounded))),
        };
        printer.line(&format!(
            "cast         {} numbers, {} of them rounded{within}",
            grouped(cast.elements),
            grouped(cast.changed)
        ))?;
    }
    if cast.overflowed > 0 {
        let overflowed = report.changed.iter().filter(|(_, cast)| cast.overflowed > 0);
        let keys = keys(source, overflowed.map(|(id, _)| *id));
        printer.line(&format!(
            "overflowed   {} numbers were too large for the dtype, in {}",
            grouped(cast.overflowed),
            visible(&keys_text(&keys))
        ))?;
    }
    Ok(())
}

/// The first key of each tensor.
fn keys(source: &Checkpoint, tensors: impl Iterator<Item = TensorId>) -> Vec<String> {
    let mut names = HashMap::new();
    for leaf in source.leaves() {
        if let Some((id, _)) = source.tensor_of(leaf.target) {
            names.entry(id).or_insert_with(|| leaf.flat.to_lossy().into_owned());
        }
    }
    tensors.map(|id| names.get(&id).cloned().unwrap_or_default()).collect()
}
