//! Compares with the results of `numpy.linalg.svd` (2.4.6) for the same matrices.

use statelens_checkpoint::{DType, FileSet, Layout, Result, Tensor};
use statelens_tensor::{Buffer, Machine as _, Need, drive};

use super::*;
use statelens_stats::Matrix;

const MEMORY: u64 = 1 << 28;

/// The same numbers as in Python: 24 bits of a linear congruential generator.
fn chance(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn singles(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn doubles(values: impl Iterator<Item = f64>) -> Vec<u8> {
    values.flat_map(f64::to_le_bytes).collect()
}

fn plan(dtype: &DType, shape: [u64; 2], which: Which) -> Result<(Matrix, SingularPlan)> {
    let matrix = Matrix::of(&shape, &[]).unwrap();
    Ok((matrix, SingularPlan::new(dtype, matrix, which, MEMORY)?))
}

fn machine(dtype: DType, bytes: Vec<u8>, shape: [u64; 2], which: Which) -> Result<Singular> {
    let (matrix, plan) = plan(&dtype, shape, which)?;
    let tensor = Tensor::new(dtype, shape.to_vec(), Layout::Inline(bytes.into()));
    Singular::new(&FileSet::default(), &tensor, matrix, plan)
}

fn found(dtype: DType, bytes: Vec<u8>, shape: [u64; 2], which: Which) -> Result<Spectrum> {
    let mut machine = machine(dtype, bytes, shape, which)?;
    drive(&mut machine, &mut Buffer::new(1 << 16), &mut statelens_checkpoint::Unwatched)?;
    assert_eq!(machine.need(), Need::Done);
    Ok(machine.found().unwrap().clone())
}

/// Asserts that values are equal within `part` of the largest.
fn assert_near(found: &[f64], wanted: &[f64], part: f64) {
    assert_eq!(found.len(), wanted.len());
    for (found, want) in found.iter().zip(wanted) {
        assert!((found - want).abs() <= part * wanted[0], "{found}, not {want}");
    }
}

#[test]
fn singular_values_match_numpy() {
    const EXACT: f64 = 1e-14;
    let of =
        |values: Vec<f32>, shape| found(DType::F32, singles(&values), shape, Which::Usual).unwrap();
    let tall = of(chance(60, 1), [12, 5]);
    assert_near(&tall.values, &TALL, EXACT);
    assert!(tall.whole && tall.rank() == AtLeast { number: 5, or_more: false });
    assert!((tall.condition().unwrap().number - TALL[0] / TALL[4]).abs() < 1e-12);
    assert_near(&of(chance(60, 2), [5, 12]).values, &WIDE, EXACT);
    assert_near(&of(chance(49, 3), [7, 7]).values, &SQUARE, EXACT);
    let halves: Vec<u8> = chance(24, 4)
        .iter()
        .flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes())
        .collect();
    let halves = found(DType::BF16, halves, [6, 4], Which::Usual).unwrap();
    assert_near(&halves.values, &HALVES, EXACT);
}

#[test]
fn keeps_small_singular_values_of_ill_conditioned_matrices() {
    let hilbert = doubles((0..64).map(|at| 1.0 / f64::from(at / 8 + at % 8 + 1)));
    let found = found(DType::F64, hilbert, [8, 8], Which::Usual).unwrap();
    assert_near(&found.values, &HILBERT, 4e-16);
    // This is 1.1e-10: computed from the products of the columns it would be lost in noise of 1e-8.
    assert!((found.values[7] / HILBERT[7] - 1.0).abs() < 1e-5, "{}", found.values[7]);
    assert_eq!(found.rank().number, 8);
}

#[test]
fn computes_the_rank() {
    let low = doubles((0..99u32).map(|at| {
        let (row, column) = (at / 9, at % 9);
        f64::from((row + 1) * (column + 2) + (row % 3) * (column % 2))
    }));
    let low = found(DType::F64, low, [11, 9], Which::Usual).unwrap();
    assert_near(&low.values[..2], &LOW, 1e-14);
    assert_eq!(low.rank(), AtLeast { number: 2, or_more: false });
    assert_eq!(low.condition().unwrap().number, f64::INFINITY);
    let zero = found(DType::F32, singles(&[0.0; 12]), [3, 4], Which::Usual).unwrap();
    assert_eq!((zero.values.as_slice(), zero.rank().number), ([0.0; 3].as_slice(), 0));
    assert_eq!((zero.condition(), zero.stable_rank(), zero.holding(0.9)), (None, None, None));
    let one = found(DType::F32, singles(&[3.0, 4.0]), [1, 2], Which::Usual).unwrap();
    assert_near(&one.values, &[5.0], 1e-15);
    // All equal: the effective rank of an identity matrix is its rank.
    let unit = doubles((0..36).map(|at| f64::from(u8::from(at / 6 == at % 6))));
    let unit = found(DType::F64, unit, [6, 6], Which::Usual).unwrap();
    assert_near(&unit.values, &[1.0; 6], 1e-15);
    assert!((unit.effective_rank().unwrap() - 6.0).abs() < 1e-12);
    assert!((unit.stable_rank().unwrap() - 6.0).abs() < 1e-12);
    assert_eq!((unit.holding(0.5), unit.holding(0.9)), (Some(3), Some(6)));
}

#[test]
fn error_bounds_of_the_largest_values_hold() {
    let values = chance(300 * 120, 5);
    let largest = found(DType::F32, singles(&values), [300, 120], Which::Largest(12)).unwrap();
    assert_eq!(largest.values.len(), 12);
    assert!(!largest.whole && largest.passes <= 8);
    for ((value, error), want) in largest.values.iter().zip(&largest.errors).zip(BIG) {
        assert!((value - want).abs() <= error.max(1e-12), "{value} ± {error}, not {want}");
        assert!(*error < 1.0 && (value - want).abs() < 0.05, "{value} ± {error}");
    }
    assert!((largest.squares - BIG_SQUARES).abs() < 1e-9 * BIG_SQUARES);
    let captured = BIG.iter().map(|value| value * value).sum::<f64>() / BIG_SQUARES;
    assert!((largest.captured() - captured).abs() < 1e-3, "{}", largest.captured());
    assert_eq!(largest.rank(), AtLeast { number: 12, or_more: true });
    assert_eq!(largest.effective_rank(), None);
    // The transposed matrix has the same singular values.
    let across: Vec<f32> = (0..120)
        .flat_map(|column| (0..300).map(move |row| row * 120 + column))
        .map(|at| values[at])
        .collect();
    let across = found(DType::F32, singles(&across), [120, 300], Which::Largest(12)).unwrap();
    for ((value, error), want) in across.values.iter().zip(&across.errors).zip(BIG) {
        assert!((value - want).abs() <= error.max(1e-12), "{value} ± {error}, not {want}");
    }
}

#[test]
fn low_rank_matrix_yields_all_singular_values() {
    // Rank 3: the sum of three outer products.
    let (left, right) = (chance(600, 6), chance(450, 7));
    let values = (0..200 * 150).map(|at| {
        let (row, column) = (at / 150, at % 150);
        (0..3).map(|of| f64::from(left[row * 3 + of]) * f64::from(right[column * 3 + of])).sum()
    });
    let bytes = doubles(values);
    let all = found(DType::F64, bytes.clone(), [200, 150], Which::All).unwrap();
    let low = found(DType::F64, bytes, [200, 150], Which::Largest(8)).unwrap();
    assert!(low.whole && low.passes <= 3, "{low:?}");
    assert_eq!((low.rank().number, all.rank().number), (3, 3));
    assert_near(&low.values[..3], &all.values[..3], 1e-12);
    assert_eq!(low.values.len(), 150);
}

#[test]
fn finds_repeated_singular_values() {
    let unit =
        singles(&(0..3600).map(|at| f32::from(u8::from(at / 60 == at % 60))).collect::<Vec<_>>());
    let unit = found(DType::F32, unit, [60, 60], Which::Largest(24)).unwrap();
    assert_near(&unit.values, &[1.0; 24], 1e-12);
    assert!(!unit.whole && (unit.captured() - 24.0 / 60.0).abs() < 1e-12);
}

#[test]
fn singular_values_do_not_depend_on_piece_size() {
    for which in [Which::Usual, Which::Largest(3)] {
        let whole = found(DType::F32, singles(&chance(40 * 30, 8)), [40, 30], which).unwrap();
        for piece in [1, 7, 119, 4096] {
            let mut machine =
                machine(DType::F32, singles(&chance(40 * 30, 8)), [40, 30], which).unwrap();
            drive(&mut machine, &mut Buffer::new(piece), &mut statelens_checkpoint::Unwatched)
                .unwrap();
            assert_eq!(machine.found(), Some(&whole), "in pieces of {piece}");
            let (done, total) = machine.progress();
            assert!(done <= total);
        }
    }
}

#[test]
fn refuses_non_finite_values_with_their_position() {
    let mut values = chance(60, 9);
    values[5 * 7 + 3] = f32::NAN;
    let error = found(DType::F32, singles(&values), [12, 5], Which::Usual).unwrap_err();
    assert!(error.to_string().contains("NaN at row 7, column 3"), "{error}");
    values[5 * 7 + 3] = f32::NEG_INFINITY;
    let error = found(DType::F32, singles(&values), [12, 5], Which::Largest(2)).unwrap_err();
    assert!(error.to_string().contains("infinity at row 7, column 3"), "{error}");
    for far in [1e200, 1e-200] {
        assert!(found(DType::F64, doubles([far; 4].into_iter()), [2, 2], Which::Usual).is_err());
    }
    assert!(plan(&DType::C64, [2, 2], Which::Usual).is_err());
    assert!(plan(&DType::from_numpy_code("U3").unwrap(), [2, 2], Which::Usual).is_err());
    let folded = Matrix::of(&[10], &[]).unwrap().folded(4);
    assert!(
        SingularPlan::new(&DType::F32, folded, Which::Usual, MEMORY).is_err(),
        "its last row is not whole"
    );
}

#[test]
fn plan_states_passes_bytes_and_memory() {
    let of = |shape, which| plan(&DType::BF16, shape, which).map(|(_, plan)| plan);
    let small = of([50_000, 768], Which::Usual).unwrap();
    assert_eq!((small.largest, small.passes, small.bytes), (None, 1, 50_000 * 768 * 2));
    assert_eq!(small.memory, 768 * 768 * 8);
    let large = of([4096, 4096], Which::Usual).unwrap();
    assert_eq!((large.largest, large.passes, large.bytes), (Some(32), 8, 8 * 4096 * 4096 * 2));
    assert_eq!(large.memory, 4096 * 20 * 8 * 10);
    assert_eq!(of([4096, 4096], Which::All).unwrap().largest, None);
    assert!(of([4097, 4097], Which::All).is_err());
    assert!(of([2, 1 << 40], Which::All).is_err(), "more memory than there is");
    assert!(of([100, 1 << 40], Which::Usual).is_err(), "more memory than there is");
    assert_eq!(of([20, 8], Which::Largest(8)).unwrap().largest, None);
}

const TALL: [f64; 5] = [
    2.7773092071856653,
    2.351944132835521,
    2.237009162683438,
    1.335827162914687,
    1.1814128171737488,
];
const WIDE: [f64; 5] = [
    2.5967553160293075,
    2.1609266600706074,
    1.6474743623255537,
    1.4760847950431688,
    1.443693585732793,
];
const SQUARE: [f64; 7] = [
    2.736628032830967,
    1.5297624620084893,
    1.40215563206688,
    1.1427454377893596,
    1.0136711837846857,
    0.3232528442032793,
    0.08354262708836695,
];
const HALVES: [f64; 4] =
    [1.7500140681591452, 1.0870140458721602, 0.9923179199384551, 0.6802354558358188];
const HILBERT: [f64; 8] = [
    1.6959389969219496,
    0.2981252113169307,
    0.026212843578119035,
    0.0014676881177418473,
    5.436943369751095e-05,
    1.2943320918745527e-06,
    1.7988737457436082e-08,
    1.1115389793345086e-10,
];
const LOW: [f64; 2] = [444.21088859259163, 4.548236557174921];
const BIG: [f64; 12] = [
    15.880222532414644,
    15.64387672722633,
    15.566456288470217,
    15.384585857072912,
    15.046097778478792,
    14.956957700707726,
    14.579484453505438,
    14.538590652016445,
    14.446963345439945,
    14.334334255222426,
    14.140980312875568,
    14.098172966040233,
];
/// numpy's `(a ** 2).sum()`.
const BIG_SQUARES: f64 = 11947.299623816438;
