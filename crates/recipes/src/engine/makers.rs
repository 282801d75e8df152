//! Tensors that are created because the source lacks them.

use std::sync::Arc;

use statelens_checkpoint::{
    Arithmetic, Computed, DType, Error, Layout, Limits, Result, Strided, Tensor,
};

use crate::language::{Expression, Maker, Scope};

/// Larger than in any model; limits tables of positions, which are made in memory.
const MAX_POSITIONS: u64 = 1 << 24;
/// Larger than in any model; limits the number of heads, and the dimensions of one.
const MAX_HEADS: u64 = 1 << 16;

/// Creates the tensor; returns `None` if it is that of another key.
pub(super) fn make(maker: &Maker, key: &str, scope: &dyn Scope) -> Result<Option<Tensor>> {
    let up_to = |most: u64, what: &'static str, expression: &Expression| -> Result<u64> {
        let count = expression.count(scope)?;
        Limits::check(what, count, most)?;
        Ok(count)
    };
    let count = |len| up_to(MAX_POSITIONS, "positions of a created tensor", len);
    let heads = |len| up_to(MAX_HEADS, "heads, or dimensions of a head,", len);
    let shape = |all: &[Expression]| -> Result<Vec<u64>> {
        all.iter().map(|one| one.count(scope)).collect()
    };
    Ok(Some(match maker {
        Maker::First(_) => return Ok(None),
        Maker::Positions(len) => {
            let len = count(len)?;
            let bytes: Vec<u8> = (0..len).flat_map(u64::to_le_bytes).collect();
            Tensor::new(DType::I64, vec![1, len], Layout::Inline(bytes.into()))
        }
        Maker::Triangle(len) => triangle(count(len)?),
        Maker::Number(number) => floats(Vec::new(), &[number.number(scope)?]),
        Maker::Frequencies(base, dim) => {
            let (base, dim) = (base.number(scope)?, heads(dim)?);
            let frequencies: Vec<f64> =
                (0..dim).step_by(2).map(|at| frequency(base, at, dim)).collect();
            floats(vec![frequencies.len() as u64], &frequencies)
        }
        Maker::Slopes(of) => {
            let slopes = slopes(heads(of)?);
            floats(vec![slopes.len() as u64, 1], &slopes)
        }
        Maker::Zeros(all) => Tensor::new(DType::F32, shape(all)?, Layout::Fill([0; 4].into())),
        Maker::Normal(deviation, all) => {
            let deviation = deviation.number(scope)?;
            random(Arithmetic::Normal { deviation, seed: seed(key) }, shape(all)?)
        }
        Maker::Uniform(bound, all) => {
            let bound = bound.number(scope)?;
            random(Arithmetic::Uniform { bound, seed: seed(key) }, shape(all)?)
        }
    }))
}

/// Returns ones on and below the diagonal. Each row of `[1, 1, len, len]` is the same run of ones
/// and zeros, shifted by one.
fn triangle(len: u64) -> Tensor {
    let mut run = vec![1; len as usize];
    run.extend(vec![0; (len as usize).saturating_sub(1)]);
    let layout = match len {
        0 => Layout::Inline([].into()),
        _ => Layout::Strided(Strided {
            storage_len: run.len() as u64,
            storage: Arc::new(Layout::Inline(run.into())),
            offset: len - 1,
            strides: vec![0, 0, -1, 1],
        }),
    };
    Tensor::new(DType::U8, vec![1, 1, len, len], layout)
}

/// Returns `1 / base ** (at / dim)`, in float32 as torch computes it.
fn frequency(base: f64, at: u64, dim: u64) -> f64 {
    let exponent = at as f32 / dim as f32;
    f64::from(1.0 / base.powf(f64::from(exponent)) as f32)
}

/// Returns ALiBi's slopes: powers of a number that depends on the number of heads. If that is not a
/// power of two, the slopes for the next lower power are followed by every other slope for twice
/// that power.
fn slopes(heads: u64) -> Vec<f64> {
    let of = |heads: u64| -> Vec<f64> {
        let first = 2f64.powf(-(2f64.powf(-((heads as f64).log2() - 3.0))));
        (0..heads).map(|at| first * first.powf(at as f64)).collect()
    };
    if heads == 0 {
        return Vec::new();
    }
    let lower = 1 << heads.ilog2();
    let mut all = of(lower);
    if lower < heads {
        let further = of(2 * lower);
        all.extend(further.into_iter().step_by(2).take((heads - lower) as usize));
    }
    all
}

fn floats(shape: Vec<u64>, numbers: &[f64]) -> Tensor {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| (*number as f32).to_le_bytes()).collect();
    Tensor::new(DType::F32, shape, Layout::Inline(bytes.into()))
}

fn random(step: Arithmetic, shape: Vec<u64>) -> Tensor {
    let of = Tensor::new(DType::F32, shape.clone(), Layout::Fill([0; 4].into()));
    let computed = Computed { of, steps: vec![step], product: None };
    Tensor::new(DType::F32, shape, Layout::Computed(Arc::new(computed)))
}

/// Returns a seed for each key (FNV-1a), so that repeated conversions give the same file.
fn seed(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Fails if the size of a tensor overflows.
pub(super) fn check(tensor: &Tensor) -> Result<()> {
    match tensor.nbytes() {
        Some(bytes) if bytes <= i64::MAX as u64 => Ok(()),
        _ => Err(Error::refused(format!(
            "a created tensor of shape {:?} is larger than can be counted",
            tensor.shape
        ))),
    }
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::FileSet;
    use statelens_tensor::elements;

    use super::*;

    #[test]
    fn triangle_is_stored_as_two_rows() {
        let tensor = triangle(4);
        let bytes = elements(&FileSet::default(), &tensor, 0..16).unwrap();
        assert_eq!(bytes, [1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1]);
        assert_eq!(triangle(0).shape, [1, 1, 0, 0]);
    }

    #[test]
    fn slopes_of_other_head_counts_follow_the_paper() {
        assert_eq!(slopes(8)[..3], [0.5, 0.25, 0.125]);
        // 12 heads: the 8 slopes of 8 heads, and every other slope of 16 heads.
        let twelve = slopes(12);
        assert_eq!(twelve.len(), 12);
        assert!((twelve[8] - 2f64.powf(-0.5)).abs() < 1e-12, "{twelve:?}");
    }
}
