//! Reads a matrix in one or several passes and computes its singular values.

use std::ops::Range;

use statelens_checkpoint::{Error, FileSet, Result, Tensor, try_alloc};
use statelens_tensor::{BUDGET, Machine, Need, Pour, Receive};

use super::all::{SturmBisection, Triangle, TwoDiagonals};
use super::largest::Largest;
use super::plan::SingularPlan;
use super::spectrum::Spectrum;
use statelens_stats::Matrix;
use statelens_stats::kind::ElementKind;

/// Computes singular values. Every step is short, whatever the size of the matrix.
#[derive(Debug)]
pub struct Singular {
    plan: SingularPlan,
    files: FileSet,
    tensor: Tensor,
    range: Range<u64>,
    kind: ElementKind,
    stage: Stage,
    pour: Pour<Queue>,
    passes: u32,
    /// Number of rows processed in this pass.
    row: u64,
    squares: f64,
    /// The largest magnitude so far.
    most: f64,
    found: Option<Spectrum>,
}

#[derive(Debug)]
enum Stage {
    Triangle(Triangle),
    TwoDiagonals(TwoDiagonals, u64),
    Counting(SturmBisection),
    Largest(Box<Largest>),
    Done,
}

/// Bytes that arrived and are not processed yet.
#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    taken: usize,
}

/// Magnitudes whose squares are doubles.
const SQUARED: Range<f64> = 1e-140..1e140;

impl Singular {
    /// Prepares the computation for a matrix in a numeric tensor.
    pub fn new(
        files: &FileSet,
        tensor: &Tensor,
        matrix: Matrix,
        plan: SingularPlan,
    ) -> Result<Self> {
        let kind = ElementKind::of(&tensor.dtype);
        let kind = kind.ok_or_else(|| Error::unsupported("these are not numbers"))?;
        let (rows, columns) = (side(plan.rows)?, side(plan.columns)?);
        let stage = match plan.largest {
            None => Stage::Triangle(Triangle::new(rows, columns)?),
            Some(wanted) => {
                let block = plan.block() as usize;
                let largest = Largest::new(plan.rows, columns, wanted as usize, block)?;
                Stage::Largest(Box::new(largest))
            }
        };
        let range = matrix.first..matrix.first.saturating_add(matrix.len);
        let pour = Pour::new(files, tensor, range.clone(), BUDGET, Queue::default())?;
        Ok(Self {
            plan,
            files: files.clone(),
            tensor: tensor.clone(),
            range,
            kind,
            stage,
            pour,
            passes: 0,
            row: 0,
            squares: 0.0,
            most: 0.0,
            found: None,
        })
    }

    /// Returns the singular values so far: the largest after each pass, or all of them at the end.
    pub fn found(&self) -> Option<&Spectrum> {
        self.found.as_ref()
    }

    fn reads(&self) -> bool {
        matches!(self.stage, Stage::Triangle(_) | Stage::Largest(_))
    }

    /// Returns the number of bytes of the rows that are processed next.
    fn next(&self) -> usize {
        let rows = self.plan.together().min(self.plan.rows - self.row);
        let values = rows.saturating_mul(self.plan.columns);
        (values as usize / self.kind.values() as usize).saturating_mul(self.kind.size())
    }

    fn take(&mut self, bytes: usize) -> Result<()> {
        let width = self.plan.columns as usize;
        let queue = &mut self.pour.into;
        let rows = self.kind.all(&queue.bytes[queue.taken..][..bytes]);
        queue.taken += bytes;
        if let Some(at) = rows.iter().position(|value| !value.is_finite()) {
            let (row, column) = (self.row + (at / width) as u64, at % width);
            let what = if rows[at].is_nan() { "NaN" } else { "infinity" };
            return Err(Error::refused(format!("there is {what} at row {row}, column {column}"))
                .expected("finite values only"));
        }
        self.row += (rows.len() / width) as u64;
        let most = rows.iter().fold(self.most, |most, value| most.max(value.abs()));
        if most > SQUARED.end {
            return Err(Error::unsupported(format!("values of {most:e}, whose squares overflow")));
        }
        self.most = most;
        match &mut self.stage {
            Stage::Triangle(triangle) => {
                self.squares += rows.iter().map(|value| value * value).sum::<f64>();
                triangle.take(&rows, width)
            }
            Stage::Largest(largest) => {
                largest.take(&rows, width);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Ends a pass, once all rows are processed.
    fn end_pass(&mut self) -> Result<()> {
        if self.most > 0.0 && self.most < SQUARED.start {
            let most = self.most;
            return Err(Error::unsupported(format!("values up to {most:e}, whose squares vanish")));
        }
        self.passes += 1;
        self.row = 0;
        self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Triangle(triangle) => {
                Stage::TwoDiagonals(TwoDiagonals::new(triangle.square()?), 0)
            }
            Stage::Largest(mut largest) => {
                let (found, known) = largest.end()?;
                self.found = Some(found);
                if known || self.passes == self.plan.passes {
                    return Ok(());
                }
                let (files, range) = (&self.files, self.range.clone());
                self.pour = Pour::new(files, &self.tensor, range, BUDGET, Queue::default())?;
                Stage::Largest(largest)
            }
            other => other,
        };
        Ok(())
    }

    fn compute(&mut self) -> Result<()> {
        match &mut self.stage {
            Stage::TwoDiagonals(two, done) => {
                *done += 1;
                if !two.step()? {
                    let two = std::mem::replace(&mut self.stage, Stage::Done);
                    if let Stage::TwoDiagonals(two, _) = two {
                        self.stage = Stage::Counting(two.into_counting());
                    }
                }
            }
            Stage::Counting(counting) => {
                let continues = counting.step();
                if !continues {
                    let values = std::mem::take(&mut counting.values);
                    let mut found = Spectrum {
                        values,
                        errors: Vec::new(),
                        shape: (self.plan.rows, self.plan.columns),
                        squares: self.squares,
                        whole: true,
                        passes: 1,
                    };
                    found.errors = try_alloc::filled(found.tolerance(), found.values.len())?;
                    self.found = Some(found);
                    self.stage = Stage::Done;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Machine for Singular {
    fn need(&self) -> Need {
        if !self.reads() {
            return if matches!(self.stage, Stage::Done) { Need::Done } else { Need::Step };
        }
        match self.pour.need() {
            _ if self.pour.into.len() >= self.next() => Need::Step,
            Need::Done => Need::Step,
            need => need,
        }
    }

    fn files(&self) -> &FileSet {
        &self.files
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.pour.feed(bytes)
    }

    fn step(&mut self) -> Result<()> {
        if !self.reads() {
            return self.compute();
        }
        let next = self.next();
        if next > 0 && self.pour.into.len() >= next {
            return self.take(next);
        }
        match self.pour.need() {
            Need::Step => self.pour.step(),
            _ if self.row == self.plan.rows => self.end_pass(),
            _ => Err(Error::damaged("a tensor with fewer values than its shape")),
        }
    }

    /// Measured in operations, which take about equally long.
    fn progress(&self) -> (u64, u64) {
        let total = self.plan.operations;
        let part = |of: u64, done: f64| (of as f64 * done) as u64;
        let read = self.row as f64 / self.plan.rows.max(1) as f64;
        let small = self.plan.rows.min(self.plan.columns);
        // Operations after the rows have been read.
        let after = small.saturating_mul(small).saturating_mul(3).saturating_mul(small);
        let done = match &self.stage {
            Stage::Triangle(_) => part(total.saturating_sub(after), read),
            Stage::Largest(_) => {
                part(total, (f64::from(self.passes) + read) / f64::from(self.plan.passes.max(1)))
            }
            Stage::TwoDiagonals(_, done) => {
                let left = 1.0 - *done as f64 / small.max(1) as f64;
                total.saturating_sub(part(after, left * left * left))
            }
            Stage::Counting(_) | Stage::Done => total,
        };
        (done.min(total), total)
    }
}

impl Queue {
    fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }
}

impl Receive for Queue {
    fn receive(&mut self, bytes: &[u8]) -> Result<()> {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        try_alloc::make_room(&mut self.bytes, bytes.len() as u64)?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

fn side(of: u64) -> Result<usize> {
    usize::try_from(of).map_err(|_| Error::refused(format!("a matrix of {of} rows or columns")))
}
