//! The result of a comparison as a document to pass on: Markdown or an HTML page.

use std::fmt::Write as _;

use statelens_checkpoint::{counted, grouped, visible};

use super::{ComparisonReport, DifferenceKind};

/// Number of differences that a document lists; the JSON has all.
const MAX_LISTED: usize = 500;

/// The parts of a document, before they are written in a format.
struct Document {
    title: String,
    verdict: String,
    facts: Vec<(&'static str, String)>,
    kinds: Vec<(&'static str, u64)>,
    differences: Vec<(String, String)>,
    more: Option<String>,
}

impl ComparisonReport {
    /// Writes the report as Markdown; `sides` has the names of both checkpoints.
    pub fn markdown(&self, sides: [&str; 2]) -> String {
        let document = self.document(sides);
        // Rows of a table end at a line break, and cells at a bar.
        let cell = |text: &str| text.replace('|', "\\|").replace(['\r', '\n'], " ");
        let mut out = format!("# {}\n\n**{}**\n\n", cell(&document.title), document.verdict);
        let mut table = |heads: [&str; 2], rows: &mut dyn Iterator<Item = [String; 2]>| {
            let mut rows = rows.peekable();
            if rows.peek().is_none() {
                return;
            }
            _ = writeln!(out, "| {} | {} |\n|---|---|", heads[0], heads[1]);
            for [one, other] in rows {
                _ = writeln!(out, "| {} | {} |", cell(&one), cell(&other));
            }
            out.push('\n');
        };
        let facts = document.facts.into_iter().map(|(label, value)| [label.to_owned(), value]);
        table(["", ""], &mut facts.into_iter());
        let kinds = document.kinds.into_iter();
        table(
            ["difference", "keys"],
            &mut kinds.map(|(kind, count)| [kind.to_owned(), grouped(count)]),
        );
        // A key in code may not have the mark that ends code.
        let code = |key: String| format!("`{}`", key.replace('`', "'"));
        let listed = document.differences.into_iter();
        table(["key", "what differs"], &mut listed.map(|(key, what)| [code(key), what]));
        out.extend(document.more.map(|more| format!("{more}\n")));
        out
    }

    /// Writes the report as an HTML page without scripts; `sides` has the names of both checkpoints.
    pub fn html(&self, sides: [&str; 2]) -> String {
        let document = self.document(sides);
        let title = escaped(&document.title);
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\n\
             <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p class=\"verdict\">{}</p>\n",
            escaped(&document.verdict)
        );
        let mut table = |heads: Option<[&str; 2]>, code: bool, rows: Vec<(String, String)>| {
            if rows.is_empty() {
                return;
            }
            out.push_str("<table>");
            if let Some([one, other]) = heads {
                _ = write!(out, "<tr><th>{one}</th><th>{other}</th></tr>");
            }
            for (one, other) in rows {
                let (one, other) = (escaped(&one), escaped(&other));
                let one = if code { format!("<code>{one}</code>") } else { one };
                _ = write!(out, "\n<tr><td>{one}</td><td>{other}</td></tr>");
            }
            out.push_str("</table>\n");
        };
        let facts = document.facts.into_iter();
        table(None, false, facts.map(|(label, value)| (label.to_owned(), value)).collect());
        let kinds = document.kinds.into_iter();
        let kinds = kinds.map(|(kind, count)| (kind.to_owned(), grouped(count))).collect();
        table(Some(["difference", "keys"]), false, kinds);
        table(Some(["key", "what differs"]), true, document.differences);
        out.extend(document.more.map(|more| format!("<p>{}</p>\n", escaped(&more))));
        out + "</body></html>\n"
    }

    fn document(&self, [left, right]: [&str; 2]) -> Document {
        let mut kinds: Vec<(&'static str, u64)> = Vec::new();
        for difference in &self.differences {
            let kind = kind_text(&difference.kind);
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, count)) => *count += 1,
                None => kinds.push((kind, 1)),
            }
        }
        let mut facts = vec![
            ("keys on both sides", grouped(self.keys)),
            ("tensors compared", grouped(self.tensors)),
            ("elements compared", grouped(self.elements)),
        ];
        if self.close > 0 {
            facts.push(("equal within the tolerance", counted(self.close, "tensor")));
        }
        if self.nan > 0 {
            facts.push(("NaN in the same place on both sides", grouped(self.nan)));
        }
        let count = self.differences.len();
        let listed = self.differences.iter().take(MAX_LISTED);
        let more = count.checked_sub(MAX_LISTED).filter(|more| *more > 0);
        Document {
            title: format!("{} and {}", visible(left), visible(right)),
            verdict: match self.matches() {
                true => "They match.".to_owned(),
                false => format!("They differ: {}.", counted(count as u64, "difference")),
            },
            facts,
            kinds,
            differences: listed
                .map(|one| (visible(&one.key.to_lossy()), visible(&one.text())))
                .collect(),
            more: more.map(|more| format!("And {} more. The JSON has all.", grouped(more as u64))),
        }
    }
}

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;\
color-scheme:light dark}table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #8886;\
padding:.2rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}.verdict{font-size:1.2rem}";

fn kind_text(kind: &DifferenceKind) -> &'static str {
    match kind {
        DifferenceKind::OnlyLeft { .. } => "only in the first",
        DifferenceKind::OnlyRight { .. } => "only in the second",
        DifferenceKind::Type { .. } => "other type",
        DifferenceKind::Shape { .. } => "other shape",
        DifferenceKind::DType { .. } => "other dtype",
        DifferenceKind::Value { .. } => "other value",
        DifferenceKind::Elements(_) => "other elements",
        DifferenceKind::Nan(_) => "NaN on one side",
        DifferenceKind::Unreadable { .. } => "can't be compared",
    }
}

/// Escapes text for HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{Unwatched, Value};

    use super::*;
    use crate::diff::tests::{TestLeaf, checkpoint};
    use crate::diff::{DiffOptions, compare};

    fn compared(left: &[(&'static str, i64)], right: &[(&'static str, i64)]) -> ComparisonReport {
        let side = |entries: &[(&'static str, i64)]| {
            let leaf = |(key, number): &(&'static str, i64)| {
                (*key, TestLeaf::Plain(Value::Int((*number).into())))
            };
            checkpoint(entries.iter().map(leaf).collect())
        };
        compare(side(left), side(right), DiffOptions::default(), &mut Unwatched).unwrap()
    }

    #[test]
    fn documents_list_what_differs_and_escape_names() {
        let report = compared(
            &[("a|b", 1), ("<i>`", 2), ("same", 3)],
            &[("a|b", 5), ("<i>`", 2), ("same", 3), ("new", 4)],
        );
        let markdown = report.markdown(["old.pt", "new.pt"]);
        for line in [
            "# old.pt and new.pt",
            "**They differ: 2 differences.**",
            "| keys on both sides | 3 |",
            "| other value | 1 |",
            "| only in the second | 1 |",
            "| `a\\|b` | value: 1 / 5 |",
        ] {
            assert!(markdown.lines().any(|it| it == line), "{line}\n{markdown}");
        }
        let html = report.html(["<old>.pt", "new.pt"]);
        assert!(html.contains("<h1>&lt;old&gt;.pt and new.pt</h1>"), "{html}");
        assert!(html.contains("<td><code>a|b</code></td><td>value: 1 / 5</td>"), "{html}");
        let equal = compared(&[("a", 1)], &[("a", 1)]);
        assert!(equal.markdown(["a", "b"]).contains("**They match.**"));
        assert!(!equal.html(["a", "b"]).contains("other value"));
    }
}
