//! Checks that the page's style sheets keep to their own classes.
//!
//! A sheet defines a class by a rule whose selector starts with it. Only one sheet may define a
//! class: rules for the same name in two files apply to the same elements, and the author of one
//! may not be aware of the other. The classes of a sheet for one screen may not occur in another
//! sheet, not even after that sheet's own class in a selector.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::project;

/// The sheets whose classes several screens use: other sheets may refine them inside their own
/// classes.
const SHARED: [&str; 4] = ["base.css", "inspector.css", "sheets.css", "workspace.css"];

/// Fails if two sheets define one class, or one uses the class of another screen.
pub(crate) fn check() -> Result<()> {
    let sheets = read(&project::root().join("web/style"))?;
    let found = collisions(&sheets);
    if !found.is_empty() {
        bail!("style sheets use each other's classes:\n  {}", found.join("\n  "));
    }
    println!("{} style sheets, each with its own classes", sheets.len());
    Ok(())
}

fn read(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut sheets = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?.to_string_lossy().into_owned();
        if name.ends_with(".css") {
            sheets.insert(name, std::fs::read_to_string(&path)?);
        }
    }
    Ok(sheets)
}

/// Describes each class that two sheets define, and each class of one screen that another sheet
/// uses.
fn collisions(sheets: &BTreeMap<String, String>) -> Vec<String> {
    let mut defined: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let mut used: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (sheet, text) in sheets {
        for selector in selectors(text) {
            let all = classes(&selector);
            if let Some(first) = classes(first_compound(&selector)).first() {
                defined.entry(first.clone()).or_default().insert(sheet);
            }
            for class in all {
                used.entry(class).or_default().insert(sheet);
            }
        }
    }
    let mut found = Vec::new();
    for (class, owners) in &defined {
        let names: Vec<&str> = owners.iter().copied().collect();
        if let [owner] = names.as_slice() {
            let others = used.get(class).into_iter().flatten().filter(|sheet| *sheet != owner);
            let others: Vec<&str> = others.copied().collect();
            if !SHARED.contains(owner) && !others.is_empty() {
                found.push(format!(".{class} of {owner} is used in {}", others.join(", ")));
            }
        } else {
            found.push(format!(".{class} is defined in {}", names.join(" and ")));
        }
    }
    found
}

/// Returns the selectors of all rules of a sheet, including those in media queries, without
/// comments.
fn selectors(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let preludes = plain.split(['{', '}', ';']);
    let ends = plain.chars().filter(|c| matches!(c, '{' | '}' | ';'));
    let rules = preludes
        .zip(ends)
        .filter(|(prelude, end)| *end == '{' && !prelude.trim_start().starts_with('@'));
    rules.flat_map(|(prelude, _)| listed(prelude)).collect()
}

/// Splits a list of selectors at commas that are not in parentheses or brackets.
fn listed(list: &str) -> Vec<String> {
    let (mut out, mut depth) = (vec![String::new()], 0);
    for c in list.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                out.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = out.last_mut() {
            last.push(c);
        }
    }
    out.iter().map(|one| one.trim().to_owned()).collect()
}

/// Returns a selector up to its first combinator.
fn first_compound(selector: &str) -> &str {
    let mut depth = 0;
    for (at, c) in selector.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ' ' | '>' | '+' | '~' if depth == 0 => return &selector[..at],
            _ => {}
        }
    }
    selector
}

/// Returns the classes in a selector, in order.
fn classes(selector: &str) -> Vec<String> {
    let name = |part: &str| {
        part.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    let names = selector.split('.').skip(1).map(name);
    names.filter(|name: &String| name.starts_with(|c: char| c.is_ascii_alphabetic())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sheets: &[(&str, &str)]) -> Vec<String> {
        let sheets = sheets.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        collisions(&sheets.collect())
    }

    #[test]
    fn finds_a_class_of_two_sheets() {
        let found =
            found(&[("a.css", ".x { color: red }"), ("b.css", "p { } .x > .y { margin: 0 }")]);
        assert_eq!(found, [".x is defined in a.css and b.css"]);
    }

    #[test]
    fn finds_a_state_class_of_another_screen() {
        // This bug broke the layout of the first screen while a file was dragged over it.
        let matrix =
            ".over { display: grid } @media (max-width: 720px) { .over .map { margin: 0 } }";
        let found =
            found(&[("matrix.css", matrix), ("start.css", ".start.over { background: red }")]);
        assert_eq!(found, [".over of matrix.css is used in start.css"]);
    }

    #[test]
    fn shared_classes_may_be_refined_inside_a_screen() {
        let base =
            "/* .cmp .btn { } */ .btn { margin: .5px } :is(.btn, .chip):hover { color: red }";
        let found =
            found(&[("base.css", base), ("compare.css", ".cmp .btn, .cmp > .chip { margin: 0 }")]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn style_sheets_do_not_share_classes() {
        let sheets = read(&project::root().join("web/style")).unwrap();
        assert!(sheets.len() > 8, "{} sheets", sheets.len());
        assert_eq!(collisions(&sheets), Vec::<String>::new());
    }
}
