//! Plans: what the page asks for, in the core's words, and what comes of it, in the page's.

use std::collections::BTreeMap;

use statelens_checkpoint::{DType, Error, Layout, Plan, Result, Segment, Size};
use statelens_convert::{Edit, Pattern, Target, composable};
use statelens_formats::{cerebras, torch};
use statelens_tensor::verbatim_span;

use crate::protocol::{self, Choice, ConvertOptions, Loss, Planned};
use crate::state::fmt::plural;
use crate::worker::{Open, text};

/// Numbers beyond this lose digits in JS; no file comes near.
const LARGEST: u64 = (1 << 53) - 1;
/// Keys that are named for a loss.
const NAMED: usize = 4;

/// The formats that can be written, with what there is to choose.
#[must_use]
pub fn targets() -> Vec<protocol::Target> {
    let choice = |id: &str, name: &str| Choice { id: id.into(), name: name.into() };
    let casts = vec![
        choice("", "as it is"),
        choice("float32", "f32"),
        choice("bfloat16", "bf16"),
        choice("float16", "f16"),
    ];
    vec![
        protocol::Target {
            id: "cerebras".into(),
            name: "Cerebras .mdl".into(),
            extension: "mdl".into(),
            about: "HDF5 with the nesting, types and links of the state. Read by cstorch.load and any HDF5 tool.".into(),
            versions: vec![choice("0.5", "0.5, releases 2.5 to 2.10"), choice("0.4", "0.4, releases 2.0 to 2.4")],
            compressions: vec![choice("", "none"), choice("lz4", "LZ4"), choice("gzip", "gzip")],
            casts: casts.clone(),
        },
        protocol::Target {
            id: "torch".into(),
            name: "PyTorch .pt".into(),
            extension: "pt".into(),
            about: "A zip of a pickle and raw tensors. Loads with torch.load(weights_only=True): nothing in it can run.".into(),
            versions: Vec::new(),
            compressions: Vec::new(),
            casts,
        },
    ]
}

/// The id of a target of the format that a checkpoint is in; its own if it can't be written.
#[must_use]
pub fn target_of(format: &str) -> String {
    match format {
        "cerebras-h5" => "cerebras".into(),
        "torch-zip" => "torch".into(),
        other => other.into(),
    }
}

/// Plans a conversion.
///
/// # Errors
/// As the core says them: a pattern that matches nothing, a value that the target can't hold.
pub fn plan(open: &Open, options: &ConvertOptions) -> Result<(Plan, Planned)> {
    let plan = statelens_convert::plan(
        open.checkpoint.clone(),
        &edit(options)?,
        &target(options)?,
        &options.name,
    )?;
    let planned = told(&plan, open, options)?;
    Ok((plan, planned))
}

fn edit(options: &ConvertOptions) -> Result<Edit> {
    let patterns = |texts: &[String]| {
        texts.iter().map(|text| Pattern::parse(text)).collect::<Result<Vec<_>>>()
    };
    let cast = match &options.cast {
        Some(name) => Some(
            DType::from_torch_name(name)
                .ok_or_else(|| Error::refused(format!("there is no dtype `{name}`")))?,
        ),
        None => None,
    };
    Ok(Edit { select: patterns(&options.select)?, exclude: patterns(&options.exclude)?, cast })
}

fn target(options: &ConvertOptions) -> Result<Target> {
    match options.to.as_str() {
        "cerebras" => Ok(Target::Cerebras(cerebras::write::Options {
            version: match options.version.as_deref() {
                Some("0.4") => cerebras::write::Version::V04,
                _ => cerebras::write::Version::V05,
            },
            compression: match options.compress.as_deref() {
                Some("lz4") => cerebras::write::Compression::Lz4,
                Some("gzip") => cerebras::write::Compression::Gzip,
                _ => cerebras::write::Compression::None,
            },
        })),
        "torch" => Ok(Target::Torch(torch::write::Options::default())),
        other => Err(Error::unsupported(format!("there is no format `{other}` to write"))),
    }
}

fn told(plan: &Plan, open: &Open, options: &ConvertOptions) -> Result<Planned> {
    let size = plan.size()?;
    let mut made = 0u64;
    let mut copied = 0u64;
    let mut computed = 0u64;
    let mut how: BTreeMap<String, u64> = BTreeMap::new();
    let mut runs: Vec<(String, u64)> = Vec::new();
    let mut run = |name: &str, bytes: u64| match runs.last_mut() {
        _ if bytes == 0 => {}
        Some((last, sum)) if last == name => *sum = sum.saturating_add(bytes).min(LARGEST),
        _ => runs.push((name.to_owned(), bytes.min(LARGEST))),
    };
    for segment in plan.segments() {
        match segment {
            Segment::Bytes(_) | Segment::Zeros(_) | Segment::Late { .. } => {
                let bytes = match segment {
                    Segment::Bytes(bytes) => bytes.len() as u64,
                    Segment::Zeros(len) => *len,
                    Segment::Late { len, .. } => len.unwrap_or(0),
                    Segment::Data(_) => 0,
                };
                made = made.saturating_add(bytes);
                run("", bytes);
            }
            Segment::Data(data) => {
                let tensor = plan.source.tensor(data.tensor)?;
                let bytes = tensor.nbytes().unwrap_or(0);
                if data.encoding.is_none() && verbatim_span(tensor).is_some() {
                    copied = copied.saturating_add(bytes);
                    *how.entry("as they lie".into()).or_default() += 1;
                } else {
                    computed = computed.saturating_add(bytes);
                    *how.entry(way(tensor)).or_default() += 1;
                }
                run(tensor.dtype.name(), bytes);
            }
        }
    }
    let leaves = plan.source.leaves();
    let tensors = leaves.iter().filter(|leaf| plan.source.tensor_of(leaf.id).is_some()).count();
    let compress =
        options.compress.as_deref().map(|name| format!(", then {name}")).unwrap_or_default();
    let weights = match how.len() {
        0 => "there are none".to_owned(),
        1 => how.keys().next().map(|way| format!("{way}{compress}")).unwrap_or_default(),
        _ => {
            let parts: Vec<String> =
                how.iter().map(|(way, count)| format!("{count} {way}")).collect();
            format!("{}{compress}", parts.join(", "))
        }
    };
    Ok(Planned {
        names: plan.files.iter().map(|file| file.name.clone()).collect(),
        size: size.bytes().min(LARGEST),
        exact: matches!(size, Size::Exact(_)),
        made: made.min(LARGEST),
        copied: copied.min(LARGEST),
        computed: computed.min(LARGEST),
        weights,
        tensors: tensors as u64,
        keys: leaves.len() as u64,
        runs,
        losses: plan.losses.iter().filter(|loss| !loss.harmless).map(loss_text).collect(),
        notes: plan.losses.iter().filter(|loss| loss.harmless).map(note).collect(),
        zero_copy: composable(plan),
        command: command(open, options),
    })
}

/// What has to be done to a tensor that is not copied as it lies.
fn way(tensor: &statelens_checkpoint::Tensor) -> String {
    let mut way = match &tensor.layout {
        Layout::Chunked(chunked) => match chunked.chunks.describe() {
            filters if filters.is_empty() => "put together from chunks".to_owned(),
            filters => format!("decoded from {filters}"),
        },
        Layout::Packed(_) => "inflated".into(),
        Layout::Strided(_) => "gathered from views".into(),
        Layout::Fill(_) => "filled".into(),
        Layout::Concat(_) => "joined".into(),
        Layout::Span(_) | Layout::Deferred(_) | Layout::Inline(_) | Layout::Missing(_) => {
            "copied".into()
        }
    };
    if tensor.stored != tensor.dtype {
        way.push_str(&format!(", cast to {}", tensor.dtype.name()));
    }
    way
}

fn keys_text(keys: &[String]) -> String {
    let named: Vec<&str> = keys.iter().take(NAMED).map(String::as_str).collect();
    match keys.len() {
        0 => String::new(),
        len if len <= NAMED => named.join(", "),
        len => format!("{} and {} more", named.join(", "), len - NAMED),
    }
}

fn loss_text(loss: &statelens_checkpoint::Loss) -> Loss {
    let count = match loss.keys.len() {
        0 => String::new(),
        len => format!("{}: ", plural(len as u64, "key")),
    };
    let why = format!(
        "{} {}",
        keys_text(&loss.keys),
        if loss.why.is_empty() { String::new() } else { text::sentence(&loss.why) }
    );
    Loss {
        title: format!(
            "{count}{}",
            if count.is_empty() { text::title(&loss.what) } else { loss.what.clone() }
        ),
        why: why.trim().to_owned(),
    }
}

fn note(loss: &statelens_checkpoint::Loss) -> String {
    match loss.keys.len() {
        0 => loss.what.clone(),
        1..=2 => format!("{}: {}", loss.keys.join(", "), loss.what),
        len => format!("{len} keys: {}", loss.what),
    }
}

/// The command that does the same, quoted for a shell.
fn command(open: &Open, options: &ConvertOptions) -> String {
    let source =
        open.checkpoint.files.iter().next().map(|(_, file)| file.name.clone()).unwrap_or_default();
    let mut words = vec![
        "statelens".into(),
        "convert".into(),
        source,
        options.name.clone(),
        "--to".into(),
        options.to.clone(),
    ];
    let mut add = |flag: &str, value: &str| words.extend([flag.to_owned(), value.to_owned()]);
    options.select.iter().for_each(|pattern| add("--select", pattern));
    options.exclude.iter().for_each(|pattern| add("--exclude", pattern));
    for (flag, value) in [
        ("--cast", &options.cast),
        ("--compress", &options.compress),
        ("--format-version", &options.version),
    ] {
        if let Some(value) = value {
            add(flag, value);
        }
    }
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '=' | ',' | ':');
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_for_a_shell() {
        assert_eq!(quoted("a-b_c.mdl"), "a-b_c.mdl");
        assert_eq!(quoted("optimizer.*"), "'optimizer.*'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn many_keys_are_counted_rather_than_named() {
        let keys: Vec<String> = (0..10).map(|at| format!("k{at}")).collect();
        assert_eq!(keys_text(&keys), "k0, k1, k2, k3 and 6 more");
        assert_eq!(keys_text(&keys[..2]), "k0, k1");
    }
}
