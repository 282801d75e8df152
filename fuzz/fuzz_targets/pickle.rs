#![no_main]

use statelens_checkpoint::Limits;

// The machine by itself reads anything; as a file, bytes must look like a pickle first.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = statelens_pickle::read(bytes, 0, &Limits::default());
    statelens_fuzz::examine("x.pkl", bytes);
});
