//! Divides a rectangle into tiles of given areas that are as square as possible (Bruls, Huizing and
//! van Wijk, "Squarified treemaps", 2000).

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[allow(missing_docs, reason = "they say it themselves")]
pub struct Rect {
    pub left: f64,
    pub top: f64,
    pub wide: f64,
    pub high: f64,
}

/// Returns one rectangle per weight, in the same order; together they fill `rect`. Weights should
/// be in descending order.
pub fn tile(weights: &[f64], rect: Rect) -> Vec<Rect> {
    let mut tiles = Vec::with_capacity(weights.len());
    let mut free = rect;
    let mut left: f64 = weights.iter().sum();
    let mut rest = weights;
    while !rest.is_empty() && left > 0.0 {
        let scale = free.wide * free.high / left;
        let side = free.wide.min(free.high).max(f64::MIN_POSITIVE);
        let mut len = 1;
        while len < rest.len()
            && worst(&rest[..=len], scale, side) <= worst(&rest[..len], scale, side)
        {
            len += 1;
        }
        let (row, others) = rest.split_at(len);
        let sum: f64 = row.iter().sum();
        // The last row takes all remaining space, whatever the rounding.
        let share = if others.is_empty() { 1.0 } else { sum / left };
        let across = free.wide >= free.high;
        let thick = share * if across { free.wide } else { free.high };
        let long = if across { free.high } else { free.wide };
        let mut at = 0.0;
        for weight in row {
            let part = if sum > 0.0 { weight / sum * long } else { 0.0 };
            tiles.push(match across {
                true => Rect { left: free.left, top: free.top + at, wide: thick, high: part },
                false => Rect { left: free.left + at, top: free.top, wide: part, high: thick },
            });
            at += part;
        }
        match across {
            true => (free.left, free.wide) = (free.left + thick, (free.wide - thick).max(0.0)),
            false => (free.top, free.high) = (free.top + thick, (free.high - thick).max(0.0)),
        }
        left -= sum;
        rest = others;
    }
    tiles.resize(weights.len(), Rect { left: free.left, top: free.top, wide: 0.0, high: 0.0 });
    tiles
}

/// Returns the worst aspect ratio in a row.
fn worst(row: &[f64], scale: f64, side: f64) -> f64 {
    let sum: f64 = row.iter().sum::<f64>() * scale;
    let areas = row.iter().map(|weight| (weight * scale).max(f64::MIN_POSITIVE));
    areas.fold(0.0, |worst: f64, area| {
        let ratio = side * side * area / (sum * sum);
        worst.max(ratio).max(1.0 / ratio)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_example_of_the_paper() {
        // Areas 6, 6, 4, 3, 2, 2, 1 in 6 by 4: two tiles of 3 by 2 on the left.
        let rect = Rect { left: 0.0, top: 0.0, wide: 6.0, high: 4.0 };
        let weights = [6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0];
        let tiles = tile(&weights, rect);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9;
        for (tile, weight) in tiles.iter().zip(weights) {
            assert!(near(tile.wide * tile.high, weight), "{tile:?}");
        }
        assert!(near(tiles[0].wide, 3.0) && near(tiles[0].high, 2.0));
        assert!(near(tiles[1].wide, 3.0) && near(tiles[1].top, 2.0));
        assert!(near(tiles[2].left, 3.0) && near(tiles[2].wide, 12.0 / 7.0));
        assert!(near(tiles[3].top, 0.0) && near(tiles[3].high, 7.0 / 3.0));
    }

    #[test]
    fn keeps_all_tiles_without_room() {
        let rect = Rect { left: 0.0, top: 0.0, wide: 0.0, high: 10.0 };
        assert_eq!(tile(&[1.0, 2.0], rect).len(), 2);
        assert_eq!(tile(&[0.0], rect).len(), 1);
        assert!(tile(&[], rect).is_empty());
    }
}
