//! A summary as a fragment of HTML without scripts, for notebooks: the facts, and the folded keys.

use statelens_checkpoint::grouped;

use super::Outline;
use super::html::escape;
use super::markdown::keys;
use crate::info::View;

/// Lines of the table that are shown.
const MAX_LINES: usize = 500;

/// The style of each column. Keys and values are of any length, so they wrap, and leave room for the
/// other columns.
const STYLES: [&str; 6] = [LONG, "text-align:left", "text-align:left", NUMBER, NUMBER, LONG];
const NUMBER: &str = "text-align:right";
const LONG: &str = "text-align:left;min-width:12em;max-width:40em;overflow-wrap:anywhere";

/// Returns the summary as a fragment that any page can hold.
pub fn write_fragment(outline: &Outline) -> String {
    let mut out = String::from("<div><details open><summary>");
    out.push_str(&format!("<b>{}</b>", escape(&outline.name)));
    for (name, text) in outline.info().lines(View::Summary) {
        out.push_str(&format!(" · {name} {}", escape(&text)));
    }
    out.push_str("</summary><table>");
    let rows = keys(outline);
    for (at, row) in rows.iter().take(MAX_LINES + 1).enumerate() {
        let tag = if at == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for (at, (cell, style)) in row.iter().zip(STYLES).enumerate() {
            let text = escape(cell);
            // Long keys wrap between their parts.
            let text = if at == 0 { text.replace('.', ".<wbr>") } else { text };
            out.push_str(&format!("<{tag} style=\"{style}\">{text}</{tag}>"));
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
    let more = rows.len().saturating_sub(MAX_LINES + 1) as u64;
    if more > 0 {
        out.push_str(&format!("<p>and {} more lines</p>", grouped(more)));
    }
    out.push_str("</details></div>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeafKind;
    use crate::share::LeafSummary;

    #[test]
    fn names_stay_text_and_long_lists_are_cut() {
        let entry =
            |key: String| LeafSummary { key, kind: LeafKind::Str, ..LeafSummary::default() };
        let odd = "<script>\"&".to_owned();
        let entries = [odd].into_iter().chain((0..600).map(|at| format!("k{}x", "a".repeat(at))));
        let entries = entries.map(entry).collect();
        let outline = Outline { name: "<b>".into(), entries, ..Outline::default() };
        let text = write_fragment(&outline);
        assert!(text.contains("&lt;b>") && text.contains("&lt;script>\"&amp;"), "{text}");
        assert!(!text.contains("<script") && text.contains("and 101 more lines"));
    }

    #[test]
    fn long_keys_wrap_and_repeated_values_are_shown() {
        let key = format!("model.{}", "k".repeat(200));
        let flag = |key: &str, link: Option<&str>| LeafSummary {
            key: key.into(),
            kind: LeafKind::Bool,
            value: "False".into(),
            link: link.map(str::to_owned),
            ..LeafSummary::default()
        };
        let tied = LeafSummary {
            key: key.clone(),
            kind: LeafKind::Tensor,
            link: Some("model.head".into()),
            ..LeafSummary::default()
        };
        let entries = vec![flag("amsgrad", None), flag("maximize", Some("amsgrad")), tied];
        let text = write_fragment(&Outline { entries, ..Outline::default() });
        assert!(text.contains("overflow-wrap:anywhere\">model.<wbr>kkk"), "{text}");
        assert_eq!(text.matches(">False<").count(), 2);
        assert!(!text.contains("= amsgrad") && text.contains("= model.head"));
    }
}
