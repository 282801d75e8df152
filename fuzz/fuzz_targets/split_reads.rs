#![no_main]

// The last bytes say how the file before them is cut, so that the fixtures are seeds as they are.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (file, pieces) = bytes.split_at(bytes.len().saturating_sub(4));
    statelens_fuzz::compare("x", file, pieces);
});
