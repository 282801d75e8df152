#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| statelens_fuzz::examine("x.safetensors", bytes));
