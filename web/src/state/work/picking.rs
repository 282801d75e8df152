//! Picking several rows of the open checkpoint.

use crate::state::work::OpenWork;

impl OpenWork {
    /// Picks or unpicks a line in addition to the others; with `extend`, picks all lines from the
    /// last one to this one.
    pub fn pick(&mut self, line: usize, extend: bool) {
        let from = self.cursor().unwrap_or(line);
        match extend {
            true => self.picked.extend(&self.table, from, line),
            false => {
                // The selected line becomes the first of several.
                if self.picked.count() == 0 && from != line {
                    self.picked.toggle(&self.table, from);
                }
                self.picked.toggle(&self.table, line);
            }
        }
        self.select_line(line);
    }

    /// Picks or unpicks a line; the selection stays.
    pub fn toggle_pick(&mut self, line: usize) {
        self.picked.toggle(&self.table, line);
    }

    /// Picks or unpicks the selected line.
    pub fn pick_selected(&mut self) {
        if let Some(line) = self.cursor() {
            self.picked.toggle(&self.table, line);
        }
    }

    /// Moves the selection by lines, and picks the lines in between.
    pub fn extend_pick(&mut self, by: isize) {
        let from = self.cursor();
        self.step(by);
        if let (Some(from), Some(line)) = (from, self.cursor()) {
            self.picked.extend(&self.table, from, line);
        }
    }
}
