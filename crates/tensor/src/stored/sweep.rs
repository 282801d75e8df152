//! A stream that is reordered in one pass.

use std::fmt;

use statelens_checkpoint::{FileSet, Result};

use super::LayoutMachine;
use super::strided::Boxes;
use crate::pieces::Elements;
use crate::runs::Runs;
use crate::scatter::Scatter;
use crate::view::View;
use crate::{Need, Out};

/// Gathers boxes of a view that follow each other in its storage, in one pass.
pub(crate) struct Sweep {
    view: View,
    itemsize: u64,
    stream: LayoutMachine,
    /// The next element of the storage.
    at: u64,
    boxes: Boxes,
    /// The box that is being assembled, and its last element in the storage.
    now: Option<(Scatter, u64)>,
    bytes: Vec<u8>,
    elements: Elements,
}

impl Sweep {
    /// Creates the machine. `stream` begins with the element `at` of the storage. Each box must end
    /// in the storage before the next one begins.
    pub(crate) fn new(
        view: View,
        itemsize: u64,
        stream: LayoutMachine,
        at: u64,
        boxes: Boxes,
    ) -> Self {
        let mut this = Self {
            view,
            itemsize,
            stream,
            at,
            boxes,
            now: None,
            bytes: Vec::new(),
            elements: Elements::new(itemsize),
        };
        this.next_box();
        this
    }

    pub(crate) fn need(&self) -> Need {
        self.stream.need()
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<()> {
        self.run(out, |stream, put| stream.feed(bytes, put))
    }

    pub(crate) fn step(&mut self, files: &FileSet, out: &mut Out<'_>) -> Result<()> {
        self.run(out, |stream, put| stream.step(files, put))
    }

    fn run(
        &mut self,
        out: &mut Out<'_>,
        call: impl FnOnce(&mut LayoutMachine, &mut Out<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut stream = std::mem::replace(&mut self.stream, LayoutMachine::Done);
        let mut elements = std::mem::replace(&mut self.elements, Elements::new(self.itemsize));
        let ran = call(&mut stream, &mut |piece| {
            elements.feed(piece, &mut |whole| self.take(whole, out))
        });
        (self.stream, self.elements) = (stream, elements);
        ran
    }

    fn take(&mut self, whole: &[u8], out: &mut Out<'_>) -> Result<()> {
        let end = self.at + whole.len() as u64 / self.itemsize;
        while let Some((scatter, last)) = &self.now {
            scatter.put(self.at, whole, self.itemsize as usize, &mut self.bytes);
            if end <= *last {
                break;
            }
            out(&self.bytes)?;
            self.next_box();
        }
        self.at = end;
        Ok(())
    }

    fn next_box(&mut self) {
        self.now = self.boxes.next().and_then(|next| {
            self.bytes.resize((next.count * self.itemsize) as usize, 0);
            let mut runs = Runs::new(&self.view, &next, self.itemsize, None);
            let scatter = runs.next()?;
            let last = scatter.storage + runs.len - 1;
            Some((scatter, last))
        });
    }
}

impl fmt::Debug for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sweep({:?} of {:?})", self.view, self.stream)
    }
}
