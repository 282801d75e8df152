//! Runs the target that `STATELENS_FUZZ_TARGET` names. All are in one program, because linking takes
//! longer than the short runs.

#![no_main]

use std::env;
use std::sync::LazyLock;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = env::var("STATELENS_FUZZ_TARGET").expect("STATELENS_FUZZ_TARGET names a target");
    statelens_fuzz::target(&name).expect("the name is in `TARGETS`")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
