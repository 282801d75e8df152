//! What a cast would do, known before a byte is written.

use statelens_checkpoint::DType;
use statelens_tensor::{Cast, CastReport};

use crate::Summary;

impl Summary {
    /// What casting the values to `to` would do to them; `None` if that is no cast that is known.
    ///
    /// Exact where each value is known ([`Summary::is_exact`]), but that zeros are taken to be
    /// positive; else told by the middles of bins, of which nearly every one would be changed by a
    /// cast that drops digits. Complex numbers are taken by their modulus, which is not what a cast
    /// does: not for those.
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
