//! Damaged copies of files, for tests of the readers: each must give a tree or an error, without a
//! panic.

/// Most formats have their structure in these first bytes, so half of the damage goes here.
const HEAD: usize = 8 << 10;

/// Returns `count` copies of a file with different damage, always the same: bytes changed anywhere,
/// bytes changed near the beginning, or the file truncated.
pub(crate) fn damaged_copies(whole: &[u8], count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below.max(1)
    };
    (0..count).map(move |round| {
        let mut copy = whole.to_vec();
        let area = match round % 3 {
            0 => {
                copy.truncate(random(whole.len()));
                return copy;
            }
            1 => whole.len(),
            _ => whole.len().min(HEAD),
        };
        for _ in 0..=random(4) {
            let (at, bits) = (random(area), 1 + random(255) as u8);
            if let Some(byte) = copy.get_mut(at) {
                *byte ^= bits;
            }
        }
        copy
    })
}

/// Passes each copy to `opens`, which reads as much as it can and returns whether the file could be
/// opened. Fails if no copy can be opened, since then only the first check was tested.
#[track_caller]
pub(crate) fn survive(name: &str, whole: &[u8], count: usize, opens: impl FnMut(Vec<u8>) -> bool) {
    let opened = damaged_copies(whole, count).map(opens).filter(|opened| *opened).count();
    assert!(opened > 0, "{name}: none of {count} damaged copies can be opened");
}
