//! The layout of a picture.

use super::{BlockMap, ColourScaling, Colours, Show};

/// A picture of a map, with title, axes and legend.
#[derive(Debug, Clone)]
pub struct Picture<'a> {
    /// The map to draw.
    pub map: &'a BlockMap,
    /// The title.
    pub title: &'a str,
    /// The labels of rows and columns.
    pub axes: (&'a str, &'a str),
    /// The figure of each block that is shown.
    pub show: Show,
    /// The scaling of numbers to colours.
    pub scaling: ColourScaling,
}

/// Positions and sizes, in pixels.
pub(super) struct Places {
    /// The height and width of a cell.
    pub(super) cell: (u64, u64),
    pub(super) left: u64,
    pub(super) top: u64,
    /// The height and width of the map.
    pub(super) high: u64,
    pub(super) wide: u64,
    pub(super) width: u64,
    pub(super) height: u64,
}

/// Line height and character width, in pixels.
pub(super) const LINE: u64 = 14;
pub(super) const LETTER: u64 = 8;
/// The width of the legend, in pixels.
pub(super) const LEGEND: u64 = 200;

impl Picture<'_> {
    pub(super) fn places(&self, wide: u64, high: u64) -> Places {
        let (down, across) = (self.map.size.0.max(1) as u64, self.map.size.1.max(1) as u64);
        let mut cell = ((high / down).clamp(1, 32), (wide / across).clamp(1, 32));
        // If blocks are square, so are cells, unless the matrix is a single strip.
        if self.map.block.0 == self.map.block.1 && down > 1 {
            cell = (cell.0.min(cell.1), cell.0.min(cell.1));
        }
        let (high, wide) = (down * cell.0, across * cell.1);
        let digits = self.map.matrix.0.to_string().len().max(4) as u64;
        let left = (digits + 1) * LETTER + LINE;
        let top = LINE * 3;
        Places {
            cell,
            left,
            top,
            high,
            wide,
            width: (left + wide + 16).max(LEGEND + 240),
            height: top + high + LINE * 6,
        }
    }

    pub(super) fn colours(&self) -> Colours {
        Colours::new(self.map, self.show, self.scaling, false)
    }

    /// Describes a cell, for the line below the title.
    pub(super) fn subtitle(&self) -> String {
        let (rows, columns) = self.map.matrix;
        let (high, wide) = self.map.block;
        let of = match self.map.block {
            (1, 1) => "each cell is a value".to_owned(),
            _ => format!("each cell is the {} of a {high} x {wide} block", self.what()),
        };
        format!("{rows} x {columns}; {of}")
    }

    /// Describes the figure that is shown.
    pub(super) fn what(&self) -> &'static str {
        match self.show {
            Show::Value => "value of largest magnitude",
            Show::Magnitude => "largest |x|",
            Show::Mean => "mean |x|",
        }
    }

    /// Returns the labels of the legend, with their positions from 0 to 1.
    pub(super) fn legend(&self, colours: &Colours) -> Vec<(f64, String)> {
        let text = crate::number_text;
        match colours.is_signed() {
            true => vec![
                (0.0, text(-colours.magnitude(1.0))),
                (0.5, "0".into()),
                (1.0, text(colours.magnitude(1.0))),
            ],
            false => vec![
                (0.0, text(colours.magnitude(0.0))),
                (0.5, text(colours.magnitude(0.5))),
                (1.0, text(colours.magnitude(1.0))),
            ],
        }
    }

    pub(super) fn has_odd(&self) -> bool {
        self.map.marks.iter().any(|marks| marks & (super::NAN | super::INFINITE) != 0)
    }
}

/// Returns which of `lines` rows or columns get a number on an axis of `dots` pixels, at least
/// about `apart` pixels from each other: multiples of a power of two.
pub fn ticks(lines: u64, dots: f64, apart: f64) -> Vec<u64> {
    let most = (dots / apart).floor().max(1.0) as u64;
    let step = lines.div_ceil(most).max(1).checked_next_power_of_two().unwrap_or(lines);
    (0..lines.div_ceil(step)).map(|at| at * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_multiples_of_a_power_of_two() {
        assert_eq!(ticks(4096, 360.0, 46.0), [0, 1024, 2048, 3072]);
        assert_eq!(ticks(3, 400.0, 40.0), [0, 1, 2]);
        assert_eq!(ticks(1, 10.0, 40.0), [0]);
        assert!(ticks(u64::MAX, 500.0, 40.0).len() <= 13);
    }
}
