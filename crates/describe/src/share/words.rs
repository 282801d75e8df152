//! Escapes text for Markdown and HTML.

/// Formats text as code inside a cell of a Markdown table.
pub(super) fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let text = statelens_checkpoint::visible(text).replace('|', "\\|");
    // Uses more backticks than any run of them in the text.
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

/// Escapes text, so that Markdown and HTML show it literally.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in statelens_checkpoint::visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            // Prevents mentions of users and links.
            '@' => out.push_str("&#64;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_markdown_in_cells() {
        assert_eq!(code("a|b`c"), "``a\\|b`c``");
        assert_eq!(code("`x"), "`` `x ``");
        assert_eq!(plain("<b>@me *x*|\n"), "&lt;b&gt;&#64;me \\*x\\*\\|\\\\n");
    }
}
