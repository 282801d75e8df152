//! Checks that the tables of usages in `docs/scan.md` match the table of harmless names.

use super::harmless::ROWS;
use super::pattern::{ALIASES, WORDS};

const START: &str = "<!-- usages: written by the test `documentation_lists_every_usage` -->\n";
const END: &str = "<!-- end of usages -->";

/// Returns the tables as they must be in the documentation.
fn tables() -> String {
    let code = |text: &str| format!("`{}`", text.replace('|', "\\|"));
    let list =
        |words: &str| words.split_ascii_whitespace().map(code).collect::<Vec<_>>().join(", ");
    let mut text =
        String::from("\n| module | names | usages | why they are harmless |\n|---|---|---|---|\n");
    for row in ROWS {
        let usages: Vec<String> = row.usages.split(';').map(|usage| code(usage.trim())).collect();
        text += &format!(
            "| {} | {} | {} | {} |\n",
            list(row.modules),
            list(row.names),
            usages.join("<br>"),
            row.why
        );
    }
    text += "\n| kind | values |\n|---|---|\n";
    for (_, word, meaning) in WORDS {
        text += &format!("| {} | {meaning} |\n", code(word));
    }
    for (alias, kinds) in ALIASES {
        text += &format!("| {} | {} |\n", code(alias), code(kinds));
    }
    text.push('\n');
    text
}

#[test]
fn documentation_lists_every_usage() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scan.md");
    let text = include_str!("../../../../docs/scan.md");
    let (before, rest) = text.split_once(START).unwrap();
    let (documented, after) = rest.split_once(END).unwrap();
    let expected = tables();
    if documented != expected {
        if std::env::var_os("STATELENS_WRITE_DOCS").is_some() {
            std::fs::write(path, [before, START, &expected, END, after].concat()).unwrap();
        }
        panic!("docs/scan.md lists other usages than the code; STATELENS_WRITE_DOCS=1 writes them");
    }
}
