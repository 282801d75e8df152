//! `statelens ls`.

mod folder;
mod tree;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::OnceLock;

use statelens::parts::checkpoint::{
    Checkpoint, Leaf, known_key, natural_order, numel, order, shape_text,
};
use statelens::parts::convert::{Pattern, dtype_named};
use statelens::parts::describe::{
    GroupAttributes, dtype_of, fields_text, in_pieces, kind_of, leaf_json, pieces, shape_of,
    value_text,
};
use statelens::parts::values::Json;

use crate::args::{Ls, Sort};
use crate::print::{CommandResult, Failure, Printer, TextTable, grouped};

pub(crate) fn run(args: &Ls) -> CommandResult {
    let wanted = LeafFilter::of(args)?;
    if let Some(paths) = folder::checkpoints(args) {
        return folder::print(args, &paths);
    }
    let checkpoint = super::open_for_good(&args.input.file, &args.input.common.with)?.inner();
    let found = checkpoint.each_leaf().filter(|leaf| wanted.is(checkpoint, leaf));
    let mut printer = Printer::new();
    if args.tree {
        checkpoint.room(1_000)?;
        let leaves: Vec<Leaf> = found.collect();
        match leaves.is_empty() {
            true => printer.line(&nothing(args, checkpoint))?,
            false => tree::print(checkpoint, &leaves, &mut printer)?,
        }
    } else if args.sort.is_some() || args.reverse {
        checkpoint.room(100)?;
        let mut leaves: Vec<Leaf> = found.collect();
        sort(checkpoint, args.sort, &mut leaves);
        if args.reverse {
            leaves.reverse();
        }
        print(args, checkpoint, leaves.into_iter(), &mut printer)?;
    } else {
        print(args, checkpoint, found, &mut printer)?;
    }
    printer.success()
}

/// The leaves to list.
struct LeafFilter {
    patterns: Vec<Pattern>,
    tensors: bool,
    dtypes: HashSet<String>,
    min_bytes: u64,
}

impl LeafFilter {
    fn of(args: &Ls) -> Result<Self, Failure> {
        let patterns = Pattern::all(&args.patterns)?;
        // Accepts torch's name, a short name, or the name that `ls` prints (NumPy and GGUF have
        // their own).
        let dtypes = args.dtype.iter().map(|name| match dtype_named(name) {
            Ok(dtype) => dtype.name().to_owned(),
            Err(_) => name.clone(),
        });
        Ok(Self {
            patterns,
            tensors: args.tensors,
            dtypes: dtypes.collect(),
            min_bytes: args.min_bytes.unwrap_or(0),
        })
    }

    fn is(&self, checkpoint: &Checkpoint, leaf: &Leaf) -> bool {
        let dtype = dtype_of(checkpoint, leaf.target);
        if self.tensors && dtype.is_none() {
            return false;
        }
        if !self.dtypes.is_empty() && !dtype.is_some_and(|it| self.dtypes.contains(it.name())) {
            return false;
        }
        if self.min_bytes > 0 && nbytes(checkpoint, leaf).is_none_or(|it| it < self.min_bytes) {
            return false;
        }
        let key = leaf.flat.to_lossy();
        Pattern::any_selects(&self.patterns, &key)
    }
}

/// Sorts by the requested property; equal leaves keep the order of the file.
fn sort(checkpoint: &Checkpoint, by: Option<Sort>, leaves: &mut [Leaf]) {
    let elements = |leaf: &Leaf| checkpoint.tensor_of(leaf.target).and_then(|(_, it)| it.numel());
    let dtype = |leaf: &Leaf| dtype_of(checkpoint, leaf.target).map(|dtype| dtype.name());
    match by {
        None => {}
        Some(Sort::Bytes) => {
            order::by(leaves, |one, other| nbytes(checkpoint, other).cmp(&nbytes(checkpoint, one)))
        }
        Some(Sort::Elements) => order::by(leaves, |one, other| elements(other).cmp(&elements(one))),
        Some(Sort::Name) => order::by(leaves, |one, other| {
            natural_order(one.flat.as_bytes(), other.flat.as_bytes())
        }),
        // Leaves without a dtype come last.
        Some(Sort::Dtype) => order::by(leaves, |one, other| match (dtype(one), dtype(other)) {
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (one, other) => one.cmp(&other),
        }),
    }
}

/// Returns the line for an empty list. A pattern that is the name of a dict or list selects only that
/// key, so the line names the pattern for the keys in it.
fn nothing(args: &Ls, checkpoint: &Checkpoint) -> String {
    let is_unfiltered = args.patterns.is_empty()
        && !args.tensors
        && args.dtype.is_empty()
        && args.min_bytes.is_none();
    if is_unfiltered {
        return "there are no keys".to_owned();
    }
    let holds = |name: &&String| {
        let start = format!("{name}.");
        checkpoint.each_leaf().any(|leaf| leaf.flat.as_bytes().starts_with(start.as_bytes()))
    };
    match args.patterns.iter().find(holds) {
        Some(name) => format!("no key matches; the keys in {name} match '{name}.*'"),
        None => "no key matches".to_owned(),
    }
}

fn print(
    args: &Ls,
    checkpoint: &Checkpoint,
    leaves: impl Iterator<Item = Leaf>,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut leaves = leaves.peekable();
    if args.input.common.json {
        let mut json = Json::new();
        json.open('{');
        json.name("statelens").number(1);
        json.name("entries").open('[');
        for leaf in leaves {
            json.line();
            json.object(|json| {
                leaf_json(json, checkpoint, &leaf);
                if let Some(short) = short_of(&leaf.flat.to_lossy()) {
                    json.name("short").str(short);
                }
            });
            printer.text(&json.take())?;
        }
        json.newline();
        json.close(']');
        GroupAttributes::of(checkpoint).write(&mut json);
        json.close('}');
        return printer.line(&json.take());
    }
    if leaves.peek().is_none() {
        return printer.line(&nothing(args, checkpoint));
    }
    // The widest cell determines the width of a table, so all its rows are built before one is
    // printed. Tables are limited to `ROWS` rows so that the text of a million keys is not held in
    // memory.
    while leaves.peek().is_some() {
        let run: Vec<Leaf> = leaves.by_ref().take(ROWS).collect();
        table(checkpoint, &run, args.pieces).print(printer)?;
    }
    Ok(())
}

const ROWS: usize = 50_000;

/// The number of rows that a thread makes at least.
const MIN_ROWS: usize = 1_000;

/// Returns the table of some leaves, which all threads make.
fn table(checkpoint: &Checkpoint, leaves: &[Leaf], with_pieces: bool) -> TextTable {
    // Adds a column with the shorter name that users know a variable by, if any key has one.
    let shorter = leaves.iter().any(|leaf| short_of(&leaf.flat.to_lossy()).is_some());
    let columns = ["key", "short", "kind", "dtype", "shape", ">bytes", "value"];
    let columns: Vec<&str> =
        columns.into_iter().filter(|column| shorter || *column != "short").collect();
    let workers = checkpoint.files.workers();
    let each = leaves.len().div_ceil(workers.count()).max(MIN_ROWS);
    let parts: Vec<&[Leaf]> = leaves.chunks(each).collect();
    let tables: Vec<OnceLock<TextTable>> = parts.iter().map(|_| OnceLock::new()).collect();
    workers.each(parts.len(), &|at| {
        let mut table = TextTable::new(&columns);
        add_rows(checkpoint, parts[at], shorter, with_pieces, &mut table);
        // No other thread makes this part.
        let _ = tables[at].set(table);
    });
    let tables = tables.into_iter().filter_map(OnceLock::into_inner);
    tables.reduce(TextTable::followed_by).unwrap_or_else(|| TextTable::new(&columns))
}

fn add_rows(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    shorter: bool,
    with_pieces: bool,
    table: &mut TextTable,
) {
    for leaf in leaves {
        // The full key, as in JSON output and in conversions.
        let key = leaf.flat.to_lossy();
        let short = shorter.then(|| Cow::Borrowed(short_of(&key).unwrap_or_default()));
        let dtype = dtype_of(checkpoint, leaf.target).map_or(String::new(), ToString::to_string);
        let shape = shape_of(checkpoint, leaf.target).map_or(String::new(), shape_text);
        let bytes = nbytes(checkpoint, leaf).map_or(String::new(), grouped);
        let value = Some(value_text(checkpoint, leaf)).filter(|text| !text.is_empty());
        let value = value.unwrap_or_else(|| names(checkpoint, leaf));
        let cells = [kind_of(checkpoint, leaf).into(), dtype.into(), shape.into()];
        let cells = cells.into_iter().chain([bytes.into(), value.into()]);
        table.row([Cow::Borrowed(&*key)].into_iter().chain(short).chain(cells));
        let tensor = checkpoint.tensor_of(leaf.target).filter(|_| with_pieces);
        let tensor = tensor.map(|(_, tensor)| in_pieces(checkpoint, &leaf.flat, tensor));
        let stored = tensor.as_deref().map_or_else(Vec::new, |tensor| pieces(checkpoint, tensor));
        for piece in stored {
            let numel = numel(&piece.shape).filter(|_| !piece.file.is_empty());
            let bytes = tensor.as_ref().zip(numel).and_then(|(tensor, n)| tensor.dtype.bytes_of(n));
            let rank = piece.rank.map_or(String::new(), |rank| format!("rank {rank}, "));
            let place = match piece.file.as_str() {
                "" => "no bytes".to_owned(),
                // An archive or stream around the values has another length.
                file if bytes != Some(piece.bytes) => {
                    let (stored, offset) = (grouped(piece.bytes), grouped(piece.offset));
                    format!("{rank}{file}, in {stored} bytes from byte {offset}")
                }
                file => format!("{rank}{file}, byte {}", grouped(piece.offset)),
            };
            let at = format!("  piece at {}", shape_text(&piece.at));
            let (shape, bytes) = (shape_text(&piece.shape), bytes.map_or(String::new(), grouped));
            let mut row = vec![at, String::new(), String::new(), shape, bytes, place];
            if shorter {
                row.insert(1, String::new());
            }
            table.row(row);
        }
    }
}

/// Returns the names of a record's fields or of an enum's values; empty for other dtypes.
fn names(checkpoint: &Checkpoint, leaf: &Leaf) -> String {
    if let Some(fields) = dtype_of(checkpoint, leaf.target).and_then(fields_text) {
        return shortened(&fields);
    }
    let datatype =
        checkpoint.raw_attributes(leaf.id).iter().find(|(name, _)| *name == "(datatype)");
    let datatype =
        datatype.map(|(_, text)| text.to_lossy()).filter(|text| text.starts_with("enum"));
    datatype.map_or_else(String::new, |text| shortened(&text))
}

/// Returns the start of a text that fits into a cell.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the shorter key that the user knows, if it differs.
fn short_of(key: &str) -> Option<&str> {
    Some(known_key(key)).filter(|short| *short != key)
}

fn nbytes(checkpoint: &Checkpoint, leaf: &Leaf) -> Option<u64> {
    checkpoint.tensor_of(leaf.target).and_then(|(_, tensor)| tensor.nbytes())
}
