//! Reads the manifests that Statelens writes (`statelens manifest --json`), and the output of
//! `statelens ls --json`.

use statelens_checkpoint::json::Parser;
use statelens_checkpoint::{Result, Text};

/// One leaf of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    pub key: Text,
    /// The kind of the value: `tensor`, `int`, ….
    pub kind: String,
    /// The dtype, for tensors and arrays.
    pub dtype: Option<String>,
    /// The shape, for tensors and arrays.
    pub shape: Option<Vec<u64>>,
    /// The SHA-256 of the logical bytes.
    pub sha256: Option<String>,
    /// The types that the other fields leave open.
    pub types: Option<String>,
    /// The Python properties of a tensor that its kind does not imply, as text.
    pub class: Option<String>,
    /// Whether the manifest says that this is a link to another leaf.
    pub alias: bool,
    /// All other fields in order: the name, and the value as JSON without spaces.
    pub rest: Vec<(String, String)>,
}

pub fn read_entry(text: &[u8]) -> Result<ManifestEntry> {
    let mut json = Parser::lenient(text);
    let entry = entry(&mut json)?;
    json.end()?;
    Ok(entry)
}

/// Reads a manifest. Also returns the id of the format whose classes it has, if it has classes.
pub fn read(text: &[u8]) -> Result<(Vec<ManifestEntry>, Option<String>)> {
    // Keys may be strings that are not valid Unicode.
    let mut json = Parser::lenient(text);
    let (mut entries, mut format, mut has_classes) = (Vec::new(), None, false);
    if text.trim_ascii_start().starts_with(b"[") {
        list(&mut json, &mut entries)?;
        json.end()?;
        return Ok((entries, None));
    }
    json.object()?;
    let mut first = true;
    while let Some(name) = json.entry(&mut first)? {
        match name.to_lossy().as_ref() {
            "entries" => list(&mut json, &mut entries)?,
            "format" => format = format_name(&json.compact()?),
            "classes" => has_classes = json.compact()? == "true",
            _ => json.skip()?,
        }
    }
    json.end()?;
    Ok((entries, format.filter(|_| has_classes)))
}

/// Returns the member `name` of an object.
fn format_name(text: &str) -> Option<String> {
    let mut json = Parser::lenient(text.as_bytes());
    json.object().ok()?;
    let mut first = true;
    while let Some(name) = json.entry(&mut first).ok()? {
        if name == "name" {
            return Some(json.text().ok()?.to_string());
        }
        json.skip().ok()?;
    }
    None
}

fn list(json: &mut Parser<'_>, entries: &mut Vec<ManifestEntry>) -> Result<()> {
    json.array()?;
    let mut first = true;
    while json.item(&mut first)? {
        entries.push(entry(json)?);
    }
    Ok(())
}

fn entry(json: &mut Parser<'_>) -> Result<ManifestEntry> {
    let mut entry = ManifestEntry {
        key: "".into(),
        kind: String::new(),
        dtype: None,
        shape: None,
        sha256: None,
        types: None,
        class: None,
        alias: false,
        rest: Vec::new(),
    };
    let text = |json: &mut Parser<'_>| json.text().map(|text| text.to_lossy().into_owned());
    json.object()?;
    let mut first = true;
    while let Some(name) = json.entry(&mut first)? {
        match name.to_lossy().as_ref() {
            "key" => entry.key = json.text()?,
            "kind" => entry.kind = text(json)?,
            "dtype" => entry.dtype = Some(text(json)?),
            "sha256" => entry.sha256 = Some(text(json)?),
            "types" => entry.types = Some(text(json)?),
            "class" => entry.class = Some(text(json)?),
            "shape" => {
                let (mut shape, mut first) = (Vec::new(), true);
                json.array()?;
                while json.item(&mut first)? {
                    shape.push(json.natural()?);
                }
                entry.shape = Some(shape);
            }
            "alias_of" => {
                json.skip()?;
                entry.alias = true;
            }
            other => entry.rest.push((other.to_owned(), json.compact()?)),
        }
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitespace_is_ignored() {
        let text =
            br#"{ "key" : "a", "value" : [ "1 \\\" 2" , { "x" : null } ], "alias_of": "b" }"#;
        let entry = read_entry(text).unwrap();
        assert!(entry.alias);
        assert_eq!(entry.rest[0].1, r#"["1 \\\" 2",{"x":null}]"#);
    }

    #[test]
    fn reads_entries_and_skips_other_members() {
        let text = br#"{"statelens":1,"format":{"name":"x"},"entries":[
            {"key":"a.b","kind":"tensor","dtype":"float32","shape":[2,3],"nbytes":24,"sha256":"00"},
            {"key":"n","kind":"int","value":"3"}]}"#;
        let (entries, classes_of) = read(text).unwrap();
        assert_eq!(classes_of, None);
        assert_eq!(entries[0].shape, Some(vec![2, 3]));
        assert_eq!((entries[1].kind.as_str(), &entries[1].dtype), ("int", &None));
        assert_eq!(entries[1].rest, [("value".to_owned(), "\"3\"".to_owned())]);
        assert_eq!(read(br#"[{"key":"a","kind":"none","value":"None"}]"#).unwrap().0.len(), 1);
        let with_classes = br#"{"format":{"version":"3","name":"x"},"classes":true,"entries":[]}"#;
        assert_eq!(read(with_classes).unwrap(), (Vec::new(), Some("x".to_owned())));
        for text in [&b"{\"entries\":[{\"key\":3}]}"[..], b"[{}", b"{} x"] {
            assert!(read(text).is_err());
        }
    }
}
