//! A summary as a single HTML file: the packed outline, and a script that unpacks and shows it. The
//! page's content security policy allows only that script and style, by their hashes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use statelens_checkpoint::varint::{write_bytes, write_number};

use super::bytes::put_signed;
use super::pack::{Precision, pack};
use super::{FoldedLine, Outline, lines, link};
use crate::info::View;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Returns the summary as a page that opens from disk.
pub fn write_html(outline: &Outline) -> String {
    let info = outline.info();
    let title = escape(&outline.name);
    let mut data = pack(outline, Precision::Whole);
    put_facts(&outline.facts(&info, View::Html), &mut data);
    put_folded(&lines(outline), &mut data);
    put_model(outline, &mut data);
    let data = link::text(&data);
    let (script, style) = (hash(SCRIPT), hash(STYLE));
    let parts: [(&str, &str); 6] = [
        ("script", &script),
        ("style", &style),
        ("title", &title),
        ("css", STYLE),
        ("data", &data),
        ("js", SCRIPT),
    ];
    // Each hole is filled once, in the order of the template, so that placeholders in a file's text
    // are never replaced.
    let mut out = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
    let mut rest = PAGE;
    for (name, text) in parts {
        if let Some((before, after)) = rest.split_once(&format!("{{{name}}}")) {
            out.push_str(before);
            out.push_str(text);
            rest = after;
        }
    }
    out + rest
}

/// Appends labels and texts.
fn put_facts(facts: &[(String, String)], out: &mut Vec<u8>) {
    write_number(out, facts.len() as u64);
    facts
        .iter()
        .flat_map(|(label, text)| [label, text])
        .for_each(|text| write_bytes(out, text.as_bytes()));
}

/// Appends the facts about a recognised model: label, value and source.
fn put_model(outline: &Outline, out: &mut Vec<u8>) {
    let model = outline.model();
    let recognised = model.is_recognised();
    let facts: Vec<_> = model.facts.iter().filter(|fact| recognised && fact.is_known()).collect();
    write_number(out, facts.len() as u64);
    for fact in facts {
        let fact = fact.of_file();
        for text in [&*fact.label, &fact.text(), fact.source.word()] {
            write_bytes(out, text.as_bytes());
        }
    }
}

/// Appends the folded lines: the differences of the row numbers; for several rows, also the joint
/// texts and totals.
fn put_folded(lines: &[FoldedLine], out: &mut Vec<u8>) {
    write_number(out, lines.len() as u64);
    for line in lines {
        write_number(out, line.times);
        let mut before = 0;
        for row in &line.rows {
            put_signed(out, i64::from(*row) - before);
            before = i64::from(*row);
        }
        if line.times > 1 {
            let link = line.entry.link.as_deref().unwrap_or_default();
            for text in [&line.entry.key, &line.entry.value, link] {
                write_bytes(out, text.as_bytes());
            }
            write_number(out, line.params);
            write_number(out, line.bytes);
            write_number(out, u64::from(line.one_shape));
        }
    }
}

/// Returns the hash of a script or style, as used in a content security policy.
fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// Returns text as HTML, with hidden characters made visible.
pub(super) fn escape(text: &str) -> String {
    statelens_checkpoint::visible(text).replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_every_placeholder_and_escapes_names() {
        let outline = Outline { name: "</title><script>{js}".into(), ..Outline::default() };
        let page = write_html(&outline);
        assert!(page.contains("<title>&lt;/title>&lt;script>{js}</title>"));
        for hole in ["{script}", "{style}", "{title}", "{css}", "{data}"] {
            assert!(!page.contains(hole), "{hole}");
        }
        assert!(page.ends_with("</html>\n"));
        assert!(page.contains(STYLE) && page.contains(SCRIPT));
        // The well-known SHA-256 of the empty string.
        assert_eq!(hash(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
