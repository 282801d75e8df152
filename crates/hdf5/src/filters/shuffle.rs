//! Shuffle (filter 2): the first bytes of all elements, then their second bytes, and so on.

/// Undoes shuffle for elements of `size` bytes. Bytes after the last whole element are unchanged.
pub fn decode(input: &[u8], size: usize) -> Vec<u8> {
    let count = if size > 1 { input.len() / size } else { 0 };
    let mut out = vec![0; input.len()];
    let whole = count * size;
    for (lane, bytes) in input[..whole].chunks_exact(count.max(1)).enumerate() {
        for (element, byte) in bytes.iter().enumerate() {
            out[element * size + lane] = *byte;
        }
    }
    out[whole..].copy_from_slice(&input[whole..]);
    out
}

/// Shuffles elements of `size` bytes. Bytes after the last whole element are unchanged.
pub fn encode(plain: &[u8], size: usize) -> Vec<u8> {
    let count = if size > 1 { plain.len() / size } else { 0 };
    let mut out = vec![0; plain.len()];
    let whole = count * size;
    for (element, bytes) in plain[..whole].chunks_exact(size.max(1)).enumerate() {
        for (lane, byte) in bytes.iter().enumerate() {
            out[lane * count + element] = *byte;
        }
    }
    out[whole..].copy_from_slice(&plain[whole..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffle_round_trips() {
        assert_eq!(encode(&[1, 2, 3, 4, 5, 6, 7], 3), [1, 4, 2, 5, 3, 6, 7]);
        for size in [1, 2, 3, 4, 8, 100] {
            for len in [0, 1, 7, 24, 25] {
                let plain: Vec<u8> = (0..len).collect();
                assert_eq!(decode(&encode(&plain, size), size), plain, "{size} {len}");
            }
        }
    }
}
