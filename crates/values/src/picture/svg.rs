//! A picture as SVG.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::draw::{LEGEND, LINE};
use super::{ODD, Picture, Rgb, ticks};

/// Draws a picture whose map has at most `wide` by `high` units, and at least one per cell. All
/// cells of a colour are one path.
pub fn svg(picture: &Picture<'_>, wide: u32, high: u32) -> String {
    let places = picture.places(wide.into(), high.into());
    let (width, height) = (places.width, places.height);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" font-family=\"ui-monospace, monospace\" font-size=\"11\" \
         fill=\"#5f6b65\" shape-rendering=\"crispEdges\">\n<title>{}</title>\n<desc>{}</desc>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
        escaped(picture.title),
        escaped(&picture.map.text()),
    );
    text(&mut out, 8, 16, "start", picture.title, true);
    text(&mut out, 8, 16 + LINE, "start", &picture.subtitle(), false);

    let colours = picture.colours();
    let mut paths: BTreeMap<Rgb, String> = BTreeMap::new();
    for row in 0..picture.map.size.0 {
        let mut column = 0;
        while column < picture.map.size.1 {
            let of = |column| colours.block(picture.map, row * picture.map.size.1 + column);
            let colour = of(column);
            let start = column;
            while column < picture.map.size.1 && of(column) == colour {
                column += 1;
            }
            if let Some(colour) = colour {
                let run = column - start;
                let _ = write!(paths.entry(colour).or_default(), "M{start} {row}h{run}v1h-{run}z");
            }
        }
    }
    let _ = writeln!(
        out,
        "<g id=\"map\" transform=\"translate({} {}) scale({} {})\">",
        places.left, places.top, places.cell.1, places.cell.0
    );
    for (colour, path) in paths {
        let _ = writeln!(out, "<path fill=\"{}\" d=\"{path}\"/>", hex(colour));
    }
    let _ = writeln!(
        out,
        "</g>\n<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#7e8a84\"/>",
        places.left, places.top, places.wide, places.high
    );

    let (rows, columns) = picture.map.matrix;
    for row in ticks(rows, places.high as f64, 40.0) {
        let top = places.top + row / picture.map.block.0.max(1) * places.cell.0;
        text(&mut out, places.left - 6, top + 4, "end", &row.to_string(), false);
    }
    let below = places.top + places.high;
    for column in ticks(columns, places.wide as f64, 80.0) {
        let left = places.left + column / picture.map.block.1.max(1) * places.cell.1;
        text(&mut out, left, below + LINE, "start", &column.to_string(), false);
    }
    let names = format!("down: {}, across: {}", picture.axes.0, picture.axes.1);
    text(&mut out, places.left, below + LINE * 2, "start", &names, false);

    let top = below + LINE * 2 + 12;
    for at in 0..50 {
        let part = f64::from(at) / 49.0;
        let part = if colours.is_signed() { part * 2.0 - 1.0 } else { part };
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{top}\" width=\"4\" height=\"10\" fill=\"{}\"/>",
            places.left + at as u64 * LEGEND / 50,
            hex(colours.at(part))
        );
    }
    for (part, number) in picture.legend(&colours) {
        let anchor = ["start", "middle", "end"][(part * 2.0) as usize];
        let left = places.left + (part * LEGEND as f64) as u64;
        text(&mut out, left, top + 22, anchor, &number, false);
    }
    if picture.has_odd() {
        let left = places.left + LEGEND + 16;
        let colour = hex(ODD);
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"
        );
        text(&mut out, left + 16, top + 9, "start", "NaN or infinite inside", false);
    }
    out + "</svg>\n"
}

pub(super) fn text(out: &mut String, left: u64, top: u64, anchor: &str, text: &str, strong: bool) {
    let strong = if strong { " fill=\"#16201c\" font-weight=\"600\"" } else { "" };
    let text = escaped(text);
    let _ = writeln!(
        out,
        "<text x=\"{left}\" y=\"{top}\" text-anchor=\"{anchor}\"{strong}>{text}</text>"
    );
}

fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Escapes a text for XML; control characters, which XML does not allow, are replaced.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}');
            }
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::tests::map;
    use super::super::{ColourScaling, Show};
    use super::*;

    #[test]
    fn merges_cells_of_one_colour_and_escapes_text() {
        let map = map();
        let picture = Picture {
            map: &map,
            title: "a<b>&\u{1}",
            axes: ("rows", "columns"),
            show: Show::Value,
            scaling: ColourScaling::Linear,
        };
        let drawn = svg(&picture, 300, 200);
        assert!(drawn.contains("<title>a&lt;b&gt;&amp;\u{fffd}</title>"), "{drawn}");
        assert!(drawn.contains("fill=\"#c9168c\" d=\"M1 0h1v1h-1z\""), "{drawn}");
        // The largest magnitude, -8 in the last block, has the strongest colour.
        assert!(drawn.contains("<path fill=\"#0e3a79\" d=\"M2 1h1v1h-1z\"/>"), "{drawn}");
        assert!(drawn.contains(">-8</text>") && drawn.contains("NaN or infinite inside"));
        assert_eq!(drawn.matches("<path").count(), 6);
    }
}
