//! The ids of the tokenizer against the rows of the embedding.

use statelens_checkpoint::json::Parser;
use statelens_checkpoint::{FileSet, Limits, Result, grouped};

use super::rules::{TOKENIZER_BROKEN, TOKENIZER_LARGER};
use super::sets::ShardSet;
use super::shard::text_of;
use super::sizes::embedding;
use super::{Findings, files};

/// Maximum size in bytes of a tokenizer that is read.
const MAX_LEN: u64 = 256 << 20;

/// Words in the names of tokens that stand for other inputs, and are replaced before the embedding.
const PLACEHOLDERS: [&str; 5] = ["image", "audio", "video", "vision", "speech"];

pub(super) fn check(
    files: &FileSet,
    set: &ShardSet,
    limits: &Limits,
    findings: &mut Findings<'_>,
) -> Result<()> {
    let Some((_, entry)) = embedding(set) else { return Ok(()) };
    let Some(rows) = entry.shape.first() else { return Ok(()) };
    let mut is_known = false;
    for (name, read) in [
        ("tokenizer.json", last_id as fn(&[u8]) -> Result<Option<u64>>),
        ("vocab.json", last_of_vocabulary),
        ("added_tokens.json", last_of_vocabulary),
        ("tokenizer_config.json", last_of_config),
    ] {
        let Some(id) = files::id_of(files, name) else { continue };
        let len = files.len(id);
        // tokenizer.json has the vocabulary of the slow tokenizer, too.
        let is_repeated = is_known && name == "vocab.json";
        if len > MAX_LEN.min(limits.structure.max(1)) || is_repeated {
            continue;
        }
        let text = files.read_vec(id, 0, len)?;
        let is_main = name == "tokenizer.json";
        is_known |= is_main;
        let last = match read(&text) {
            Ok(Some(last)) => last,
            Err(error) if is_main && files::stand_in(files, id)?.is_none() => {
                let text = format!("{name} can't be read: {}", text_of(&error));
                findings.add(&TOKENIZER_BROKEN, name, text);
                continue;
            }
            // Other tokenizers that can't be read are not judged.
            _ => continue,
        };
        if last >= *rows {
            let text = format!(
                "{name} gives ids up to {}, and `{}` has {} rows",
                grouped(last),
                entry.key,
                grouped(*rows)
            );
            findings.add_key(&TOKENIZER_LARGER, name, &entry.key, text);
        }
    }
    Ok(())
}

/// Returns the largest id in a file of the library `tokenizers`.
fn last_id(text: &[u8]) -> Result<Option<u64>> {
    let mut json = Parser::lenient(text);
    let (mut last, mut first) = (None, true);
    json.object()?;
    while let Some(name) = json.entry(&mut first)? {
        match name.as_str() {
            Some("model") if json.at_object() => {
                let (mut first, mut found) = (true, None);
                json.object()?;
                while let Some(name) = json.entry(&mut first)? {
                    match (name.as_str(), json.at_object(), json.at_array()) {
                        (Some("vocab"), true, _) => found = vocabulary(&mut json)?,
                        (Some("vocab"), _, true) => found = count(&mut json)?.checked_sub(1),
                        _ => json.skip()?,
                    }
                }
                last = last.max(found);
            }
            Some("added_tokens") if json.at_array() => last = last.max(added(&mut json)?),
            _ => json.skip()?,
        }
    }
    Ok(last)
}

/// Returns the largest id of the added tokens in tokenizer_config.json, whose names are the ids.
fn last_of_config(text: &[u8]) -> Result<Option<u64>> {
    let mut json = Parser::lenient(text);
    let (mut last, mut first) = (None, true);
    json.object()?;
    while let Some(name) = json.entry(&mut first)? {
        if name.as_str() != Some("added_tokens_decoder") || !json.at_object() {
            json.skip()?;
            continue;
        }
        let mut first = true;
        json.object()?;
        while let Some(id) = json.entry(&mut first)? {
            let (mut content, mut first) = (String::new(), true);
            json.object()?;
            while let Some(name) = json.entry(&mut first)? {
                match name.as_str() {
                    Some("content") if json.at_text() => {
                        content = json.text()?.to_lossy().into_owned();
                    }
                    _ => json.skip()?,
                }
            }
            if !is_placeholder(&content) {
                last = last.max(id.as_str().and_then(|id| id.parse().ok()));
            }
        }
    }
    Ok(last)
}

fn last_of_vocabulary(text: &[u8]) -> Result<Option<u64>> {
    vocabulary(&mut Parser::lenient(text))
}

/// Returns the largest id of an object of tokens and ids.
fn vocabulary(json: &mut Parser<'_>) -> Result<Option<u64>> {
    let (mut last, mut first) = (None, true);
    json.object()?;
    while let Some(name) = json.entry(&mut first)? {
        let id = json.natural()?;
        if !is_placeholder(&name.to_lossy()) {
            last = last.max(Some(id));
        }
    }
    Ok(last)
}

/// Returns the number of items of an array: of a vocabulary whose ids are its positions.
fn count(json: &mut Parser<'_>) -> Result<u64> {
    let (mut count, mut first) = (0, true);
    json.array()?;
    while json.item(&mut first)? {
        json.skip()?;
        count += 1;
    }
    Ok(count)
}

/// Returns the largest id of the added tokens.
fn added(json: &mut Parser<'_>) -> Result<Option<u64>> {
    let (mut last, mut first) = (None, true);
    json.array()?;
    while json.item(&mut first)? {
        let (mut id, mut content, mut first) = (None, String::new(), true);
        json.object()?;
        while let Some(name) = json.entry(&mut first)? {
            match name.as_str() {
                Some("id") => id = Some(json.natural()?),
                Some("content") if json.at_text() => content = json.text()?.to_lossy().into_owned(),
                _ => json.skip()?,
            }
        }
        if !is_placeholder(&content) {
            last = last.max(id);
        }
    }
    Ok(last)
}

fn is_placeholder(token: &str) -> bool {
    token.starts_with('<') && PLACEHOLDERS.iter().any(|word| token.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_largest_id() {
        let text = br#"{"version": "1.0", "added_tokens": [{"id": 7, "content": "<pad>", "special": true},
            {"id": 99, "content": "<image_soft_token>"}], "model": {"type": "BPE", "vocab": {"a": 0, "b": 5}}}"#;
        assert_eq!(last_id(text).unwrap(), Some(7));
        let unigram =
            br#"{"model": {"vocab": [["a", 0.0], ["b", -1.5], ["c", -2]]}, "added_tokens": []}"#;
        assert_eq!(last_id(unigram).unwrap(), Some(2));
        assert_eq!(last_of_vocabulary(br#"{"a": 3, "b": 1}"#).unwrap(), Some(3));
        assert!(last_id(b"{\"model\": ").is_err());
        let config = br#"{"pad_token": "a", "added_tokens_decoder": {"0": {"content": "a"}, "9": {"special": true,
            "content": "b"}, "12": {"content": "<image>"}}}"#;
        assert_eq!(last_of_config(config).unwrap(), Some(9));
    }
}
