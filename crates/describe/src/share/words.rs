//! Formats numbers for people, and escapes text for Markdown and HTML.

/// Formats a size in decimal units: `13.5 GB`; small numbers exactly. Uses integer arithmetic,
/// rounded half up.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    scaled(bytes, &UNITS)
}

fn scaled(number: u64, units: &[&str; 7]) -> String {
    let mut at = 0;
    let mut unit = 1u64;
    // Up to 999.5 of a unit, so that three digits are shown.
    while at < 6 && number / unit >= 1_000 {
        unit *= 1_000;
        at += 1;
    }
    if at == 0 {
        return format!("{number} {}", units[0]);
    }
    let mut digits = if number / unit < 10 { 2 } else { usize::from(number / unit < 100) };
    let factor = 10u128.pow(digits as u32);
    let mut value = (u128::from(number) * factor * 2 / u128::from(unit)).div_ceil(2);
    if value >= 1_000 && digits > 0 {
        value = value.div_ceil(10);
        digits -= 1;
    }
    if value >= 1_000 && digits == 0 && at < 6 {
        return format!("1.00 {}", units[at + 1]);
    }
    let factor = 10u128.pow(digits as u32);
    match digits {
        0 => format!("{value} {}", units[at]),
        _ => format!("{}.{:0digits$} {}", value / factor, value % factor, units[at]),
    }
}

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
    fn formats_sizes_for_people() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (1_234, "1.23 kB"),
            (1_235, "1.24 kB"),
            (9_999, "10.0 kB"),
            (12_345_678, "12.3 MB"),
            (999_499, "999 kB"),
            (999_600_000, "1.00 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn escapes_markdown_in_cells() {
        assert_eq!(code("a|b`c"), "``a\\|b`c``");
        assert_eq!(code("`x"), "`` `x ``");
        assert_eq!(plain("<b>@me *x*|\n"), "&lt;b&gt;&#64;me \\*x\\*\\|\\\\n");
    }
}
