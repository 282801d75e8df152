//! Picking several rows of what is open.

use crate::state::work::OpenWork;

impl OpenWork {
    /// Picks a line beside what is picked, or lets it go; or all from the one before to this one.
    pub fn pick(&mut self, line: usize, reach: bool) {
        let from = self.cursor().unwrap_or(line);
        match reach {
            true => self.picked.reach(&self.table, from, line),
            false => {
                // What is looked at is the first of several.
                if self.picked.count() == 0 && from != line {
                    self.picked.toggle(&self.table, from);
                }
                self.picked.toggle(&self.table, line);
            }
        }
        self.look_at_line(line);
    }

    /// Picks a line beside what is picked, or lets it go; what is looked at stays.
    pub fn pick_alone(&mut self, line: usize) {
        self.picked.toggle(&self.table, line);
    }

    /// Picks the line that is looked at, or lets it go.
    pub fn pick_here(&mut self) {
        if let Some(line) = self.cursor() {
            self.picked.toggle(&self.table, line);
        }
    }

    /// Moves by lines, and picks all on the way.
    pub fn pick_on(&mut self, by: isize) {
        let from = self.cursor();
        self.step(by);
        if let (Some(from), Some(line)) = (from, self.cursor()) {
            self.picked.reach(&self.table, from, line);
        }
    }
}
