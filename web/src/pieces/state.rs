//! Lays out the pieces of a tensor as a picture.

use crate::pieces::message::{MISSING, TensorPiece};

/// The least height and width of a piece that is drawn to scale, in pixels.
const LEAST: f64 = 4.0;
/// The most squares in a row, and rows, of a picture in order.
const SQUARES: usize = 64;

/// A rectangle of the picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PieceCell {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
    /// The first piece in this cell.
    pub piece: u32,
}

/// A picture of pieces.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PiecePicture {
    pub width: f64,
    pub height: f64,
    pub cells: Vec<PieceCell>,
    /// The number of pieces in each cell.
    pub each: usize,
    /// Whether places and sizes are to scale; otherwise pieces are in order, one line after the
    /// other.
    pub to_scale: bool,
    /// The dimensions that are cut.
    pub cut: Vec<usize>,
}

impl PiecePicture {
    /// Lays out pieces of a tensor for a width in pixels.
    pub fn new(shape: &[u64], pieces: &[TensorPiece], width: f64) -> Self {
        let is_flat = pieces.iter().any(|piece| piece.at.len() != shape.len());
        let numel = [shape.iter().fold(1u64, |all, dim| all.saturating_mul(*dim))];
        let shape = if is_flat { &numel } else { shape };
        let is_cut = |axis: &usize| pieces.iter().any(|piece| piece.shape[*axis] != shape[*axis]);
        let fits = pieces.iter().all(|piece| piece.at.len() == shape.len());
        if !fits || pieces.is_empty() {
            return Self::default();
        }
        let cut: Vec<usize> = (0..shape.len()).filter(is_cut).collect();
        let (outer, down, across) = match cut[..] {
            [] => (&cut[..], None, None),
            [one] if one + 1 == shape.len() => (&cut[..0], None, Some(one)),
            [one] => (&cut[..0], Some(one), None),
            [.., down, across] => (&cut[..cut.len() - 2], Some(down), Some(across)),
        };
        let mut picture = Self { width, each: 1, to_scale: true, ..Self::default() };
        // A panel for each part along the other dimensions.
        let mut panels: Vec<Vec<(u64, u64)>> = Vec::new();
        let panel = |piece: &TensorPiece| -> Vec<(u64, u64)> {
            outer.iter().map(|axis| (piece.at[*axis], piece.shape[*axis])).collect()
        };
        for piece in pieces {
            let own = panel(piece);
            if panels.last() != Some(&own) && !panels.contains(&own) && panels.len() < SQUARES {
                panels.push(own);
            }
        }
        let columns = (panels.len() as f64).sqrt().ceil().max(1.0);
        let rows = (panels.len() as f64 / columns).ceil().max(1.0);
        let gap = 6.0;
        let wide = (width - gap * (columns - 1.0)) / columns;
        let dim = |axis: Option<usize>| axis.map_or(1.0, |axis| shape[axis] as f64);
        let high = match (down, across) {
            (None, _) => 40.0,
            (Some(_), None) => {
                (pieces.len() as f64 / panels.len() as f64 * 18.0).clamp(64.0, 200.0)
            }
            _ => wide * (dim(down) / dim(across)).clamp(0.3, 1.0),
        };
        let high = if panels.len() > 1 { high.min(180.0) } else { high };
        picture.height = (high + gap) * rows - gap;
        let place = |piece: &TensorPiece, axis: Option<usize>, room: f64| match axis {
            Some(axis) => {
                let scale = room / shape[axis].max(1) as f64;
                (piece.at[axis] as f64 * scale, piece.shape[axis] as f64 * scale)
            }
            None => (0.0, room),
        };
        for (at, piece) in (0u32..).zip(pieces) {
            let panel = panels.iter().position(|own| *own == self::own(piece, outer));
            let Some(panel) = panel else { break };
            let (left, top) = ((panel as f64) % columns, (panel as f64 / columns).floor());
            let (x, w) = place(piece, across, wide);
            let (y, h) = place(piece, down, high);
            let (x, y) = (x + left * (wide + gap), y + top * (high + gap));
            picture.cells.push(PieceCell { x, y, width: w, height: h, piece: at });
        }
        let mut small = picture.cells.iter().filter(|it| it.width < LEAST || it.height < LEAST);
        if picture.cells.len() < pieces.len() || small.nth(pieces.len() / 8).is_some() {
            picture = Self::in_order(pieces, width);
        }
        picture.cut = if is_flat { Vec::new() } else { cut };
        picture
    }

    /// Lays out squares for the pieces in order.
    fn in_order(pieces: &[TensorPiece], width: f64) -> Self {
        let each = pieces.len().div_ceil(SQUARES * SQUARES).max(1);
        let count = pieces.len().div_ceil(each);
        let columns = (count as f64).sqrt().ceil().max((width / 22.0).floor()).min(SQUARES as f64);
        let side = (width / columns.max(1.0)).min(22.0);
        let cells = (0..count).map(|at| PieceCell {
            x: (at as f64 % columns) * side,
            y: (at as f64 / columns).floor() * side,
            width: side,
            height: side,
            piece: (at * each) as u32,
        });
        let height = (count as f64 / columns).ceil() * side;
        Self { width, height, cells: cells.collect(), each, ..Self::default() }
    }

    /// Returns the piece at a point.
    pub fn at(&self, x: f64, y: f64) -> Option<u32> {
        let inside = |cell: &&PieceCell| {
            (cell.x..cell.x + cell.width).contains(&x)
                && (cell.y..cell.y + cell.height).contains(&y)
        };
        self.cells.iter().find(inside).map(|cell| cell.piece)
    }

    /// Returns the cell of a piece.
    pub fn cell(&self, piece: u32) -> Option<&PieceCell> {
        self.cells.iter().rfind(|cell| cell.piece <= piece)
    }
}

fn own(piece: &TensorPiece, outer: &[usize]) -> Vec<(u64, u64)> {
    outer.iter().map(|axis| (piece.at[*axis], piece.shape[*axis])).collect()
}

/// Returns the colour of a place: a hue for each, from viridian over blue to red, and neighbours
/// differ in lightness, too.
pub fn color(place: u32, count: usize) -> String {
    if place == MISSING {
        return "none".to_owned();
    }
    let hue = 172.0 + 200.0 * f64::from(place) / count.max(1) as f64;
    let token = if place.is_multiple_of(2) { "--place-a" } else { "--place-b" };
    format!("oklch(var({token}) {hue:.0})")
}

/// Returns the part of a tensor that a piece is, in Python's notation.
pub fn slice(piece: &TensorPiece, shape: &[u64]) -> String {
    let part = |(at, len): (&u64, &u64), dim: Option<&u64>| match dim {
        Some(dim) if *at == 0 && dim == len => ":".to_owned(),
        _ => format!("{at}:{}", at.saturating_add(*len)),
    };
    let is_flat = piece.at.len() != shape.len();
    let parts = piece.at.iter().zip(&piece.shape).enumerate();
    let parts = parts.map(|(axis, one)| part(one, shape.get(axis).filter(|_| !is_flat)));
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(at: &[u64], shape: &[u64], place: u32) -> TensorPiece {
        let (at, shape) = (at.to_vec(), shape.to_vec());
        TensorPiece { at, shape, place, file: 0, offset: 0, bytes: 0, copies: Vec::new() }
    }

    #[test]
    fn boxes_are_to_scale() {
        let pieces = [piece(&[0, 0], &[3, 8], 0), piece(&[3, 0], &[1, 8], 1)];
        let picture = PiecePicture::new(&[4, 8], &pieces, 300.0);
        assert!(picture.to_scale);
        assert_eq!(picture.cut, [0]);
        assert_eq!((picture.cells[0].height, picture.cells[1].height), (48.0, 16.0));
        assert_eq!((picture.at(10.0, 47.0), picture.at(10.0, 49.0)), (Some(0), Some(1)));
        assert_eq!(slice(&pieces[1], &[4, 8]), "3:4, :");
    }

    #[test]
    fn further_dimensions_are_panels() {
        let mut pieces = Vec::new();
        for (outer, down, across) in (0..8).map(|at| (at / 4, at / 2 % 2, at % 2)) {
            pieces.push(piece(&[outer * 2, down * 5, 0, across * 3], &[2, 5, 7, 3], 0));
        }
        let picture = PiecePicture::new(&[4, 10, 7, 6], &pieces, 300.0);
        assert_eq!((picture.cut.clone(), picture.cells.len()), (vec![0, 1, 3], 8));
        let overlaps = picture.cells.iter().enumerate().any(|(at, cell)| {
            picture.at(cell.x + cell.width / 2.0, cell.y + cell.height / 2.0) != Some(at as u32)
        });
        assert!(!overlaps);
    }

    #[test]
    fn very_many_pieces_are_squares_in_order() {
        let pieces = |count: u64| -> Vec<TensorPiece> {
            (0..count).map(|at| piece(&[at * 2], &[2], at as u32)).collect()
        };
        let picture = PiecePicture::new(&[8_192], &pieces(4_096), 320.0);
        assert_eq!((picture.to_scale, picture.each, picture.cells.len()), (false, 1, 4_096));
        assert!(picture.cells.iter().all(|cell| cell.width >= 5.0 && cell.x + 5.0 <= 320.0));
        assert!(picture.height <= 320.0);
        let picture = PiecePicture::new(&[20_000], &pieces(10_000), 320.0);
        assert_eq!((picture.each, picture.cells.len()), (3, 3_334));
        assert_eq!(picture.cell(3_000).map(|cell| cell.piece), Some(3_000));
    }

    #[test]
    fn ranges_that_end_inside_rows_are_a_strip() {
        let pieces = [piece(&[0], &[5], 0), piece(&[5], &[7], 1)];
        let picture = PiecePicture::new(&[3, 4], &pieces, 240.0);
        assert_eq!((picture.cells[0].width, picture.cells[1].x), (100.0, 100.0));
        assert!(picture.cut.is_empty());
        assert_eq!(slice(&pieces[1], &[3, 4]), "5:12");
    }
}
