//! A summary as Markdown, for a model card or an issue, and as plain text with the same lines.
//! Repeated layers are folded.

use statelens_checkpoint::{Finding, grouped, order, shape_text, visible};

use super::words::{code, plain};
use super::{FoldedLine, Outline, lines};
use crate::info::View;
use crate::{Info, grade_word};

/// Returns the summary as Markdown.
pub fn write_markdown(outline: &Outline) -> String {
    let table = |out: &mut String, rows: &[Vec<String>], text: usize| {
        for (at, row) in rows.iter().enumerate() {
            out.push_str("| ");
            out.push_str(&row.join(" | "));
            out.push_str(" |\n");
            if at == 0 {
                // Text is left-aligned, numbers are right-aligned.
                let rule = (0..row.len()).map(|at| if at < text { "|---" } else { "|--:" });
                out.extend(rule);
                out.push_str("|\n");
            }
        }
        out.push('\n');
    };
    let mut out = format!("## {}\n\n", code(&outline.name));
    let info = outline.info();
    let mut rows = vec![vec![String::new(); 2]];
    for (name, text) in outline.facts(&info, View::Summary) {
        let cell = if name.ends_with("fingerprint") { code(&text) } else { plain(&text) };
        rows.push(vec![name, cell]);
    }
    table(&mut out, &rows, 2);
    if !outline.findings.is_empty() {
        out.push_str("### Findings\n\n");
        for finding in worst_first(outline) {
            let advice = finding.advice.to_string();
            let texts = [&finding.detail, &advice, &finding.place];
            out.push_str(&format!(
                "- **{}**: {}",
                grade_word(finding.grade),
                plain(&finding.title)
            ));
            for text in texts.into_iter().filter(|text| !text.is_empty()) {
                out.push_str(&format!(". {}", plain(text.trim_end_matches('.'))));
            }
            out.push_str(".\n");
        }
        out.push('\n');
    }
    for mut rows in counts(&info) {
        rows.iter_mut().skip(1).for_each(|row| row[0] = code(&row[0]));
        table(&mut out, &rows, 1);
    }
    out.push_str("<details><summary>Keys</summary>\n\n");
    let mut rows = keys(outline);
    for row in rows.iter_mut().skip(1) {
        for at in [0, 1, 2, 5] {
            row[at] = if at == 5 { plain(&row[at]) } else { code(&row[at]) };
        }
        // Numbers are right-aligned; the value comes last and is right-aligned as well, because it
        // mostly is a number.
    }
    table(&mut out, &rows, 3);
    out.push_str("</details>\n");
    if let Some(mut rows) = statistics(outline) {
        rows.iter_mut().skip(1).for_each(|row| row[0] = code(&row[0]));
        out.push_str("\n<details><summary>Statistics</summary>\n\n");
        table(&mut out, &rows, 1);
        out.push_str("</details>\n");
    }
    out
}

/// Returns the summary as text, in columns.
pub fn write_text(outline: &Outline) -> String {
    let table = |out: &mut String, rows: &[Vec<String>], text: usize| {
        let columns = rows.first().map_or(0, Vec::len);
        let width = |at: usize| {
            let widths = rows.iter().map(|row| row[at].chars().count());
            // One very long key must not push the other columns off the screen.
            widths.max().unwrap_or(0).min(72)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in rows {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
                let (before, after) = if at < text { ("", &*gap) } else { (&*gap, "") };
                line.extend([before, cell.as_str(), after, "  "]);
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    };
    let shown = |rows: Vec<Vec<String>>| -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| visible(cell)).collect()).collect()
    };
    let mut out = format!("{}\n\n", visible(&outline.name));
    let info = outline.info();
    let facts = outline.facts(&info, View::Summary);
    let rows = facts.into_iter().map(|(name, text)| vec![name, text]);
    table(&mut out, &shown(rows.collect()), 2);
    if !outline.findings.is_empty() {
        out.push('\n');
        for finding in worst_first(outline) {
            out.push_str(&format!("{:8} {}\n", grade_word(finding.grade), visible(&finding.title)));
            for text in [&finding.detail, &finding.place, &finding.advice.to_string()] {
                if !text.is_empty() {
                    out.push_str(&format!("         {}\n", visible(text)));
                }
            }
        }
    }
    for rows in counts(&info) {
        out.push('\n');
        table(&mut out, &shown(rows), 1);
    }
    out.push('\n');
    table(&mut out, &shown(keys(outline)), 3);
    if let Some(rows) = statistics(outline) {
        out.push('\n');
        table(&mut out, &shown(rows), 1);
    }
    out
}

pub(super) fn worst_first(outline: &Outline) -> Vec<&Finding> {
    let mut findings: Vec<&Finding> = outline.findings.iter().collect();
    order::by_key(&mut findings, |finding| std::cmp::Reverse(finding.grade));
    findings
}

/// Returns the counts by dtype and by state, as tables with headers.
fn counts(info: &Info) -> Vec<Vec<Vec<String>>> {
    let head = |first: &str| {
        [first, "tensors", "elements", "bytes"].into_iter().map(str::to_owned).collect()
    };
    let row = |name: &str, count: &crate::Count| {
        vec![name.to_owned(), grouped(count.tensors), grouped(count.elements), grouped(count.bytes)]
    };
    let mut dtypes: Vec<Vec<String>> = vec![head("dtype")];
    dtypes.extend(info.dtypes.iter().map(|of| row(&of.dtype, &of.count)));
    let mut states: Vec<Vec<String>> = vec![head("state")];
    // In a flat state dict every key would be a state, and the keys are listed anyway.
    if (2..=MAX_STATES).contains(&info.states.len()) {
        states.extend(info.states.iter().map(|of| row(&of.state, &of.count.tensors)));
    }
    [dtypes, states].into_iter().filter(|rows| rows.len() > 1).collect()
}

const MAX_STATES: usize = 40;

/// Returns the folded keys with a header.
pub(super) fn keys(outline: &Outline) -> Vec<Vec<String>> {
    let head = ["key", "dtype", "shape", "\u{d7}", "bytes", "value"];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    rows.extend(lines(outline).into_iter().map(|line: FoldedLine| {
        let entry = &line.entry;
        let tensor = entry.is_tensor();
        vec![
            entry.key.clone(),
            entry.type_word().to_owned(),
            match (tensor, line.one_shape) {
                (true, true) => shape_text(&entry.shape),
                (true, false) => "shapes differ".to_owned(),
                (false, _) => String::new(),
            },
            if line.times > 1 { grouped(line.times) } else { String::new() },
            if tensor { grouped(line.bytes) } else { String::new() },
            match &entry.link {
                // Equal plain values are often one object, which says nothing about them.
                Some(target) if tensor || entry.value.is_empty() => format!("= {target}"),
                _ => entry.value.clone(),
            },
        ]
    }));
    rows
}

/// Returns the statistics of each tensor with a header, if there are any.
fn statistics(outline: &Outline) -> Option<Vec<Vec<String>>> {
    let head = ["key", "min", "max", "mean", "std", "zeros", "NaN", "Inf"];
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).to_vec()];
    for entry in &outline.entries {
        let Some(of) = entry.statistics.filter(|_| entry.link.is_none()) else { continue };
        let mut row = vec![entry.key.clone()];
        row.extend(
            [of.min, of.max, of.mean, of.std]
                .map(|number| number.map(four_digits).unwrap_or_default()),
        );
        row.extend([of.zeros, of.nan, of.infinite].map(grouped));
        rows.push(row);
    }
    (rows.len() > 1).then_some(rows)
}

/// Formats a number with four significant digits, as Python prints it.
fn four_digits(number: f64) -> String {
    format!("{number:.3e}").parse().map(statelens_checkpoint::float_repr).unwrap_or_default()
}
