#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use statelens_checkpoint::{
    Array, Builder, Checkpoint, DType, Dict, DictKey, FileSet, FormatInfo, Layout, Limits, List,
    Memory, Span, Tensor, Unwatched, Value,
};
use statelens_tensor::Machine as _;

use super::*;

/// The value at a key.
pub(super) enum TestLeaf {
    Plain(Value),
    /// A tensor whose bytes are in the file.
    Of(DType, Vec<u64>, Vec<u8>),
    Array(DType, Vec<u64>, Vec<u8>),
    /// A vector of float32 that is cast.
    Cast(Vec<f32>, DType),
    Missing,
}

pub(super) fn f32s(values: &[f32]) -> TestLeaf {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    TestLeaf::Of(DType::F32, vec![values.len() as u64], bytes)
}

pub(super) fn checkpoint(entries: Vec<(&str, TestLeaf)>) -> Arc<Checkpoint> {
    let mut data: Vec<u8> = Vec::new();
    let mut builder = Builder::new(&Limits::default());
    let mut made = Vec::new();
    let mut file = FileSet::single("x", Memory::from(Vec::new()));
    let id = file.main().unwrap();
    for (key, leaf) in entries {
        let mut tensor = |dtype, shape, bytes: Vec<u8>| {
            let span = Span { file: id, offset: data.len() as u64, len: bytes.len() as u64 };
            data.extend(bytes);
            Tensor::new(dtype, shape, Layout::Span(span))
        };
        let value = match leaf {
            TestLeaf::Plain(value) => value,
            TestLeaf::Of(dtype, shape, bytes) => {
                Value::Tensor(builder.push_tensor(tensor(dtype, shape, bytes)).unwrap())
            }
            TestLeaf::Cast(values, dtype) => {
                let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                let stored = tensor(DType::F32, vec![values.len() as u64], bytes);
                Value::Tensor(builder.push_tensor(Tensor { dtype, ..stored }).unwrap())
            }
            TestLeaf::Array(dtype, shape, bytes) => {
                let tensor = builder.push_tensor(tensor(dtype, shape, bytes)).unwrap();
                Value::Array(Array { tensor, scalar: false })
            }
            TestLeaf::Missing => {
                let gone = Tensor::new(DType::F32, vec![1], Layout::Missing("gone".into()));
                Value::Tensor(builder.push_tensor(gone).unwrap())
            }
        };
        made.push((DictKey::from(key), builder.push(value).unwrap()));
    }
    file = FileSet::single("x", Memory::from(data));
    let root = builder.push(Value::Dict(Dict { entries: made, ..Dict::default() })).unwrap();
    Arc::new(builder.finish(root, FormatInfo::default(), file, Vec::new()).unwrap())
}

fn run(
    left: Vec<(&str, TestLeaf)>,
    right: Vec<(&str, TestLeaf)>,
    options: DiffOptions,
) -> ComparisonReport {
    let (left, right) = (checkpoint(left), checkpoint(right));
    let report = compare(left.clone(), right.clone(), options, &mut Unwatched).unwrap();
    // The result must not depend on how the bytes are split.
    for piece in [1, 3, 7] {
        assert_eq!(fed(&left, &right, options, piece), report, "pieces of {piece}");
    }
    report
}

fn fed(
    left: &Arc<Checkpoint>,
    right: &Arc<Checkpoint>,
    options: DiffOptions,
    piece: usize,
) -> ComparisonReport {
    let mut comparison = Comparison::new(left.clone(), right.clone(), options);
    drive(&mut comparison, &mut Buffer::new(piece), &mut Unwatched).unwrap();
    let (done, total) = comparison.progress();
    assert_eq!(done, total);
    comparison.into_report()
}

/// The values of a tensor that is cast are those after the cast.
#[test]
fn casts_are_compared_after_the_cast() {
    let values = || vec![1.0f32, 1.001, -2.003];
    let rounded = || f32s(&[1.0, 1.0, -2.0]);
    let cast = || TestLeaf::Cast(values(), DType::BF16);
    for equal in [
        run(vec![("w", cast())], vec![("w", cast())], DiffOptions::default()),
        run(
            vec![("w", cast())],
            vec![("w", rounded())],
            DiffOptions { ignore_dtype: true, ..DiffOptions::default() },
        ),
    ] {
        assert_eq!(texts(&equal), [""; 0]);
    }
    let exact = run(vec![("w", rounded())], vec![("w", f32s(&values()))], DiffOptions::default());
    assert_eq!(texts(&exact).len(), 1);
}

fn texts(report: &ComparisonReport) -> Vec<String> {
    report.differences.iter().map(|found| format!("{} {}", found.key, found.text())).collect()
}

fn elements(report: &ComparisonReport) -> &ElementDifference {
    match report.differences.as_slice() {
        [only] if !matches!(only.kind, DifferenceKind::DType { .. }) => {
            only.kind.elements().unwrap()
        }
        other => panic!("{other:?}"),
    }
}

fn distance(report: &ComparisonReport) -> &Distance {
    elements(report).distance.as_ref().unwrap()
}

fn read_json(report: &ComparisonReport) -> serde_json::Value {
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    // The page reads the same text.
    for (found, one) in report.differences.iter().zip(json["differences"].as_array().unwrap()) {
        let kind: DifferenceKind = serde_json::from_value(one.clone()).unwrap();
        assert_eq!(kind, found.kind);
    }
    json
}

#[test]
fn compares_keys_kinds_shapes_and_dtypes_first() {
    let int = |value: i64| TestLeaf::Plain(Value::Int(value.into()));
    let left = vec![
        ("same", f32s(&[1.0])),
        ("gone", int(3)),
        ("kind", int(1)),
        ("shape", f32s(&[1.0, 2.0])),
        ("dtype", f32s(&[1.0])),
        ("value", int(1)),
        ("text", TestLeaf::Plain(Value::Str("a".into()))),
        ("unread", TestLeaf::Missing),
    ];
    let right = vec![
        ("new", f32s(&[1.0])),
        ("unread", TestLeaf::Missing),
        ("text", TestLeaf::Plain(Value::Str("b".into()))),
        ("value", int(2)),
        ("dtype", TestLeaf::Of(DType::BF16, vec![1], vec![0x80, 0x3f])),
        ("shape", TestLeaf::Of(DType::F32, vec![2, 1], vec![0; 8])),
        ("kind", TestLeaf::Plain(Value::Float(1.0))),
        ("same", f32s(&[1.0])),
    ];
    let report = run(left, right, DiffOptions::default());
    assert!(!report.matches());
    assert_eq!(
        texts(&report),
        [
            "gone only left: int 3",
            "kind type: int 1 / float 1.0",
            "shape shape: [2] / [2, 1]",
            "dtype dtype: float32 / bfloat16; the values are equal",
            "value value: 1 / 2",
            "text value: 'a' / 'b'",
            "unread can't be compared: left: gone",
            "new only right: tensor float32 [1]",
        ]
    );
    assert_eq!((report.keys, report.tensors), (7, 2));
    let json = read_json(&report);
    assert_eq!(json["differences"][2]["right"], serde_json::json!([2, 1]));
    assert_eq!(json["matches"], false);
}

#[test]
fn measures_numeric_differences() {
    let left = vec![("w", TestLeaf::Of(DType::F32, vec![2, 2], bytes(&[1.0, 2.0, 3.0, 0.5])))];
    let right = vec![("w", TestLeaf::Of(DType::F32, vec![2, 2], bytes(&[1.0, 2.0, 4.0, 0.0])))];
    let report = run(left, right, DiffOptions::default());
    let (found, apart) = (elements(&report), distance(&report));
    assert_eq!((found.count, found.differing, found.first.as_deref()), (4, 2, Some(&[1, 0][..])));
    assert_eq!((apart.max_abs, apart.max_rel), (Some(1.0), Some(f64::INFINITY)));
    assert_eq!(apart.mse, Some(1.25 / 4.0));
    let cosine = (1.0 + 4.0 + 12.0) / (14.25f64.sqrt() * 21f64.sqrt());
    assert!((apart.cosine.unwrap() - cosine).abs() < 1e-12);
    let json = read_json(&report);
    assert_eq!(json["differences"][0]["first"], serde_json::json!([1, 0]));
    assert_eq!(json["differences"][0]["max_rel"], "inf");
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn tolerance_matches_torch() {
    let tolerance = |relative, absolute| DiffOptions {
        tolerance: Some(Tolerance { relative, absolute }),
        ..DiffOptions::default()
    };
    let pair = || (vec![("w", f32s(&[1.0, 100.0]))], vec![("w", f32s(&[1.5, 101.0]))]);
    let with = |relative, absolute| {
        let (left, right) = pair();
        run(left, right, tolerance(relative, absolute))
    };
    assert_eq!(elements(&with(0.0, 0.5)).differing, 1);
    assert_eq!(elements(&with(0.01, 0.0)).first, Some(vec![0]));
    let close = with(0.0, 1.0);
    assert!(close.matches());
    assert_eq!(close.close, 1);
    let inf =
        run(vec![("w", f32s(&[f32::INFINITY]))], vec![("w", f32s(&[1.0]))], tolerance(1.0, 1e30));
    assert_eq!(elements(&inf).differing, 1);
    // The tolerance applies to plain numbers, too.
    let plain = |value| vec![("lr", TestLeaf::Plain(Value::Float(value)))];
    assert!(run(plain(0.1), plain(0.1000001), tolerance(1e-5, 0.0)).matches());
    assert!(!run(plain(0.1), plain(0.1000001), DiffOptions::default()).matches());
}

#[test]
fn compares_zeros_nans_and_infinities() {
    let nan = f32::from_bits(0x7fc0_0001);
    let left = || vec![("w", f32s(&[0.0, f32::NAN, f32::INFINITY, f32::NAN]))];
    let right = || vec![("w", f32s(&[-0.0, nan, f32::INFINITY, f32::NAN]))];
    let report = run(left(), right(), DiffOptions::default());
    assert!(report.matches());
    assert_eq!(report.nan, 2);
    let torch = DiffOptions { nan_differs: true, ..DiffOptions::default() };
    let report = run(left(), right(), torch);
    assert_eq!((elements(&report).differing, elements(&report).first.clone()), (2, Some(vec![1])));
    // Elements that are bitwise equal differ, too, if they are NaN.
    assert_eq!(elements(&run(left(), left(), torch)).differing, 2);
    let report = run(left(), vec![("w", f32s(&[0.0, 1.0, 1.0, f32::NAN]))], DiffOptions::default());
    let found = distance(&report);
    assert_eq!(elements(&report).differing, 2);
    assert_eq!((found.left_nan, found.right_nan, found.finite), (2, 1, 1));
}

#[test]
fn compares_values_across_dtypes_on_request() {
    let ignore = DiffOptions { ignore_dtype: true, ignore_type: true, ..DiffOptions::default() };
    let floats = || f32s(&[1.0, -2.0]);
    let halves = || TestLeaf::Of(DType::F16, vec![2], vec![0x00, 0x3c, 0x00, 0xc0]);
    let doubles = |second: f64| {
        let bytes = [1.0, second].iter().flat_map(|value: &f64| value.to_le_bytes()).collect();
        TestLeaf::Of(DType::F64, vec![2], bytes)
    };
    let ints = || TestLeaf::Array(DType::I8, vec![2], vec![1, 0xfe]);
    for right in [halves(), doubles(-2.0), ints()] {
        assert!(run(vec![("w", floats())], vec![("w", right)], ignore).matches());
    }
    let report = run(vec![("w", doubles(-2.0 - 1e-12))], vec![("w", floats())], ignore);
    assert_eq!(elements(&report).first, Some(vec![1]));
    let report = run(vec![("w", ints())], vec![("w", floats())], DiffOptions::default());
    assert_eq!(texts(&report), ["w type: ndarray int8 [2] / tensor float32 [2]"]);
    // Integers that floats can't distinguish.
    let big = |value: u64| TestLeaf::Of(DType::U64, vec![1], value.to_le_bytes().into());
    let report = run(vec![("w", big(u64::MAX))], vec![("w", big(u64::MAX - 1))], ignore);
    assert_eq!((elements(&report).differing, distance(&report).max_abs), (1, Some(1.0)));
    let signed = TestLeaf::Of(DType::I64, vec![1], (-1i64).to_le_bytes().into());
    let report = run(vec![("w", signed)], vec![("w", big(u64::MAX))], ignore);
    assert_eq!(elements(&report).differing, 1);
}

#[test]
fn compares_complex_and_opaque_elements() {
    let of = |dtype: DType, bytes: Vec<u8>| vec![("w", TestLeaf::Of(dtype, vec![1], bytes))];
    let left = of(DType::C64, bytes(&[3.0, 4.0]));
    let right = of(DType::C64, bytes(&[0.0, 0.0]));
    let report = run(left, right, DiffOptions::default());
    assert_eq!((distance(&report).max_abs, distance(&report).cosine), (Some(5.0), None));
    let report = run(of(DType::Bits8, vec![1]), of(DType::Bits8, vec![2]), DiffOptions::default());
    assert_eq!(elements(&report).distance, None);
    assert_eq!(elements(&report).differing, 1);
    let bools = run(of(DType::Bool, vec![1]), of(DType::Bool, vec![2]), DiffOptions::default());
    assert!(bools.matches());
}

#[test]
fn truncated_file_affects_only_its_tensors() {
    let mut builder = Builder::new(&Limits::default());
    let files = FileSet::single("x", Memory::from(vec![0; 4]));
    let span = Span { file: files.main().unwrap(), offset: 0, len: 400 };
    let cut = builder.push_tensor(Tensor::new(DType::F32, vec![100], Layout::Span(span))).unwrap();
    let cut = builder.push(Value::Tensor(cut)).unwrap();
    let one = builder.push(Value::Int(1i64.into())).unwrap();
    let entries = vec![("w".into(), cut), ("n".into(), one)];
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    let left = builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap();
    let right =
        checkpoint(vec![("w", f32s(&[0.0; 100])), ("n", TestLeaf::Plain(Value::Int(1i64.into())))]);
    let report = compare(Arc::new(left), right, DiffOptions::default(), &mut Unwatched).unwrap();
    assert_eq!(report.differences.len(), 1);
    assert!(matches!(report.differences[0].kind, DifferenceKind::Unreadable { .. }), "{report:?}");
}

#[test]
fn nan_on_one_side_leaves_distances_undefined() {
    let left = || vec![("w", f32s(&[1.0, f32::NAN, 2.0]))];
    let report = run(left(), vec![("w", f32s(&[1.0, 5.0, 2.0]))], DiffOptions::default());
    let found = distance(&report);
    assert_eq!((found.one_nan, elements(&report).differing, found.finite), (1, 1, 2));
    assert_eq!((found.max_abs, found.mse, found.cosine), (None, None, None));
    let json = read_json(&report);
    let one = &json["differences"][0];
    assert_eq!(one["what"], "nan");
    for field in ["max_abs", "max_rel", "mse", "cosine"] {
        assert!(one[field].is_null() && one.get(field).is_some(), "{field}: {one}");
    }
    assert_eq!(one["finite_max_abs"], 0.0);
    let text = &texts(&report)[0];
    assert!(text.contains("1 element is NaN on one side only"), "{text}");
    assert!(text.contains("cosine undefined"), "{text}");
    // With the sides swapped, and within any tolerance.
    let tolerance = Some(Tolerance { relative: 1.0, absolute: 1e30 });
    let options = DiffOptions { tolerance, ..DiffOptions::default() };
    let report = run(vec![("w", f32s(&[0.0; 3]))], left(), options);
    assert_eq!(distance(&report).one_nan, 1);
    // NaN in different components of a complex number.
    let complex = |parts: &[f32]| vec![("w", TestLeaf::Of(DType::C64, vec![1], bytes(parts)))];
    let report = run(complex(&[f32::NAN, 1.0]), complex(&[1.0, f32::NAN]), DiffOptions::default());
    assert_eq!((distance(&report).one_nan, distance(&report).cosine), (1, None));
    assert_eq!(read_json(&report)["differences"][0]["finite_max_abs"], serde_json::Value::Null);
    // An infinity is infinitely far away, but not NaN.
    let report = run(
        vec![("w", f32s(&[f32::INFINITY, 1.0]))],
        vec![("w", f32s(&[f32::NEG_INFINITY, 1.0]))],
        DiffOptions::default(),
    );
    let found = distance(&report);
    assert_eq!((found.one_nan, found.max_abs), (0, Some(f64::INFINITY)));
    assert_eq!(found.cosine, None);
    assert!(texts(&report)[0].contains("max abs inf"), "{:?}", texts(&report));
}

#[test]
fn compares_across_dtypes_at_the_lower_precision() {
    let brain = |values: &[f32]| {
        let bytes = values.iter().flat_map(|value| (value.to_bits() >> 16).to_le_bytes());
        let halves: Vec<u8> =
            bytes.collect::<Vec<u8>>().chunks(4).flat_map(|b| [b[0], b[1]]).collect();
        vec![("w", TestLeaf::Of(DType::BF16, vec![values.len() as u64], halves))]
    };
    let left = |values: &[f32]| vec![("w", f32s(values))];
    let values = |left, right| {
        let report = run(left, right, DiffOptions::default());
        assert!(!report.matches(), "other dtypes are a difference");
        let text = texts(&report)[0].clone();
        read_json(&report);
        match &report.differences[0].kind {
            DifferenceKind::DType { values: Some(values), .. } => (values.word.clone(), text),
            other => panic!("{other:?}"),
        }
    };
    let (word, text) = values(left(&[1.0, 0.5]), brain(&[1.0, 0.5]));
    assert_eq!(word, "equal");
    assert!(text.ends_with("dtype: float32 / bfloat16; the values are equal"), "{text}");
    // 1.001 rounds to 1.0, whichever side it is on.
    let (word, text) = values(left(&[1.001, 0.5]), brain(&[1.0, 0.5]));
    assert_eq!(word, "equal at bfloat16 precision");
    assert!(text.contains("1 of 2 were rounded, max abs 1.000e-3"), "{text}");
    assert_eq!(values(brain(&[1.0]), left(&[1.001])).0, "equal at bfloat16 precision");
    // 1.01 does not.
    let (word, text) = values(left(&[1.01, 0.5]), brain(&[1.0, 0.5]));
    assert_eq!(word, "differ");
    assert!(text.contains("1 of them beyond bfloat16 precision"), "{text}");
    assert_eq!(values(left(&[f32::NAN]), brain(&[1.0])).0, "NaN on one side");
    assert_eq!(values(left(&[f32::NAN]), brain(&[f32::NAN])).0, "equal");
    let ints = vec![("w", TestLeaf::Of(DType::I8, vec![1], vec![3]))];
    assert_eq!(values(left(&[3.0]), ints).0, "equal");
    // If the dtype is ignored, the numbers must be equal.
    let ignore = DiffOptions { ignore_dtype: true, ..DiffOptions::default() };
    assert!(!run(left(&[1.001]), brain(&[1.0]), ignore).matches());
    // What differs within the tolerance is not called equal.
    let tolerance = Some(Tolerance { relative: 0.02, absolute: 0.0 });
    let options = DiffOptions { tolerance, ..DiffOptions::default() };
    let report = run(left(&[1.01, 0.5]), brain(&[1.0, 0.5]), options);
    let text = &texts(&report)[0];
    let wanted = "the values are equal within the tolerance, 1 of 2 differ, max abs 1.000e-2";
    assert!(text.ends_with(wanted), "{text}");
}

/// Compares both sides in detail, fed in pieces of `piece` bytes.
fn close(
    left: &Arc<Checkpoint>,
    right: &Arc<Checkpoint>,
    piece: usize,
) -> Result<TensorDifference> {
    let (of_left, of_right) = (left.leaves(), right.leaves());
    let mut machine =
        TensorComparison::new((left.clone(), &of_left[0]), (right.clone(), &of_right[0]), (3, 2))?;
    drive(&mut machine, &mut Buffer::new(piece), &mut Unwatched)?;
    let (done, total) = machine.progress();
    assert_eq!(done, total);
    Ok(machine.into_found())
}

fn closely(left: TestLeaf, right: TestLeaf) -> TensorDifference {
    let (left, right) = (checkpoint(vec![("a", left)]), checkpoint(vec![("b", right)]));
    let found = close(&left, &right, 1 << 20).unwrap();
    for piece in [1, 3, 7, 13] {
        let cut = close(&left, &right, piece).unwrap();
        assert_eq!(cut.left, found.left);
        assert_eq!(cut.right, found.right);
        assert_eq!(cut.differences, found.differences);
        assert_eq!(cut.nan, found.nan);
        let tiles = |of: &TensorDifference| of.map.as_ref().map(|map| map.tiles().to_vec());
        assert_eq!(tiles(&cut), tiles(&found));
    }
    found
}

#[test]
fn differences_are_right_minus_left() {
    // numpy: a = [1, 2, 3, -4, 0, 6], b = [1, 2.5, 2, -4, -8, 6]; b - a = [0, .5, -1, 0, -8, 0]:
    // mean -1.4166666666666667, std 2.9779280642009396.
    let of = |values: [f32; 6]| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        TestLeaf::Of(DType::F32, vec![2, 3], bytes)
    };
    let found = closely(of([1.0, 2.0, 3.0, -4.0, 0.0, 6.0]), of([1.0, 2.5, 2.0, -4.0, -8.0, 6.0]));
    let differences = found.differences.statistics();
    assert_eq!((differences.count, differences.zeros, found.differing()), (6, 3, 3));
    assert_eq!((differences.min, differences.max), (Some(-8.0), Some(0.5)));
    assert_eq!(differences.mean, Some(-8.5 / 6.0));
    assert!((differences.std.unwrap() - 2.977_928_064_200_939_6).abs() < 1e-15);
    assert_eq!(differences.abs_max, Some((8.0, 4)));
    assert_eq!(
        (found.left.statistics().max, found.right.statistics().min),
        (Some(6.0), Some(-8.0))
    );
    // Cells of one row and one column: |b - a| of each element.
    let map = found.drawn().unwrap();
    assert_eq!((map.size, map.at[4]), ((2, 3), 4));
    assert_eq!(map.largest, [0.0, 0.5, -1.0, 0.0, -8.0, 0.0]);
    let outlines = found.outlines(statelens_values::Scale::Linear, 4);
    assert_eq!(outlines.edges, [-8.0, -4.5, -1.0, 2.5, 6.0]);
    assert_eq!((outlines.left, outlines.right), (vec![0, 1, 3, 2], vec![1, 1, 2, 2]));
}

#[test]
fn equal_nans_and_infinities_do_not_differ() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let found = closely(
        f32s(&[nan, nan, 1.0, inf, inf, -inf, 2.0]),
        f32s(&[nan, 1.0, nan, inf, -inf, 3.0, 2.0]),
    );
    assert_eq!(found.nan, [1, 1, 1]);
    let differences = found.differences.statistics();
    assert_eq!((differences.nan, differences.neg_inf, differences.pos_inf), (2, 1, 1));
    assert_eq!(
        (differences.zeros, differences.first_nan, differences.first_inf),
        (3, Some(1), Some(4))
    );
}

#[test]
fn subtracts_across_dtypes_and_integers_exactly() {
    // 1.5 and -2 as bfloat16.
    let half = TestLeaf::Of(DType::BF16, vec![2], vec![0xc0, 0x3f, 0x00, 0xc0]);
    let found = closely(half, f32s(&[1.0, -1.0]));
    assert_eq!(found.differences.statistics().min, Some(-0.5));
    assert_eq!(found.differences.statistics().max, Some(1.0));
    assert!(found.left.is_exact());
    let ints = |values: [i64; 2]| {
        TestLeaf::Of(DType::I64, vec![2], values.iter().flat_map(|it| it.to_le_bytes()).collect())
    };
    let found = closely(ints([i64::MAX, i64::MIN]), ints([i64::MAX - 1, i64::MAX]));
    let differences = found.differences.statistics();
    assert_eq!((differences.min, differences.max), (Some(-1.0), Some(2f64.powi(64))));
    let pair = |values: [f32; 2]| {
        TestLeaf::Of(DType::C64, vec![1], values.iter().flat_map(|it| it.to_le_bytes()).collect())
    };
    let found = closely(pair([1.0, 2.0]), pair([4.0, -2.0]));
    assert_eq!(found.differences.statistics().max, Some(5.0));
    let found = closely(pair([1.0, f32::NAN]), pair([f32::NAN, 0.0]));
    assert_eq!((found.nan, found.differing()), ([1, 0, 0], 0));
}

#[test]
fn refuses_operands_that_cannot_be_subtracted() {
    let refused = |left, right| {
        let (left, right) = (checkpoint(vec![("a", left)]), checkpoint(vec![("a", right)]));
        close(&left, &right, 9).unwrap_err().to_string()
    };
    let text = TestLeaf::Plain(Value::Str("a".into()));
    assert!(refused(text, f32s(&[1.0])).contains("`a` is not a tensor"));
    assert!(refused(TestLeaf::Missing, f32s(&[1.0])).contains("`a` has no data: gone"));
    assert!(refused(f32s(&[1.0]), f32s(&[1.0, 2.0])).contains("their shapes are [1] and [2]"));
    let complex = TestLeaf::Of(DType::C64, vec![1], vec![0; 8]);
    assert!(refused(f32s(&[1.0]), complex).contains("can't be compared"));
    let none = |_| TestLeaf::Of(DType::F32, vec![0, 3], Vec::new());
    assert_eq!(closely(none(0), none(1)).differences.count(), 0);
}

#[test]
fn keeps_norms_and_deviations_of_all_pairs() {
    // numpy: a = [3, 4], b = [3, 0]: norms 5 and 3, deviations 0.5 and 1.5, change 4 / 3.
    let left =
        vec![("w.0", f32s(&[3.0, 4.0])), ("w.1", f32s(&[1.0, 1.0])), ("other", f32s(&[1.0]))];
    let right =
        vec![("w.1", f32s(&[1.0, 1.0])), ("w.0", f32s(&[3.0, 0.0])), ("more", f32s(&[1.0]))];
    let report = run(left, right, DiffOptions::default());
    let one = &report.changes[0];
    assert_eq!((one.leaf, one.key.to_lossy().as_ref()), (0, "w.0"));
    assert_eq!((one.norms, one.deviations), ((5.0, 3.0), (0.5, 1.5)));
    assert_eq!(one.change, Some(4.0 / 3.0));
    // Equal pairs are kept, too, although they are not a difference.
    let two = &report.changes[1];
    assert_eq!(
        (two.norms, two.deviations, two.change),
        ((2f64.sqrt(), 2f64.sqrt()), (0.0, 0.0), Some(0.0))
    );
    assert_eq!(report.changes.len(), 2);
    let roles = roles(report.changes.iter().map(|one| one.key.to_lossy().into_owned()));
    assert_eq!(roles, [Role { name: "w.*".into(), members: vec![(0, 0), (1, 1)] }]);
}

#[test]
fn names_the_parameter_of_optimizer_entries() {
    let of = |parameter: &str, value| {
        vec![
            ("o.param_groups.0.params.0", TestLeaf::Plain(Value::Int(0i64.into()))),
            ("o.param_groups.0.param_names.0", TestLeaf::Plain(Value::Str(parameter.into()))),
            ("o.state.0.exp_avg", f32s(&[value])),
        ]
    };
    let named = |left: &str, right: &str| {
        let (left, right) = (checkpoint(of(left, 1.0)), checkpoint(of(right, 2.0)));
        let report = compare(left, right, DiffOptions::default(), &mut Unwatched).unwrap();
        let found = read_json(&report)["differences"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(found["key"], "o.state.0.exp_avg");
        let text = report.differences.last().unwrap().parameter_text().unwrap();
        (text, found["parameter"].clone(), found["right_parameter"].clone())
    };
    let none = serde_json::Value::Null;
    assert_eq!(named("m.w", "m.w"), ("`m.w`".into(), "m.w".into(), none));
    // The number refers to different parameters on the two sides.
    assert_eq!(named("m.w", "m.v"), ("`m.w` / `m.v`".into(), "m.w".into(), "m.v".into()));
}

/// Builds `{"config": {"lr": …}, "layers": [{"config": config}, …]}`.
fn shared(lr: f64, layers: usize, elsewhere: bool) -> Arc<Checkpoint> {
    let mut builder = Builder::new(&Limits::default());
    let mut dict = |entries: Vec<(&str, Value)>| {
        let entries = entries.into_iter().map(|(key, value)| {
            let id = builder.push(value).unwrap();
            (DictKey::from(key), id)
        });
        let dict = Dict { entries: entries.collect(), ..Dict::default() };
        builder.push(Value::Dict(dict)).unwrap()
    };
    let config = dict(vec![("lr", Value::Float(lr))]);
    let other = dict(vec![("lr", Value::Float(9.0))]);
    let target = if elsewhere { other } else { config };
    let items: Vec<_> = (0..layers).map(|_| dict(vec![("config", Value::Link(target))])).collect();
    let list = List { items, ..List::default() };
    let layers = builder.push(Value::List(list)).unwrap();
    let entries =
        vec![("config".into(), config), ("other".into(), other), ("layers".into(), layers)];
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    let files = FileSet::single("x", Memory::from(Vec::new()));
    Arc::new(builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap())
}

#[test]
fn changed_container_is_one_difference_however_often_it_is_referenced() {
    let diff = |left: &Arc<Checkpoint>, right: &Arc<Checkpoint>| {
        let options = DiffOptions::default();
        texts(&compare(left.clone(), right.clone(), options, &mut Unwatched).unwrap())
    };
    let left = shared(0.1, 30, false);
    assert_eq!(diff(&left, &shared(0.2, 30, false)), ["config.lr value: 0.1 / 0.2"]);
    assert_eq!(diff(&left, &left), [""; 0]);
    // A reference to another container names it.
    let elsewhere = diff(&shared(0.1, 2, false), &shared(0.1, 2, true));
    let expected = ["layers.0.config value: = config / = other"];
    assert_eq!(elsewhere[..1], expected);
    assert_eq!(elsewhere.len(), 2);
}

#[test]
fn compares_requires_grad_of_tensors_of_one_class() {
    let tensor = |requires_grad| {
        let mut builder = Builder::new(&Limits::default());
        let mut tensor = Tensor::new(DType::U8, vec![1], Layout::Fill([1].into()));
        tensor.requires_grad = requires_grad;
        let tensor = builder.push_tensor(tensor).unwrap();
        let id = builder.push(Value::Tensor(tensor)).unwrap();
        let dict = Dict { entries: vec![("w".into(), id)], ..Dict::default() };
        let root = builder.push(Value::Dict(dict)).unwrap();
        let files = FileSet::single("x", Memory::from(Vec::new()));
        Arc::new(builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap())
    };
    let options = DiffOptions::default();
    let report = compare(tensor(true), tensor(false), options, &mut Unwatched).unwrap();
    assert_eq!(texts(&report), ["w type: requires_grad / no requires_grad"]);
}

#[test]
fn resized_tensors_are_compared_in_their_common_part() {
    let rows = |values: &[f32]| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        TestLeaf::Of(DType::F32, vec![values.len() as u64 / 2, 2], bytes)
    };
    let side = |vocabulary: &[f32], head: &[f32]| {
        checkpoint(vec![("vocabulary", rows(vocabulary)), ("head", rows(head))])
    };
    let left = side(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1.0, 2.0]);
    let right = side(&[1.0, 2.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0], &[1.0, 2.0, 3.0, 4.0]);
    let report = compare(left, right, DiffOptions::default(), &mut Unwatched).unwrap();
    let texts: Vec<String> = report.differences.iter().map(Difference::text).collect();
    assert_eq!(texts.len(), 2);
    let resized = "shape: [3, 2] / [4, 2]; in the common [3, 2], elements: 1 of 6 differ, \
                   first at [1, 0], max abs 5.000e-1";
    assert!(texts[0].starts_with(resized), "{}", texts[0]);
    assert_eq!(texts[1], "shape: [1, 2] / [2, 2]; in the common [1, 2], the values are equal");
    assert_eq!((report.tensors, report.elements), (2, 8), "those of the common parts");
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let first = &json["differences"][0];
    assert_eq!((&first["what"], &first["values"]), (&"shape".into(), &"differ".into()));
    assert_eq!((&first["elements"], &first["differing"]), (&6.into(), &1.into()));
}
