//! The edits of `statelens convert`: their options, the changes of keys and the effects of casts.

use std::fs;
use std::path::Path;

use statelens::parts::checkpoint::{Checkpoint, visible};
use statelens::parts::convert::{CastRule, Change, Changed, Edit, Pattern, Rename, RunReport};
use statelens::parts::values::Json;
use statelens::{DType, Error, Result};

use crate::args::Edits;
use crate::print::{Failure, Printer, TextTable, complain, counted, grouped, keys_text};
use crate::source;

/// Tensors that a refusal lists.
const MAX_LISTED: usize = 10;

pub(super) fn edit(args: &Edits) -> Result<Edit> {
    Ok(Edit {
        untie: args.untie,
        states: args.states.clone(),
        select: Pattern::all(&args.select)?,
        exclude: Pattern::all(&args.exclude)?,
        strip_prefix: args.strip_prefix.clone(),
        rename: renames(&args.rename, args.rename_map.as_deref())?,
        prefix: args.prefix.clone(),
        nest: args.nest,
        casts: CastRule::all(&args.cast)?,
    })
}

/// Returns the `--rename` replacements, then those of the list of names.
pub(super) fn renames(texts: &[String], list: Option<&Path>) -> Result<Vec<Rename>> {
    let mut renames = Rename::all(texts)?;
    if let Some(path) = list {
        let in_file = |error: Error| error.in_file(path.display().to_string());
        renames.push(Rename::list(&self::list(path)?).map_err(in_file)?);
    }
    Ok(renames)
}

/// Reads a list of names.
pub(super) fn list(path: &Path) -> Result<String> {
    let in_file = |error: Error| error.in_file(path.display().to_string());
    let about = fs::metadata(path).map_err(|error| source::open_error(&error, path))?;
    if !about.is_file() || about.len() > LONGEST_LIST {
        return Err(in_file(Error::refused("this is not a list of names")));
    }
    fs::read_to_string(path)
        .map_err(|error| in_file(Error::io(format!("it can't be read: {error}"))))
}

/// Bytes of the longest list of names that is accepted.
const LONGEST_LIST: u64 = 256 << 20;

/// Warns on standard error of edits that match nothing: most likely they are misspelt.
pub(super) fn warn_of_unused(args: &Edits, edit: &Edit, source: &Checkpoint) -> Result<()> {
    let unused = edit.unused(source)?;
    for text in &unused.exclude {
        complain(&format!("--exclude {text}: no key matches"));
    }
    for text in &unused.rename {
        match (args.rename.contains(text), &args.rename_map) {
            (false, Some(list)) => {
                complain(&format!("--rename-map {}: no key is in this list", list.display()));
            }
            _ => complain(&format!("--rename {text}: no key matches")),
        }
    }
    Ok(())
}

/// Prints old and new keys where they differ.
pub(super) fn changes_text(changes: &[Change], printer: &mut Printer) -> Result<(), Failure> {
    if changes.is_empty() {
        return Ok(());
    }
    let changed: Vec<&Change> = changes.iter().filter(|change| change.is_any()).collect();
    printer.line("")?;
    printer.line(&format!(
        "{} of {} change{}",
        grouped(changed.len() as u64),
        counted(changes.len() as u64, "key"),
        if changed.len() == 1 { "s" } else { "" }
    ))?;
    if changed.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(&["key", "", "new key", "dtype"]);
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
    json.name("keys").objects(changes, |json, change| {
        json.name("old").str(&change.old);
        json.name("new").value(&change.new);
        dtype(json.name("old_dtype"), &change.old_dtype);
        dtype(json.name("new_dtype"), &change.new_dtype);
    });
}

pub(super) fn cast_text(
    source: &Checkpoint,
    report: &RunReport,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let cast = &report.cast;
    if cast.elements == 0 {
        return Ok(());
    }
    let worst = report.worst(source);
    let keys = |of: fn(&Changed) -> bool| -> Vec<String> {
        worst.iter().filter(|changed| of(changed)).map(|changed| changed.key.clone()).collect()
    };
    let within = match keys(|_| true).as_slice() {
        [] => String::new(),
        rounded => format!(", in {}", visible(&keys_text(rounded))),
    };
    printer.line(&format!(
        "cast         {} numbers, {} of them rounded{within}",
        grouped(cast.elements),
        grouped(cast.changed)
    ))?;
    for pair in &report.pairs {
        let mut parts = vec![counted(pair.tensors, "tensor")];
        parts.extend(pair.effects());
        printer.line(&format!(
            "             {} -> {}: {}",
            pair.from,
            pair.to,
            parts.join(", ")
        ))?;
    }
    if cast.overflowed > 0 {
        let number = if cast.overflowed == 1 { "number does" } else { "numbers do" };
        printer.line(&format!(
            "overflowed   {} {number} not fit the dtype, in {}",
            grouped(cast.overflowed),
            visible(&keys_text(&keys(|changed| changed.cast.overflowed > 0)))
        ))?;
    }
    if worst.iter().any(is_flushed) {
        printer.line(&format!(
            "became 0     more than 1 % of the nonzero numbers, in {}",
            visible(&keys_text(&keys(is_flushed)))
        ))?;
    }
    Ok(())
}

fn is_flushed(changed: &Changed) -> bool {
    changed.cast.flushed.saturating_mul(100) > changed.cast.nonzero
}

/// Refuses a file in which casts did more than round, and lists the tensors, one per line.
pub(super) fn refuse_false(source: &Checkpoint, report: &RunReport) -> Result<()> {
    if !report.is_false() {
        return Ok(());
    }
    let (lines, more) = report.falsified(source, MAX_LISTED);
    for line in lines {
        complain(&format!("casting loses numbers: {line}"));
    }
    if let Some(more) = more {
        complain(&format!("and {more}"));
    }
    Err(Error::refused("casting loses numbers, so nothing was kept").advice(
        "Use a dtype with a larger range (bfloat16 has that of float32), cast only what fits with \
         --cast PATTERN=DTYPE, or continue with --lossy.",
    ))
}
