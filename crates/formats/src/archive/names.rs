//! Names that lead out of the folder into which an archive is unpacked (path traversal).

use std::borrow::Cow;
use std::fmt::Write as _;

use statelens_checkpoint::{Finding, Grade};

use super::Record;

/// Returns a member name that stays inside the target folder on every system. Characters and path
/// components that would lead out of it, or that are not allowed in names, are percent-encoded.
pub(crate) fn inside(name: &str) -> Cow<'_, str> {
    if !leads_out(name) {
        return Cow::Borrowed(name);
    }
    let mut safe = String::with_capacity(name.len() + 8);
    for (index, part) in name.split('/').enumerate() {
        let first = index == 0;
        if !first {
            // A leading slash makes a path absolute.
            safe.push_str(if safe.is_empty() { "%2F" } else { "/" });
        }
        if matches!(part, "." | "..") {
            safe.push_str(&part.replace('.', "%2E"));
            continue;
        }
        let drive = first && is_drive(part);
        for (at, letter) in part.chars().enumerate() {
            match letter {
                letter if letter == '\\' || letter.is_control() => escape(letter, &mut safe),
                ':' if drive && at == 1 => escape(':', &mut safe),
                letter => safe.push(letter),
            }
        }
    }
    Cow::Owned(safe)
}

/// Returns whether [`inside`] changes a name.
pub(crate) fn leads_out(name: &str) -> bool {
    name.starts_with('/')
        || is_drive(name)
        || name.contains(|letter: char| letter == '\\' || letter.is_control())
        || name.split('/').any(|part| matches!(part, "." | ".."))
}

/// Returns a finding if there are members whose names lead out of the folder.
pub(crate) fn finding<'a>(records: impl Iterator<Item = &'a Record>) -> Option<Finding> {
    let mut out = records.map(Record::name).filter(|name| leads_out(name));
    let first = out.next()?;
    let count = 1 + out.count();
    let title = match count {
        1 => "The name of a member leads outside the folder".to_owned(),
        count => format!("The names of {count} members lead outside the folder"),
    };
    Some(
        Finding::new(Grade::Warning, title)
            .detail("A careless program that unpacks the archive writes files elsewhere.")
            .advice("Reading it here is safe. Don't unpack it.")
            .place(first),
    )
}

fn is_drive(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && letters.next() == Some(':')
}

fn escape(letter: char, out: &mut String) {
    let mut bytes = [0; 4];
    for byte in letter.encode_utf8(&mut bytes).bytes() {
        // Writing to a `String` can't fail.
        let _ = write!(out, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_names_that_lead_outside_the_folder() {
        for (name, safe) in [
            ("model.weight", "model.weight"),
            ("a/b/c", "a/b/c"),
            ("a..b/...", "a..b/..."),
            ("50%", "50%"),
            ("ns:key", "ns:key"),
            ("é/ß", "é/ß"),
            ("../../x", "%2E%2E/%2E%2E/x"),
            ("a/../x", "a/%2E%2E/x"),
            ("./x", "%2E/x"),
            ("/etc/x", "%2Fetc/x"),
            ("//server/x", "%2F/server/x"),
            ("C:/x", "C%3A/x"),
            ("c:x", "c%3Ax"),
            ("..\\x", "..%5Cx"),
            ("a\0b\nc\u{85}", "a%00b%0Ac%C2%85"),
        ] {
            assert_eq!(inside(name), safe);
            assert!(!leads_out(&inside(name)), "{name:?}");
        }
    }
}
