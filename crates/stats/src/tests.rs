//! Compares with numpy's results in `tests/fixtures/stats`; its line in the README describes how
//! they were made.

use std::path::Path;

use serde_json::Value;
use statelens_checkpoint::DType;

use crate::{Accumulator, MatrixLine, Rows, Scale, Statistics, Summary};

struct Case {
    key: String,
    dtype: DType,
    bytes: Vec<u8>,
    expected: Value,
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/stats");
    let file = std::fs::read(folder.join("values.safetensors")).unwrap();
    let expected = std::fs::read(folder.join("values.expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let len = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize;
    let head: Value = serde_json::from_slice(&file[8..8 + len]).unwrap();
    let data = &file[8 + len..];
    let dtype = |name: &str| match name {
        "BOOL" => DType::Bool,
        "C64" => DType::C64,
        "C128" => DType::C128,
        "F8_E8M0" => DType::F8E8M0FNU,
        "F8_E4M3" => DType::F8E4M3FN,
        "F8_E5M2" => DType::F8E5M2,
        "F8_E4M3FNUZ" => DType::F8E4M3FNUZ,
        "F8_E5M2FNUZ" => DType::F8E5M2FNUZ,
        name => {
            let name = name.replace("BF", "bfloat").replace('F', "float").replace('U', "uint");
            let name = if name.starts_with('I') { name.replace('I', "int") } else { name };
            DType::from_torch_name(&name).unwrap()
        }
    };
    let object = head.as_object().unwrap();
    let cases = object.iter().map(|(key, entry)| {
        let at = |index: usize| entry["data_offsets"][index].as_u64().unwrap() as usize;
        Case {
            key: key.clone(),
            // Safetensors does not have complex128: there, the components are a dimension.
            dtype: dtype(key.split_once('.').unwrap().0),
            bytes: data[at(0)..at(1)].to_vec(),
            expected: expected[key].clone(),
        }
    });
    cases.collect()
}

fn summary(dtype: &DType, bytes: &[u8], piece: usize) -> Summary {
    let mut accumulator = Accumulator::new();
    assert!(accumulator.begin(dtype, 0));
    bytes.chunks(piece.max(1)).for_each(|piece| accumulator.feed(piece));
    accumulator.finish()
}

/// Summarises the bytes in `parts` parts and merges them out of order.
fn by_parts(dtype: &DType, bytes: &[u8], parts: usize) -> Summary {
    let size = dtype.itemsize() as usize;
    let part = (bytes.len() / size).div_ceil(parts).max(1) * size;
    let mut accumulator = Accumulator::new();
    let mut found = Vec::new();
    for (index, piece) in bytes.chunks(part).enumerate() {
        accumulator.begin(dtype, (index * part / size) as u64);
        accumulator.feed(piece);
        found.push(accumulator.finish());
    }
    // Every third part first.
    let order = (0..3).flat_map(|start| (start..found.len()).step_by(3));
    order.fold(Summary::new(), |mut all, index| {
        all.merge(&found[index]);
        all
    })
}

/// Floats are strings in that file, because not every JSON parser is exact to the last bit.
fn float(value: &Value) -> Option<f64> {
    value.as_str().map(|text| text.parse().unwrap())
}

fn close(found: Option<f64>, expected: &Value, within: f64) -> bool {
    match (found, float(expected)) {
        (None, None) => true,
        (Some(found), Some(expected)) => (found - expected).abs() <= within * expected.abs(),
        // JSON can't represent infinities.
        (Some(found), None) => found.is_infinite() && expected.is_null(),
        _ => false,
    }
}

#[test]
fn statistics_match_numpy() {
    for Case { key, dtype, bytes, expected } in cases() {
        let found = summary(&dtype, &bytes, usize::MAX).statistics();
        let counts = [
            ("count", found.count),
            ("nan", found.nan),
            ("pos_inf", found.pos_inf),
            ("neg_inf", found.neg_inf),
            ("zeros", found.zeros),
            ("subnormal", found.subnormal),
        ];
        for (name, count) in counts {
            assert_eq!(Some(count), expected[name].as_u64(), "{name} of {key}");
        }
        let text = format!("{key}: {found:?} {expected}");
        let infinities = (found.first_nan, found.first_inf);
        assert_eq!(infinities.0, expected["first_nan"].as_u64(), "{text}");
        assert_eq!(infinities.1, expected["first_inf"].as_u64(), "{text}");
        if expected.get("mean").is_none() {
            let none = [found.min, found.max, found.mean, found.std, found.l1, found.l2];
            assert_eq!((none, found.quantiles, found.abs_max), ([None; 6], None, None), "{text}");
            continue;
        }
        assert_eq!(
            (found.min, found.max),
            (float(&expected["min"]), float(&expected["max"])),
            "{text}"
        );
        // Rounded once, so the doubles must be equal.
        assert_eq!(found.mean, float(&expected["mean"]), "{text}");
        assert!(close(found.std, &expected["std"], 3e-16), "{text}");
        assert!(close(found.l1, &expected["l1"], 0.0), "{text}");
        assert!(close(found.l2, &expected["l2"], 3e-16), "{text}");
        assert!(close(found.abs_mean, &expected["abs_mean"], 0.0), "{text}");
        let (most, at) = found.abs_max.unwrap();
        assert_eq!(
            (Some(most), Some(at)),
            (float(&expected["abs_max"]), expected["abs_max_at"].as_u64()),
            "{text}"
        );
        let quantiles = expected["quantiles"].as_array().unwrap();
        for (found, expected) in found.quantiles.unwrap().iter().zip(quantiles) {
            assert_eq!(Some(*found), float(expected), "{text}");
        }
        let kurtosis = float(&expected["kurtosis"]);
        let near = |it: f64| (it - kurtosis.unwrap()).abs() <= 1e-6 * (it.abs() + 1.0);
        // Doubles are too coarse for deviations of their smallest unit, or far below the mean.
        let least = found.mean.unwrap().abs() * 1e-16;
        let unknown = kurtosis.is_none() || found.std <= Some(least.max(1e-320));
        let equal = found.finite() == found.count && expected["std"] == "0.0";
        assert_eq!(found.all_equal(), equal, "{text}");
        assert!(found.kurtosis.map_or(unknown, near), "{text}");
        assert_eq!(found.beyond_6_std, expected["beyond_6_std"].as_u64().unwrap_or(0), "{text}");
    }
}

#[test]
fn results_do_not_depend_on_pieces_or_workers() {
    for Case { key, dtype, bytes, .. } in cases() {
        let whole = summary(&dtype, &bytes, usize::MAX);
        let statistics = whole.statistics();
        for piece in [1, 3, 64, 1_001] {
            assert_eq!(summary(&dtype, &bytes, piece), whole, "{key} in pieces of {piece}");
        }
        for parts in [2, 3, 7] {
            let found = by_parts(&dtype, &bytes, parts);
            assert_eq!(found.statistics(), statistics, "{key} in {parts} parts");
            for scale in [Scale::Linear, Scale::Log] {
                assert_eq!(found.histogram(scale, 20), whole.histogram(scale, 20), "{key}");
            }
        }
    }
}

/// Values of all magnitudes, more than are kept individually.
fn many(dtype: &DType, count: usize) -> Vec<u8> {
    let mut seed = 7u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 11
    };
    let bytes = (0..count).flat_map(|at| {
        let (one, other) = (next() as f64 / 2f64.powi(53), next() as f64 / 2f64.powi(53));
        let normal = (-2.0 * (one + 1e-300).ln()).sqrt() * (std::f64::consts::TAU * other).cos();
        let value = match at % 5_000 {
            17 => f64::NAN,
            18 => f64::INFINITY,
            19 => 0.0,
            20 => 1e-310 * normal,
            21 => 3e-40 * normal,
            _ => normal,
        };
        match dtype {
            DType::F32 => (value as f32).to_le_bytes().to_vec(),
            DType::BF16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
            DType::I64 => ((value * 1e18) as i64).to_le_bytes().to_vec(),
            DType::C64 => [value as f32, 1.0].map(f32::to_le_bytes).concat(),
            _ => value.to_le_bytes().to_vec(),
        }
    });
    bytes.collect()
}

#[test]
fn counts_many_values_in_bins() {
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::C64] {
        let bytes = many(&dtype, 200_000);
        let whole = summary(&dtype, &bytes, usize::MAX);
        assert_eq!(whole.is_exact(), dtype == DType::BF16);
        for piece in [4_099, 300_001] {
            assert_eq!(summary(&dtype, &bytes, piece), whole, "{dtype} in pieces of {piece}");
        }
        for parts in [2, 5, 9] {
            assert_eq!(by_parts(&dtype, &bytes, parts), whole, "{dtype} in {parts} parts");
        }
        // The same values, sorted.
        let kind = crate::kind::ElementKind::of(&dtype).unwrap();
        let mut values = kind.doubles(&bytes);
        values.sort_unstable_by(f64::total_cmp);
        assert_eq!(values.len() as u64, whole.finite());
        let exact = if whole.is_exact() { 0.0 } else { 1.0 / 256.0 };
        for part in [0.0, 0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.9999, 1.0] {
            let expected = values[(part * (values.len() - 1) as f64).floor() as usize];
            let found = whole.quantile(part).unwrap();
            assert!(
                (found - expected).abs() <= exact * expected.abs(),
                "{dtype}: {found} {expected}"
            );
        }
        let found = whole.statistics();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|it| (it - mean) * (it - mean)).sum::<f64>();
        let std = (variance / values.len() as f64).sqrt();
        assert!((found.mean.unwrap() - mean).abs() < 1e-12 * std, "{dtype}: {found:?} {mean}");
        assert!((found.std.unwrap() / std - 1.0).abs() < 1e-9, "{dtype}: {found:?} {std}");
        for scale in [Scale::Linear, Scale::Log] {
            let histogram = whole.histogram(scale, 30);
            assert_eq!(histogram.edges.len(), histogram.counts.len() + 1);
            assert_eq!(histogram.counts.iter().sum::<u64>(), whole.finite(), "{dtype} {scale:?}");
            let up_to = |edge: f64| values.partition_point(|value| *value < edge) as u64;
            let mut below = 0;
            for (edge, count) in
                histogram.edges[1..histogram.counts.len()].iter().zip(&histogram.counts)
            {
                below += count;
                let (low, high) = (
                    up_to(edge - edge.abs() * exact * 2.0),
                    up_to(edge + edge.abs() * exact * 2.0),
                );
                assert!(
                    low <= below && below <= high,
                    "{dtype} {scale:?} {edge}: {low} {below} {high}"
                );
            }
        }
    }
}

#[test]
fn merges_tensors_of_different_dtypes() {
    let of = |dtype: DType, bytes: &[u8]| summary(&dtype, bytes, 5);
    let mut all = of(DType::F32, &[1.5f32, -2.0].map(f32::to_le_bytes).concat());
    all.merge(&of(DType::BF16, &[0xc0, 0x3f]));
    all.merge(&of(DType::I64, &i64::MIN.to_le_bytes()));
    all.merge(&of(DType::F64, &1e300f64.to_le_bytes()));
    let found = all.statistics();
    assert_eq!((found.count, found.min, found.max), (5, Some(-(2f64.powi(63))), Some(1e300)));
    assert_eq!((found.l2, found.whole), (Some(1e300), None));
    let mut halves = of(DType::BF16, &[0xc0, 0x3f]);
    halves.merge(&of(DType::F16, &[0x01, 0x3c]));
    assert!(halves.is_exact());
    assert_eq!(halves.quantile(0.0), Some(1.0009765625));
}

#[test]
fn empty_summary_has_no_values() {
    let none = Summary::new();
    assert_eq!(none.statistics(), Statistics { exact: true, ..Statistics::default() });
    assert_eq!(none.histogram(Scale::Linear, 5).counts, Vec::<u64>::new());
    let mut accumulator = Accumulator::new();
    assert!(!accumulator.begin(&DType::Bits8, 0));
    accumulator.feed(&[1, 2, 3]);
    assert_eq!(accumulator.finish(), none);
    assert!(accumulator.begin(&DType::F4E2M1FNX2, 3));
    accumulator.feed(&[0xf2, 0x07]);
    let found = accumulator.finish().statistics();
    assert_eq!((found.count, found.min, found.abs_max), (4, Some(-6.0), Some((6.0, 7))));
}

#[test]
fn forecast_matches_the_cast_report() {
    // All codes of bfloat16, cast to float16 and others: the forecast must match the cast's own
    // report.
    let codes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for to in [DType::F16, DType::F8E4M3FN, DType::F8E5M2, DType::F8E8M0FNU, DType::I8] {
        let mut cast = statelens_tensor::Cast::new(&DType::BF16, &to).unwrap();
        cast.run(&codes, &mut Vec::new());
        let found = summary(&DType::BF16, &codes, 1_001).forecast(&to).unwrap();
        let wanted = cast.report();
        assert_eq!((found.elements, found.nonzero), (wanted.elements, wanted.nonzero), "{to}");
        // The signs of zeros are not known.
        let zeros = wanted.changed.abs_diff(found.changed);
        assert!(zeros <= 1, "{to}: {found:?} {wanted:?}");
        let lost = (found.overflowed, found.flushed, found.worst);
        assert_eq!(lost, (wanted.overflowed, wanted.flushed, wanted.worst), "{to}");
    }
    let exact = summary(&DType::BF16, &codes[..0x7f00], 9).forecast(&DType::F32).unwrap();
    assert_eq!((exact.changed, exact.worst), (0, 0.0));
    assert_eq!(Summary::new().forecast(&DType::Bits8), None);
}

#[test]
fn computes_row_and_column_statistics() {
    let values = [1f32, -2.0, 2.0, 0.0, 0.0, 0.0, 1.0, -2.0, 2.0, f32::NAN, 0.0, 3e30];
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    for piece in [1, 5, 12, 100] {
        let mut rows = Rows::new(&DType::F32, 3).unwrap();
        bytes.chunks(piece).for_each(|piece| rows.feed(piece));
        let found = rows.finish();
        let of = |lines: &[MatrixLine]| -> Vec<(f64, f64, u64)> {
            lines.iter().map(|line| (line.abs_max, line.norm, line.not_finite)).collect()
        };
        assert_eq!(of(&found.rows)[..3], [(2.0, 3.0, 0), (0.0, 0.0, 0), (2.0, 3.0, 0)]);
        assert_eq!(of(&found.rows)[3], (f64::from(3e30f32), f64::from(3e30f32), 1));
        assert_eq!(of(&found.columns)[0], (1.0, 2f64.sqrt(), 1));
        assert_eq!((found.zero_rows, found.copied_rows), (1, 1));
        assert_eq!((&found.zero[..], &found.copied[..]), (&[1][..], &[(2, 0)][..]));
    }
    let huge = [3e300f64, 4e300, 3e-320, 4e-320].map(f64::to_le_bytes).concat();
    let mut rows = Rows::new(&DType::F64, 2).unwrap();
    rows.feed(&huge);
    let found = rows.finish();
    assert!((found.rows[0].norm / 5e300 - 1.0).abs() < 1e-15);
    assert!((found.rows[1].norm / 5e-320 - 1.0).abs() < 1e-3);
    // Two values per byte: rows of two bytes are rows of four values.
    let mut rows = Rows::new(&DType::F4E2M1FNX2, 2).unwrap();
    rows.feed(&[0x02, 0x00, 0x00, 0x70]);
    let found = rows.finish();
    assert_eq!((found.rows.len(), found.columns.len(), found.zero_rows), (2, 4, 0));
    assert_eq!((found.columns[0].abs_max, found.columns[3].norm), (1.0, 6.0));
    assert!(Rows::new(&DType::Bits8, 3).is_none() && Rows::new(&DType::F32, 0).is_none());
}

/// Blocks of whole vectors take a different path than others. A single abnormal value must be
/// detected in every lane.
#[test]
fn finds_one_abnormal_value_in_any_lane() {
    let odd = [0.0, -0.0, 1e-40, -1e-45, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN];
    let usual: Vec<f32> = (0..64u8).map(|at| (f32::from(at) - 31.5) * 0.75).collect();
    for odd in odd.into_iter().chain([usual[0], 1e30, -1e30, f32::MIN_POSITIVE]) {
        for lane in 0..usual.len() {
            let mut values = usual.clone();
            values[lane] = odd;
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let whole = summary(&DType::F32, &bytes, bytes.len());
            assert_eq!(whole, summary(&DType::F32, &bytes, 28), "{odd} in lane {lane}");
            let seen = whole.statistics();
            assert_eq!(seen.nan + seen.pos_inf + seen.neg_inf, u64::from(!odd.is_finite()));
            assert_eq!(
                (seen.zeros, seen.subnormal),
                (u64::from(odd == 0.0), u64::from(odd.is_subnormal()))
            );
            let finite = values.iter().filter(|value| value.is_finite()).map(|it| f64::from(*it));
            assert_eq!(seen.max, finite.reduce(f64::max));
        }
    }
}
