//! `statelens ls`.

use statelens_checkpoint::{Checkpoint, Leaf, known_key};
use statelens_convert::Pattern;
use statelens_inspect::{
    Json, dtype_of, kind_of, shape_of, shape_text, text_of, type_name, value_text,
};

use crate::args::Ls;
use crate::print::{Outcome, Printer, Table, grouped};

pub(crate) fn run(args: &Ls) -> Outcome {
    let pattern = args.pattern.as_deref().map(Pattern::parse).transpose()?;
    let checkpoint = super::open_for_good(&args.input.file, &args.input.common.with)?;
    let wanted = |leaf: &Leaf| {
        pattern.as_ref().is_none_or(|pattern| {
            let key = leaf.flat.to_lossy();
            pattern.matches(&key) || pattern.matches(known_key(&key))
        })
    };
    let mut leaves = checkpoint.each_leaf().filter(wanted).peekable();
    let mut printer = Printer::new();
    if args.input.common.json {
        let mut json = Json::new();
        printer.text("[")?;
        for (index, leaf) in leaves.enumerate() {
            printer.text(if index > 0 { ",\n" } else { "\n" })?;
            object(&mut json, checkpoint, &leaf);
            printer.text(&std::mem::take(&mut json).take())?;
        }
        printer.line("\n]")?;
    } else if leaves.peek().is_none() {
        printer.line(match pattern {
            Some(_) => "no key matches",
            None => "there are no keys",
        })?;
    } else {
        // A table is as wide as its widest cell, so all rows are made before one is printed;
        // in runs, so that a million keys do not wait in memory as text.
        while leaves.peek().is_some() {
            let run: Vec<Leaf> = leaves.by_ref().take(ROWS).collect();
            table(checkpoint, &run).print(&mut printer)?;
        }
    }
    printer.finish()?;
    Ok(true)
}

const ROWS: usize = 50_000;

fn table(checkpoint: &Checkpoint, leaves: &[Leaf]) -> Table {
    // Beside it the name that a variable has to its user, where keys have more than that.
    let shorter = leaves.iter().any(|leaf| short_of(&leaf.flat.to_lossy()).is_some());
    let columns = ["key", "short", "kind", "dtype", "shape", ">bytes", "value"];
    let columns: Vec<&str> =
        columns.into_iter().filter(|column| shorter || *column != "short").collect();
    let mut table = Table::new(&columns);
    for leaf in leaves {
        let short = shorter.then(|| short_of(&leaf.flat.to_lossy()).unwrap_or_default().to_owned());
        let row = vec![
            // The key by which all else goes, as in JSON and in what is converted.
            leaf.flat.to_lossy().into_owned(),
            kind_of(checkpoint, leaf).into(),
            dtype_of(checkpoint, leaf.target).map_or(String::new(), ToString::to_string),
            shape_of(checkpoint, leaf.target).map_or(String::new(), shape_text),
            nbytes(checkpoint, leaf).map_or(String::new(), grouped),
            value_text(checkpoint, leaf),
        ];
        let mut row = row.into_iter();
        table.row(row.next().into_iter().chain(short).chain(row).collect());
    }
    table
}

/// A key as the user knows it, where that is another one.
fn short_of(key: &str) -> Option<&str> {
    Some(known_key(key)).filter(|short| *short != key)
}

fn nbytes(checkpoint: &Checkpoint, leaf: &Leaf) -> Option<u64> {
    checkpoint.tensor_of(leaf.target).and_then(|(_, tensor)| tensor.nbytes())
}

fn object(json: &mut Json, checkpoint: &Checkpoint, leaf: &Leaf) {
    json.object(|json| {
        json.name("key").text(&leaf.flat);
        if let Some(short) = short_of(&leaf.flat.to_lossy()) {
            json.name("short").str(short);
        }
        json.name("kind").str(kind_of(checkpoint, leaf));
        if let Some(dtype) = dtype_of(checkpoint, leaf.target) {
            json.name("dtype").str(dtype.name());
        }
        if let Some(shape) = shape_of(checkpoint, leaf.target) {
            json.name("shape").numbers(shape);
        }
        if let Some(nbytes) = nbytes(checkpoint, leaf) {
            json.name("nbytes").number(nbytes);
        }
        if let Some(name) = type_name(checkpoint, leaf.target) {
            json.name("type").str(&name);
        }
        json.name("value").str(&text_of(checkpoint, leaf.target));
        if let Some(target) = &leaf.alias_of {
            json.name("alias_of").text(target);
        }
    });
}
