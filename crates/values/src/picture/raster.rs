//! A picture as pixels.

use font8x8::UnicodeFonts as _;

use super::draw::{LEGEND, LETTER, LINE};
use super::{ODD, Picture, Rgb, ticks};

/// Pixels, row by row, three bytes each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raster {
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
    /// Red, green and blue of each pixel.
    pub rgb: Vec<u8>,
    /// The position of the map and the size of a cell: left, top, width, height.
    pub map: [u32; 4],
}

const INK: Rgb = [22, 32, 28];
const PALE: Rgb = [95, 107, 101];
const LINES: Rgb = [126, 138, 132];
const PAPER: u8 = 255;

/// Draws a picture whose map has at most `wide` by `high` pixels, and at least one per cell.
pub fn raster(picture: &Picture<'_>, wide: u32, high: u32) -> Raster {
    let places = picture.places(wide.into(), high.into());
    let (width, height) = (places.width as u32, places.height as u32);
    let mut dots = Raster {
        width,
        height,
        rgb: vec![PAPER; width as usize * height as usize * 3],
        map: [places.left as u32, places.top as u32, places.cell.1 as u32, places.cell.0 as u32],
    };
    let most = (places.width.saturating_sub(16) / LETTER) as usize;
    dots.text(8, 8, &cut(picture.title, most), INK);
    dots.text(8, 8 + LINE, &cut(&picture.subtitle(), most), PALE);

    let colours = picture.colours();
    dots.fill(
        places.left.saturating_sub(1),
        places.top.saturating_sub(1),
        places.wide + 2,
        places.high + 2,
        LINES,
    );
    for row in 0..picture.map.size.0 {
        for column in 0..picture.map.size.1 {
            let at = row * picture.map.size.1 + column;
            let colour = colours.block(picture.map, at).unwrap_or([PAPER; 3]);
            let (down, across) = (row as u64 * places.cell.0, column as u64 * places.cell.1);
            let (left, top) = (places.left + across, places.top + down);
            dots.fill(left, top, places.cell.1, places.cell.0, colour);
        }
    }

    let (rows, columns) = picture.map.matrix;
    for row in ticks(rows, places.high as f64, 40.0) {
        let down = row / picture.map.block.0.max(1) * places.cell.0;
        let text = row.to_string();
        let right = places.left.saturating_sub(8 + text.len() as u64 * LETTER);
        let top = places.top + down;
        dots.fill(places.left - 5, top, 4, 1, LINES);
        dots.text(right, top.saturating_sub(3), &text, PALE);
    }
    let below = places.top + places.high;
    for column in ticks(columns, places.wide as f64, 80.0) {
        let across = column / picture.map.block.1.max(1) * places.cell.1;
        let left = places.left + across;
        dots.fill(left, below + 1, 1, 4, LINES);
        dots.text(left, below + 8, &column.to_string(), PALE);
    }
    let names = format!("down: {}, across: {}", picture.axes.0, picture.axes.1);
    dots.text(places.left, below + 8 + LINE, &names, PALE);

    let top = below + 8 + LINE * 2 + 6;
    for at in 0..LEGEND {
        let part = at as f64 / (LEGEND - 1) as f64;
        let part = if colours.is_signed() { part * 2.0 - 1.0 } else { part };
        dots.fill(places.left + at, top, 1, 10, colours.at(part));
    }
    for (part, text) in picture.legend(&colours) {
        let wide = text.len() as u64 * LETTER;
        let at = places.left + (part * LEGEND as f64) as u64;
        let left = at.saturating_sub((part * wide as f64) as u64);
        dots.text(left, top + LINE, &text, PALE);
    }
    if picture.has_odd() {
        let left = places.left + LEGEND + 16;
        dots.fill(left, top, 10, 10, ODD);
        dots.text(left + 16, top + 1, "NaN or infinite inside", PALE);
    }
    dots
}

impl Raster {
    fn fill(&mut self, left: u64, top: u64, wide: u64, high: u64, colour: Rgb) {
        let (width, height) = (u64::from(self.width), u64::from(self.height));
        for row in top..(top + high).min(height) {
            let from = (row * width + left.min(width)) as usize * 3;
            let to = (row * width + (left + wide).min(width)) as usize * 3;
            for dot in self.rgb.get_mut(from..to).unwrap_or_default().as_chunks_mut().0 {
                *dot = colour;
            }
        }
    }

    fn text(&mut self, left: u64, top: u64, text: &str, colour: Rgb) {
        for (letter, at) in text.chars().zip(0..) {
            let letter = match letter {
                '\u{d7}' => 'x',
                '\u{2212}' => '-',
                other => other,
            };
            let rows = font8x8::BASIC_FONTS.get(letter).or(font8x8::BASIC_FONTS.get('?'));
            for (row, bits) in (0..).zip(rows.unwrap_or_default()) {
                for bit in (0..8).filter(|bit| bits >> bit & 1 == 1) {
                    self.fill(left + at * LETTER + bit, top + row, 1, 1, colour);
                }
            }
        }
    }
}

/// Shortens a text to `most` characters, keeping its end, where keys differ.
fn cut(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let end: String = text.chars().skip(count + 3 - most.max(3)).collect();
    format!("...{end}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::map;
    use super::super::{ColourScaling, Colours, Show};
    use super::*;

    #[test]
    fn colours_each_cell_by_its_block() {
        let map = map();
        let picture = Picture {
            map: &map,
            title: "w",
            axes: ("rows", "columns"),
            show: Show::Value,
            scaling: ColourScaling::Linear,
        };
        let drawn = raster(&picture, 30, 20);
        assert_eq!(drawn.rgb.len(), drawn.width as usize * drawn.height as usize * 3);
        assert_eq!(drawn.map[2..], [10, 10]);
        let colours = Colours::new(&map, Show::Value, ColourScaling::Linear, false);
        for at in 0..6 {
            let left = drawn.map[0] + at as u32 % 3 * 10 + 5;
            let top = drawn.map[1] + at as u32 / 3 * 10 + 5;
            let dot = (top * drawn.width + left) as usize * 3;
            assert_eq!(
                Some(&drawn.rgb[dot..dot + 3]),
                colours.block(&map, at).as_ref().map(<[u8; 3]>::as_slice)
            );
        }
    }

    #[test]
    fn long_titles_keep_their_ends() {
        assert_eq!(cut("model.layers.0.weight", 9), "...weight");
        assert_eq!(cut("short", 9), "short");
        assert_eq!(cut("short", 0), "...");
    }
}
