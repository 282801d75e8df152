//! Views of a storage, gathered box by box.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use statelens_checkpoint::{Area, FileSet, Layout, Result};

use super::{Context, LayoutMachine};
use crate::bands::Band;
use crate::pieces::Elements;
use crate::runs::Runs;
use crate::scatter::Scatter;
use crate::view::View;
use crate::{Need, Out};

/// Bytes of a file that can be read in the time it takes to start another read.
const GAP: u64 = 32 << 10;
/// The same for scratch, which is local and was written recently.
const AREA_GAP: u64 = 4 << 10;

/// Runs of scratch that are read in one step.
const STEP: usize = 1024;

/// Boxes of a view, in the order in which they are needed.
pub(crate) type Boxes = Box<dyn Iterator<Item = Band> + Send>;

/// Gathers a view box by box. The storage is read in ascending order, and the elements of a box are
/// copied to their places on the way.
pub(crate) struct Strided {
    view: View,
    storage: Storage,
    itemsize: u64,
    budget: usize,
    depth: u32,
    boxes: Boxes,
    /// The bytes of the box.
    bytes: Vec<u8>,
    /// The remaining runs to read for the box.
    runs: Option<Runs>,
    /// The run that is being read, and its position in elements of the storage.
    run: Option<(LayoutMachine, Scatter, u64)>,
    elements: Elements,
    done: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Storage {
    Layout(Arc<Layout>, u64),
    Area(Arc<dyn Area>),
}

impl Strided {
    /// Creates the machine for boxes of a view that is within its storage, each within the budget
    /// or of a single element.
    pub(crate) fn new(context: &Context<'_>, view: View, storage: Storage, boxes: Boxes) -> Self {
        let mut this = Self {
            view,
            storage,
            itemsize: context.itemsize,
            budget: context.budget,
            depth: context.depth,
            boxes,
            bytes: Vec::new(),
            runs: None,
            run: None,
            elements: Elements::new(context.itemsize),
            done: false,
        };
        this.next_box();
        this
    }

    pub(crate) fn need(&self) -> Need {
        match &self.run {
            _ if self.done => Need::Done,
            Some((run, ..)) => run.need(),
            None => Need::Step,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.advance(out, |run, put| run.feed(bytes, put))
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        for _ in 0..STEP {
            if self.run.is_some() {
                self.advance(out, |run, put| run.step(files, put))?;
            } else if let Some(scatter) = self.runs.as_mut().and_then(Runs::next) {
                let start = scatter.storage;
                let len = self.runs.as_ref().map_or(0, |runs| runs.len);
                let bytes = start * self.itemsize..(start + len) * self.itemsize;
                let context = Context {
                    files,
                    itemsize: self.itemsize,
                    budget: self.budget,
                    depth: self.depth,
                };
                self.run = Some((self.storage.open(&context, bytes)?, scatter, start));
            }
            // Bytes of files come from the caller; long runs continue in the next step.
            if !matches!(self.storage, Storage::Area(_)) || self.done {
                break;
            }
        }
        Ok(())
    }

    /// Runs one call of the inner machine, and passes the box on once it is complete.
    fn advance(
        &mut self,
        out: &mut Out<'_>,
        call: impl FnOnce(&mut LayoutMachine, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some((run, scatter, at)) = &mut self.run else { return Ok(()) };
        let (elements, bytes, itemsize) = (&mut self.elements, &mut self.bytes, self.itemsize);
        call(run, &mut |piece| {
            elements.feed(piece, &mut |whole| {
                scatter.put(*at, whole, itemsize as usize, bytes);
                *at += whole.len() as u64 / itemsize;
                Ok(())
            })
        })?;
        if run.need() != Need::Done {
            return Ok(());
        }
        self.run = None;
        if self.runs.as_ref().is_some_and(|runs| !runs.done) {
            return Ok(());
        }
        out(&self.bytes)?;
        self.next_box();
        Ok(())
    }

    fn next_box(&mut self) {
        match self.boxes.next() {
            Some(next) => {
                self.bytes.resize((next.count * self.itemsize) as usize, 0);
                let gap = self.storage.gap();
                self.runs = Some(Runs::new(&self.view, &next, self.itemsize, gap));
            }
            None => {
                self.bytes = Vec::new();
                self.done = true;
            }
        }
    }
}

impl Storage {
    /// Creates the machine that reads the bytes `range`.
    pub(crate) fn open(&self, context: &Context<'_>, range: Range<u64>) -> Result<LayoutMachine> {
        match self {
            Self::Layout(layout, len) => LayoutMachine::storage(context, layout, *len, range),
            Self::Area(area) => Ok(LayoutMachine::Area { area: area.clone(), range }),
        }
    }

    /// Returns the gap for [`Runs::new`]; `None` if the storage can only be read from the start.
    pub(crate) fn gap(&self) -> Option<u64> {
        match self {
            Self::Area(_) => Some(AREA_GAP),
            Self::Layout(layout, _) => match &**layout {
                Layout::Span(_) => Some(GAP),
                Layout::Inline(_) => Some(0),
                _ => None,
            },
        }
    }
}

impl fmt::Debug for Strided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Strided({:?} of {:?})", self.view, self.storage)
    }
}
