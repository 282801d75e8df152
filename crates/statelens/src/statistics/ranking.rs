//! The rows, columns or kernels of a matrix, ranked by their norm.

use statelens_checkpoint::{Error, FileSet, Progress, Result, Tensor, counted, shape_text};
use statelens_tensor::{BUFFER, drain};
use statelens_values::json::Float;
use statelens_values::{MAX_LINES, MatrixLine, MatrixLines, Rows, fields, index, report_json};

/// The lines of a matrix that are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankedLines {
    /// Each index into all dimensions but the last.
    Rows,
    /// Each index into the last dimension.
    Columns,
    /// Each index into all dimensions but the last two.
    Kernels,
}

impl RankedLines {
    /// Returns the lines with a name: `rows`, `columns` or `kernels`.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "rows" => Ok(Self::Rows),
            "columns" => Ok(Self::Columns),
            "kernels" => Ok(Self::Kernels),
            _ => Err(Error::refused(format!("`{name}` can't be ranked"))
                .expected("rows, columns or kernels")),
        }
    }

    /// Returns the singular of the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "row",
            Self::Columns => "column",
            Self::Kernels => "kernel",
        }
    }
}

/// The lines of a matrix by descending norm.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranking {
    dtype: String,
    shape: Vec<u64>,
    of: RankedLines,
    found: MatrixLines,
    ranked: Vec<usize>,
}

impl Ranking {
    /// Reads a tensor of numbers and ranks its lines; `title` names it in errors. A tensor with more
    /// than two dimensions is a matrix of rows of its last dimension.
    pub fn read(
        files: &FileSet,
        tensor: &Tensor,
        title: &str,
        of: RankedLines,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let (shape, dtype) = (&tensor.shape, &tensor.dtype);
        let inner = if of == RankedLines::Kernels { 2 } else { 1 };
        let (_, inner) = shape.split_at(shape.len().saturating_sub(inner));
        let width = inner.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim));
        let width = width.filter(|_| shape.len() >= 2 && !shape.contains(&0));
        let mut rows = width.and_then(|width| Rows::new(dtype, width)).ok_or_else(|| {
            Error::refused(format!("`{title}`, {dtype} {}, has no rows", shape_text(shape)))
        })?;
        drain(files, tensor, BUFFER, progress, &mut |bytes| {
            rows.feed(bytes);
            Ok(())
        })?;
        let found = rows.finish();
        let lines = if of == RankedLines::Columns { &found.columns } else { &found.rows };
        if lines.is_empty() {
            let most = counted(MAX_LINES as u64, of.name());
            return Err(Error::unsupported(format!("more than {most} are not ranked")));
        }
        let ranked = MatrixLines::ranked(lines);
        Ok(Self { dtype: dtype.name().to_owned(), shape: shape.clone(), of, found, ranked })
    }

    /// Returns the number of lines.
    pub fn count(&self) -> u64 {
        self.ranked.len() as u64
    }

    /// Returns the numbers of rows that are all zero, and of rows that equal an earlier one; `None`
    /// for columns.
    pub fn zero_and_copied(&self) -> Option<(u64, u64)> {
        let found = &self.found;
        (self.of != RankedLines::Columns).then_some((found.zero_rows, found.copied_rows))
    }

    /// Returns the median norm.
    pub fn median(&self) -> f64 {
        MatrixLines::median(self.lines(), &self.ranked).unwrap_or(0.0)
    }

    /// Returns the index and the figures of the `top` lines with the largest norm, the largest
    /// first.
    pub fn largest(&self, top: usize) -> Vec<(Vec<u64>, MatrixLine)> {
        self.ranked.iter().take(top).filter_map(|at| self.line(*at)).collect()
    }

    /// Returns the index and the figures of the `top` lines with the smallest norm, the smallest
    /// first.
    pub fn smallest(&self, top: usize) -> Vec<(Vec<u64>, MatrixLine)> {
        self.ranked.iter().rev().take(top).filter_map(|at| self.line(*at)).collect()
    }

    fn lines(&self) -> &[MatrixLine] {
        match self.of {
            RankedLines::Columns => &self.found.columns,
            RankedLines::Rows | RankedLines::Kernels => &self.found.rows,
        }
    }

    fn line(&self, at: usize) -> Option<(Vec<u64>, MatrixLine)> {
        let inner = if self.of == RankedLines::Kernels { 2 } else { 1 };
        let (outer, _) = self.shape.split_at(self.shape.len().saturating_sub(inner));
        let index = match self.of {
            RankedLines::Columns => vec![at as u64],
            RankedLines::Rows | RankedLines::Kernels => index(outer, at as u64),
        };
        Some((index, *self.lines().get(at)?))
    }

    /// Returns the report as JSON, as `statelens stats --rank --json` prints it.
    pub fn json(&self, title: &str, top: usize) -> String {
        let line = |(index, line): (Vec<u64>, MatrixLine)| {
            fields! {
                index: index,
                norm: Float::from(line.norm),
                abs_max: Float::from(line.abs_max),
                not_finite: line.not_finite,
            }
        };
        let known = self.zero_and_copied();
        report_json(&fields! {
            key: title,
            dtype: &self.dtype,
            shape: &self.shape,
            of: self.of.name(),
            count: self.count(),
            median_norm: Float::from(self.median()),
            #[serde(flatten)]
            known: known.map(|(zero, copied)| fields! { zero: zero, copied: copied }),
            largest: self.largest(top).into_iter().map(line).collect::<Vec<_>>(),
            smallest: self.smallest(top).into_iter().map(line).collect::<Vec<_>>(),
        })
    }
}
