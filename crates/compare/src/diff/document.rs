//! The result of a comparison as a document to pass on: Markdown or an HTML page.

use std::fmt::Write as _;

use statelens_checkpoint::{counted, grouped, order, visible};
use statelens_values::picture::{Chart, Series};

use super::{ComparisonReport, DifferenceKind, Quantity, Role, roles};

/// Number of differences that a document lists; the JSON has all.
const MAX_LISTED: usize = 500;

/// Number of roles that a document lists, and of those that it draws.
const MAX_ROLES: usize = 40;
const MAX_LINES: usize = 6;
/// The heads of the table of roles.
const ROLE_HEADS: [&str; 4] = ["role", "layers", "largest relative change", "in layer"];

/// The parts of a document, before they are written in a format.
struct Document {
    title: String,
    verdict: String,
    facts: Vec<(&'static str, String)>,
    kinds: Vec<(&'static str, u64)>,
    /// Roles with their layers, the largest change, and the layer that it is in.
    roles: Vec<[String; 4]>,
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
        if !document.roles.is_empty() {
            _ = writeln!(out, "| {} |\n|---|--:|--:|--:|", ROLE_HEADS.join(" | "));
            for [role, layers, change, layer] in document.roles {
                _ = writeln!(out, "| {} | {layers} | {change} | {layer} |", cell(&code(role)));
            }
            out.push('\n');
        }
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
        let mut table = |heads: Option<[&str; 2]>, rows: Vec<(String, String)>| {
            if rows.is_empty() {
                return;
            }
            out.push_str("<table>");
            if let Some([one, other]) = heads {
                _ = write!(out, "<tr><th>{one}</th><th>{other}</th></tr>");
            }
            for (one, other) in rows {
                let (one, other) = (escaped(&one), escaped(&other));
                _ = write!(out, "\n<tr><td>{one}</td><td>{other}</td></tr>");
            }
            out.push_str("</table>\n");
        };
        let facts = document.facts.into_iter();
        table(None, facts.map(|(label, value)| (label.to_owned(), value)).collect());
        let kinds = document.kinds.into_iter();
        let kinds = kinds.map(|(kind, count)| (kind.to_owned(), grouped(count))).collect();
        table(Some(["difference", "keys"]), kinds);
        if !document.roles.is_empty() {
            _ = write!(out, "<table><tr><th>{}</th></tr>", ROLE_HEADS.join("</th><th>"));
            for [role, layers, change, layer] in document.roles {
                let role = escaped(&role);
                _ = write!(
                    out,
                    "\n<tr><td><code>{role}</code></td><td>{layers}</td><td>{change}</td><td>{layer}</td></tr>"
                );
            }
            out.push_str("</table>\n");
            out.extend(self.change_over_depth().map(|chart| chart.svg(860, 380)));
        }
        let mut table = |heads: [&str; 2], rows: Vec<(String, String)>| {
            if rows.is_empty() {
                return;
            }
            _ = write!(out, "<table><tr><th>{}</th><th>{}</th></tr>", heads[0], heads[1]);
            for (one, other) in rows {
                let (one, other) = (escaped(&one), escaped(&other));
                _ = write!(out, "\n<tr><td><code>{one}</code></td><td>{other}</td></tr>");
            }
            out.push_str("</table>\n");
        };
        table(["key", "what differs"], document.differences);
        out.extend(document.more.map(|more| format!("<p>{}</p>\n", escaped(&more))));
        out + "</body></html>\n"
    }

    /// Returns the roles whose tensors changed, with the change of each layer; the most changed first.
    fn changed_roles(&self) -> Vec<(String, Vec<(u64, f64)>)> {
        let keys = self.changes.iter().map(|one| one.key.to_lossy().into_owned());
        let of = |role: Role| {
            let members = role.members.iter();
            let changes =
                members.filter_map(|(layer, at)| Some((*layer, self.changes[*at].change?)));
            (role.name, changes.collect::<Vec<_>>())
        };
        let mut all: Vec<(String, Vec<(u64, f64)>)> = roles(keys).into_iter().map(of).collect();
        all.retain(|(_, layers)| layers.iter().any(|(_, change)| *change > 0.0));
        order::by(&mut all, |one, other| largest(&other.1).1.total_cmp(&largest(&one.1).1));
        all
    }

    /// Returns the chart of the most changed roles over depth.
    fn change_over_depth(&self) -> Option<Chart> {
        let roles = self.changed_roles();
        let deep = roles.into_iter().filter(|(_, layers)| layers.len() > 2).take(MAX_LINES);
        let lines: Vec<Series> = deep
            .map(|(name, layers)| Series {
                name,
                points: layers.into_iter().map(|(layer, change)| (layer as f64, change)).collect(),
            })
            .collect();
        (!lines.is_empty()).then(|| Chart {
            title: "Change over depth".into(),
            across: "layer".into(),
            up: Quantity::Change.word().into(),
            lines,
            ..Chart::default()
        })
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
            roles: self
                .changed_roles()
                .into_iter()
                .take(MAX_ROLES)
                .map(|(name, layers)| {
                    let (layer, change) = largest(&layers);
                    let count = grouped(layers.len() as u64);
                    [visible(&name), count, format!("{change:.3e}"), layer.to_string()]
                })
                .collect(),
            differences: listed
                .map(|one| (visible(&one.key.to_lossy()), visible(&one.text())))
                .collect(),
            more: more.map(|more| format!("And {} more. The JSON has all.", grouped(more as u64))),
        }
    }
}

/// Returns the layer with the largest change, and the change.
fn largest(layers: &[(u64, f64)]) -> (u64, f64) {
    let more = |one: (u64, f64), next: (u64, f64)| if next.1 > one.1 { next } else { one };
    layers.iter().copied().reduce(more).unwrap_or_default()
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
    use crate::diff::tests::{TestLeaf, checkpoint, f32s};
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

    #[test]
    fn documents_show_which_roles_changed_in_which_layer() {
        let side = |moved: f32| {
            let layer = |at: usize| f32s(&[1.0, if at == 2 { 1.0 + moved } else { 1.0 }]);
            let keys = ["h.0.w", "h.1.w", "h.2.w", "h.3.w"];
            checkpoint(keys.into_iter().enumerate().map(|(at, key)| (key, layer(at))).collect())
        };
        let report = compare(side(0.0), side(0.5), DiffOptions::default(), &mut Unwatched).unwrap();
        let markdown = report.markdown(["a", "b"]);
        let line = "| `h.*.w` | 4 | 2.774e-1 | 2 |";
        assert!(markdown.lines().any(|it| it == line), "{markdown}");
        let html = report.html(["a", "b"]);
        assert!(html.contains("<td><code>h.*.w</code></td><td>4</td>"), "{html}");
        assert!(html.contains("Change over depth") && html.contains("<svg "), "{html}");
    }
}
