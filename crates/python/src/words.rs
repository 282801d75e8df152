//! Texts of the command in the words of Python: its options are parameters, its commands functions.

use std::borrow::Cow;

use pyo3::prelude::*;

/// Options of the command that functions of Python have, with the name of their parameter if it is
/// not that of the option with underscores.
const PARAMETERS: [(&str, &str); 53] = [
    ("adapter", ""),
    ("all", "all=True"),
    ("allow", ""),
    ("apply", "apply=True"),
    ("bins", ""),
    ("by", ""),
    ("cast", ""),
    ("compress", "compression"),
    ("config", ""),
    ("dequantize", ""),
    ("drop-unmatched-keys", "drop_unmatched_keys=True"),
    ("every", ""),
    ("exclude", ""),
    ("export-safetensors", "export_safetensors=True"),
    ("fail-on", ""),
    ("fold-lora", "fold_lora=True"),
    ("force", "replace=True"),
    ("format-version", "version"),
    ("height", ""),
    ("hf-shard-size", ""),
    ("in-place", "in_place=True"),
    ("keep", ""),
    ("limit", ""),
    ("lossy", "lossy=True"),
    ("max-fetch", ""),
    ("model", ""),
    ("name", ""),
    ("nest", "nest=True"),
    ("object-graph", ""),
    ("output-dir", ""),
    ("picture", ""),
    ("prefix", ""),
    ("ranks", ""),
    ("read-as", ""),
    ("recipe", ""),
    ("rename", ""),
    ("rename-map", ""),
    ("scale", ""),
    ("scratch", ""),
    ("select", ""),
    ("shard", "shards"),
    ("shard-size", ""),
    ("src-fmt", ""),
    ("states", ""),
    ("strip-prefix", ""),
    ("sync", "sync=True"),
    ("tgt-fmt", "to"),
    ("to", ""),
    ("top", ""),
    ("unstack", "unstack=True"),
    ("untie", "untie=True"),
    ("where", ""),
    ("width", ""),
];

/// Functions whose name is not that of the command with underscores.
const FUNCTIONS: [(&str, &str); 4] = [
    ("job plan", "job.plan"),
    ("job abort", "job.abort"),
    // It writes tensors to files that Python's libraries write, too.
    ("export", "save"),
    ("show", "open"),
];

/// Returns a text of the command in the words of Python.
#[pyfunction]
#[pyo3(name = "in_python")]
pub(crate) fn translated(text: &str) -> Cow<'_, str> {
    in_python(text)
}

/// Returns a text in which options of the command are parameters, as in `rename_map` for
/// `--rename-map`, and `statelens ls` is `pystatelens.ls`.
pub(crate) fn in_python(text: &str) -> Cow<'_, str> {
    if !text.contains("--") && !text.contains("statelens ") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("--").into_iter().chain(rest.find("statelens ")).min() {
        let (before, from) = rest.split_at(start);
        // A part of a longer word is not an option: `a--b`, `pystatelens `.
        let ends_word = before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '-');
        let quoted = before.ends_with('`');
        out.push_str(before);
        let (found, taken) = match (ends_word, from.strip_prefix("--")) {
            (false, Some(after)) => parameter(after, quoted),
            (false, None) => function(from, quoted),
            (true, _) => (None, 0),
        };
        match found {
            Some(text) => {
                out.push_str(&text);
                rest = from.split_at(taken).1;
            }
            None => {
                let (skipped, after) = from.split_at(2);
                out.push_str(skipped);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns the parameter for the option that begins after its dashes, and the length of the option
/// with them.
fn parameter(after: &str, quoted: bool) -> (Option<String>, usize) {
    let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    let name = after.split_at(end.unwrap_or(after.len())).0.trim_end_matches('-');
    let known = PARAMETERS.iter().find(|(option, _)| *option == name);
    let text = known.map(|(option, text)| match (text.is_empty(), quoted) {
        (true, true) => option.replace('-', "_"),
        (true, false) => format!("`{}`", option.replace('-', "_")),
        (false, true) => (*text).to_owned(),
        (false, false) => format!("`{text}`"),
    });
    (text, name.len() + 2)
}

/// Returns the function for the command at the start, and the length of the text that it stands
/// for. In backticks, that is everything up to their end: the arguments are not those of a function.
fn function(from: &str, quoted: bool) -> (Option<String>, usize) {
    const PROGRAM: &str = "statelens ";
    let after = from.strip_prefix(PROGRAM).unwrap_or_default();
    let known = FUNCTIONS.iter().find(|(command, _)| after.starts_with(command));
    let end = after.find(|c: char| !(c.is_ascii_lowercase() || c == '-')).unwrap_or(after.len());
    let (command, name) = match known {
        Some((command, name)) => (*command, (*name).to_owned()),
        None => (after.split_at(end).0, after.split_at(end).0.replace('-', "_")),
    };
    if !quoted || command.is_empty() {
        return (None, 0);
    }
    let len = from.find('`').unwrap_or(PROGRAM.len() + command.len());
    (Some(format!("pystatelens.{name}")), len)
}
