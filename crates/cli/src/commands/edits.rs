//! The edits of `statelens convert`: their options, and the changes of keys.

use std::fs;
use std::path::Path;

use statelens::PathText as _;
use statelens::parts::checkpoint::Checkpoint;
use statelens::parts::convert::{Change, Edit, EditTexts, Rename};
use statelens::{DType, Error, Result};

use crate::args::Edits;
use crate::print::{Failure, Printer, TextTable, counted, grouped, warn};
use crate::source;

/// Parses the edits.
pub(super) fn edit(args: &Edits) -> Result<Edit> {
    let mut edit = texts(args).edit()?;
    edit.rename.extend(listed_renames(args.rename_map.as_deref())?);
    Ok(edit)
}

/// Returns the edits as texts, without the list of names.
pub(super) fn texts(args: &Edits) -> EditTexts {
    EditTexts {
        untie: args.untie,
        states: args.states.clone(),
        select: args.select.clone(),
        exclude: args.exclude.clone(),
        strip_prefix: args.strip_prefix.clone(),
        rename: args.rename.clone(),
        rename_list: None,
        prefix: args.prefix.clone(),
        nest: args.nest,
        cast: args.cast.clone(),
    }
}

/// Returns the replacements of a list of names, if there is one.
pub(super) fn listed_renames(path: Option<&Path>) -> Result<Option<Rename>> {
    let Some(path) = path else { return Ok(None) };
    let listed = Rename::list(&list(path)?);
    listed.map(Some).map_err(|error| error.in_file(path.to_text()))
}

/// Reads a list of names.
pub(super) fn list(path: &Path) -> Result<String> {
    let in_file = |error: Error| error.in_file(path.to_text());
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
        warn(&format!("--exclude {text}: no key matches"));
    }
    for text in &unused.rename {
        match (args.rename.contains(text), &args.rename_map) {
            (false, Some(list)) => {
                warn(&format!("--rename-map {}: no key is in this list", list.to_text()));
            }
            _ => warn(&format!("--rename {text}: no key matches")),
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use statelens::parts::convert::{OutputOptions, RENAME_LIST};

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn printed_commands_give_the_same_options() {
        let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let edits = EditTexts {
            untie: true,
            states: texts(&["model", "optimizer"]),
            select: texts(&["model.*", "/^h\\.(0|1)/", "-x"]),
            exclude: texts(&["*.bias", "a b"]),
            strip_prefix: "-model.".into(),
            rename: texts(&["^h=>layers", "-=>$1"]),
            rename_list: Some("a b".into()),
            prefix: "net=".into(),
            nest: true,
            cast: texts(&["*.norm=float32", "bfloat16"]),
        };
        let output = OutputOptions {
            to: "cerebras".into(),
            version: Some("0.4".into()),
            compression: Some("gzip".into()),
            object_graph: true,
            state_file: true,
            shard_size: None,
            shards: texts(&["*.embed=embed.safetensors"]),
        };
        let words = texts(&["statelens", "convert", "in.pt", "out.mdl"]);
        let words = [words, output.arguments(), edits.arguments()].concat();
        let Ok(Cli { command: Command::Convert(parsed) }) = Cli::try_parse_from(&words) else {
            panic!("clap refuses {words:?}");
        };
        // The command line has the name of the list's file.
        let name = parsed.edits.rename_map.as_deref();
        assert_eq!(name, Some(Path::new(RENAME_LIST)));
        let back =
            EditTexts { rename_list: edits.rename_list.clone(), ..super::texts(&parsed.edits) };
        assert_eq!(back, edits);
        let writing = statelens::parts::formats::writing(&output.to).unwrap();
        assert_eq!(parsed.writes.output(writing), output);
        let sized = OutputOptions { shard_size: Some("5GB".into()), ..OutputOptions::default() };
        assert_eq!(sized.arguments()[2..], ["--shard-size", "5GB"]);
    }
}
