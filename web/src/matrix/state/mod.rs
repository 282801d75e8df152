//! A matrix shown as a picture: the lens, the map of the whole matrix, and derived results.

pub mod view;

use std::rc::Rc;

use statelens_values::MatrixLine;
use statelens_values::picture::{BlockMap, ColourScaling, Show};

use crate::matrix::message::ranked::NormRanking;
use crate::matrix::message::singular::{SingularOffer, SingularReport};
use crate::matrix::message::{Cells, MatrixSelection, PackedOverview};
use crate::matrix::state::view::MatrixView;
use crate::protocol::error::ErrorText;
use crate::state::task::{Task, TaskState as _};

/// A shared value that compares by identity.
#[derive(Debug)]
pub struct ByIdentity<T>(pub Rc<T>);

impl<T> PartialEq for ByIdentity<T> {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for ByIdentity<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// State of computing the singular values of the matrix.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SingularValues {
    /// The computations on offer.
    pub offers: Vec<SingularOffer>,
    pub task: Task<SingularReport>,
}

pub type RowColumn = (u64, u64);

/// The selected matrix, and how it is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixState {
    /// The selected matrix.
    pub view: MatrixView,
    /// The same as the worker's request has it.
    pub selection: MatrixSelection,
    /// Rows and columns of the matrix.
    pub size: (u64, u64),
    /// The map of the whole matrix.
    pub overview: Task<BlockMap>,
    /// Bytes read for the map, and in total.
    pub read: (u64, u64),
    /// Why the values under the lens can't be read.
    pub failed: Option<Rc<ErrorText>>,
    /// The selected value.
    pub at: RowColumn,
    /// The top left value under the lens.
    pub lens: RowColumn,
    /// Pixels per value under the lens.
    pub zoom: u64,
    /// Values under the lens.
    pub cells: Option<ByIdentity<Cells>>,
    /// Whether rows are drawn as columns.
    pub transposed: bool,
    /// The statistic shown for a block.
    pub show: Show,
    /// How numbers are mapped to colours.
    pub scaling: ColourScaling,
    /// The statistic of rows and columns drawn along the edges.
    pub profile: Profile,
    pub singular: SingularValues,
    /// Its rows ranked by norm, or its kernels.
    pub ranked: Task<NormRanking>,
}

/// A statistic of a row or column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// The largest magnitude.
    #[default]
    MaxAbs,
    /// The root of the sum of squares.
    Norm,
}

impl Profile {
    /// Returns the statistic of a line.
    pub fn of(self, line: &MatrixLine) -> f64 {
        match self {
            Self::MaxAbs => line.abs_max,
            Self::Norm => line.norm,
        }
    }
}

/// Width and height of the lens in pixels.
pub const LENS: u64 = 256;
/// Pixels per value that can be chosen.
const ZOOMS: [u64; 5] = [2, 4, 8, 16, 32];

impl MatrixState {
    /// Begins with a matrix of a tensor, at the value with number `at`; `None` if the matrix is
    /// empty.
    pub fn new(row: u32, view: MatrixView, at: Option<u64>) -> Option<Self> {
        if view.elements() == 0 || view.shape.contains(&0) {
            return None;
        }
        let selection = view.selection(row);
        let mut new = Self {
            size: view.size(selection.fold),
            view,
            selection,
            overview: Task::started(),
            read: (0, 0),
            failed: None,
            at: (0, 0),
            lens: (0, 0),
            zoom: 4,
            cells: None,
            transposed: false,
            show: Show::Magnitude,
            scaling: ColourScaling::Linear,
            profile: Profile::default(),
            singular: SingularValues::default(),
            ranked: Task::Idle,
        };
        if let Some(at) = at {
            new.go(at);
        }
        Some(new)
    }

    /// Returns the state for another tensor, with the same settings.
    pub fn for_tensor(&self, row: u32, shape: &[u64]) -> Option<Self> {
        let same = *shape == *self.view.shape;
        let view = if same { self.view.clone() } else { MatrixView::new(shape) };
        let mut next = Self::new(row, view, None)?;
        (next.zoom, next.transposed) = (self.zoom, self.transposed);
        (next.show, next.scaling, next.profile) = (self.show, self.scaling, self.profile);
        if same {
            (next.at, next.lens) = (self.at, self.lens);
        }
        Some(next)
    }

    /// Stores the values under the lens, or why they can't be read.
    pub fn set_cells(&mut self, cells: Result<Box<Cells>, ErrorText>) {
        match cells {
            Ok(cells) => self.cells = Some(ByIdentity(Rc::from(cells))),
            Err(error) => self.failed = Some(Rc::new(error)),
        }
    }

    /// Stores the map, as far as it was read.
    pub fn set_overview(&mut self, packed: &PackedOverview, done: bool) {
        self.read = packed.read;
        match packed.map() {
            Some(map) => self.overview.set(map, done),
            None => self.overview.fail(ErrorText::misfit()),
        }
    }

    /// Returns why the matrix, or the part under the lens, can't be read.
    pub fn error(&self) -> Option<&Rc<ErrorText>> {
        self.failed.as_ref().or(self.overview.error())
    }

    /// Returns the map of the whole matrix, as far as it was read.
    pub fn map(&self) -> Option<ByIdentity<BlockMap>> {
        self.overview.result().cloned().map(ByIdentity)
    }

    /// Returns the number of rows and columns under the lens.
    pub fn window(&self) -> RowColumn {
        let most = LENS / self.zoom.max(1);
        (self.size.0.min(most), self.size.1.min(most))
    }

    /// Returns the indices in the tensor of a row and a column; for a folded vector, those in the
    /// picture.
    pub fn indices(&self, (row, column): RowColumn) -> RowColumn {
        match self.selection.fold {
            Some(_) => (row, column),
            None => (self.view.row_index(row), self.view.column_index(column)),
        }
    }

    /// Returns the number in the tensor of a value.
    pub fn number(&self, place: RowColumn) -> u64 {
        self.view.number(place, self.selection.fold)
    }

    /// Returns the index of a value.
    pub fn index(&self, place: RowColumn) -> Vec<u64> {
        statelens_values::index(&self.view.shape, self.number(place))
    }

    /// Returns whether a position holds a value.
    pub fn has(&self, (row, column): RowColumn) -> bool {
        let len = self.view.elements();
        row < self.size.0 && column < self.size.1 && row * self.size.1 + column < len
    }

    /// Returns the cells and the offset of a value in them, if it is under the lens.
    pub fn cell(&self, (row, column): RowColumn) -> Option<(&Cells, usize)> {
        let cells = self.cells.as_ref()?;
        let [top, left, rows, columns] = cells.0.window;
        let (down, across) = (row.checked_sub(top)?, column.checked_sub(left)?);
        let at = (down < rows && across < columns).then(|| (down * columns + across) as usize)?;
        cells.0.texts.get(at).filter(|text| !text.is_empty()).map(|_| (&*cells.0, at))
    }

    /// Selects a value by its number in the tensor, switching to the matrix that holds it.
    pub fn go(&mut self, number: u64) {
        let mut view = self.view.clone();
        let (row, column) = view.go(number);
        self.show(view);
        let columns = self.size.1.max(1);
        self.centre(match self.selection.fold {
            Some(_) => (column / columns, column % columns),
            None => (row, column),
        });
    }

    /// Changes the selected matrix of the tensor.
    pub fn change_view(&mut self, change: impl FnOnce(&mut MatrixView)) {
        let mut view = self.view.clone();
        change(&mut view);
        self.show(view);
    }

    /// Selects a matrix of the tensor.
    pub fn show(&mut self, view: MatrixView) {
        let selection = view.selection(self.selection.row);
        let same = selection == self.selection;
        // Kernels are those of all slices, so they stay valid.
        let kernels = view.is_usual();
        self.view = view;
        if same {
            return;
        }
        (self.size, self.selection) = (self.view.size(selection.fold), selection);
        (self.cells, self.failed) = (None, None);
        (self.overview, self.read) = (Task::started(), (0, 0));
        self.singular = SingularValues::default();
        self.ranked.stop();
        if !self.ranked.result().is_some_and(|ranked| ranked.kernels && kernels) {
            self.ranked = Task::Idle;
        }
        self.select_value(self.at);
    }

    /// Selects a value and centres the lens on it.
    pub fn centre(&mut self, at: RowColumn) {
        let window = self.window();
        self.at = self.clamped(at);
        self.lens =
            (self.at.0.saturating_sub(window.0 / 2), self.at.1.saturating_sub(window.1 / 2));
        self.clamp_lens();
    }

    /// Selects a value; the lens moves only if needed.
    pub fn select_value(&mut self, at: RowColumn) {
        let (rows, columns) = self.window();
        self.at = self.clamped(at);
        let follow = |lens: u64, at: u64, size: u64| lens.clamp((at + 1).saturating_sub(size), at);
        self.lens = (follow(self.lens.0, self.at.0, rows), follow(self.lens.1, self.at.1, columns));
        self.clamp_lens();
    }

    /// Moves the selection to a neighbouring value, in the directions of the drawing; by a window
    /// if `far`.
    pub fn step(&mut self, (down, across): (i64, i64), far: bool) {
        let (down, across) = if self.transposed { (across, down) } else { (down, across) };
        let (rows, columns) = if far { self.window() } else { (1, 1) };
        let moved =
            |at: u64, by: i64, size: u64| at.saturating_add_signed(by.saturating_mul(size as i64));
        let at = (moved(self.at.0, down, rows), moved(self.at.1, across, columns));
        if far {
            self.lens = (moved(self.lens.0, down, rows), moved(self.lens.1, across, columns));
        }
        self.select_value(at);
    }

    /// Moves the lens and the selection by a number of values, in the directions of the drawing.
    pub fn scroll(&mut self, (down, across): (i64, i64)) {
        let (down, across) = if self.transposed { (across, down) } else { (down, across) };
        let at = (self.at.0.saturating_add_signed(down), self.at.1.saturating_add_signed(across));
        self.lens =
            (self.lens.0.saturating_add_signed(down), self.lens.1.saturating_add_signed(across));
        self.clamp_lens();
        self.select_value(at);
    }

    /// Increases or decreases the pixels per value.
    pub fn magnify(&mut self, by: isize) {
        let at = ZOOMS.iter().position(|zoom| *zoom == self.zoom).unwrap_or(1);
        self.zoom = ZOOMS[at.saturating_add_signed(by).min(ZOOMS.len() - 1)];
        self.centre(self.at);
    }

    /// Chooses the most pixels per value that show the whole matrix under the lens, if that is
    /// possible.
    pub fn fit(&mut self) {
        let fits = |zoom: &&u64| self.size.0.max(self.size.1) * **zoom <= LENS;
        self.zoom = ZOOMS.iter().rev().find(fits).copied().unwrap_or(ZOOMS[0]);
        self.centre(self.at);
    }

    /// Returns the value to select in a block: the largest, or one that is not finite.
    pub fn peak_of_block(&self, block: usize) -> Option<RowColumn> {
        let map = self.overview.result()?;
        // If an element holds two values, convert to the number of the element.
        let each = (map.matrix.1 / self.size.1.max(1)).max(1);
        let number = map.at.get(block).copied().filter(|at| *at != u64::MAX)? / each;
        Some((number / self.size.1.max(1), number % self.size.1.max(1)))
    }

    fn clamped(&self, (row, column): RowColumn) -> RowColumn {
        let row = row.min(self.size.0.saturating_sub(1));
        let column = column.min(self.size.1.saturating_sub(1));
        // The last row may be incomplete.
        match self.has((row, column)) || row == 0 {
            true => (row, column),
            false => (row - 1, column),
        }
    }

    fn clamp_lens(&mut self) {
        let (rows, columns) = self.window();
        self.lens.0 = self.lens.0.min(self.size.0.saturating_sub(rows));
        self.lens.1 = self.lens.1.min(self.size.1.saturating_sub(columns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(shape: &[u64]) -> Option<MatrixState> {
        MatrixState::new(0, MatrixView::new(shape), Some(0))
    }

    #[test]
    fn lens_follows_the_selection_within_the_matrix() {
        let mut select_value = matrix(&[1000, 300]).unwrap();
        assert_eq!((select_value.window(), select_value.lens), ((64, 64), (0, 0)));
        select_value.go(500 * 300 + 150);
        assert_eq!((select_value.at, select_value.lens), ((500, 150), (468, 118)));
        select_value.step((0, 1), false);
        assert_eq!((select_value.at, select_value.lens), ((500, 151), (468, 118)));
        select_value.step((1, 0), true);
        assert_eq!((select_value.at, select_value.lens), ((564, 151), (532, 118)));
        select_value.centre((999, 299));
        assert_eq!(select_value.lens, (936, 236));
        select_value.magnify(1);
        assert_eq!((select_value.zoom, select_value.window()), (8, (32, 32)));
        select_value.fit();
        assert_eq!(select_value.zoom, 2);
        assert_eq!(select_value.index((7, 8)), [7, 8]);
        select_value.centre((500, 150));
        select_value.scroll((3, -2));
        assert_eq!((select_value.at, select_value.lens), ((503, 148), (439, 84)));
        select_value.scroll((-10_000, 10_000));
        assert_eq!((select_value.at, select_value.lens), ((0, 299), (0, 172)));
        select_value.transposed = true;
        select_value.centre((10, 10));
        select_value.step((1, 0), false);
        assert_eq!(select_value.at, (10, 11));
    }

    #[test]
    fn going_to_an_index_changes_the_slice() {
        let mut select_value = matrix(&[2, 3, 10, 20]).unwrap();
        select_value.go(200 * 4 + 20 * 3 + 5);
        assert_eq!((select_value.view.leading(), select_value.at), (vec![1, 1], (3, 5)));
        assert_eq!(select_value.index(select_value.at), [1, 1, 3, 5]);
        select_value.change_view(|view| view.lead(&[9, 9]));
        assert_eq!(select_value.view.leading(), [1, 2]);
        assert_eq!(
            (select_value.selection.slice.as_str(), select_value.at),
            ("1, 2, :, :", (3, 5))
        );
    }

    #[test]
    fn lens_is_clamped_to_a_smaller_matrix() {
        let mut select_value = matrix(&[2, 300, 10, 20]).unwrap();
        select_value.change_view(|view| view.draw(1, 3));
        assert_eq!(
            (select_value.size, select_value.selection.slice.as_str()),
            ((300, 20), "0, :, 0, :")
        );
        select_value.centre((299, 19));
        select_value
            .show(MatrixView::of(&[2, 300, 10, 20], &"0, :4, 0, -3:".parse().unwrap()).unwrap());
        assert_eq!(
            (select_value.size, select_value.at, select_value.lens),
            ((4, 3), (3, 2), (0, 0))
        );
        assert_eq!(select_value.index(select_value.at), [0, 3, 0, 19]);
    }

    #[test]
    fn folds_a_long_vector() {
        let mut select_value = matrix(&[10_000]).unwrap();
        assert_eq!((select_value.selection.fold, select_value.size), (Some(256), (40, 256)));
        select_value.go(9_999);
        assert_eq!((select_value.at, select_value.index(select_value.at)), ((39, 15), vec![9_999]));
        assert!(select_value.has((39, 15)) && !select_value.has((39, 16)));
        select_value.step((0, 1), false);
        assert_eq!(select_value.at, (38, 16), "beyond the end it is the row above");
        assert!(matrix(&[0, 4]).is_none());
        assert_eq!(matrix(&[]).unwrap().size, (1, 1));
    }
}
