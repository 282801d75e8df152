//! Two checkpoints side by side: paired rows, their differences, and the lines of the comparison
//! table.

pub mod fit;

use std::collections::HashMap;
use std::rc::Rc;

use statelens_checkpoint::{numbers, order};
use statelens_compare::diff::DifferenceKind;

use crate::byte_map::state::{TapeMark, TapeMarkKind};
use crate::compare::message::{Difference, NO_ROW, StructureDifference};
use crate::filter::state::Filter;
use crate::rows::Row;

/// How two rows relate, in the order in which the table shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// Tensors of different shapes.
    Shape,
    /// Values of different kinds, or tensors of different dtypes.
    Kind,
    /// Unknown: one of them can't be read.
    Unread,
    /// Only the second has the key.
    Added,
    /// Only the first has the key.
    Removed,
    /// Values are NaN on one side only, so that no distance is defined.
    Nan,
    /// Values differ.
    Changed,
    /// Equal, except for the key.
    Renamed,
    /// Values are not read yet.
    Waiting,
    Equal,
}

/// All marks, in the order of the page's filter buttons.
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
    /// Returns the label of the mark.
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

    fn of(kind: &DifferenceKind) -> Self {
        match kind {
            DifferenceKind::Shape { .. } => Self::Shape,
            _ if kind.has_one_sided_nan() => Self::Nan,
            DifferenceKind::OnlyLeft { .. } => Self::Removed,
            DifferenceKind::OnlyRight { .. } => Self::Added,
            DifferenceKind::Type { .. } | DifferenceKind::DType { .. } => Self::Kind,
            DifferenceKind::Value { .. } | DifferenceKind::Elements(_) | DifferenceKind::Nan(_) => {
                Self::Changed
            }
            DifferenceKind::Unreadable { .. } => Self::Unread,
        }
    }
}

/// A pair of rows, or a row without a partner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPair {
    /// The row of the first; [`NO_ROW`] if only the second has the key.
    pub a: u32,
    /// The row of the second; [`NO_ROW`] if only the first has the key.
    pub b: u32,
    pub mark: Mark,
    /// The index of its first difference in [`Pairs::found`]; [`NO_ROW`] if it has no differences.
    pub first: u32,
}

/// Paired rows of two checkpoints, and the differences known so far.
#[derive(Debug, Clone)]
pub struct Pairs {
    pub a: Rc<Vec<Row>>,
    pub b: Rc<Vec<Row>>,
    /// The rows of the first in order, then those that only the second has.
    pub pairs: Vec<RowPair>,
    pub found: Vec<Difference>,
    /// The rows of the second without a partner, in order.
    added: Vec<u32>,
}

impl Pairs {
    /// Builds the pairs from the structural comparison.
    pub fn new(a: Rc<Vec<Row>>, b: Rc<Vec<Row>>, structure: &StructureDifference) -> Self {
        let mut met = vec![false; b.len()];
        for row in &structure.outside {
            if let Some(met) = met.get_mut(*row as usize) {
                *met = true;
            }
        }
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
        let mut pairs = Self { a, b, pairs, found: Vec::new(), added };
        pairs.add_results(&[], &structure.found);
        pairs
    }

    /// Adds results: rows of the first that were compared, and differences.
    pub fn add_results(&mut self, settled: &[u32], found: &[Difference]) {
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
                let mark = Mark::of(&difference.kind);
                // Parts of one tensor may differ while others are equal or not read yet.
                pair.mark = if pair.first == NO_ROW { mark } else { pair.mark.min(mark) };
                pair.first = pair.first.min(number);
            }
        }
    }

    /// Returns the number of pairs for each of [`MARKS`].
    pub fn counts(&self) -> [u64; 10] {
        let mut counts = [0; 10];
        for pair in &self.pairs {
            for (count, mark) in counts.iter_mut().zip(MARKS) {
                *count += u64::from(pair.mark == mark);
            }
        }
        counts
    }

    /// Returns marks of the tensors of the first that differ; `starts` are their places on the tape.
    pub fn marks(&self, starts: &[u64]) -> Vec<TapeMark> {
        let differs = |pair: &&RowPair| {
            !matches!(pair.mark, Mark::Equal | Mark::Waiting | Mark::Renamed | Mark::Added)
        };
        let mark = |pair: &RowPair| {
            let start = *starts.get(pair.a as usize)?;
            TapeMark::of(self.first(pair)?, start, TapeMarkKind::Differs)
        };
        self.pairs.iter().filter(differs).filter_map(mark).collect()
    }

    /// Returns the row to show for a pair: the second's if there is one.
    pub fn row(&self, pair: &RowPair) -> Option<&Row> {
        self.second(pair).or_else(|| self.first(pair))
    }

    pub fn first(&self, pair: &RowPair) -> Option<&Row> {
        self.a.get(pair.a as usize)
    }

    pub fn second(&self, pair: &RowPair) -> Option<&Row> {
        self.b.get(pair.b as usize)
    }

    /// Returns the first difference of a pair.
    pub fn difference(&self, pair: &RowPair) -> Option<&Difference> {
        self.found.get(pair.first as usize)
    }

    /// Returns all differences of a pair: more than one only for parts of a tensor.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompareOrder {
    /// By kind of difference, then in file order.
    #[default]
    Change,
    File,
    /// The largest difference first.
    MaxAbs,
    /// The smallest cosine first.
    Cosine,
    /// Rows without a relative change first, then the largest change.
    Relative,
}

/// The options of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareView {
    /// The text of the filter box.
    pub filter: String,
    /// The only mark to show.
    pub only: Option<Mark>,
    /// Whether equal rows are hidden behind one line.
    pub hide_equal: bool,
    /// Whether keys that differ only in numbers are folded into one line.
    pub fold: bool,
    pub order: CompareOrder,
}

impl Default for CompareView {
    fn default() -> Self {
        let (filter, order) = (String::new(), CompareOrder::default());
        Self { filter, only: None, hide_equal: true, fold: true, order }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct CompareLine {
    /// The key, with a range if the line represents several.
    pub key: String,
    pub mark: Mark,
    /// The pairs that the line represents, in order; for the line of hidden rows, all of them.
    pub pairs: Rc<Vec<u32>>,
    pub max_abs: Option<f64>,
    pub cosine: Option<f64>,
    pub change: Option<f64>,
    /// Histogram of the differences, each scaled by its key's root mean square: the count in each
    /// bar. Empty if unknown, or if too few values differ to draw them.
    pub spread: Vec<u64>,
    /// True for the line that represents the hidden rows.
    pub rest: bool,
}

impl CompareLine {
    /// Returns the key on the first side if the line is one tensor that has another on the second.
    pub fn old<'a>(&self, pairs: &'a Pairs) -> Option<&'a str> {
        let [only] = self.pairs.as_slice() else { return None };
        let pair = pairs.pairs.get(*only as usize)?;
        let (old, row) = (pairs.first(pair)?, pairs.row(pair)?);
        (old.key != row.key).then_some(&*old.key)
    }
}

/// Returns the lines of the table, and the error if the filter can't be parsed.
pub fn lines(pairs: &Pairs, view: &CompareView) -> (Vec<CompareLine>, Option<String>) {
    let (filter, error) = match Filter::parse(&view.filter) {
        Ok(filter) => (filter, None),
        Err(error) => (Filter::default(), Some(error)),
    };
    let hides = |mark: Mark| view.hide_equal && view.only.is_none() && mark == Mark::Equal;
    let mut lines: Vec<CompareLine> = Vec::new();
    let mut groups: Vec<Vec<u32>> = Vec::new();
    let mut known_groups: HashMap<(String, Mark, &String, &Vec<u64>), usize> = HashMap::new();
    let mut rest = Vec::new();
    for (at, pair) in (0u32..).zip(&pairs.pairs) {
        let Some(row) = pairs.row(pair) else { continue };
        let passes =
            filter.matches(row) || pairs.first(pair).is_some_and(|row| filter.matches(row));
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
        // A tensor of another shape is not the same tensor of another layer.
        let name = (numbers::pattern(&row.key, '.').0, pair.mark, &row.dtype, &row.shape);
        let group = *known_groups.entry(name).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(at);
    }
    lines.extend(groups.into_iter().filter_map(|members| line(pairs, members)));
    match view.order {
        CompareOrder::Change => order::by_key(&mut lines, |line| line.mark),
        CompareOrder::File => {}
        CompareOrder::MaxAbs => {
            sort_by(&mut lines, |line| line.max_abs.map_or(0.0, |value| -value))
        }
        CompareOrder::Cosine => sort_by(&mut lines, |line| line.cosine.unwrap_or(2.0)),
        // As `diff --sort change`: rows without a measure, then the largest change.
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

/// Histograms of fewer values are not worth drawing.
const MIN_SPREAD: u64 = 32;

fn sort_by(lines: &mut [CompareLine], value: fn(&CompareLine) -> f64) {
    order::by(lines, |one, two| value(one).total_cmp(&value(two)));
}

fn line(pairs: &Pairs, members: Vec<u32>) -> Option<CompareLine> {
    let first = pairs.pairs.get(*members.first()? as usize)?;
    let keys = || {
        let rows = members.iter().filter_map(|at| pairs.row(pairs.pairs.get(*at as usize)?));
        rows.map(|row| row.key.as_str())
    };
    let mut line = CompareLine {
        key: numbers::joined(keys(), '.')?,
        mark: first.mark,
        max_abs: None,
        cosine: None,
        change: None,
        spread: Vec::new(),
        rest: false,
        pairs: Rc::new(Vec::new()),
    };
    for pair in members.iter().filter_map(|at| pairs.pairs.get(*at as usize)) {
        let Some(distance) = pairs.difference(pair).and_then(|found| found.kind.distance()) else {
            continue;
        };
        if let Some(max_abs) = distance.largest_finite() {
            line.max_abs = Some(line.max_abs.map_or(max_abs, |most| most.max(max_abs)));
        }
        if let Some(change) = distance.change {
            line.change = Some(line.change.map_or(change, |most| most.max(change)));
        }
        if let Some(cosine) = distance.cosine {
            line.cosine = Some(line.cosine.map_or(cosine, |least| least.min(cosine)));
        }
        if let Some(spread) = &distance.spread {
            let counts = &spread.counts;
            line.spread.resize(counts.len(), 0);
            line.spread.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        }
    }
    if line.spread.iter().sum::<u64>() < MIN_SPREAD {
        line.spread.clear();
    }
    line.pairs = Rc::new(members);
    Some(line)
}

#[cfg(test)]
mod tests {
    use statelens_compare::diff::{Distance, ElementDifference, Spread};

    use super::*;
    use crate::state::sample::{tensor, value};

    fn difference(a: u32, b: u32, kind: DifferenceKind) -> Difference {
        Difference { a, b, kind, part: String::new(), parameter: String::new() }
    }

    /// Elements whose distance grows with the row `a`.
    fn elements(a: u32, b: u32, one_nan: u64) -> Difference {
        let defined = |value: f64| (one_nan == 0).then_some(value);
        let distance = Distance {
            left_nan: one_nan,
            right_nan: 0,
            one_nan,
            finite: 4,
            max_abs: defined(f64::from(a) / 8.0),
            max_rel: defined(1.0),
            mse: defined(1.0),
            cosine: defined(1.0 - f64::from(a) / 8.0),
            change: defined(1.0),
            spread: Some(Spread { within: 3.0, counts: vec![0, u64::from(a) * 20, 1] }),
            finite_max_abs: None,
        };
        let elements = Box::new(ElementDifference {
            count: 4,
            differing: 1,
            unequal: 1,
            first: Some(vec![0]),
            distance: Some(distance),
        });
        difference(
            a,
            b,
            match one_nan {
                0 => DifferenceKind::Elements(elements),
                _ => DifferenceKind::Nan(elements),
            },
        )
    }

    /// Layers 0 to 2 that change, one renamed row, one removed, one added.
    fn pairs() -> Pairs {
        let layer = |at: u32| tensor(&format!("h.{at}.w"), "float32", &[2, 2]);
        let a = vec![layer(0), layer(1), layer(2), value("old", "1"), value("gone", "2")];
        let b = vec![value("new", "3"), layer(0), layer(1), layer(2), value("now", "1")];
        let structure = StructureDifference {
            pairs: vec![1, 2, 3, 4, NO_ROW],
            found: vec![
                difference(4, NO_ROW, DifferenceKind::OnlyLeft { left: String::new() }),
                difference(NO_ROW, 0, DifferenceKind::OnlyRight { right: String::new() }),
            ],
            outside: Vec::new(),
            waiting: vec![0, 1, 2],
            rename: None,
            quantised: false,
            command: String::new(),
        };
        Pairs::new(Rc::new(a), Rc::new(b), &structure)
    }

    fn words(pairs: &Pairs, view: &CompareView) -> Vec<String> {
        let texts =
            |line: &CompareLine| format!("{} {} x{}", line.mark.word(), line.key, line.pairs.len());
        lines(pairs, view).0.iter().map(texts).collect()
    }

    #[test]
    fn marks_update_as_values_arrive() {
        let mut pairs = pairs();
        let all = CompareView::default();
        assert_eq!(
            words(&pairs, &all),
            ["added new x1", "removed gone x1", "renamed now x1", "not read h.0\u{2013}2.w x3"]
        );
        pairs.add_results(&[0], &[]);
        pairs.add_results(&[1, 2], &[elements(1, 2, 0), elements(2, 3, 0)]);
        assert_eq!(
            words(&pairs, &all),
            [
                "added new x1",
                "removed gone x1",
                "changed h.1\u{2013}2.w x2",
                "renamed now x1",
                "equal  x1"
            ]
        );
        assert_eq!(pairs.counts(), [1, 1, 1, 0, 0, 0, 2, 0, 0, 1]);
        let (lines, _) = lines(&pairs, &all);
        assert_eq!((lines[2].max_abs, lines[2].cosine), (Some(0.25), Some(0.75)));
        assert_eq!(lines[2].spread, [0, 60, 2], "of layers 1 and 2 together");
        assert!(lines[4].rest);
    }

    #[test]
    fn one_sided_nans_have_their_own_fold() {
        let mut pairs = pairs();
        let found = [elements(0, 1, 0), elements(1, 2, 1), elements(2, 3, 0)];
        pairs.add_results(&[0, 1, 2], &found);
        let texts = words(&pairs, &CompareView::default());
        assert!(texts.contains(&"NaN h.1.w x1".to_owned()), "{texts:?}");
        assert!(texts.contains(&"changed h.0,2.w x2".to_owned()), "{texts:?}");
        let (lines, _) = lines(&pairs, &CompareView::default());
        let line = lines.iter().find(|line| line.mark == Mark::Nan).unwrap();
        assert_eq!((line.max_abs, line.cosine), (None, None));
    }

    #[test]
    fn folds_layers_by_number_and_shape() {
        let shape = |at: u64| [2, if at == 3 { 5 } else { 2 }];
        let order = [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9];
        let rows: Vec<Row> =
            order.map(|at| tensor(&format!("h.{at}.w"), "float32", &shape(at))).into();
        let structure = StructureDifference {
            pairs: (0..12).collect(),
            found: Vec::new(),
            outside: Vec::new(),
            waiting: (0..12).collect(),
            rename: None,
            quantised: false,
            command: String::new(),
        };
        let pairs = Pairs::new(Rc::new(rows.clone()), Rc::new(rows), &structure);
        assert_eq!(
            words(&pairs, &CompareView::default()),
            ["not read h.0\u{2013}2,4\u{2013}11.w x11", "not read h.3.w x1"]
        );
    }

    #[test]
    fn a_view_filters_folds_and_sorts() {
        let mut pairs = pairs();
        pairs.add_results(&[0, 1, 2], &[elements(1, 2, 0), elements(2, 3, 0)]);
        let open = CompareView {
            fold: false,
            hide_equal: false,
            order: CompareOrder::MaxAbs,
            ..CompareView::default()
        };
        assert_eq!(words(&pairs, &open)[..2], ["changed h.2.w x1", "changed h.1.w x1"]);
        let only = CompareView { only: Some(Mark::Added), ..CompareView::default() };
        assert_eq!(words(&pairs, &only), ["added new x1"]);
        // A renamed row is found by either key.
        let filter = |text: &str| CompareView { filter: text.into(), ..CompareView::default() };
        assert_eq!(words(&pairs, &filter("old")), ["renamed now x1"]);
        assert_eq!(
            words(&pairs, &filter("kind:tensor")),
            ["changed h.1\u{2013}2.w x2", "equal  x1"]
        );
        assert!(lines(&pairs, &filter("/(/")).1.is_some());
    }
}
