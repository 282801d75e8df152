//! Fingerprints: short codes by which two people can check that they have the same checkpoint.
//!
//! A fingerprint is the first 80 bits of a SHA-256 over sorted lines, as four groups of four
//! letters of Crockford's base 32 (<https://www.crockford.com/base32.html>: without I, L, O and U,
//! to avoid mishearing and misreading). The lines are those of `statelens manifest`, each
//! terminated by a line feed: whole lines for the content, lines without the first column (hash or
//! value) for the structure. Format, file order and links do not matter.

use sha2::{Digest, Sha256};
use statelens_checkpoint::{order, shape_text, visible};

use super::LeafSummary;

const LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Fingerprint {
    /// The short code, readable over the phone: `7Q2K-M0XW-9HTD-3BVF`.
    pub short: String,
    /// The whole SHA-256, in hexadecimal.
    pub sha256: String,
}

/// Returns the fingerprint of keys, dtypes and shapes.
pub fn structure_fingerprint(entries: &[LeafSummary]) -> Fingerprint {
    let line = |entry: &LeafSummary| {
        let shape = if entry.is_tensor() { shape_text(&entry.shape) } else { String::new() };
        format!("{}\t{shape}\t{}\n", entry.type_word(), visible(&entry.key))
    };
    of_lines(entries.iter().map(line).collect())
}

/// Returns the fingerprint of the lines of a manifest, in any order.
pub(super) fn of_lines(mut lines: Vec<String>) -> Fingerprint {
    order::natural(&mut lines);
    let mut hasher = Sha256::new();
    lines.iter().for_each(|line| hasher.update(line));
    let hash: [u8; 32] = hasher.finalize().into();
    Fingerprint { short: short(&hash), sha256: statelens_checkpoint::hex(&hash) }
}

fn short(hash: &[u8; 32]) -> String {
    let mut out = String::new();
    let (mut bits, mut held) = (0u32, 0u32);
    for byte in &hash[..10] {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            if out.len() % 5 == 4 {
                out.push('-');
            }
            out.push(char::from(LETTERS[(held >> bits) as usize & 31]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeafKind;

    #[test]
    fn short_fingerprint_has_four_groups() {
        assert_eq!(short(&[0; 32]), "0000-0000-0000-0000");
        assert_eq!(short(&[0xff; 32]), "ZZZZ-ZZZZ-ZZZZ-ZZZZ");
        let mut hash = [0; 32];
        // 00001 00010 00011 00100 …
        hash[..5].copy_from_slice(&[0x08, 0x86, 0x42, 0x98, 0xe8]);
        assert_eq!(short(&hash), "1234-5678-0000-0000");
    }

    #[test]
    fn fingerprint_ignores_only_order_and_links() {
        let entry = |key: &str, shape: &[u64]| LeafSummary {
            key: key.into(),
            kind: LeafKind::Tensor,
            dtype: "float32".into(),
            shape: shape.to_vec(),
            ..LeafSummary::default()
        };
        let (a, b) = (entry("a", &[2]), entry("b", &[]));
        let print = |entries: &[LeafSummary]| structure_fingerprint(entries).short;
        let both = print(&[a.clone(), b.clone()]);
        assert_eq!(both, print(&[b.clone(), a.clone()]));
        assert_eq!(both, print(&[LeafSummary { link: Some("b".into()), ..a.clone() }, b.clone()]));
        for other in [
            vec![a.clone()],
            vec![entry("c", &[2]), b.clone()],
            vec![entry("a", &[3]), b.clone()],
            vec![LeafSummary { dtype: "float64".into(), ..a.clone() }, b.clone()],
            vec![a, LeafSummary { dtype: String::new(), kind: LeafKind::Int, ..b }],
        ] {
            assert_ne!(both, print(&other), "{other:?}");
        }
    }
}
