//! Two checkpoints side by side: what belongs together, how it differs, and the lines of a table
//! of it.

use std::collections::HashMap;
use std::rc::Rc;

use statelens_checkpoint::order;
use statelens_inspect::fold;

use crate::protocol::compare::{Difference, DifferenceKind, NO_ROW, StructureDifference};
use crate::rows::Row;
use crate::state::filter::Filter;

/// How two rows relate; in the order in which the table shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// Tensors of other shapes.
    Shape,
    /// Values of other kinds, or tensors of other dtypes.
    Kind,
    /// Nobody knows: one of them can't be read.
    Unread,
    /// Only the second has it.
    Added,
    /// Only the first has it.
    Removed,
    /// Values are NaN on one side only, so that no distance is defined.
    Nan,
    /// Values differ.
    Changed,
    /// Equal, but for the key.
    Renamed,
    /// Values are not read yet.
    Waiting,
    /// Equal.
    Equal,
}

/// All marks, in order.
pub const MARKS: [Mark; 10] = [
    Mark::Added,
    Mark::Removed,
    Mark::Renamed,
    Mark::Shape,
    Mark::Kind,
    Mark::Nan,
    Mark::Changed,
    Mark::Unread,
    Mark::Waiting,
    Mark::Equal,
];

impl Mark {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Renamed => "renamed",
            Self::Shape => "shape",
            Self::Kind => "kind",
            Self::Nan => "NaN",
            Self::Changed => "changed",
            Self::Unread => "unreadable",
            Self::Waiting => "not read",
            Self::Equal => "equal",
        }
    }

    fn of(kind: DifferenceKind) -> Self {
        match kind {
            DifferenceKind::OnlyLeft => Self::Removed,
            DifferenceKind::OnlyRight => Self::Added,
            DifferenceKind::Type | DifferenceKind::DType => Self::Kind,
            DifferenceKind::Shape => Self::Shape,
            DifferenceKind::Nan => Self::Nan,
            DifferenceKind::Value | DifferenceKind::Elements => Self::Changed,
            DifferenceKind::Unreadable => Self::Unread,
        }
    }
}

/// Two rows that belong together, or one that is alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPair {
    /// The row of the first; [`NO_ROW`] for none.
    pub a: u32,
    /// The row of the second; [`NO_ROW`] for none.
    pub b: u32,
    /// How they relate.
    pub mark: Mark,
    /// The first of its differences, counted over all; [`NO_ROW`] for none.
    pub first: u32,
}

/// What is known of two checkpoints.
#[derive(Debug, Clone)]
pub struct Pairs {
    /// The rows of the first.
    pub a: Rc<Vec<Row>>,
    /// The rows of the second.
    pub b: Rc<Vec<Row>>,
    /// The rows of the first in order, then those that only the second has.
    pub pairs: Vec<RowPair>,
    /// All differences.
    pub found: Vec<Difference>,
    /// The rows of the second that have no partner, in order.
    added: Vec<u32>,
}

impl Pairs {
    /// What is known from the structure.
    #[must_use]
    pub fn new(a: Rc<Vec<Row>>, b: Rc<Vec<Row>>, structure: &StructureDifference) -> Self {
        let mut met = vec![false; b.len()];
        let mut pairs = Vec::with_capacity(a.len());
        for at in 0..a.len() {
            let other = structure.pairs.get(at).copied().unwrap_or(NO_ROW);
            let mark = match b.get(other as usize) {
                None => Mark::Removed,
                Some(row) => {
                    met[other as usize] = true;
                    if row.key == a[at].key { Mark::Equal } else { Mark::Renamed }
                }
            };
            pairs.push(RowPair { a: at as u32, b: other, mark, first: NO_ROW });
        }
        let added: Vec<u32> = (0..b.len() as u32).filter(|at| !met[*at as usize]).collect();
        pairs.extend(added.iter().map(|at| RowPair {
            a: NO_ROW,
            b: *at,
            mark: Mark::Added,
            first: NO_ROW,
        }));
        for row in &structure.waiting {
            if let Some(pair) = pairs.get_mut(*row as usize) {
                pair.mark = Mark::Waiting;
            }
        }
        let mut known = Self { a, b, pairs, found: Vec::new(), added };
        known.learn(&[], &structure.found);
        known
    }

    /// Takes in what became known: rows of the first that were compared, and differences.
    pub fn learn(&mut self, settled: &[u32], found: &[Difference]) {
        for row in settled {
            let renamed = self.renamed(*row as usize);
            if let Some(pair) =
                self.pairs.get_mut(*row as usize).filter(|pair| pair.mark == Mark::Waiting)
            {
                pair.mark = if renamed { Mark::Renamed } else { Mark::Equal };
            }
        }
        for difference in found {
            let at = match difference.a {
                NO_ROW => match self.added.binary_search(&difference.b) {
                    Ok(at) => self.a.len() + at,
                    Err(_) => continue,
                },
                row => row as usize,
            };
            let number = self.found.len() as u32;
            self.found.push(difference.clone());
            if let Some(pair) = self.pairs.get_mut(at) {
                let mark = Mark::of(difference.what);
                // Parts of one tensor may differ, and others be equal or not read yet.
                pair.mark = if pair.first == NO_ROW { mark } else { pair.mark.min(mark) };
                pair.first = pair.first.min(number);
            }
        }
    }

    /// How many pairs have each of [`MARKS`].
    #[must_use]
    pub fn counts(&self) -> [u64; 10] {
        let mut counts = [0; 10];
        for pair in &self.pairs {
            for (count, mark) in counts.iter_mut().zip(MARKS) {
                *count += u64::from(pair.mark == mark);
            }
        }
        counts
    }

    /// The row that a pair is shown as: that of the second, where it has one.
    #[must_use]
    pub fn row(&self, pair: &RowPair) -> Option<&Row> {
        self.second(pair).or_else(|| self.first(pair))
    }

    /// The row of the first.
    #[must_use]
    pub fn first(&self, pair: &RowPair) -> Option<&Row> {
        self.a.get(pair.a as usize)
    }

    /// The row of the second.
    #[must_use]
    pub fn second(&self, pair: &RowPair) -> Option<&Row> {
        self.b.get(pair.b as usize)
    }

    /// The first difference of a pair.
    #[must_use]
    pub fn difference(&self, pair: &RowPair) -> Option<&Difference> {
        self.found.get(pair.first as usize)
    }

    /// All differences of a pair: one, but for parts of a tensor.
    pub fn differences<'a>(&'a self, pair: &'a RowPair) -> impl Iterator<Item = &'a Difference> {
        let from = self.found.get(pair.first as usize..).unwrap_or_default();
        from.iter().filter(|found| (found.a, found.b) == (pair.a, pair.b))
    }

    fn renamed(&self, at: usize) -> bool {
        let Some(pair) = self.pairs.get(at) else { return false };
        match (self.first(pair), self.second(pair)) {
            (Some(a), Some(b)) => a.key != b.key,
            _ => false,
        }
    }
}

/// The column that the table is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompareOrder {
    /// By how they differ, then in file order.
    #[default]
    Change,
    /// In file order.
    File,
    /// The largest difference first.
    MaxAbs,
    /// The smallest cosine first.
    Cosine,
    /// The largest relative change first; before it what has none.
    Relative,
}

/// What of it the table shows.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareView {
    /// What stands in the filter box.
    pub filter: String,
    /// The only mark that is shown.
    pub only: Option<Mark>,
    /// Equal rows are one line.
    pub hide_equal: bool,
    /// Keys that differ in their numbers only are one line.
    pub fold: bool,
    /// The order.
    pub order: CompareOrder,
}

impl Default for CompareView {
    fn default() -> Self {
        let (filter, order) = (String::new(), CompareOrder::default());
        Self { filter, only: None, hide_equal: true, fold: true, order }
    }
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareLine {
    /// What it is called: the key, with a range where it stands for several.
    pub key: String,
    /// How its rows relate.
    pub mark: Mark,
    /// The pairs that it stands for, in order; of equal rows that are hidden, all.
    pub pairs: Rc<Vec<u32>>,
    /// The largest difference, if elements were compared.
    pub max_abs: Option<f64>,
    /// The smallest cosine.
    pub cosine: Option<f64>,
    /// The largest relative change.
    pub change: Option<f64>,
    /// How the differences of its keys are spread, each measured by its own root mean square: how many values are in
    /// each bar. Empty where that is not known, and where too few differ to draw them.
    pub spread: Vec<u64>,
    /// True for the line that stands for what is hidden.
    pub rest: bool,
}

/// The lines of the table, and why the filter is not understood, if so.
#[must_use]
pub fn lines(known: &Pairs, view: &CompareView) -> (Vec<CompareLine>, Option<String>) {
    let (filter, error) = match Filter::parse(&view.filter) {
        Ok(filter) => (filter, None),
        Err(error) => (Filter::default(), Some(error)),
    };
    let hides = |mark: Mark| view.hide_equal && view.only.is_none() && mark == Mark::Equal;
    let mut lines: Vec<CompareLine> = Vec::new();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut known_groups: HashMap<(String, Mark, &String, &Vec<u64>), usize> = HashMap::new();
    let mut rest = Vec::new();
    for (at, pair) in (0u32..).zip(&known.pairs) {
        let Some(row) = known.row(pair) else { continue };
        let passes =
            filter.matches(row) || known.first(pair).is_some_and(|row| filter.matches(row));
        if !passes || view.only.is_some_and(|only| only != pair.mark) {
            continue;
        }
        if hides(pair.mark) {
            rest.push(at);
            continue;
        }
        if !view.fold {
            groups.push(vec![at]);
            continue;
        }
        // What is of another shape is not the same in another layer.
        let name = (fold::pattern(&row.key, '.').0, pair.mark, &row.dtype, &row.shape);
        let group = *known_groups.entry(name).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(at);
    }
    lines.extend(groups.into_iter().filter_map(|pairs| line(known, pairs)));
    match view.order {
        CompareOrder::Change => order::by_key(&mut lines, |line| line.mark),
        CompareOrder::File => {}
        CompareOrder::MaxAbs => {
            sort_by(&mut lines, |line| line.max_abs.map_or(0.0, |value| -value))
        }
        CompareOrder::Cosine => sort_by(&mut lines, |line| line.cosine.unwrap_or(2.0)),
        // As `diff --sort change`: what has no measure, then the largest change.
        CompareOrder::Relative => {
            sort_by(&mut lines, |line| line.change.map_or(f64::NEG_INFINITY, |it| -it))
        }
    }
    if !rest.is_empty() {
        lines.push(CompareLine {
            key: String::new(),
            mark: Mark::Equal,
            pairs: Rc::new(rest),
            max_abs: None,
            cosine: None,
            change: None,
            spread: Vec::new(),
            rest: true,
        });
    }
    (lines, error)
}

/// Fewer values than this are not worth drawing.
const FEW: u64 = 32;

fn sort_by(lines: &mut [CompareLine], value: fn(&CompareLine) -> f64) {
    order::by(lines, |one, two| value(one).total_cmp(&value(two)));
}

fn line(known: &Pairs, pairs: Vec<u32>) -> Option<CompareLine> {
    let first = known.pairs.get(*pairs.first()? as usize)?;
    let keys = || {
        let rows = pairs.iter().filter_map(|at| known.row(known.pairs.get(*at as usize)?));
        rows.map(|row| row.key.as_str())
    };
    let mut line = CompareLine {
        key: fold::joined(keys(), '.')?,
        mark: first.mark,
        max_abs: None,
        cosine: None,
        change: None,
        spread: Vec::new(),
        rest: false,
        pairs: Rc::new(Vec::new()),
    };
    for pair in pairs.iter().filter_map(|at| known.pairs.get(*at as usize)) {
        let Some(numbers) = known.difference(pair).and_then(|found| found.numbers.as_ref()) else {
            continue;
        };
        if numbers.numeric {
            if let Some(max_abs) = numbers.max_abs {
                line.max_abs = Some(line.max_abs.map_or(max_abs, |most| most.max(max_abs)));
            }
            if let Some(change) = numbers.change {
                line.change = Some(line.change.map_or(change, |most| most.max(change)));
            }
            if let Some(cosine) = numbers.cosine {
                line.cosine = Some(line.cosine.map_or(cosine, |least| least.min(cosine)));
            }
            if let Some((_, counts)) = &numbers.spread {
                line.spread.resize(counts.len(), 0);
                line.spread.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
            }
        }
    }
    if line.spread.iter().sum::<u64>() < FEW {
        line.spread.clear();
    }
    line.pairs = Rc::new(pairs);
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::compare::Numbers;
    use crate::state::sample::{tensor, value};

    fn difference(a: u32, b: u32, kind: DifferenceKind) -> Difference {
        let numbers = (kind == DifferenceKind::Elements).then(|| {
            Box::new(Numbers {
                elements: 4,
                differing: 1,
                first: vec![0],
                numeric: true,
                finite: 4,
                max_abs: Some(f64::from(a) / 8.0),
                max_rel: Some(1.0),
                mse: Some(0.1),
                cosine: Some(1.0 - f64::from(a) / 8.0),
                change: Some(f64::from(a) / 16.0),
                one_nan: 0,
                spread: Some((3.0, vec![0, u64::from(a) * 20, 1])),
                precision: String::new(),
                nans: (0, 0),
            })
        });
        let empty = String::new();
        let [part, left, right] = [empty.clone(), empty.clone(), empty.clone()];
        Difference { a, b, what: kind, part, left, right, parameter: empty, numbers }
    }

    /// Layers 0 to 2 that change, one that is renamed, one gone, one new.
    fn known() -> Pairs {
        let layer = |at: u32| tensor(&format!("h.{at}.w"), "float32", &[2, 2]);
        let a = vec![layer(0), layer(1), layer(2), value("old", "1"), value("gone", "2")];
        let b = vec![value("new", "3"), layer(0), layer(1), layer(2), value("now", "1")];
        let structure = StructureDifference {
            pairs: vec![1, 2, 3, 4, NO_ROW],
            found: vec![
                difference(4, NO_ROW, DifferenceKind::OnlyLeft),
                difference(NO_ROW, 0, DifferenceKind::OnlyRight),
            ],
            waiting: vec![0, 1, 2],
            bytes: 96,
            rename: None,
            command: String::new(),
        };
        Pairs::new(Rc::new(a), Rc::new(b), &structure)
    }

    fn words(known: &Pairs, view: &CompareView) -> Vec<String> {
        let told =
            |line: &CompareLine| format!("{} {} x{}", line.mark.word(), line.key, line.pairs.len());
        lines(known, view).0.iter().map(told).collect()
    }

    #[test]
    fn rows_get_their_marks_as_values_are_read() {
        let mut known = known();
        let all = CompareView::default();
        assert_eq!(
            words(&known, &all),
            ["added new x1", "removed gone x1", "renamed now x1", "not read h.0\u{2013}2.w x3"]
        );
        known.learn(&[0], &[]);
        known.learn(
            &[1, 2],
            &[
                difference(1, 2, DifferenceKind::Elements),
                difference(2, 3, DifferenceKind::Elements),
            ],
        );
        assert_eq!(
            words(&known, &all),
            [
                "added new x1",
                "removed gone x1",
                "changed h.1\u{2013}2.w x2",
                "renamed now x1",
                "equal  x1"
            ]
        );
        assert_eq!(known.counts(), [1, 1, 1, 0, 0, 0, 2, 0, 0, 1]);
        let (lines, _) = lines(&known, &all);
        assert_eq!((lines[2].max_abs, lines[2].cosine), (Some(0.25), Some(0.75)));
        assert_eq!(lines[2].spread, [0, 60, 2], "of layers 1 and 2 together");
        assert!(lines[4].rest);
    }

    #[test]
    fn what_is_nan_on_one_side_is_folded_with_nothing_else() {
        let mut known = known();
        let found = [
            difference(0, 1, DifferenceKind::Elements),
            difference(1, 2, DifferenceKind::Nan),
            difference(2, 3, DifferenceKind::Elements),
        ];
        known.learn(&[0, 1, 2], &found);
        let told = words(&known, &CompareView::default());
        assert!(told.contains(&"NaN h.1.w x1".to_owned()), "{told:?}");
        assert!(told.contains(&"changed h.0,2.w x2".to_owned()), "{told:?}");
        let (lines, _) = lines(&known, &CompareView::default());
        let line = lines.iter().find(|line| line.mark == Mark::Nan).unwrap();
        assert_eq!((line.max_abs, line.cosine), (None, None));
    }

    #[test]
    fn layers_fold_by_number_and_shape_wherever_they_stand() {
        let shape = |at: u64| [2, if at == 3 { 5 } else { 2 }];
        let order = [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9];
        let rows: Vec<Row> =
            order.map(|at| tensor(&format!("h.{at}.w"), "float32", &shape(at))).into();
        let structure = StructureDifference {
            pairs: (0..12).collect(),
            found: Vec::new(),
            waiting: (0..12).collect(),
            bytes: 0,
            rename: None,
            command: String::new(),
        };
        let known = Pairs::new(Rc::new(rows.clone()), Rc::new(rows), &structure);
        assert_eq!(
            words(&known, &CompareView::default()),
            ["not read h.0\u{2013}2,4\u{2013}11.w x11", "not read h.3.w x1"]
        );
    }

    #[test]
    fn a_view_filters_folds_and_sorts() {
        let mut known = known();
        known.learn(
            &[0, 1, 2],
            &[
                difference(1, 2, DifferenceKind::Elements),
                difference(2, 3, DifferenceKind::Elements),
            ],
        );
        let open = CompareView {
            fold: false,
            hide_equal: false,
            order: CompareOrder::MaxAbs,
            ..CompareView::default()
        };
        assert_eq!(words(&known, &open)[..2], ["changed h.2.w x1", "changed h.1.w x1"]);
        let only = CompareView { only: Some(Mark::Added), ..CompareView::default() };
        assert_eq!(words(&known, &only), ["added new x1"]);
        // A renamed row is found by either key.
        let filter = |text: &str| CompareView { filter: text.into(), ..CompareView::default() };
        assert_eq!(words(&known, &filter("old")), ["renamed now x1"]);
        assert_eq!(
            words(&known, &filter("kind:tensor")),
            ["changed h.1\u{2013}2.w x2", "equal  x1"]
        );
        assert!(lines(&known, &filter("/(/")).1.is_some());
    }
}
