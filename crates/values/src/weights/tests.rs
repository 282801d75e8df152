//! Tests on small tensors that are made here.

use std::sync::Arc;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, DictKey, FileId, FileSet, FormatInfo, Grade, Layout, Limits,
    Memory, Span, Tensor, TensorId, Unwatched, Value,
};
use statelens_tensor::{Buffer, Machine as _, Need, Work as _, drive};

use super::*;
use statelens_stats::{Accumulator, MatrixLines, Rows, Statistics};

/// A checkpoint of consecutive float32 vectors; `None` is a vector beyond the end of the file.
fn checkpoint(tensors: &[Option<&[f32]>]) -> Arc<Checkpoint> {
    let mut builder = Builder::new(&Limits::default());
    let (mut entries, mut bytes) = (Vec::new(), Vec::new());
    for (at, values) in tensors.iter().enumerate() {
        let len = values.map_or(8, |values| values.len() * 4) as u64;
        let offset = values.map_or(1 << 20, |_| bytes.len() as u64);
        bytes.extend(values.unwrap_or_default().iter().flat_map(|value| value.to_le_bytes()));
        let layout = Layout::Span(Span { file: FileId(0), offset, len });
        let id = builder.push_tensor(Tensor::new(DType::F32, vec![len / 4], layout)).unwrap();
        let key = DictKey::from(format!("t{at}").as_str());
        entries.push((key, builder.push(Value::Tensor(id)).unwrap()));
    }
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    let files = FileSet::single("x.bin", Memory::from(bytes));
    Arc::new(builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap())
}

fn ids(count: u32) -> impl Iterator<Item = TensorId> {
    (0..count).map(TensorId)
}

/// Feeds the survey in pieces of `piece` bytes.
fn run(survey: &mut Survey, piece: usize) {
    drive(survey, &mut Buffer::new(piece), &mut Unwatched).unwrap();
}

fn statistics_of(outcome: &TensorOutcome) -> Statistics {
    match outcome {
        TensorOutcome::Read(summary) => summary.statistics(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn survey_does_not_depend_on_pieces() {
    let long: Vec<f32> = (0..2_000u16).map(|at| f32::from(at) * 0.37 - 1e3).collect();
    let of = checkpoint(&[Some(&long), Some(&[1.0, f32::NAN, f32::INFINITY]), Some(&[])]);
    let mut whole = Survey::new(of.clone(), ids(3));
    run(&mut whole, usize::MAX);
    assert_eq!(whole.progress(), (8_012, 8_012));
    let expected = whole.take();
    assert_eq!(expected.len(), 3);
    let second = statistics_of(&expected[1].1);
    assert_eq!((second.nan, second.first_nan, second.first_inf), (1, Some(1), Some(2)));
    for piece in [3, 4, 1000] {
        let mut survey = Survey::new(of.clone(), ids(3));
        let mut seen = 0;
        while let need @ (Need::Feed(_) | Need::Step) = survey.need() {
            match need {
                Need::Feed(span) => {
                    let len = span.len.min(piece);
                    let piece = of.files.read_vec(span.file, span.offset, len).unwrap();
                    survey.feed(&piece).unwrap();
                }
                _ => survey.step().unwrap(),
            }
            seen += usize::from(survey.so_far().is_some());
        }
        assert!(seen > 2, "{seen}");
        assert_eq!(survey.take(), expected, "in pieces of {piece}");
        let mut divided = Survey::divided(of.clone(), ids(3), piece);
        run(&mut divided, 1);
        assert_eq!(divided.take(), expected, "in parts of {piece}");
    }
}

#[test]
fn parallel_parts_merge_to_identical_results() {
    let long: Vec<f32> = (0..90_000u32).map(|at| (at as f32 * 0.7).sin() * 3e-3).collect();
    let mut broken = long[..40].to_vec();
    broken[7] = f32::NAN;
    let of = checkpoint(&[Some(&long), None, Some(&broken), Some(&[]), Some(&long)]);
    for hashes in [false, true] {
        let survey = || match hashes {
            true => Survey::hashing(of.clone(), ids(5)),
            false => Survey::divided(of.clone(), ids(5), 1 << 14),
        };
        let mut whole = match hashes {
            true => survey(),
            false => Survey::new(of.clone(), ids(5)),
        };
        run(&mut whole, 1 << 20);
        let expected = whole.take();
        assert_eq!(expected.len(), 5);
        // Every third part is processed by one survey, the others by another.
        let (mut all, other) = (survey(), survey());
        let (work, mut sums) = all.split();
        for part in 0..work.parts() {
            let by = if part % 3 == 0 { work } else { other.work() };
            let begun = by.begin(part).map(|mut machine| {
                let read = match &mut machine {
                    Some(machine) => drive(machine, &mut Buffer::new(999), &mut Unwatched),
                    None => Ok(()),
                };
                (machine, read)
            });
            let (machine, read) = begun.unwrap_or_else(|error| (None, Err(error)));
            sums.take(work, by.end(part, machine, read)).unwrap();
        }
        assert_eq!(all.take(), expected);
        assert_eq!(all.progress(), whole.progress());
    }
}

#[test]
fn unreadable_tensor_does_not_stop_the_survey() {
    // The first is beyond the end of the file; the third turns out to be damaged.
    let two: &[f32] = &[2.0, 3.0];
    let of = checkpoint(&[None, Some(two), Some(two)]);
    let mut survey = Survey::new(of.clone(), [2, 0, 1, 1].map(TensorId));
    survey.step().unwrap();
    survey.unread(statelens_checkpoint::Error::damaged("a bad chunk")).unwrap();
    run(&mut survey, 8);
    let found = survey.take();
    assert!(
        matches!(&found[0], (TensorId(2), TensorOutcome::Unread(why)) if why.contains("a bad chunk"))
    );
    assert!(matches!(&found[1], (TensorId(0), TensorOutcome::Unread(_))), "{found:?}");
    assert_eq!(statistics_of(&found[2].1).max, Some(3.0));
    assert_eq!((found.len(), survey.progress()), (3, (24, 24)));
    // Errors of the disk, and cancellation by the user, end the survey.
    let mut survey = Survey::new(of, [TensorId(1)]);
    survey.step().unwrap();
    assert!(survey.unread(statelens_checkpoint::Error::cancelled()).is_err());
}

#[test]
fn hashes_tensors_that_may_be_equal() {
    let of = checkpoint(&[
        Some(&[1.0, 2.0, 3.0, 4.0]),
        Some(&[1.0, 3.0, 2.0, 4.0]),
        Some(&[1.0, 2.0, 3.0, 4.0]),
        Some(&[0.0, 0.0]),
        Some(&[0.0, 0.0]),
        Some(&[1.0, 2.0, 3.0, 5.0]),
    ]);
    let mut survey = Survey::new(of.clone(), ids(6));
    run(&mut survey, 5);
    let found = survey.take();
    let found: Vec<_> = found.iter().map(|(id, found)| (*id, statistics_of(found))).collect();
    let groups = twins(&of, found.iter().map(|(id, found)| (*id, found)));
    // The second has the same statistics but different values.
    assert_eq!(groups, [vec![TensorId(0), TensorId(1), TensorId(2)]]);
    let mut hashing = Survey::hashing(of.clone(), groups.concat());
    run(&mut hashing, 5);
    let hash = hashing.take();
    assert_eq!(hash[0].1, hash[2].1);
    assert_ne!(hash[0].1, hash[1].1);
}

#[test]
fn repeated_tensors_are_hashed_with_their_statistics() {
    let long: Vec<f32> = (0..9_000u16).map(|at| (f32::from(at) * 0.7).sin()).collect();
    let mut swapped = long.clone();
    swapped.swap(100, 8_000);
    let zeros = [0.0; 2_000];
    let of = checkpoint(&[
        Some(&long),
        Some(&zeros),
        Some(&long),
        Some(&swapped),
        Some(&zeros),
        Some(&long[1..]),
    ]);
    let mut hashing = Survey::hashing(of.clone(), ids(6));
    run(&mut hashing, 999);
    let expected = hashing.take();
    let mut plain = Survey::new(of.clone(), ids(6));
    run(&mut plain, 999);
    let statistics = plain.take();
    for (part, piece) in [(u64::MAX, 999), (1 << 14, 999), (1 << 14, usize::MAX)] {
        let mut survey = Survey::divided(of.clone(), ids(6), part).hashing_repeated();
        run(&mut survey, piece);
        let found = survey.take();
        let is_hash = |found: &TensorOutcome| matches!(found, TensorOutcome::Hash(_));
        let (hashes, read): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, found)| is_hash(found));
        assert_eq!(read, statistics);
        assert_eq!(hashes, [expected[2].clone(), expected[3].clone()]);
        assert_ne!(hashes[0].1, hashes[1].1);
    }
    // Parts that begin within a block of the hash are not hashed.
    let mut survey = Survey::divided(of, ids(6), 1_000).hashing_repeated();
    run(&mut survey, 999);
    assert_eq!(survey.take(), statistics);
}

fn statistics(values: &[f32]) -> Statistics {
    let mut accumulator = Accumulator::new();
    assert!(accumulator.begin(&DType::F32, 0));
    values.iter().for_each(|value| accumulator.feed(&value.to_le_bytes()));
    accumulator.finish().statistics()
}

/// Values spread over ±`size`.
fn spread(size: f32, count: u16) -> Vec<f32> {
    (0..count).map(|at| size * ((u32::from(at) * 7919 % 101) as f32 - 50.0) / 50.0).collect()
}

fn reported_findings(tensors: &[(&str, &[u64], Vec<f32>)]) -> Vec<Noticed> {
    let statistics: Vec<Statistics> = tensors.iter().map(|tensor| statistics(&tensor.2)).collect();
    let read: Vec<Read<'_>> = tensors
        .iter()
        .zip(&statistics)
        .map(|((key, shape, _), statistics)| Read {
            key,
            shape,
            floats: true,
            statistics,
            lines: None,
            parameter: None,
        })
        .collect();
    notice(&read, &[], &[], '.')
}

fn titles(found: &[Noticed]) -> Vec<(Grade, &str)> {
    found.iter().map(|noticed| (noticed.grade, noticed.title.as_str())).collect()
}

#[test]
fn reports_nan_with_its_index() {
    let mut values = spread(1.0, 12);
    values[7] = f32::NAN;
    let found =
        reported_findings(&[("h.0.w", &[3, 4], spread(1.0, 12)), ("h.1.w", &[3, 4], values)]);
    assert_eq!(titles(&found), [(Grade::Warning, "1 NaN in `h.1.w`")]);
    assert_eq!(found[0].text, "Of 12 values, the first at [1, 3].");
    assert_eq!(found[0].element, Some(ElementRef { tensor: 1, number: 7, index: vec![1, 3] }));
    // A mask is not reported as infinite.
    let mask = vec![0.0, f32::NEG_INFINITY, 0.0, 0.0];
    let found = reported_findings(&[("mask", &[2, 2], mask)]);
    assert_eq!(titles(&found), [(Grade::Note, "1 tensor of \u{2212}inf and zeros: a mask")]);
}

#[test]
fn zero_matrix_is_a_warning_if_its_siblings_differ() {
    let name = |at: usize| format!("h.{at}.w");
    let keys: Vec<String> = (0..4).map(name).collect();
    let matrices = |zero: &dyn Fn(usize) -> bool| {
        let made = keys.iter().enumerate().map(|(at, key)| {
            let values = if zero(at) { vec![0.0; 12] } else { spread(1.0 + at as f32, 12) };
            (key.as_str(), &[3u64, 4][..], values)
        });
        let found = reported_findings(&made.collect::<Vec<_>>());
        found.into_iter().map(|noticed| (noticed.grade, noticed.title)).collect::<Vec<_>>()
    };
    assert_eq!(matrices(&|at| at == 2), [(Grade::Warning, "`h.2.w` is all zeros".to_owned())]);
    assert_eq!(matrices(&|_| true), [(Grade::Note, "4 tensors are all zeros".to_owned())]);
    assert_eq!(matrices(&|_| false), []);
    // Zero biases and norms of ones are each reported in one note.
    let found =
        reported_findings(&[("a.bias", &[4], vec![0.0; 4]), ("norm.weight", &[4], vec![1.0; 4])]);
    let expected =
        [(Grade::Note, "1 tensor is all zeros"), (Grade::Note, "1 tensor is of one value")];
    assert_eq!(titles(&found), expected);
    let found = reported_findings(&[("only.weight", &[2, 2], vec![0.5; 4])]);
    assert_eq!(titles(&found), [(Grade::Warning, "`only.weight` is all 0.5")]);
}

#[test]
fn reports_outlier_layers_with_the_expected_value() {
    let keys: Vec<String> = (0..16).map(|at| format!("model.layers.{at}.up.weight")).collect();
    let layers = |odd: Option<usize>| {
        let made = keys.iter().enumerate().map(|(at, key)| {
            let size = 0.02 * 1.1f32.powi(at as i32) * if odd == Some(at) { 6.0 } else { 1.0 };
            (key.as_str(), &[10u64, 10][..], spread(size, 100))
        });
        reported_findings(&made.collect::<Vec<_>>())
    };
    assert_eq!(layers(None), []);
    let found = layers(Some(9));
    assert_eq!(
        titles(&found),
        [(Grade::Warning, "`model.layers.9.up.weight` is not like its siblings")]
    );
    assert!(found[0].text.contains("4 of 4 measures agree"), "{}", found[0].text);
    assert!(found[0].text.contains("6\u{d7}"), "{}", found[0].text);
    let series = found[0].series.as_ref().unwrap();
    assert_eq!((series.marked, series.depth[9], series.values.len()), (9, 9, 16));
    assert!((series.values[9] / series.expected - 6.0).abs() < 0.01);
}

#[test]
fn reports_an_expert_unlike_the_others_of_its_layer() {
    let keys: Vec<String> =
        (0..16).map(|at| format!("model.layers.3.mlp.experts.{at}.w1.weight")).collect();
    let experts = |odd: Option<usize>| {
        let made = keys.iter().enumerate().map(|(at, key)| {
            let size = if odd == Some(at) { 1.0 } else { 0.02 };
            (key.as_str(), &[10u64, 10][..], spread(size, 100))
        });
        reported_findings(&made.collect::<Vec<_>>())
    };
    // The equal values of the others are a finding, too.
    let unlike = |found: &[Noticed]| {
        let all = found.iter().filter(|it| it.title.ends_with("is not like its siblings"));
        all.map(|it| it.title.clone()).collect::<Vec<_>>()
    };
    assert_eq!(unlike(&experts(None)), [""; 0]);
    assert_eq!(
        unlike(&experts(Some(5))),
        ["`model.layers.3.mlp.experts.5.w1.weight` is not like its siblings"]
    );
}

#[test]
fn compares_moments_with_their_parameters() {
    let found = reported_findings(&[
        ("model.fc.weight", &[2, 3], spread(1.0, 6)),
        ("optimizer.state.model.fc.weight.exp_avg", &[3, 2], spread(0.1, 6)),
        ("optimizer.state.model.fc.weight.exp_avg_sq", &[3, 2], spread(0.1, 6)),
        ("optimizer.state.0.exp_avg", &[4], vec![0.0; 4]),
        ("optimizer.state.0.exp_avg_sq", &[5], vec![0.5; 5]),
        ("optimizer.state.1.exp_avg", &[4], vec![0.1, 0.2, 0.1, 0.2]),
    ]);
    let titles: Vec<&str> = found.iter().map(|noticed| noticed.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "`optimizer.state.model.fc.weight.exp_avg_sq` has negative values",
            "The moments of `optimizer.state.0` are of different shapes",
            "`optimizer.state.model.fc.weight.exp_avg` does not fit its parameter",
            "1 of 3 `exp_avg` are all zeros",
        ]
    );
}

#[test]
fn reports_a_loss_scale_at_its_minimum() {
    let at = |pairs: &[(&str, f64)]| {
        let scalars: Vec<(String, f64)> =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        notice(&[], &[], &scalars, '.').len()
    };
    let torch = |scale: f64| at(&[("scaler.scale", scale), ("scaler.growth_factor", 2.0)]);
    assert_eq!((torch(65536.0), torch(1.0), torch(0.0625)), (0, 1, 1));
    let deepspeed = |scale: f64| at(&[("o.cur_scale", scale), ("o.min_scale", 4.0)]);
    assert_eq!((deepspeed(8.0), deepspeed(4.0)), (0, 1));
    // Scales of other kinds are not loss scales.
    assert_eq!(at(&[("layer.scale", 0.5), ("loss_scale", 1.0)]), 0);
}

/// The statistics of a matrix and of its rows.
fn by_rows(width: u64, values: &[f32]) -> (Statistics, MatrixLines) {
    let mut rows = Rows::new(&DType::F32, width).unwrap();
    values.iter().for_each(|value| rows.feed(&value.to_le_bytes()));
    (statistics(values), rows.finish())
}

#[test]
fn reports_zero_duplicate_and_small_rows() {
    let mut values: Vec<f32> =
        (0..80).map(|at| (at % 7) as f32 + 1.0 + at as f32 / 100.0).collect();
    values[8..12].fill(0.0);
    values[76..80].fill(0.0);
    let (of, lines) = by_rows(4, &values);
    let mut embedding = values.clone();
    embedding.copy_within(20..24, 60);
    embedding[40..44].fill(1e-3);
    let (of_embedding, lines_of_embedding) = by_rows(4, &embedding);
    let (whole, _) = by_rows(4, &values[12..76]);
    let read = |key, statistics, lines| Read {
        key,
        shape: &[20, 4],
        floats: true,
        statistics,
        lines,
        parameter: None,
    };
    let tensors = [
        read("h.0.up", &whole, None),
        read("h.1.up", &of, Some(&lines)),
        read("embed.weight", &of_embedding, Some(&lines_of_embedding)),
        Read {
            parameter: Some("embed.weight"),
            ..read("optimizer.state.0.exp_avg_sq", &of, Some(&lines))
        },
        read("optimizer.state.0.exp_avg", &of, Some(&lines)),
    ];
    let found = notice(&tensors, &[], &[], '.');
    let reported_findings: Vec<(Grade, &str, &str)> = found
        .iter()
        .map(|noticed| (noticed.grade, noticed.title.as_str(), noticed.text.as_str()))
        .collect();
    let note = Grade::Note;
    assert_eq!(
        reported_findings,
        [
            (Grade::Warning, "2 of 20 rows of `h.1.up` are all zeros", "Rows 2,19."),
            (note, "2 of 20 rows of `embed.weight` are all zeros", "Rows 2,19."),
            (note, "Row 15 of `embed.weight` is equal, bit for bit, to row 5", ""),
            (
                note,
                "1 of 20 rows of `embed.weight` is far shorter than the others",
                "Row 10. Its norm is at most 0.002; the median of all is 9.619."
            ),
            (
                note,
                "2 of 20 rows of `optimizer.state.0.exp_avg_sq` are all zeros",
                "Rows 2,19. No gradient has reached these rows of `embed.weight`; in an embedding, \
                 these tokens were never seen."
            ),
        ]
    );
    let element = found[0].element.clone().unwrap();
    assert_eq!((element.tensor, element.number, element.index), (1, 8, vec![2, 0]));
}

#[test]
fn names_equal_tensors() {
    let values = spread(1.0, 6);
    let statistics = statistics(&values);
    let read = |key| Read {
        key,
        shape: &[6],
        floats: true,
        statistics: &statistics,
        lines: None,
        parameter: None,
    };
    let found = notice(&[read("a"), read("b")], &[vec![0, 1]], &[], '.');
    assert_eq!(titles(&found), [(Grade::Note, "`a` and `b` are equal bit for bit")]);
}
