//! Statistics of a tensor, as the inspector shows them.

use statelens_checkpoint::{Unwatched, float_repr};
use statelens_inspect::{Statistician, Statistics};
use statelens_tensor::{BUFFER, drain};

use crate::protocol::Fact;
use crate::state::fmt::{cell, exact};
use crate::worker::session::Open;

/// A tensor of so many bytes is read while somebody looks at it; a larger one when that is asked for.
const SMALL: u64 = 4 << 20;

/// Statistics of a small tensor of a file on this computer.
#[must_use]
pub fn of_small(open: &Open, row: u32) -> Option<Statistics> {
    let leaf = open.leaves.get(row as usize)?;
    let (_, tensor) = open.checkpoint.tensor_of(leaf.target)?;
    // Of a compressed storage all is read, however small the tensor in it.
    let packed = matches!(tensor.layout, statelens_checkpoint::Layout::Packed(_));
    if tensor.nbytes()? > SMALL || packed || open.sources.server().is_some() {
        return None;
    }
    let mut measure = Statistician::new(&tensor.dtype)?;
    let mut take = |bytes: &[u8]| {
        measure.feed(bytes);
        Ok(())
    };
    // The values beside it say why they can't be read.
    drain(&open.checkpoint.files, tensor, BUFFER, &mut Unwatched, &mut take).ok()?;
    Some(measure.finish())
}

/// Label and value of each.
#[must_use]
pub fn facts(of: &Statistics) -> Vec<Fact> {
    let fact =
        |label: &str, value: String| Fact { label: label.to_owned(), value, note: String::new() };
    let mut facts = Vec::new();
    if of.finite() > 0 {
        for (label, value) in [("min", of.min), ("max", of.max), ("mean", of.mean), ("std", of.std)]
        {
            facts.push(fact(label, cell(&float_repr(value))));
        }
    }
    for (label, count) in [("zeros", of.zeros), ("NaN", of.nan), ("infinite", of.infinite)] {
        if count > 0 || label == "zeros" {
            facts.push(fact(label, exact(count)));
        }
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use statelens_checkpoint::DType;

    #[test]
    fn what_there_is_none_of_is_not_told() {
        let values = [1.0f32, -2.0, 0.0, f32::NAN];
        let mut measure = Statistician::new(&DType::F32).expect("floats have some");
        values.iter().for_each(|value| measure.feed(&value.to_le_bytes()));
        let told: Vec<(String, String)> =
            facts(&measure.finish()).into_iter().map(|fact| (fact.label, fact.value)).collect();
        let expected = [
            ("min", "\u{2212}2.0"),
            ("max", "1.0"),
            ("mean", "\u{2212}0.3333"),
            ("std", "1.2472"),
            ("zeros", "1"),
            ("NaN", "1"),
        ];
        let expected = expected.map(|(label, value)| (label.to_owned(), value.to_owned()));
        assert_eq!(told, expected);
    }
}
