//! Predicts the effect of a cast before any bytes are written.

use statelens_checkpoint::DType;
use statelens_tensor::{Cast, CastReport};

use crate::Summary;

impl Summary {
    /// Returns the effect of casting the values to `to`; `None` if that cast is not supported.
    ///
    /// Exact if each value is known ([`Summary::is_exact`]), except that all zeros count as
    /// positive. Otherwise each value is represented by the middle of its bin, so a cast that drops
    /// digits appears to change nearly all of them. Not applicable to complex numbers: a summary
    /// has their moduli, which is not what a cast converts.
    pub fn forecast(&self, to: &DType) -> Option<CastReport> {
        let mut cast = Cast::new(&DType::F64, to).ok()?;
        let mut all = CastReport::default();
        let mut out = Vec::new();
        let mut add = |value: f64, count: u64| {
            if count == 0 {
                return;
            }
            let before = cast.report();
            cast.run(&value.to_le_bytes(), &mut out);
            let after = cast.report();
            all.elements += count;
            all.changed += (after.changed - before.changed) * count;
            all.overflowed += (after.overflowed - before.overflowed) * count;
            all.nonzero += (after.nonzero - before.nonzero) * count;
            all.flushed += (after.flushed - before.flushed) * count;
            all.worst = after.worst;
        };
        add(f64::NAN, self.nan);
        add(f64::INFINITY, self.pos_inf);
        add(f64::NEG_INFINITY, self.neg_inf);
        self.each(add);
        Some(all)
    }
}
