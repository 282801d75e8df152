//! Finds layers that differ from their siblings, after removing the trend over depth.

use statelens_checkpoint::order;

/// Minimum number of siblings to determine a trend.
pub(super) const MIN_SIBLINGS: usize = 8;
/// Number of neighbours that a layer is compared with.
const NEAR: usize = 8;
/// Minimum ratio to the expected value; higher at the ends of a model, where layers differ more.
const RATIO: f64 = 2.0;
const RATIO_AT_ENDS: f64 = 4.0;
/// Minimum distance, in standard deviations of all siblings from their expected values.
const DEVIATIONS: f64 = 8.0;
/// Minimum standard deviation (of logarithms) that is assumed: otherwise anything would stand out
/// from a trend that is nearly exact.
const FLOOR: f64 = 0.05;

/// A layer that stands out from its siblings.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outlier<const N: usize> {
    /// The index of the layer.
    pub at: usize,
    /// The expected value of each measure.
    pub expected: [f64; N],
    /// The measures that stand out.
    pub outlying: [bool; N],
}

/// Returns the layers that stand out: at least `votes` of their measures, which must be positive,
/// are far from the value expected from the neighbours, in the same direction. Returns none if more
/// than a tenth of the layers stand out, because then the variation is normal for this model.
pub(super) fn outliers<const N: usize>(
    depth: &[f64],
    measures: &[[f64; N]],
    votes: usize,
) -> Vec<Outlier<N>> {
    let count = depth.len().min(measures.len());
    if count < MIN_SIBLINGS {
        return Vec::new();
    }
    let logs: Vec<[f64; N]> = measures.iter().map(|row| row.map(f64::ln)).collect();
    let expected: Vec<[f64; N]> = (0..count).map(|at| expect(depth, &logs, at)).collect();
    let scale: [f64; N] = std::array::from_fn(|measure| {
        let off = |at: usize| (logs[at][measure] - expected[at][measure]).abs();
        let mut off: Vec<f64> = (0..count).map(off).collect();
        (1.4826 * median(&mut off)).max(FLOOR)
    });
    let found: Vec<Outlier<N>> = (0..count)
        .filter_map(|at| {
            let ends = at < 2 || at + 2 >= count;
            let ratio: f64 = if ends { RATIO_AT_ENDS } else { RATIO };
            let off = |measure: usize| logs[at][measure] - expected[at][measure];
            let far = |measure: usize| {
                let off = off(measure).abs();
                off > ratio.ln() && off > DEVIATIONS * scale[measure]
            };
            [1.0, -1.0].into_iter().find_map(|side| {
                let outlying: [bool; N] =
                    std::array::from_fn(|measure| far(measure) && off(measure) * side > 0.0);
                let expected = expected[at].map(f64::exp);
                (outlying.iter().filter(|outlying| **outlying).count() >= votes)
                    .then_some(Outlier { at, expected, outlying })
            })
        })
        .collect();
    if found.len() > (count / 10).max(1) { Vec::new() } else { found }
}

/// Returns the values expected from the neighbours of a layer: a robust line fit, which a single
/// outlier can't move.
fn expect<const N: usize>(depth: &[f64], logs: &[[f64; N]], at: usize) -> [f64; N] {
    let mut near: Vec<usize> =
        (0..logs.len().min(depth.len())).filter(|other| *other != at).collect();
    order::by(&mut near, |one, other| {
        (depth[*one] - depth[at]).abs().total_cmp(&(depth[*other] - depth[at]).abs())
    });
    near.truncate(NEAR);
    std::array::from_fn(|measure| {
        let mut slopes = Vec::new();
        for (index, &one) in near.iter().enumerate() {
            for &other in near.get(index + 1..).unwrap_or_default() {
                let run = depth[other] - depth[one];
                if run != 0.0 {
                    slopes.push((logs[other][measure] - logs[one][measure]) / run);
                }
            }
        }
        let slope = median(&mut slopes);
        let level = |one: &usize| logs[*one][measure] - slope * (depth[*one] - depth[at]);
        let mut levels: Vec<f64> = near.iter().map(level).collect();
        median(&mut levels)
    })
}

/// Returns the median; 0 for an empty slice.
fn median(of: &mut [f64]) -> f64 {
    order::by(of, f64::total_cmp);
    match of.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => of[odd / 2],
        even => (of[even / 2 - 1] + of[even / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random numbers between 0 and 1.
    fn noise(seed: &mut u64) -> f64 {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(seed: &mut u64) -> f64 {
        (0..12).map(|_| noise(seed)).sum::<f64>() - 6.0
    }

    fn found(measures: &[[f64; 4]]) -> Vec<usize> {
        let depth: Vec<f64> = (0..measures.len()).map(|at| at as f64).collect();
        outliers(&depth, measures, 3).into_iter().map(|outlier| outlier.at).collect()
    }

    #[test]
    fn finds_layers_off_the_trend() {
        // Deviations that grow by a factor of ten over the depth.
        let mut rows: Vec<[f64; 4]> = (0..32)
            .map(|at| [0.02, 0.015, 0.1, 0.09].map(|it| it * 10f64.powf(f64::from(at) / 31.0)))
            .collect();
        assert_eq!(found(&rows), [0usize; 0]);
        rows[17] = rows[17].map(|it| it * 2.5);
        assert_eq!(found(&rows), [17]);
        rows[17] = rows[16];
        // A single measure, such as one large weight, is not enough.
        rows[20][2] *= 50.0;
        assert_eq!(found(&rows), [0usize; 0]);
    }

    #[test]
    fn ignores_few_siblings_and_many_outliers() {
        let mut rows = vec![[0.02; 4]; 7];
        rows[3] = [2.0; 4];
        assert_eq!(found(&rows), [0usize; 0]);
        let mut rows = vec![[0.02; 4]; 32];
        (0..32).step_by(4).for_each(|at| rows[at] = [0.2; 4]);
        assert_eq!(found(&rows), [0usize; 0]);
    }

    #[test]
    fn first_and_last_layers_may_differ() {
        let mut rows = vec![[0.02; 4]; 32];
        (rows[0], rows[31]) = ([0.06; 4], [0.05; 4]);
        assert_eq!(found(&rows), [0usize; 0]);
        rows[31] = [0.5; 4];
        assert_eq!(found(&rows), [31]);
    }

    #[test]
    fn varied_siblings_raise_few_false_alarms() {
        // Distributions like those of trained adapters: each layer has its own scale, sometimes far
        // larger, and the measures are correlated.
        let mut seed = 7;
        let mut alarms = 0;
        for _ in 0..400 {
            let rows: Vec<[f64; 4]> = (0..32)
                .map(|_| {
                    let tail = (normal(&mut seed) / (noise(&mut seed) + 0.1)).clamp(-6.0, 6.0);
                    let size = (0.4 * tail).exp();
                    [0.02, 0.015, 0.1, 0.09].map(|it| it * size * (0.05 * normal(&mut seed)).exp())
                })
                .collect();
            alarms += usize::from(!found(&rows).is_empty());
        }
        assert!(alarms <= 12, "{alarms} of 400");
    }
}
