//! Findings about rows of matrices: dead rows, copies, and embedding rows that were never trained.

use statelens_checkpoint::numbers::label;
use statelens_checkpoint::{Grade, counted, grouped, order};

use super::moments;
use super::noticed::{ElementRef, Noticed, Read, SiblingGroups, noticed};
use crate::number_text;
use statelens_stats::Statistics;

/// Factor below the median norm at which a row of an embedding is considered far shorter.
const SHORT: f64 = 10.0;

/// Substrings of keys of embeddings, where each row belongs to a token.
const EMBEDDINGS: [&str; 6] = ["embed", "wte", "wpe", "lm_head", "tok_emb", "word_emb"];

/// Returns whether to read the tensor once more by rows: it may have dead rows, or its rows belong
/// to tokens.
pub(super) fn worth_reading(key: &str, shape: &[u64], of: &Statistics) -> bool {
    let width = shape.iter().skip(1).fold(1, |all: u64, dim| all.saturating_mul(*dim));
    let matrix = shape.len() > 1 && shape[0] > 1 && width > 1;
    matrix && !of.all_equal() && (of.zeros >= width || is_embedding(key))
}

fn is_embedding(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    EMBEDDINGS.iter().any(|name| key.contains(name))
}

/// Returns the findings about rows.
pub(super) fn of_rows(tensors: &[Read<'_>], groups: &SiblingGroups, dot: char) -> Vec<Noticed> {
    let mut all = Vec::new();
    for (name, members) in groups {
        let known = |at: &&usize| tensors[**at].floats && tensors[**at].lines.is_some();
        let read: Vec<usize> = members.iter().filter(known).copied().collect();
        all.extend(dead(tensors, name, &read, members.len(), dot));
        for at in read {
            let tensor = &tensors[at];
            if moments::of(tensor.key, dot).is_none() {
                all.extend(copied(tensor, at));
                all.extend(short(tensor, at).filter(|_| is_embedding(tensor.key)));
            }
        }
    }
    all
}

/// Reports rows of zeros in tensors whose keys differ only in numbers.
fn dead(
    tensors: &[Read<'_>],
    name: &str,
    read: &[usize],
    siblings: usize,
    dot: char,
) -> Option<Noticed> {
    let zero = |at: usize| tensors[at].lines.map_or(0, |lines| lines.zero_rows);
    let some: Vec<usize> = read.iter().copied().filter(|&at| zero(at) > 0).collect();
    let &first = some.first()?;
    let (tensor, lines) = (&tensors[first], tensors[first].lines?);
    let moment = moments::of(tensor.key, dot);
    // The second moment of Adam is reported for both moments.
    if moment.is_some_and(|(_, name, squares)| !squares && name != "momentum_buffer") {
        return None;
    }
    let rows = some.iter().map(|&at| zero(at)).sum::<u64>();
    let are = if rows == 1 { "is" } else { "are" };
    let title = match some.len() {
        1 => format!(
            "{} of {} of `{}` {are} all zeros",
            grouped(rows),
            counted(tensor.shape[0], "row"),
            tensor.key
        ),
        many => format!(
            "{} in {} of {} tensors `{name}` {are} all zeros",
            counted(rows, "row"),
            grouped(many as u64),
            grouped(siblings as u64)
        ),
    };
    let which = numbered(&lines.zero, lines.zero_rows);
    let mut text = match some.len() {
        1 => format!("{which}."),
        _ => format!("In `{}` {which}.", tensor.key),
    };
    let (grade, advice) = if moment.is_some() {
        let of = tensor.parameter.map_or("its parameter".to_owned(), |key| format!("`{key}`"));
        text += &format!(
            " No gradient has reached these rows of {of}; in an embedding, these tokens were never \
             seen."
        );
        (Grade::Note, "")
    } else if is_embedding(tensor.key) {
        (Grade::Note, "Tokens that were never trained look like this, and so do rows of padding.")
    } else {
        let grade = match some.len() == siblings && siblings > 1 {
            true => Grade::Note,
            false => Grade::Warning,
        };
        (grade, "These rows output only their bias. Pruned rows look like this, too.")
    };
    let element = lines.zero.first().map(|&row| start(tensor, first, row));
    Some(Noticed { element, advice: advice.into(), ..noticed(grade, title, text, some) })
}

/// Reports rows that are equal to others.
fn copied(tensor: &Read<'_>, at: usize) -> Option<Noticed> {
    let lines = tensor.lines.filter(|lines| lines.copied_rows > 0)?;
    let &(first, like) = lines.copied.first()?;
    let title = match lines.copied_rows {
        1 => format!("Row {first} of `{}` is equal, bit for bit, to row {like}", tensor.key),
        rows => format!(
            "{} of {} of `{}` are equal, bit for bit, to an earlier one",
            grouped(rows),
            counted(tensor.shape[0], "row"),
            tensor.key
        ),
    };
    let numbers: Vec<u64> = lines.copied.iter().map(|(row, _)| *row).collect();
    let mut text = String::new();
    if lines.copied_rows > 1 {
        let which =
            if lines.copied.iter().all(|(_, other)| *other == like) { "Each" } else { "The first" };
        text = format!("{}. {which} equals row {like}.", numbered(&numbers, lines.copied_rows));
    }
    let advice = match is_embedding(tensor.key) {
        true => "Tokens that were added and never trained look like this.",
        false => "",
    };
    let element = Some(start(tensor, at, first));
    Some(Noticed { element, advice: advice.into(), ..noticed(Grade::Note, title, text, vec![at]) })
}

/// Reports rows whose norm is far below that of the others.
fn short(tensor: &Read<'_>, at: usize) -> Option<Noticed> {
    let rows = &tensor.lines?.rows;
    let mut norms: Vec<f64> = rows.iter().map(|row| row.norm).filter(|norm| *norm > 0.0).collect();
    if norms.len() < 16 {
        return None;
    }
    order::by(&mut norms, f64::total_cmp);
    let median = norms[norms.len() / 2];
    let is_short = |norm: f64| norm > 0.0 && norm * SHORT < median;
    let some: Vec<u64> =
        (0..).zip(rows).filter(|(_, row)| is_short(row.norm)).map(|(at, _)| at).collect();
    let &first = some.first()?;
    let longest = norms[some.len() - 1];
    let title = format!(
        "{} of {} of `{}` {} far shorter than the others",
        grouped(some.len() as u64),
        counted(tensor.shape[0], "row"),
        tensor.key,
        if some.len() == 1 { "is" } else { "are" }
    );
    let text = format!(
        "{}. {} at most {}; the median of all is {}.",
        numbered(&some, some.len() as u64),
        if some.len() == 1 { "Its norm is" } else { "Their norms are" },
        number_text(longest),
        number_text(median)
    );
    let advice = "Tokens that were hardly ever trained look like this.".to_owned();
    let element = Some(start(tensor, at, first));
    Some(Noticed { element, advice, ..noticed(Grade::Note, title, text, vec![at]) })
}

/// Formats row numbers: `Row 7`, `Rows 3–7,9`, `The first rows: 0–4095`.
fn numbered(first: &[u64], count: u64) -> String {
    let numbers = label(first);
    match count {
        1 => format!("Row {numbers}"),
        _ if count > first.len() as u64 => format!("The first rows: {numbers}"),
        _ => format!("Rows {numbers}"),
    }
}

/// Returns the first element of a row.
fn start(tensor: &Read<'_>, at: usize, row: u64) -> ElementRef {
    let width = tensor.shape.iter().skip(1).fold(1, |all: u64, dim| all.saturating_mul(*dim));
    let mut index = vec![0; tensor.shape.len()];
    index[0] = row;
    ElementRef { tensor: at, number: row.saturating_mul(width), index }
}
