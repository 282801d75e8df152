//! What a part of a split file says about the whole set: `split.no`, `split.count` and
//! `split.tensors.count`, as `llama-gguf-split` writes them
//! (<https://github.com/ggml-org/llama.cpp/pull/6187>). `llama.cpp` refuses parts that contradict them.

use statelens_checkpoint::{Checkpoint, Dict, DictKey, Finding, Grade, Value, ValueId, counted};

/// What a part says about the whole set, and the number of its tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitPart {
    /// Its index in the set, from 0.
    no: Option<u64>,
    /// Number of parts.
    count: Option<u64>,
    /// Number of tensors in all parts.
    tensors: Option<u64>,
    own_tensors: u64,
}

impl SplitPart {
    /// Returns what a checkpoint says; `None` if it is not a GGUF file.
    pub(crate) fn of(checkpoint: &Checkpoint) -> Option<Self> {
        if checkpoint.format.id != "gguf" {
            return None;
        }
        let entries = |id: ValueId| match checkpoint.value(id) {
            Value::Dict(Dict { entries, .. }) => entries.as_slice(),
            _ => &[],
        };
        let root = entries(checkpoint.root());
        let named = |key: &DictKey, name: &str| matches!(key, DictKey::Str(key) if *key == name);
        let metadata = root.iter().find(|(key, _)| named(key, "metadata"));
        let metadata = metadata.map_or(&[][..], |(_, id)| entries(*id));
        let number = |name: &str| {
            let (_, id) = metadata.iter().find(|(key, _)| named(key, name))?;
            match checkpoint.value(*id) {
                // Other numbers are not those of a set.
                Value::Int(int) => int.to_u64(),
                _ => None,
            }
        };
        let is_tensor = |id: ValueId| matches!(checkpoint.value(id), Value::Tensor(_));
        Some(Self {
            no: number("split.no"),
            count: number("split.count"),
            tensors: number("split.tensors.count"),
            own_tensors: root.iter().filter(|(_, id)| is_tensor(*id)).count() as u64,
        })
    }

    /// Returns the finding about a file that was opened alone, although it says that it is one of
    /// several.
    pub(crate) fn alone(&self) -> Option<Finding> {
        if let Some(count @ 2..) = self.count {
            let number = self.no.map_or(String::new(), |no| format!(" {}", no.saturating_add(1)));
            let title = format!("This is part{number} of {count} of a split model");
            return Some(damage(title, "The other parts are not opened with it.").advice(
                "Put all parts into one folder, under the names that they were written with: \
                 NAME-00001-of-00003.gguf etc.",
            ));
        }
        contradiction(&[("", self)], self.own_tensors)
    }
}

/// Returns the findings about parts that contradict the set in which they are: `parts` are the
/// names of those that are there, with their positions, and `count` is the number of all.
pub(crate) fn check_set(parts: &[(&str, usize, SplitPart)], count: usize) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wrong = parts.iter().find(|(_, at, part)| part.no.is_some_and(|no| no != *at as u64));
    if let Some((name, at, part)) = wrong {
        let no = part.no.unwrap_or(0).saturating_add(1);
        findings.push(damage(
            format!("{name} says that it is part {no}, and its name says {}", at + 1),
            "`split.no` contradicts the number in the name. llama.cpp refuses such a set.",
        ));
    }
    let wrong = parts.iter().find(|(_, _, part)| part.count.is_some_and(|it| it != count as u64));
    if let Some((name, _, part)) = wrong {
        findings.push(damage(
            format!("{name} says that there are {} parts", part.count.unwrap_or(0)),
            &format!("Its name says that there are {count}."),
        ));
    }
    if parts.len() == count {
        let sum = parts.iter().fold(0u64, |sum, (.., part)| sum.saturating_add(part.own_tensors));
        let named: Vec<_> = parts.iter().map(|(name, _, part)| (*name, part)).collect();
        findings.extend(contradiction(&named, sum));
    }
    findings
}

/// Returns the finding about parts that state another number of tensors than the one found.
fn contradiction(parts: &[(&str, &SplitPart)], found: u64) -> Option<Finding> {
    let (name, part) =
        parts.iter().find(|(_, part)| part.tensors.is_some_and(|tensors| tensors != found))?;
    let what = if name.is_empty() { "The file" } else { name };
    let tensors = counted(part.tensors.unwrap_or(0), "tensor");
    Some(damage(
        format!("{what} says that the model has {tensors}, and there are {found}"),
        "Parts of another set may have been mixed in, or tensors are missing.",
    ))
}

fn damage(title: String, detail: &str) -> Finding {
    Finding::new(Grade::Damage, title).detail(detail)
}
