//! Damaged copies of files, for the tests of every reader: each gives a tree or an error, none a panic.

/// Where the structure of most formats is, and so half of the damage.
const HEAD: usize = 8 << 10;

/// `count` copies of a file, each damaged in another way, the same ones each time: bytes changed
/// anywhere, bytes changed near the beginning, the file cut short.
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

/// Gives each copy to `opens`, which reads all that it can and says whether the file could be opened.
/// Some must: where every copy is refused, what comes after the first check was never tried.
#[track_caller]
pub(crate) fn survive(name: &str, whole: &[u8], count: usize, opens: impl FnMut(Vec<u8>) -> bool) {
    let opened = damaged_copies(whole, count).map(opens).filter(|opened| *opened).count();
    assert!(opened > 0, "{name}: none of {count} damaged copies can be opened");
}
