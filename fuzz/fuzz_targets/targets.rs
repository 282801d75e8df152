//! Runs the target that `STATELENS_FUZZ_TARGET` names. All are in one program, because linking takes
//! longer than the short runs.

#![no_main]

use std::env;
use std::sync::LazyLock;

static TARGET: LazyLock<statelens_fuzz::Target> = LazyLock::new(|| {
    let name = env::var("STATELENS_FUZZ_TARGET").expect("STATELENS_FUZZ_TARGET names a target");
    statelens_fuzz::target(&name).expect("the name is that of a target or the id of a format")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET(bytes));
