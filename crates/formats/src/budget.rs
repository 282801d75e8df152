//! The work that may be spent on one file, whatever it contains.

use statelens_checkpoint::Limits;

/// Units for a file of any size: about 2 s of one core.
const FLOOR: u64 = 2_000_000_000;
/// Units per byte of a file. Searching a byte once costs one unit.
const PER_BYTE: u64 = 100;

/// The work that is left for a file, or for several that are examined together. A unit is about a
/// nanosecond of one core: a step of a loop over bytes, or a comparison. A scan has one budget, and
/// every search in it spends from it.
///
/// Once a request exceeds the rest, the budget is exhausted for good.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    left: u64,
    per_byte: u64,
}

impl Budget {
    /// Returns the budget for files within `limits`, without what their lengths add to it.
    pub(crate) fn within(limits: &Limits) -> Self {
        let unlimited = limits.structure == u64::MAX;
        let times = limits.multiple().unwrap_or(if unlimited { u64::MAX } else { 1 });
        Self { left: FLOOR.saturating_mul(times), per_byte: PER_BYTE.saturating_mul(times) }
    }

    /// Returns a budget of a number of units, to which files add nothing.
    pub(crate) fn of(units: u64) -> Self {
        Self { left: units, per_byte: 0 }
    }

    /// Adds what a file of `len` bytes allows.
    pub(crate) fn add_file(&mut self, len: u64) {
        if !self.is_exhausted() {
            self.left = self.left.saturating_add(len.saturating_mul(self.per_byte));
        }
    }

    /// Spends `units`. Returns whether they were left; if not, the caller must stop, and report what
    /// it did not examine.
    #[must_use = "an exhausted budget ends the search"]
    pub(crate) fn spend(&mut self, units: u64) -> bool {
        self.left = self.left.saturating_sub(units);
        self.left > 0
    }

    /// Returns whether the budget is exhausted, so that something was not examined.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_budget_stays_exhausted() {
        let mut budget = Budget::of(10);
        assert!(budget.spend(9) && !budget.is_exhausted());
        assert!(!budget.spend(5) && budget.is_exhausted());
        budget.add_file(100);
        assert!(!budget.spend(0));
    }

    #[test]
    fn budget_grows_with_the_file_and_the_limits() {
        let of = |limits: &Limits, len| {
            let mut budget = Budget::within(limits);
            budget.add_file(len);
            budget.left()
        };
        let usual = Limits::default();
        assert!(of(&usual, 1 << 30) > 2 * of(&usual, 0));
        assert_eq!(of(&Limits::times(3), 5), 3 * of(&usual, 5));
        assert_eq!(of(&Limits::none(), 5), u64::MAX);
    }
}
