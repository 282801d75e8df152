//! Lists of old and new names.

use std::collections::HashMap;

use statelens_checkpoint::{Error, Result};

/// Parses two columns separated by white space (ignoring empty lines and those that begin with
/// `#`), or a JSON object of texts.
pub(super) fn parse(text: &str) -> Result<HashMap<String, String>> {
    let pairs = match text.trim_start().starts_with('{') {
        true => json(text)?,
        false => columns(text)?,
    };
    let mut names = HashMap::with_capacity(pairs.len());
    for (old, new) in pairs {
        if names.contains_key(&old) {
            return Err(Error::refused(format!("`{old}` is given a new name twice")));
        }
        names.insert(old, new);
    }
    match names.is_empty() {
        true => Err(Error::refused("the list of names is empty").expected(EXPECTED)),
        false => Ok(names),
    }
}

const EXPECTED: &str = "an old and a new key on each line, or a JSON object of them";

fn columns(text: &str) -> Result<Vec<(String, String)>> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !(line.trim().is_empty() || line.starts_with('#')));
    lines
        .map(|(number, line)| {
            // Keys may contain spaces: then a tab separates the columns.
            let parts: Vec<&str> = match line.contains('\t') {
                true => line.split('\t').map(str::trim).filter(|part| !part.is_empty()).collect(),
                false => line.split_whitespace().collect(),
            };
            match parts.as_slice() {
                [old, new] => Ok(((*old).to_owned(), (*new).to_owned())),
                parts => Err(Error::refused(format!(
                    "line {} should have two columns and has {}",
                    number + 1,
                    parts.len()
                ))
                .expected(EXPECTED)),
            }
        })
        .collect()
}

fn json(text: &str) -> Result<Vec<(String, String)>> {
    let bad = |why: String| Error::refused(format!("the list of names can't be read: {why}"));
    let pairs: Pairs = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
    Ok(pairs.0)
}

/// The fields of an object, including duplicates.
struct Pairs(Vec<(String, String)>);

impl<'de> serde::Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Fields;
        impl<'de> serde::de::Visitor<'de> for Fields {
            type Value = Pairs;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of old and new names")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        from.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_columns_or_a_json_object() {
        for text in ["# old new\na.b  c\n\nd\te f\n", r#"{"a.b": "c", "d": "e f"}"#] {
            let names = parse(text).unwrap();
            assert_eq!((names["a.b"].as_str(), names["d"].as_str()), ("c", "e f"), "{text}");
        }
        for (bad, why) in [
            ("", "empty"),
            ("a", "line 1 should have two columns"),
            ("a b\na c", "twice"),
            (r#"{"a": "b", "a": "c"}"#, "twice"),
            (r#"{"a": 1}"#, "can't be read"),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
