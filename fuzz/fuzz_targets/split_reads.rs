#![no_main]

// The last four bytes determine how the file before them is cut, so that the fixtures are usable as
// seeds.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (file, pieces) = bytes.split_at(bytes.len().saturating_sub(4));
    statelens_fuzz::compare("x", file, pieces);
});
