//! A treemap as SVG.

use statelens_checkpoint::size_text;
use statelens_values::picture::escaped;

use super::{HEAD, Treemap};

/// Colours of dtypes; labels are drawn on a tint of them.
const COLOURS: [(&str, &str); 8] = [
    ("bfloat16", "#4d8ae3"),
    ("float16", "#145d7f"),
    ("float32", "#777b8b"),
    ("float64", "#521773"),
    ("bool", "#705f1a"),
    ("int", "#b77c2b"),
    ("uint", "#b77c2b"),
    ("complex", "#521773"),
];
const NARROW: &str = "#772139";
/// The width of a character at a font size of 11.
const LETTER: f64 = 6.7;

/// Draws the treemap, with a caption below.
pub fn svg(map: &Treemap, title: &str) -> String {
    let (wide, high) = map.size;
    let foot = 22.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide:.0}\" height=\"{:.0}\" viewBox=\"0 0 {wide:.0} \
         {:.0}\" font-family=\"ui-monospace, Menlo, Consolas, monospace\" font-size=\"11\"><title>{}</title><desc>{}\
         </desc>",
        high + foot,
        high + foot,
        escaped(title),
        escaped(&map.text()),
    );
    for cell in &map.cells {
        let rect = cell.rect;
        let (fill, strength) =
            if cell.open { ("#f2f5f3", "1") } else { (colour(&cell.dtype), ".35") };
        out += &format!(
            "<g><title>{}</title><rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{fill}\" \
             fill-opacity=\"{strength}\" stroke=\"#ffffff\"/>",
            escaped(&cell.text(map.sums.bytes)),
            rect.left,
            rect.top,
            rect.wide,
            rect.high,
        );
        let fits = ((rect.wide - 8.0) / LETTER).max(0.0) as usize;
        let share = cell.sums.bytes as f64 / map.sums.bytes.max(1) as f64 * 100.0;
        let size = format!("{}, {share:.1} %", size_text(cell.sums.bytes));
        let dtype = if cell.open { "" } else { &cell.dtype };
        for (at, line) in [format!("{} {size}", cell.name), dtype.to_owned()].iter().enumerate() {
            let below = HEAD * (at + 1) as f64;
            if fits >= 3 && rect.high >= below && !line.is_empty() {
                out += &format!(
                    "<text x=\"{:.2}\" y=\"{:.2}\" fill=\"#16201c\">{}</text>",
                    rect.left + 4.0,
                    rect.top + below - 5.0,
                    escaped(&cut(line, fits)),
                );
            }
        }
        out += "</g>";
    }
    out += &format!(
        "<text x=\"0\" y=\"{:.0}\" fill=\"#46524c\">{}</text></svg>\n",
        high + 15.0,
        escaped(&format!("{title}: {}, an area is bytes", size_text(map.sums.bytes))),
    );
    out
}

fn colour(dtype: &str) -> &'static str {
    let whole = |name: &str| matches!(name, "int" | "uint" | "complex");
    let found =
        COLOURS.iter().find(|(name, _)| dtype == *name || whole(name) && dtype.starts_with(name));
    found.map_or(NARROW, |(_, colour)| colour)
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['\u{2026}']).collect(),
    }
}
