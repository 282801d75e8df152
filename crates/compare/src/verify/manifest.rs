//! Compares a checkpoint with an earlier manifest.

use std::collections::{HashMap, VecDeque};

use statelens_checkpoint::{Checkpoint, Error, Leaf, Result, Setting, TensorId, Text, advice};
use statelens_describe::Hashes;
use statelens_formats::manifest::{self, ManifestEntry};

use super::report::{Problem, Trouble};

/// A manifest, in either of the two forms.
#[derive(Debug, Clone, PartialEq)]
pub enum Manifest {
    /// Entries from JSON.
    Entries {
        /// One entry per leaf.
        entries: Vec<ManifestEntry>,
        /// The id of the format whose classes of tensors the entries have, if they have them.
        classes_of: Option<String>,
    },
    /// In lines of four columns: hash or value, kind or dtype, shape, key.
    Lines(Vec<[String; 4]>),
}

impl Manifest {
    /// Parses a manifest; fails if it does not have hashes.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let advised =
            |error: Error| error.advice(advice!["Make one with ", Setting::MakeManifest, "."]);
        let refused = |what: &str| advised(Error::refused(what));
        // An empty container as first value begins like JSON: `{}`, tab, `dict`.
        let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_line = first.split(|byte| *byte == b'\t').count() == 4;
        let is_json = matches!(text.trim_ascii_start().first(), Some(b'{' | b'['));
        if is_json && !is_line {
            let (entries, classes_of) = manifest::read(text).map_err(advised)?;
            let tensors = |entry: &&ManifestEntry| entry.shape.is_some();
            let described = |entry: &ManifestEntry| {
                let known = |name: &str| entry.rest.iter().any(|(field, _)| field == name);
                entry.sha256.is_some() || known("missing") || known("parts")
            };
            if entries.is_empty() {
                return Err(refused("this is not a manifest: it has no entries"));
            }
            if !entries.iter().filter(tensors).all(described) {
                return Err(refused("this is not a manifest: it has no hashes"));
            }
            return Ok(Self::Entries { entries, classes_of });
        }
        let text = std::str::from_utf8(text)
            .map_err(|_| refused("this is not a manifest: it is neither JSON nor text"))?;
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut columns = line.split('\t').map(str::to_owned);
            let columns: [Option<String>; 5] = std::array::from_fn(|_| columns.next());
            let [Some(value), Some(dtype), Some(shape), Some(key), None] = columns else {
                return Err(refused(&format!(
                    "this is not a manifest: line {number} does not have four columns separated by tabs"
                )));
            };
            lines.push([value, dtype, shape, key]);
        }
        match lines.is_empty() {
            true => Err(refused("this is not a manifest: it is empty")),
            false => Ok(Self::Lines(lines)),
        }
    }

    /// Returns the number of entries.
    fn len(&self) -> usize {
        match self {
            Self::Entries { entries, .. } => entries.len(),
            Self::Lines(lines) => lines.len(),
        }
    }

    fn key(&self, index: usize) -> Text {
        match self {
            Self::Entries { entries, .. } => {
                entries.get(index).map_or_else(|| "".into(), |entry| entry.key.clone())
            }
            Self::Lines(lines) => {
                lines.get(index).map_or_else(|| "".into(), |[.., key]| key.as_str().into())
            }
        }
    }
}

/// Compares all leaves with the manifest, by key. Returns the number of matching entries, and the
/// problems of the others.
pub(super) fn compare(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    hashes: HashMap<TensorId, String>,
    manifest: &Manifest,
) -> Result<(u64, Vec<Problem>)> {
    let mut known = Hashes::new(checkpoint, hashes);
    // Two leaves may have the same key; they are matched in order.
    let keys: Vec<Text> = (0..manifest.len()).map(|index| manifest.key(index)).collect();
    let mut by_key: HashMap<&Text, VecDeque<usize>> = HashMap::new();
    for (index, key) in keys.iter().enumerate() {
        by_key.entry(key).or_default().push_back(index);
    }
    let (mut matching, mut problems) = (0, Vec::new());
    let mut met = vec![false; manifest.len()];
    for leaf in leaves {
        let key = leaf.flat.to_lossy();
        let wanted = match manifest {
            Manifest::Entries { .. } => by_key.get_mut(&leaf.flat),
            Manifest::Lines(_) => {
                by_key.get_mut(&Text::from(statelens_checkpoint::visible(&key).as_str()))
            }
        };
        let Some(index) = wanted.and_then(VecDeque::pop_front) else {
            problems.push(problem(&key, "it is not in the manifest", "", ""));
            continue;
        };
        met[index] = true;
        let found = match manifest {
            Manifest::Entries { entries, classes_of } => {
                let wanted = &entries[index];
                let own = manifest::read_entry(known.json(leaf, wanted.alias).as_bytes())?;
                let has_classes = classes_of.as_deref() == Some(checkpoint.format.id);
                entry(&key, wanted, &own, has_classes)
            }
            Manifest::Lines(lines) => columns(&key, &lines[index], &known.columns(leaf)),
        };
        match found {
            None => matching += 1,
            Some(problem) => problems.push(problem),
        }
    }
    for index in (0..met.len()).filter(|index| !met[*index]) {
        problems.push(problem(&manifest.key(index).to_lossy(), "it is missing", "", ""));
    }
    Ok((matching, problems))
}

/// Returns the first difference between two entries. The classes of tensors are compared if both
/// sides have them.
fn entry(
    key: &str,
    wanted: &ManifestEntry,
    own: &ManifestEntry,
    has_classes: bool,
) -> Option<Problem> {
    let shape = |shape: &Option<Vec<u64>>| {
        shape
            .as_ref()
            .map_or_else(|| "no shape".to_owned(), |shape| statelens_checkpoint::shape_text(shape))
    };
    let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let fields = [
        ("its kind differs", wanted.kind.clone(), own.kind.clone()),
        ("its dtype differs", word(&wanted.dtype), word(&own.dtype)),
        ("its shape differs", shape(&wanted.shape), shape(&own.shape)),
        ("its values differ", hash(&wanted.sha256), hash(&own.sha256)),
    ];
    let first = fields.into_iter().find(|(_, wanted, own)| wanted != own);
    if let Some((what, wanted, own)) = first {
        return Some(problem(key, what, &wanted, &own));
    }
    if wanted.rest == own.rest {
        if has_classes && wanted.class != own.class {
            let [wanted, own] = [wanted, own].map(|entry| entry.class.as_deref().unwrap_or("none"));
            return Some(problem(key, "its class differs", wanted, own));
        }
        return types(key, &wanted.types, &own.types);
    }
    let text = |rest: &[(String, String)]| {
        let fields = rest.iter().map(|(name, value)| format!("{name} {}", shortened(value)));
        fields.collect::<Vec<_>>().join(", ")
    };
    Some(problem(key, "its value differs", &text(&wanted.rest), &text(&own.rest)))
}

/// Compares the types that other fields leave open, if both sides have them: earlier manifests and
/// formats without such types do not.
fn types(key: &str, wanted: &Option<String>, own: &Option<String>) -> Option<Problem> {
    let (wanted, own) = (wanted.as_ref()?, own.as_ref()?);
    // Lists of names may differ far from their start.
    let same = wanted.chars().zip(own.chars()).take_while(|(one, other)| one == other).count();
    let from = |text: &str| match text.char_indices().nth(same.saturating_sub(40)) {
        Some((start, _)) if start > 0 => format!("…{}", shortened(&text[start..])),
        _ => shortened(text),
    };
    (wanted != own).then(|| problem(key, "its types differ", &from(wanted), &from(own)))
}

fn columns(key: &str, wanted: &[String; 4], own: &[String; 4]) -> Option<Problem> {
    let of = |[value, dtype, shape, _]: &[String; 4]| {
        [
            ("its dtype differs", dtype.clone()),
            ("its shape differs", shape.clone()),
            ("its values differ", value.clone()),
        ]
    };
    let mut fields = of(wanted).into_iter().zip(of(own));
    let ((what, wanted), (_, own)) = fields.find(|(wanted, own)| wanted != own)?;
    Some(problem(key, what, &shortened(&wanted), &shortened(&own)))
}

fn hash(hash: &Option<String>) -> String {
    match hash {
        Some(hash) => format!("SHA-256 {hash}"),
        None => "no hash".to_owned(),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(100) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn problem(key: &str, text: &str, expected: &str, found: &str) -> Problem {
    Problem {
        trouble: Trouble::Manifest,
        key: key.to_owned(),
        file: String::new(),
        offset: None,
        text: text.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
    }
}
