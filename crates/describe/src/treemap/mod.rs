//! A treemap of the bytes: boxes whose areas are proportional to bytes, nested like modules.
//! Repeated modules are one box, and if there are very many boxes, the small ones are combined, so
//! that there are never more than a few hundred.

mod branch;
mod draw;
mod tiles;

use std::collections::HashMap;

use statelens_checkpoint::size_text;

use crate::fold::{Foldable, Sums, Trie};
pub use branch::{TreemapBranch, TrieGroup};
use branch::{children, members};
pub use draw::svg;
use statelens_checkpoint::order;
pub use tiles::{Rect, tile};

/// Maximum number of boxes.
const MAX_BOXES: usize = 320;
/// Maximum number of boxes within a box, including the one for the rest.
const EACH: usize = 48;
/// Maximum nesting of boxes.
const DEEPEST: usize = 8;
/// The height of the label of a box.
const HEAD: f64 = 17.0;
/// The margin between a box and the boxes inside.
const EDGE: f64 = 2.0;
/// Minimum width and height of a box to show its contents.
const MIN_SIZE: (f64, f64) = (56.0, 44.0);
/// Minimum area that can be seen or clicked.
const SEEN: f64 = 90.0;

/// Boxes in a picture of a given size.
#[derive(Debug, Clone, PartialEq)]
pub struct Treemap {
    /// The width and height.
    pub size: (f64, f64),
    /// The totals of everything shown.
    pub sums: Sums,
    /// The boxes; a box comes before the boxes inside.
    pub cells: Vec<Cell>,
}

/// A box of a treemap.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// What the box represents; `None` for the combined small ones.
    pub branch: Option<TreemapBranch>,
    /// Its name within the enclosing box.
    pub name: String,
    /// Its full key, with a range like `0–31` for repeated modules.
    pub path: String,
    /// Number of repetitions.
    pub times: u64,
    /// Its totals.
    pub sums: Sums,
    /// The dtype of most of its bytes.
    pub dtype: String,
    /// Whether it has other dtypes, too.
    pub mixed: bool,
    /// The index of the enclosing box.
    pub parent: Option<usize>,
    /// Whether boxes are drawn inside.
    pub open: bool,
    /// Whether it has contents that can be shown.
    pub deep: bool,
    /// The row of its first leaf.
    pub row: u32,
    /// Its position and size.
    pub rect: Rect,
}

/// Lays out the contents of a branch; without one, of all groups.
pub fn treemap<L: Foldable>(
    groups: &[TrieGroup<'_>],
    rows: &[L],
    branch: Option<&TreemapBranch>,
    size: (f64, f64),
) -> Treemap {
    let top = match branch {
        Some(branch) => members(groups, branch),
        None => branch::roots(groups),
    };
    let sums = total(&top);
    let all = Rect { left: 0.0, top: 0.0, wide: size.0.max(0.0), high: size.1.max(0.0) };
    let mut map = Treemap { size, sums, cells: Vec::new() };
    put(&mut map.cells, groups, rows, top, all, None);
    // The largest boxes are opened first, as long as there is room.
    let mut levels: HashMap<usize, usize> = HashMap::new();
    let mut waiting: Vec<usize> = (0..map.cells.len()).collect();
    while let Some(next) = largest(&map.cells, &waiting) {
        let at = waiting.swap_remove(next);
        let level = levels.get(&at).copied().unwrap_or(0);
        let inside = inside(&map.cells[at].rect);
        let (Some(inside), Some(branch), true) =
            (inside, &map.cells[at].branch, level < DEEPEST && map.cells.len() < MAX_BOXES)
        else {
            continue;
        };
        let below = children(groups, branch);
        if below.is_empty() || map.cells.len() + below.len().min(EACH) > MAX_BOXES {
            continue;
        }
        let before = map.cells.len();
        put(&mut map.cells, groups, rows, below, inside, Some(at));
        map.cells[at].open = map.cells.len() > before;
        for child in before..map.cells.len() {
            levels.insert(child, level + 1);
            waiting.push(child);
        }
    }
    map
}

/// An item that becomes a box.
struct TreemapItem {
    branch: TreemapBranch,
    name: String,
    sums: Sums,
    times: u64,
}

fn total(pieces: &[TreemapItem]) -> Sums {
    let mut sums = Sums::default();
    pieces.iter().for_each(|piece| sums.add(&piece.sums));
    sums
}

fn put<L: Foldable>(
    cells: &mut Vec<Cell>,
    groups: &[TrieGroup<'_>],
    rows: &[L],
    mut pieces: Vec<TreemapItem>,
    rect: Rect,
    parent: Option<usize>,
) {
    pieces.retain(|piece| piece.sums.bytes > 0);
    order::by_key(&mut pieces, |piece| std::cmp::Reverse(piece.sums.bytes));
    let bytes = total(&pieces).bytes.max(1) as f64;
    let area = rect.wide * rect.high;
    let seen = |piece: &TreemapItem| piece.sums.bytes as f64 / bytes * area >= SEEN;
    let shown = pieces.iter().take_while(|piece| seen(piece)).count();
    // A single small item is shown as itself rather than as "1 more".
    let shown = if pieces.len() <= EACH && pieces.len() - shown <= 1 {
        pieces.len()
    } else {
        shown.min(EACH - 1)
    };
    if shown == 0 && pieces.len() > 1 && parent.is_some() {
        return;
    }
    let rest = pieces.split_off(shown);
    let mut weights: Vec<f64> = pieces.iter().map(|piece| piece.sums.bytes as f64).collect();
    let small = total(&rest);
    if !rest.is_empty() {
        weights.push(small.bytes as f64);
    }
    let above = parent.map_or(String::new(), |parent| cells[parent].path.clone());
    let mut rects = tile(&weights, rect).into_iter();
    for (piece, rect) in pieces.into_iter().zip(&mut rects) {
        let (dtype, mixed) = branch::dtype(groups, rows, &piece.branch);
        cells.push(Cell {
            path: branch::path(groups, &piece.branch),
            row: branch::first(groups, &piece.branch),
            deep: branch::is_deep(groups, &piece.branch),
            branch: Some(piece.branch),
            name: piece.name,
            times: piece.times,
            sums: piece.sums,
            dtype,
            mixed,
            parent,
            open: false,
            rect,
        });
    }
    if let (Some(first), Some(rect)) = (rest.first(), rects.next()) {
        let count = rest.len() as u64;
        cells.push(Cell {
            branch: None,
            name: format!("{} more", statelens_checkpoint::grouped(count)),
            path: format!(
                "{above}{}{} more",
                if above.is_empty() { "" } else { ", " },
                statelens_checkpoint::grouped(count)
            ),
            times: 1,
            sums: small,
            dtype: branch::dtype(groups, rows, &first.branch).0,
            mixed: true,
            parent,
            open: false,
            deep: false,
            row: branch::first(groups, &first.branch),
            rect,
        });
    }
}

/// Returns the position in `waiting` of the box with the largest area.
fn largest(cells: &[Cell], waiting: &[usize]) -> Option<usize> {
    let area = |at: &usize| cells[*at].rect.wide * cells[*at].rect.high;
    let all = waiting.iter().enumerate();
    all.max_by(|one, other| area(one.1).total_cmp(&area(other.1))).map(|(place, _)| place)
}

/// Returns the room inside a box; `None` if it is too small.
fn inside(rect: &Rect) -> Option<Rect> {
    let inner = Rect {
        left: rect.left + EDGE,
        top: rect.top + HEAD,
        wide: rect.wide - 2.0 * EDGE,
        high: rect.high - HEAD - EDGE,
    };
    (rect.wide >= MIN_SIZE.0 && rect.high >= MIN_SIZE.1).then_some(inner)
}

impl Treemap {
    /// Returns the nearest box in a direction: (1, 0) is right. Considers only boxes without boxes
    /// inside.
    pub fn neighbour(&self, from: usize, (x, y): (f64, f64)) -> Option<usize> {
        let middle = |rect: &Rect| (rect.left + rect.wide / 2.0, rect.top + rect.high / 2.0);
        let own = self.cells.get(from)?;
        let (left, top) = middle(&own.rect);
        let others = self.cells.iter().enumerate().filter(|(at, cell)| *at != from && !cell.open);
        let far = others.filter_map(|(at, cell)| {
            let (right, bottom) = middle(&cell.rect);
            let (dx, dy) = (right - left, bottom - top);
            let along = dx * x + dy * y;
            let beyond = match (x != 0.0, x + y > 0.0) {
                (true, true) => cell.rect.left + 0.5 >= own.rect.left + own.rect.wide,
                (true, false) => cell.rect.left + cell.rect.wide <= own.rect.left + 0.5,
                (false, true) => cell.rect.top + 0.5 >= own.rect.top + own.rect.high,
                (false, false) => cell.rect.top + cell.rect.high <= own.rect.top + 0.5,
            };
            let aside = (dx * y).abs() + (dy * x).abs();
            beyond.then_some((at, along + 3.0 * aside))
        });
        far.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(at, _)| at)
    }

    /// Returns the innermost box that contains a leaf.
    pub fn holding(&self, trie: &Trie, row: u32) -> Option<usize> {
        let way = trie.way_to(row);
        let holds = |cell: &Cell| match &cell.branch {
            Some(branch) => branch.holds(trie, &way),
            None => false,
        };
        self.cells.iter().rposition(holds)
    }

    /// Describes the treemap in a sentence, as alternative text.
    pub fn text(&self) -> String {
        let mut text = format!("{} in boxes whose areas are bytes", size_text(self.sums.bytes));
        let outer = self.cells.iter().filter(|cell| cell.parent.is_none()).take(6);
        for (at, cell) in outer.enumerate() {
            text += if at == 0 { ": " } else { ", " };
            text += &cell.text(self.sums.bytes);
        }
        text + "."
    }

    /// Returns the figures as CSV, one line per box.
    pub fn csv(&self) -> String {
        let mut text = "key,times,dtype,tensors,params,bytes,share,holds_others\n".to_owned();
        for cell in &self.cells {
            let key = cell.path.replace('"', "\"\"");
            let share = cell.sums.bytes as f64 / self.sums.bytes.max(1) as f64;
            let Sums { tensors, params, bytes, .. } = cell.sums;
            let (times, dtype, open) = (cell.times, &cell.dtype, u8::from(cell.open));
            text += &format!(
                "\"{key}\",{times},{dtype},{tensors},{params},{bytes},{share:.6},{open}\n"
            );
        }
        text
    }
}

impl Cell {
    /// Describes the box.
    pub fn text(&self, all: u64) -> String {
        let share = self.sums.bytes as f64 / all.max(1) as f64 * 100.0;
        let times = if self.times > 1 { format!(" \u{d7}{}", self.times) } else { String::new() };
        let also = if self.mixed { " and others" } else { "" };
        format!(
            "{}{times} {}, {share:.1} %, {}{also}",
            if self.path.is_empty() { &self.name } else { &self.path },
            size_text(self.sums.bytes),
            self.dtype
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeafKind;
    use crate::share::LeafSummary;

    fn tensor(key: String, bytes: u64) -> LeafSummary {
        let dtype = if key.starts_with("optimizer") { "float32" } else { "bfloat16" };
        LeafSummary {
            key,
            kind: LeafKind::Tensor,
            dtype: dtype.into(),
            params: bytes,
            bytes,
            ..LeafSummary::default()
        }
    }

    fn model(layers: u64) -> Vec<LeafSummary> {
        let mut rows = vec![tensor("model.embed.weight".into(), 5_000)];
        for layer in 0..layers {
            for (name, bytes) in [("attn.q", 100), ("attn.k", 100), ("mlp.up", 300), ("norm", 1)] {
                rows.push(tensor(format!("model.layers.{layer}.{name}.weight"), bytes));
            }
        }
        rows.push(tensor("optimizer.m".into(), 9_000));
        rows
    }

    fn drawn(rows: &[LeafSummary], branch: Option<&TreemapBranch>) -> Treemap {
        let trie = Trie::new(rows, '.');
        treemap(&[TrieGroup { name: "", trie: &trie }], rows, branch, (800.0, 500.0))
    }

    fn check(map: &Treemap) {
        for cell in &map.cells {
            let rect = cell.rect;
            let around = match cell.parent {
                Some(parent) => map.cells[parent].rect,
                None => Rect { left: 0.0, top: 0.0, wide: map.size.0, high: map.size.1 },
            };
            assert!(rect.wide >= 0.0 && rect.high >= 0.0);
            assert!(
                rect.left >= around.left - 1e-6 && rect.top >= around.top - 1e-6,
                "{}",
                cell.path
            );
            assert!(rect.left + rect.wide <= around.left + around.wide + 1e-6, "{}", cell.path);
            assert!(rect.top + rect.high <= around.top + around.high + 1e-6, "{}", cell.path);
        }
        // Areas of siblings are proportional to their bytes.
        let mut by_parent: HashMap<Option<usize>, Vec<&Cell>> = HashMap::new();
        map.cells.iter().for_each(|cell| by_parent.entry(cell.parent).or_default().push(cell));
        for siblings in by_parent.values() {
            let area: f64 = siblings.iter().map(|cell| cell.rect.wide * cell.rect.high).sum();
            let bytes: f64 = siblings.iter().map(|cell| cell.sums.bytes as f64).sum();
            for cell in siblings {
                let share = cell.rect.wide * cell.rect.high / area;
                assert!((share - cell.sums.bytes as f64 / bytes).abs() < 1e-9, "{}", cell.path);
            }
            for (at, one) in siblings.iter().enumerate() {
                for other in &siblings[at + 1..] {
                    let apart = |a: f64, wide: f64, b: f64| a + wide <= b + 1e-6;
                    let (one, other) = (one.rect, other.rect);
                    assert!(
                        apart(one.left, one.wide, other.left)
                            || apart(other.left, other.wide, one.left)
                            || apart(one.top, one.high, other.top)
                            || apart(other.top, other.high, one.top)
                    );
                }
            }
        }
    }

    #[test]
    fn draws_layers_as_one_nested_box() {
        let rows = model(32);
        let map = drawn(&rows, None);
        check(&map);
        assert_eq!(map.sums.bytes, 5_000 + 32 * 501 + 9_000);
        let layers = map.cells.iter().find(|cell| cell.times == 32).unwrap();
        assert_eq!(
            (layers.path.as_str(), layers.sums.bytes),
            ("model.layers.0\u{2013}31", 32 * 501)
        );
        let up = map.cells.iter().find(|cell| cell.path.ends_with("mlp.up.weight")).unwrap();
        assert_eq!((up.sums.bytes, up.times), (32 * 300, 32));
        // Opening the box shows the layers one by one.
        let within = drawn(&rows, layers.branch.as_ref());
        check(&within);
        assert_eq!(within.cells.iter().filter(|cell| cell.parent.is_none()).count(), 32);
        assert_eq!(within.sums.bytes, 32 * 501);
    }

    #[test]
    fn limits_the_number_of_boxes() {
        let rows: Vec<LeafSummary> = (0..100_000)
            .map(|at| tensor(format!("m{}.w{at}x{}", at % 700, at % 13), 1 + at % 97))
            .collect();
        let map = drawn(&rows, None);
        check(&map);
        assert!(map.cells.len() <= MAX_BOXES, "{}", map.cells.len());
        let outer = map.cells.iter().filter(|cell| cell.parent.is_none());
        assert_eq!(outer.map(|cell| cell.sums.bytes).sum::<u64>(), map.sums.bytes);
        let outer = map.cells.iter().filter(|cell| cell.parent.is_none());
        assert!(outer.clone().count() <= EACH && outer.clone().all(|cell| cell.deep));
    }

    #[test]
    fn divides_many_siblings_into_ranges_that_can_be_opened() {
        let rows: Vec<LeafSummary> = (0..100_000).map(|at| tensor(format!("w{at}"), 4)).collect();
        let map = drawn(&rows, None);
        check(&map);
        let outer: Vec<&Cell> = map.cells.iter().filter(|cell| cell.parent.is_none()).collect();
        assert_eq!((outer.len(), outer[0].path.as_str()), (10, "w0 \u{2026} w9999"));
        assert!(outer.iter().all(|cell| cell.deep && cell.open && cell.sums.tensors == 10_000));
        let within = drawn(&rows, outer[3].branch.as_ref());
        check(&within);
        assert_eq!(within.sums.bytes, 40_000);
        assert_eq!(within.cells[1].path, "w31000 \u{2026} w31999");
        let trie = Trie::new(&rows, '.');
        assert!(map.cells[map.holding(&trie, 31_500).unwrap()].path.starts_with("w31"));
    }

    #[test]
    fn ranges_follow_words_and_leave_large_tensors_alone() {
        let words = ["encoder", "decoder", "head"];
        let mut rows: Vec<LeafSummary> = words
            .iter()
            .flat_map(|word| (0..40).map(move |at| tensor(format!("{word}_{at}_w"), 10)))
            .collect();
        rows.insert(60, tensor("decoder_embedding".into(), 5_000));
        let map = drawn(&rows, None);
        check(&map);
        let outer = map.cells.iter().filter(|cell| cell.parent.is_none());
        let paths: Vec<&str> = outer.map(|cell| cell.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "decoder_embedding",
                "encoder_0_w \u{2026} encoder_39_w",
                "decoder_0_w \u{2026} decoder_39_w",
                "head_0_w \u{2026} head_39_w"
            ]
        );
        assert_eq!(map.sums.bytes, 6_200);
    }

    #[test]
    fn divides_runs_of_tensors_and_of_unlike_modules() {
        let mut rows: Vec<LeafSummary> =
            (0..6).map(|at| tensor(format!("list.{at}"), 1_000)).collect();
        for at in 0..8_u64 {
            let mut row = tensor(format!("optimizer.state.{at}.exp_avg"), 1_000 + at);
            row.shape = vec![1_000 + at];
            rows.push(row);
        }
        let map = drawn(&rows, None);
        check(&map);
        for path in ["list.3", "optimizer.state.3.exp_avg"] {
            assert!(map.cells.iter().any(|cell| cell.path == path), "{path}");
        }
    }

    #[test]
    fn paths_inside_a_run_name_all_its_modules() {
        let rows = model(32);
        let map = drawn(&rows, None);
        let up = map.cells.iter().find(|cell| cell.path.ends_with("mlp.up.weight")).unwrap();
        assert_eq!(up.path, "model.layers.0\u{2013}31.mlp.up.weight");
    }

    #[test]
    fn arrows_move_to_neighbours() {
        let rows = model(4);
        let map = drawn(&rows, None);
        let trie = Trie::new(&rows, '.');
        let at = map.holding(&trie, 0).unwrap();
        assert_eq!(map.cells[at].path, "model.embed.weight");
        for (at, cell) in map.cells.iter().enumerate().filter(|(_, cell)| !cell.open) {
            for way in [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)] {
                let Some(other) = map.neighbour(at, way) else { continue };
                let other = map.cells[other].rect;
                let moved =
                    (other.left - cell.rect.left) * way.0 + (other.top - cell.rect.top) * way.1;
                assert!(moved > 0.0, "{} {way:?}", cell.path);
            }
        }
        assert!(map.neighbour(at, (1.0, 0.0)).or(map.neighbour(at, (-1.0, 0.0))).is_some());
    }

    #[test]
    fn treemap_without_bytes_is_empty() {
        assert!(drawn(&[], None).cells.is_empty());
        assert!(drawn(&[tensor("a".into(), 0)], None).cells.is_empty());
        let map = drawn(&[tensor("a".into(), u64::MAX), tensor("b".into(), u64::MAX)], None);
        assert_eq!(map.cells.len(), 2);
    }

    #[test]
    fn draws_groups_side_by_side() {
        let rows = model(2);
        let whole = Trie::new(&rows, '.');
        let chosen = |dtype: &str| -> Vec<u32> {
            (0..rows.len() as u32).filter(|row| rows[*row as usize].dtype == dtype).collect()
        };
        let (one, other) = (whole.of(&chosen("bfloat16")), whole.of(&chosen("float32")));
        let groups = [
            TrieGroup { name: "bfloat16", trie: &one },
            TrieGroup { name: "float32", trie: &other },
        ];
        let map = treemap(&groups, &rows, None, (800.0, 500.0));
        check(&map);
        let outer: Vec<&str> = map
            .cells
            .iter()
            .filter(|cell| cell.parent.is_none())
            .map(|cell| cell.name.as_str())
            .collect();
        assert_eq!(outer, ["float32", "bfloat16"]);
        assert!(map.csv().starts_with(
            "key,times,dtype,tensors,params,bytes,share,holds_others\n\"float32\",1,float32,1,"
        ));
        assert!(
            map.text().starts_with(
                "15.0 kB in boxes whose areas are bytes: float32 9.00 kB, 60.0 %, float32"
            ),
            "{}",
            map.text()
        );
    }

    #[test]
    fn names_without_ascii_are_combined() {
        // The letter after the first word takes three bytes.
        let name = |at: u64| format!("{}\u{2026}{at}", ["weight", "bias"][(at % 2) as usize]);
        let mut rows: Vec<LeafSummary> = (0..400).map(|at| tensor(name(at), 8)).collect();
        rows.sort_by(|one, other| one.key.cmp(&other.key));
        let map = drawn(&rows, None);
        check(&map);
        assert_eq!(map.sums.bytes, 3_200);
        let outer = map.cells.iter().filter(|cell| cell.parent.is_none());
        assert_eq!(outer.filter(|cell| cell.sums.bytes == 1_600).count(), 2);
    }
}
