//! Describes the model in a checkpoint, for `statelens info`.

use std::path::Path;

use statelens::Result;
use statelens::parts::checkpoint::{grouped, size_text};
use statelens::parts::describe::model::{Config, MemoryEstimate, Model};

use super::{files, siblings};
use crate::print::{Failure, Printer, TextTable};

/// Reads the named config of the model in `file`, otherwise a readable one in the same folder.
pub(crate) fn config_of(file: &Path, named: Option<&Path>) -> Result<Option<Config>> {
    Ok(match named {
        Some(path) => Some(read(path)?),
        None if file == Path::new("-") => None,
        None => siblings::sibling_config(file).and_then(|path| read(&path).ok()),
    })
}

fn read(path: &Path) -> Result<Config> {
    let value = files::read_config(path, &[])?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Config::new(name.unwrap_or_default(), value.scalars()))
}

/// Prints the whole description as tables.
pub(crate) fn print(model: &Model, printer: &mut Printer) -> std::result::Result<(), Failure> {
    if !model.is_recognised() && model.parts.is_empty() {
        return printer.line("the names and shapes match no known model");
    }
    let mut table = TextTable::new(&["", "", "", ""]);
    for fact in &model.facts {
        let fact = fact.of_file();
        let source = if fact.is_known() { fact.source.word() } else { "" };
        table.row(vec![fact.label.to_string(), fact.text(), source.into(), fact.basis()]);
    }
    table.print_body(printer)?;
    printer.line("")?;
    let mut table = TextTable::new(&["part", ">tensors", ">parameters", ">active", ">bytes"]);
    for sum in &model.parts {
        table.row(vec![
            sum.component.word().into(),
            grouped(sum.tensors),
            grouped(sum.params),
            sum.active.map_or("unknown".into(), grouped),
            size_text(sum.bytes),
        ]);
    }
    table.print(printer)?;
    if !model.quantised.is_empty() {
        printer.line("")?;
        let mut table = TextTable::new(&[
            "quantised",
            "one scale for",
            ">tensors",
            ">parameters",
            ">bits per weight",
        ]);
        for layout in &model.quantised {
            let bits =
                layout.bits_per_weight().map_or("unknown".into(), |bits| format!("{bits:.3}"));
            let block = if layout.block.is_empty() { "unknown" } else { &layout.block };
            table.row(vec![
                layout.layout.clone(),
                block.into(),
                grouped(layout.tensors),
                grouped(layout.params),
                bits,
            ]);
        }
        table.print(printer)?;
    }
    if let Some(memory) = &model.memory {
        printer.line("")?;
        let mut table = TextTable::new(&["memory", ">"]);
        for (what, bytes) in [
            ("to load as stored", memory.stored),
            ("in bfloat16", memory.bfloat16),
            ("in float32", memory.float32),
            ("to train with Adam", memory.training),
        ] {
            table.row(vec![what.into(), size_text(bytes)]);
        }
        table.print(printer)?;
        printer.line(&format!("training: {}", MemoryEstimate::FORMULA))?;
    }
    for resolved in &model.optimizer {
        let basis = match resolved.basis.as_str() {
            "" => "their parameters are not known",
            basis => basis,
        };
        let count = grouped(resolved.entries);
        let entries = if resolved.entries == 1 { "entry" } else { "entries" };
        printer.line(&format!("{count} {entries} of the optimizer: {basis}"))?;
    }
    Ok(())
}
