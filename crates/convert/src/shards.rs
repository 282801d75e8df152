//! Parses how a checkpoint is split into files.

use std::collections::HashMap;
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Error, Result, Setting, advice};
use statelens_formats::Shards;

use crate::Pattern;

/// Returns how to split into files, by a size or by rules for the names of tensors; `None` if
/// neither is given. `source` has the keys that are written.
pub(crate) fn shards_wanted(
    size: Option<&str>,
    rules: &[String],
    source: &Checkpoint,
) -> Result<Option<Shards>> {
    Ok(match size {
        Some(size) => Some(Shards::BySize(shard_size(size)?)),
        None if rules.is_empty() => None,
        None => Some(shards_by_name(rules, source)?),
    })
}

/// Returns files by the names of tensors: rules `PATTERN=NAME`, of which the first that matches
/// counts, for the keys that are written. Fails if a rule has no file name or matches none of the
/// remaining keys.
fn shards_by_name(rules: &[String], source: &Checkpoint) -> Result<Shards> {
    let mut parsed = Vec::new();
    for text in rules {
        let (pattern, name) = text.rsplit_once('=').ok_or_else(|| {
            Error::refused(format!("`{text}` does not name a file"))
                .expected("PATTERN=NAME, e.g. '*.embed*=embeddings'")
        })?;
        parsed.push((Pattern::parse(pattern)?, name, false));
    }
    let mut names = HashMap::new();
    for leaf in source.leaves() {
        let key = leaf.flat.to_lossy();
        if let Some((_, name, used)) = parsed.iter_mut().find(|(pattern, ..)| pattern.matches(&key))
        {
            *used = true;
            let name = (*name).to_owned();
            names.insert(leaf.flat, name);
        }
    }
    match parsed.iter().find(|(_, _, used)| !used) {
        Some((pattern, ..)) => {
            Err(Error::refused(format!("no key is left for {}", pattern.as_str())).advice(advice![
                "List the keys with ",
                Setting::ListKeys,
                "; the first pattern that matches wins."
            ]))
        }
        None => Ok(Shards::Named(Arc::new(names))),
    }
}

/// Parses a size like [`shard_size`], or `0`.
pub fn size(text: &str) -> Result<u64> {
    if text.trim() == "0" { Ok(0) } else { shard_size(text) }
}

/// Parses a size as written in the Hugging Face libraries: `5GB` is 5,000,000,000 bytes, `5GiB` is
/// 5 times 2^30.
pub fn shard_size(text: &str) -> Result<u64> {
    let bad = || {
        Error::refused(format!("`{text}` is not a size"))
            .expected("bytes, or a number with KB, MB, GB, TB, KiB, MiB, GiB or TiB")
    };
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let unit = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KIB" => 1 << 10,
        "MIB" => 1 << 20,
        "GIB" => 1 << 30,
        "TIB" => 1u64 << 40,
        _ => return Err(bad()),
    };
    number.checked_mul(unit).filter(|size| *size > 0).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_shard_sizes_as_hugging_face_does() {
        for (text, bytes) in
            [("5GB", 5_000_000_000), ("1 GiB", 1 << 30), ("300", 300), ("2kb", 2_000)]
        {
            assert_eq!(shard_size(text).unwrap(), bytes);
        }
        for bad in ["", "GB", "0", "-1GB", "1.5GB", "9999999999TB", "1XB"] {
            assert!(shard_size(bad).is_err(), "{bad}");
        }
    }
}
