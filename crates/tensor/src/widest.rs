//! Runs loops with the widest vector instructions of the processor.

/// Runs a loop that is compiled three times for x86-64: for all processors, and for those with AVX2
/// or AVX-512. Large closures in it must be `#[inline(always)]`, since only inlined code is compiled
/// for each.
#[inline(always)]
pub fn widest<R>(run: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        use fearless_simd::{Level, Simd as _};
        let level = Level::new();
        if let Some(avx512) = level.as_avx512() {
            return avx512.vectorize(run);
        }
        if let Some(avx2) = level.as_avx2() {
            return avx2.vectorize(run);
        }
    }
    run()
}
