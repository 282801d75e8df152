//! Numbers that are computed from small codes and their scales.
//!
//! The result is produced in bands that fit in memory. For each, the codes, scales and offsets of its
//! rows and columns are read, and nothing else of them. Tables and lists of groups are read first.

mod compute;
mod unpack;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{
    self as checkpoint, CodePacking, CodeValues, Codes, Concat, DType, Error, FileSet, Groups,
    Layout, Limits, Offset, Part, Result, Strided, Tensor, contiguous_strides, numel,
};

use self::compute::{Compute, table};
use self::unpack::{Grid, unpack};
use super::{Context, LayoutMachine};
use crate::bands::{Band, Bands};
use crate::transform::Transform;
use crate::{Need, Out};

/// Numbers in a band, at most.
const BAND: u64 = 1 << 20;

/// Bytes of memory for each number: the code as it is stored, unpacked and swapped, and its group.
const BYTES: u64 = 4;

/// The bytes of a result.
const ITEMSIZE: u64 = 4;

#[derive(Debug)]
pub(crate) struct Dequantised {
    of: Arc<checkpoint::Dequantised>,
    budget: usize,
    depth: u32,
    bands: Bands,
    /// The band whose parts are read; `None` while the tables are read, and between bands.
    band: Option<BandBox>,
    /// The next band.
    next: Option<Band>,
    /// The parts that are still to be read, and the bytes of those that were.
    reading: VecDeque<Reading>,
    read: Vec<Vec<u8>>,
    /// What bands have in common, once it is read.
    common: Option<Common>,
}

/// The values of codes, and the groups of rows and columns of the codes.
#[derive(Debug)]
struct Common {
    values: [f32; 256],
    /// The number of codes that have a value.
    known: usize,
    divisor: Option<f32>,
    listed: [Option<Vec<u64>>; 2],
}

/// A band in the order of the codes: ranges of matrices, rows and columns.
#[derive(Debug, Clone)]
struct BandBox {
    codes: [Range<u64>; 3],
    groups: [Range<u64>; 2],
}

impl Dequantised {
    pub(crate) fn new(
        context: &Context<'_>,
        shape: &[u64],
        of: &Arc<checkpoint::Dequantised>,
        range: Range<u64>,
    ) -> Result<Self> {
        let [matrices, rows, columns] = of.shape;
        if context.itemsize != ITEMSIZE || numel(shape) != numel(&of.shape) {
            return Err(Error::damaged(format!(
                "codes of shape {:?} make up a tensor of shape {shape:?}",
                of.shape
            )));
        }
        let logical = match of.swapped {
            true => [matrices, columns, rows],
            false => of.shape,
        };
        // A swapped band takes a few bytes from each stored row, so it is as large as possible.
        let most = context.budget as u64 / BYTES;
        let max = if of.swapped { most } else { most.min(BAND) };
        let mut this = Self {
            of: of.clone(),
            budget: context.budget,
            depth: context.depth,
            bands: Bands::new(&logical, range, max)?,
            band: None,
            next: None,
            reading: VecDeque::new(),
            read: Vec::new(),
            common: None,
        };
        this.next = this.bands.next();
        this.check()?;
        this.begin_tables(context)?;
        Ok(this)
    }

    /// Checks the shapes of all parts.
    fn check(&self) -> Result<()> {
        let of = &*self.of;
        let [matrices, rows, columns] = of.shape;
        grid(&of.codes, of.shape, "codes")?;
        let groups = [of.groups[0].count(rows), of.groups[1].count(columns)];
        for (groups, len) in of.groups.iter().zip([rows, columns]) {
            match groups {
                Groups::Every(0) => return Err(Error::damaged("groups of no codes")),
                Groups::Every(_) => {}
                Groups::Listed(list, _) => expect(list, len, "list of groups")?,
            }
        }
        let of_groups = [matrices, groups[0], groups[1]];
        let count = numel(&of_groups).ok_or_else(|| Error::damaged("too many groups"))?;
        expect(&of.scales.tensor, count, "scales")?;
        if let Some(divisor) = &of.scales.divisor {
            expect(divisor, 1, "scale of all scales")?;
        }
        match &of.offset {
            Offset::Zeros(codes, _) => grid(codes, of_groups, "zero points").map(|_| ()),
            Offset::Biases(biases) => expect(biases, count, "biases"),
            Offset::None | Offset::Constant(_) => Ok(()),
        }
    }

    fn begin_tables(&mut self, context: &Context<'_>) -> Result<()> {
        let of = self.of.clone();
        if let CodeValues::Stored(table) = &of.values {
            if table.numel().is_none_or(|numel| numel > 256) {
                return Err(Error::damaged("a table of more than 256 values"));
            }
            self.whole(context, table, DType::F32)?;
        }
        if let Some(divisor) = &of.scales.divisor {
            self.whole(context, divisor, DType::F32)?;
        }
        for groups in &of.groups {
            if let Groups::Listed(list, _) = groups {
                self.whole(context, list, DType::I64)?;
            }
        }
        self.settle(&mut |_| Ok(()))
    }

    fn whole(&mut self, context: &Context<'_>, part: &Tensor, dtype: DType) -> Result<()> {
        let count = part.numel().unwrap_or(u64::MAX);
        let limit = context.files.limits().chunk;
        Limits::check("bytes of a list of groups", count.saturating_mul(8), limit)?;
        let part = Tensor { dtype, ..part.clone() };
        self.reading.push_back(Reading::new(context, &part, &part.shape, 0..count)?);
        Ok(())
    }

    pub(crate) fn need(&self) -> Need {
        match self.reading.front() {
            Some(part) => part.stored.need(),
            None if self.next.is_some() => Need::Step,
            None => Need::Done,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        if let Some(part) = self.reading.front_mut() {
            part.call(|stored, out| stored.feed(bytes, out))?;
        }
        self.settle(out)
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        match self.reading.front_mut() {
            Some(part) => part.call(|stored, out| stored.step(files, out))?,
            None => {
                let Some(band) = self.next.take() else { return Ok(()) };
                self.next = self.bands.next();
                self.begin(files, &band)?;
            }
        }
        self.settle(out)
    }

    /// Starts to read the parts of a band.
    fn begin(&mut self, files: &FileSet, band: &Band) -> Result<()> {
        let context = Context { files, itemsize: ITEMSIZE, budget: self.budget, depth: self.depth };
        let of = self.of.clone();
        let axis = |at: usize| {
            let start = band.start.get(at).copied().unwrap_or(0);
            start..start + band.shape.get(at).copied().unwrap_or(1)
        };
        let (rows, columns) = if of.swapped { (axis(2), axis(1)) } else { (axis(1), axis(2)) };
        let common = self.common.as_ref().ok_or_else(|| Error::io("tables were not read"))?;
        let groups = [(&rows, 0), (&columns, 1)].map(|(range, at)| match &of.groups[at] {
            Groups::Every(each) => range.start / each..range.end.div_ceil(*each),
            Groups::Listed(_, count) => match &common.listed[at] {
                Some(list) => extent(&list[range.start as usize..range.end as usize]),
                None => 0..*count,
            },
        });
        let band = BandBox { codes: [axis(0), rows, columns], groups };
        let of_groups = [band.codes[0].clone(), band.groups[0].clone(), band.groups[1].clone()];
        let all_groups =
            [of.shape[0], of.groups[0].count(of.shape[1]), of.groups[1].count(of.shape[2])];
        self.codes(&context, &of.codes, of.shape, &band.codes)?;
        let raw = if of.scales.exponents { DType::U8 } else { DType::F32 };
        self.grouped(&context, &of.scales.tensor, raw, all_groups, &of_groups)?;
        match &of.offset {
            Offset::Zeros(codes, _) => self.codes(&context, codes, all_groups, &of_groups)?,
            Offset::Biases(biases) => {
                self.grouped(&context, biases, DType::F32, all_groups, &of_groups)?;
            }
            Offset::None | Offset::Constant(_) => {}
        }
        self.band = Some(band);
        Ok(())
    }

    /// Starts to read the elements that hold the codes `wanted`.
    fn codes(
        &mut self,
        context: &Context<'_>,
        codes: &Codes,
        shape: [u64; 3],
        wanted: &[Range<u64>; 3],
    ) -> Result<()> {
        let grid = grid(codes, shape, "codes")?;
        let held = grid.held(wanted);
        // The bytes count, whatever the dtype.
        let raw = Tensor { dtype: codes.tensor.stored.clone(), ..codes.tensor.clone() };
        self.reading.push_back(Reading::of_box(context, &raw, grid.shape, &held)?);
        Ok(())
    }

    /// Starts to read the numbers `wanted`, one for each group.
    fn grouped(
        &mut self,
        context: &Context<'_>,
        part: &Tensor,
        dtype: DType,
        shape: [u64; 3],
        wanted: &[Range<u64>; 3],
    ) -> Result<()> {
        let part = match dtype {
            // The bits of an exponent, whatever the dtype is called.
            DType::U8 => Tensor { dtype: DType::U8, stored: DType::U8, ..part.clone() },
            dtype => Tensor { dtype, ..part.clone() },
        };
        self.reading.push_back(Reading::of_box(context, &part, shape, wanted)?);
        Ok(())
    }

    /// Takes the parts that are complete; passes on a band once all of its parts are.
    fn settle(&mut self, out: &mut Out<'_>) -> Result<()> {
        while self.reading.front().is_some_and(|part| part.stored.need() == Need::Done) {
            if let Some(part) = self.reading.pop_front() {
                self.read.push(part.finish()?);
            }
        }
        if !self.reading.is_empty() {
            return Ok(());
        }
        let read = std::mem::take(&mut self.read);
        match self.band.take() {
            None if self.common.is_none() => {
                self.common = Some(Common::new(&self.of, read)?);
                Ok(())
            }
            None => Ok(()),
            Some(band) => self.pass_on(&band, read, out),
        }
    }

    fn pass_on(&self, band: &BandBox, read: Vec<Vec<u8>>, out: &mut Out<'_>) -> Result<()> {
        let Some(common) = &self.common else { return Ok(()) };
        let of = &*self.of;
        let mut read = read.into_iter();
        let mut next = || read.next().unwrap_or_default();
        let codes = grid(&of.codes, of.shape, "codes")?;
        let mut codes = unpack(&codes, &band.codes, &next());
        let [matrices, rows, columns] = lengths(&band.codes);
        if common.known < 256
            && let Some(code) = codes.iter().find(|code| usize::from(**code) >= common.known)
        {
            return Err(Error::damaged(format!(
                "there is a code {code}, but the table has {} values",
                common.known
            )));
        }
        let mut scales = compute::scales(&next(), of.scales.exponents, common.divisor);
        let group_box = [band.codes[0].clone(), band.groups[0].clone(), band.groups[1].clone()];
        let mut offsets = match &of.offset {
            Offset::Zeros(zeros, values) => {
                let all =
                    [of.shape[0], of.groups[0].count(of.shape[1]), of.groups[1].count(of.shape[2])];
                let zeros = unpack(&grid(zeros, all, "zero points")?, &group_box, &next());
                let (values, _) = table(values, &[])?;
                Some(zeros.iter().map(|code| values[usize::from(*code)]).collect())
            }
            Offset::Biases(_) => Some(compute::floats(&next())),
            Offset::None | Offset::Constant(_) => None,
        };
        let [_, group_rows, group_columns] = lengths(&group_box);
        let mut lines = [(rows, 0), (columns, 1)].map(|(count, at)| {
            common.lines(&of.groups[at], at, &band.codes[at + 1], &band.groups[at], count)
        });
        let (mut shape, mut groups) = ([matrices, rows, columns], [group_rows, group_columns]);
        if of.swapped {
            codes = compute::swapped_codes(&codes, shape);
            let grid = [matrices, group_rows, group_columns];
            scales = compute::swapped(&scales, grid);
            offsets = offsets.map(|offsets: Vec<f32>| compute::swapped(&offsets, grid));
            shape.swap(1, 2);
            groups.swap(0, 1);
            lines.swap(0, 1);
        }
        let [row_groups, column_groups] = &lines;
        let compute = Compute {
            of,
            values: &common.values,
            scales: &scales,
            offsets: offsets.as_deref(),
            groups,
            row_groups,
            column_groups,
        };
        compute.run(&codes, shape, out)
    }
}

impl Common {
    fn new(of: &checkpoint::Dequantised, read: Vec<Vec<u8>>) -> Result<Self> {
        let mut read = read.into_iter();
        let mut next = || read.next().unwrap_or_default();
        let stored = match &of.values {
            CodeValues::Stored(_) => compute::floats(&next()),
            _ => Vec::new(),
        };
        let (values, known) = table(&of.values, &stored)?;
        let divisor = of.scales.divisor.as_ref().and_then(|_| compute::floats(&next()).pop());
        let mut listed = [None, None];
        for (groups, listed) in of.groups.iter().zip(&mut listed) {
            let Groups::Listed(_, count) = groups else { continue };
            let numbers = next();
            let numbers = numbers.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
            let group = |number: i64| {
                let group = u64::try_from(number).ok().filter(|group| group < count);
                group.ok_or_else(|| {
                    Error::damaged(format!("a code is in group {number}"))
                        .expected(format!("a group from 0 to {}", count.saturating_sub(1)))
                })
            };
            *listed = Some(numbers.map(group).collect::<Result<Vec<u64>>>()?);
        }
        Ok(Self { values, known, divisor, listed })
    }

    /// Returns the groups of the rows, or columns, of a band, counted from its first group.
    fn lines(
        &self,
        groups: &Groups,
        at: usize,
        range: &Range<u64>,
        of_groups: &Range<u64>,
        count: usize,
    ) -> Lines {
        match (groups, &self.listed[at]) {
            (Groups::Listed(..), Some(list)) => {
                let list = &list[range.start as usize..range.end as usize];
                if let Some(runs) = runs(list) {
                    return runs;
                }
                Lines::Listed(list.iter().map(|group| (group - of_groups.start) as usize).collect())
            }
            (Groups::Every(each), _) | (Groups::Listed(_, each), None) => {
                let each = (*each).max(1);
                let first = usize::try_from(each - range.start % each).unwrap_or(usize::MAX);
                Lines::Runs {
                    first: first.min(count),
                    each: usize::try_from(each).unwrap_or(usize::MAX),
                }
            }
        }
    }
}

/// The groups of the rows or columns of a band.
#[derive(Debug)]
enum Lines {
    /// The first group has `first` of them, the others `each`.
    Runs { first: usize, each: usize },
    /// The group of each.
    Listed(Vec<usize>),
}

/// Returns a list of groups as runs, if it has each group once, in order, with as many lines as the
/// others: the last may have fewer, and so may the first. That is how most lists are.
fn runs(list: &[u64]) -> Option<Lines> {
    let len = |list: &[u64]| {
        let first = list.first()?;
        Some(list.iter().take_while(|group| *group == first).count())
    };
    let first = len(list)?;
    let each = len(&list[first..]).unwrap_or(first);
    let start = list.first().copied().unwrap_or(0);
    let group = |at: usize| if at < first { 0 } else { 1 + (at - first) / each };
    let alike = first <= each || first == list.len();
    let in_order = list.iter().enumerate().all(|(at, found)| *found == start + group(at) as u64);
    (alike && in_order).then_some(Lines::Runs { first, each })
}

/// A part while it is read.
#[derive(Debug)]
struct Reading {
    stored: LayoutMachine,
    transform: Transform,
    bytes: Vec<u8>,
}

impl Reading {
    fn new(context: &Context<'_>, part: &Tensor, shape: &[u64], range: Range<u64>) -> Result<Self> {
        let inner = Context { itemsize: part.stored.itemsize(), ..*context };
        Ok(Self {
            stored: LayoutMachine::new(&inner, shape, &part.layout, range)?,
            transform: Transform::new(part)?,
            bytes: Vec::new(),
        })
    }

    /// Reads a box of a part whose elements, in C order, have `shape`.
    fn of_box(
        context: &Context<'_>,
        part: &Tensor,
        shape: [u64; 3],
        wanted: &[Range<u64>; 3],
    ) -> Result<Self> {
        let large = || Error::damaged("a part of a quantised tensor is too large to count");
        let count = numel(&shape).ok_or_else(large)?;
        let strides = contiguous_strides(&shape).ok_or_else(large)?;
        let offset = wanted.iter().zip(&strides).try_fold(0u64, |all, (range, stride)| {
            all.checked_add(range.start.checked_mul((*stride).unsigned_abs())?)
        });
        let storage = match &part.layout {
            layout @ (Layout::Span(_) | Layout::Packed(_) | Layout::Inline(_)) => layout.clone(),
            layout => {
                let (shape, layout) = (part.shape.clone(), layout.clone());
                Layout::Concat(Concat { axis: 0, parts: vec![Part { shape, layout }] })
            }
        };
        let view = Strided {
            storage: Arc::new(storage),
            storage_len: count.checked_mul(part.stored.itemsize()).ok_or_else(large)?,
            offset: offset.ok_or_else(large)?,
            strides,
        };
        let shape: Vec<u64> = wanted.iter().map(|range| range.end - range.start).collect();
        let count = numel(&shape).ok_or_else(large)?;
        let part = Tensor { layout: Layout::Strided(view), ..part.clone() };
        Self::new(context, &part, &shape, 0..count)
    }

    fn call(
        &mut self,
        call: impl FnOnce(&mut LayoutMachine, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { stored, transform, bytes } = self;
        call(stored, &mut |piece| {
            transform.feed(piece, &mut |elements| {
                bytes.extend_from_slice(elements);
                Ok(())
            })
        })
    }

    fn finish(self) -> Result<Vec<u8>> {
        self.transform.finish()?;
        Ok(self.bytes)
    }
}

/// Returns the elements that hold packed codes, whose shape is checked.
fn grid(codes: &Codes, shape: [u64; 3], what: &str) -> Result<Grid> {
    let itemsize = codes.tensor.stored.itemsize();
    let numel = codes.tensor.numel().unwrap_or(u64::MAX);
    Grid::new(codes.packing, shape, itemsize, numel).ok_or_else(|| {
        let [matrices, rows, columns] = shape;
        let bits = match codes.packing {
            CodePacking::Bytes => 8,
            CodePacking::AlongRow(bits) | CodePacking::AlongColumn(bits) => bits,
            CodePacking::Interleaved | CodePacking::HighFirst => 4,
            CodePacking::Fields(widths) => widths.iter().max().copied().unwrap_or(0).into(),
        };
        let matrices = if matrices == 1 { String::new() } else { format!("{matrices} × ") };
        Error::damaged(format!(
            "the {what} are a tensor of shape {:?} and dtype {}",
            codes.tensor.shape, codes.tensor.stored
        ))
        .expected(format!("{matrices}{rows} × {columns} numbers of {bits} bits"))
    })
}

/// Fails unless a part has this number of elements.
fn expect(part: &Tensor, count: u64, what: &str) -> Result<()> {
    if part.numel() == Some(count) {
        return Ok(());
    }
    Err(Error::damaged(format!("the {what} are a tensor of shape {:?}", part.shape))
        .expected(format!("{count} elements")))
}

/// Returns the smallest range that has all of the groups.
fn extent(groups: &[u64]) -> Range<u64> {
    let first = groups.iter().min().copied().unwrap_or(0);
    first..groups.iter().max().map_or(first, |last| last + 1)
}

/// Returns the lengths of the ranges of a band, which fit in memory.
fn lengths(ranges: &[Range<u64>; 3]) -> [usize; 3] {
    [0, 1, 2].map(|at: usize| (ranges[at].end - ranges[at].start) as usize)
}
