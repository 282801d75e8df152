//! Tests with checkpoints that are made here: locations, pieces, manifests. Files and their
//! checksums are covered by the tests of the command.

use statelens_checkpoint::{
    Builder, Dict, DictKey, FileSet, FormatInfo, Limits, Memory, Text, Unwatched, Value,
};
use statelens_formats::checks::Check;
use statelens_tensor::Machine as _;

use super::*;
use statelens_formats::checks::Algorithm;

const LEN: usize = 64;

fn span(offset: u64, len: u64) -> Layout {
    Layout::Span(Span { file: FileId(0), offset, len })
}

/// 64 bytes: small floats, with a NaN as the sixth.
fn bytes() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..16u16).flat_map(|at| f32::from(at).to_le_bytes()).collect();
    bytes[20..24].copy_from_slice(&f32::NAN.to_le_bytes());
    bytes
}

/// A checkpoint of these float32 tensors.
fn checkpoint(tensors: &[(&str, Layout, u64, Option<u32>)]) -> Arc<Checkpoint> {
    let mut builder = Builder::new(&Limits::default());
    let mut entries = Vec::new();
    for (key, layout, numel, storage) in tensors {
        let mut tensor = Tensor::new(DType::F32, vec![*numel], layout.clone());
        tensor.storage = *storage;
        let id = builder.push_tensor(tensor).unwrap();
        entries.push((DictKey::from(*key), builder.push(Value::Tensor(id)).unwrap()));
    }
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() })).unwrap();
    let files = FileSet::single("x.bin", Memory::from(bytes()));
    Arc::new(builder.finish(root, FormatInfo::default(), files, Vec::new()).unwrap())
}

fn check(what: &str, offset: u64, len: u64, expected: u32) -> Check {
    let layout = span(offset, len);
    Check { what: what.into(), algorithm: Algorithm::Crc32, layout, expected, found: None }
}

fn sum(offset: usize, len: usize) -> u32 {
    statelens_tensor::crc::crc32(0, &bytes()[offset..offset + len])
}

fn report(checkpoint: &Arc<Checkpoint>, checks: Vec<Check>) -> VerificationReport {
    let checks = Checks { checks, ..Checks::default() };
    verify(checkpoint.clone(), checks, None, &mut Unwatched).unwrap()
}

fn troubles(report: &VerificationReport) -> Vec<(Trouble, &str)> {
    report.result.problems.iter().map(|problem| (problem.trouble, problem.key.as_str())).collect()
}

#[test]
fn reports_overlaps_and_spans_beyond_the_file() {
    let found = checkpoint(&[
        ("a", span(0, 16), 4, None),
        ("b", span(12, 16), 4, None),
        ("c", span(56, 16), 4, None),
        ("d", span(28, 8), 2, None),
    ]);
    let report = report(&found, Vec::new());
    assert_eq!(
        troubles(&report),
        [(Trouble::PastEnd, "c"), (Trouble::Overlap, "b"), (Trouble::Damaged, "c")]
    );
    let text = report.result.problems[1].text();
    assert!(text.contains("`a`") && text.contains("x.bin at byte 12"), "{text}");
    assert!(text.contains("expected a beginning at byte 16 or later"), "{text}");
    let text = report.result.problems[0].text();
    assert!(text.contains("found an end at byte 72"), "{text}");
}

#[test]
fn views_of_one_storage_may_overlap() {
    let tensors =
        |storage| checkpoint(&[("a", span(0, 16), 4, storage), ("b", span(8, 16), 4, storage)]);
    assert!(report(&tensors(Some(3)), Vec::new()).sound());
    assert_eq!(troubles(&report(&tensors(None), Vec::new())), [(Trouble::Overlap, "b")]);
    // Identical ranges are the same tensor under two names.
    let tied = checkpoint(&[("a", span(0, 16), 4, None), ("b", span(0, 16), 4, None)]);
    assert!(report(&tied, Vec::new()).sound());
}

#[test]
fn reads_bytes_once_for_checksums_and_tensors() {
    let found = checkpoint(&[
        ("late", span(40, 8), 2, None),
        ("nan", span(16, 8), 2, None),
        ("again", span(16, 8), 2, None),
        ("free", span(56, 8), 2, None),
        ("none", span(30, 0), 0, None),
    ]);
    let checks = vec![check("member", 8, 40, sum(8, 40)), check("other", 0, 8, 1)];
    let report = report(&found, checks.clone());
    assert_eq!(troubles(&report), [(Trouble::Checksum, "other")]);
    assert_eq!(report.result.checksums, [("CRC-32".to_owned(), 2)]);
    assert_eq!((report.result.tensors, report.result.unchecked_tensors), (5, 1));
    let numbers: Vec<(&str, u64, &[u64])> = report
        .result
        .not_finite
        .iter()
        .map(|numbers| (numbers.key.as_str(), numbers.nan, &*numbers.first))
        .collect();
    assert_eq!(numbers, [("nan", 1, &[1][..]), ("again", 1, &[1])]);
    // The second of two tensors in one place is read separately: 48 bytes of members, 8 and 8 more.
    let checks = Checks { checks, ..Checks::default() };
    let verification = Verification::new(found, checks, false);
    assert_eq!(verification.progress().1, 64);
}

#[test]
fn report_does_not_depend_on_piece_size() {
    let found = checkpoint(&[
        ("a", span(8, 16), 4, None),
        ("b", span(24, 16), 4, None),
        ("fill", Layout::Fill(f32::INFINITY.to_le_bytes().into()), 7, None),
        ("c", span(44, 20), 5, None),
    ]);
    let checks = || Checks {
        checks: vec![check("one", 4, 36, sum(4, 36)), check("wrong", 40, 24, 7)],
        ..Checks::default()
    };
    let run = |size: usize, hashing: bool| {
        let mut verification = Verification::new(found.clone(), checks(), hashing);
        drive(&mut verification, &mut Buffer::new(size), &mut Unwatched).unwrap();
        let (done, total) = verification.progress();
        assert_eq!(done, total);
        verification.into_report(None).unwrap()
    };
    let whole = run(LEN, false);
    assert_eq!(troubles(&whole), [(Trouble::Checksum, "wrong")]);
    assert!(whole.result.problems[0].text.contains("`c`"), "{}", whole.result.problems[0].text);
    assert_eq!(whole.result.not_finite.len(), 2);
    assert_eq!(whole.result.not_finite[1].inf, 7);
    for size in 1..LEN {
        assert_eq!(run(size, false), whole, "in pieces of {size}");
    }
    assert_eq!(run(5, true), whole);
}

/// The caller hashes tensors of 16 bytes; the others are hashed as usual. All results are the same.
#[test]
fn callers_may_hash_tensors() {
    use sha2::{Digest as _, Sha256};

    let found = checkpoint(&[
        ("a", span(8, 16), 4, None),
        ("whole member", span(24, 16), 4, None),
        ("fill", Layout::Fill(f32::INFINITY.to_le_bytes().into()), 4, None),
        ("part of a member", span(44, 16), 4, None),
        ("b", span(0, 8), 2, None),
    ]);
    let checks = || Checks {
        checks: vec![check("one", 24, 16, sum(24, 16)), check("two", 44, 20, sum(44, 20))],
        ..Checks::default()
    };
    let run = |statistics: bool, outside: bool| {
        let mut verification = Verification::new(found.clone(), checks(), true);
        if statistics {
            verification = verification.with_statistics();
        }
        if outside {
            verification = verification.hashing_outside(16..17);
        }
        let mut hashers: HashMap<TensorId, (u64, Sha256)> = HashMap::new();
        loop {
            match verification.need() {
                statelens_tensor::Need::Done => break,
                statelens_tensor::Need::Step => verification.step().unwrap(),
                statelens_tensor::Need::Feed(span) => {
                    let len = span.len.min(5);
                    let bytes = verification.files().read_vec(span.file, span.offset, len).unwrap();
                    if let Some((id, total)) = verification.hashed_outside() {
                        assert_eq!(total, 16);
                        let (fed, hasher) = hashers.entry(id).or_default();
                        *fed += len;
                        hasher.update(&bytes);
                    }
                    verification.feed(&bytes).unwrap();
                }
            }
        }
        let outside = hashers.len();
        for (id, (fed, hasher)) in hashers {
            assert_eq!(fed, 16);
            verification.add_hash(id, statelens_checkpoint::hex(&hasher.finalize()));
        }
        let hashes = verification.hashes().clone();
        (hashes, verification.into_report(None).unwrap(), outside)
    };
    let (hashes, report, outside) = run(false, false);
    assert_eq!((hashes.len(), outside), (5, 0));
    for (statistics, external) in [(true, false), (false, true), (true, true)] {
        let (more, other, outside) = run(statistics, external);
        assert_eq!((&more, &other), (&hashes, &report));
        assert_eq!(outside, if external { 2 } else { 0 });
    }
}

#[test]
fn compares_manifest_entries() {
    let found = checkpoint(&[("a", span(0, 16), 4, None), ("b", span(16, 16), 4, None)]);
    let written = |lines: bool| {
        let mut text = String::new();
        let mut out = |piece: &str| {
            text.push_str(piece);
            Ok(())
        };
        let leaves = found.leaves();
        match lines {
            true => {
                statelens_describe::write_manifest_lines(&found, &leaves, &mut Unwatched, &mut out)
            }
            false => statelens_describe::write_manifest(&found, &leaves, &mut Unwatched, &mut out),
        }
        .unwrap();
        text
    };
    for lines in [false, true] {
        let text = written(lines);
        let against = |text: &str| {
            let manifest = Manifest::parse(text.as_bytes()).unwrap();
            verify(found.clone(), Checks::default(), Some(&manifest), &mut Unwatched).unwrap()
        };
        let same = against(&text);
        let all = Some(MatchingEntries { entries: 2, matching: 2 });
        assert_eq!((same.sound(), same.result.manifest), (true, all), "{:?}", same.result.problems);
        // A manifest that differs, first in dtypes, then in a key.
        let hash = text.find(|c: char| c.is_ascii_digit()).unwrap();
        assert!(hash > 0 || lines);
        let other = text.replace("float32", "float16");
        let report = against(&other);
        assert_eq!(report.result.manifest, Some(MatchingEntries { entries: 2, matching: 0 }));
        assert!(report.result.problems[0].text().contains("expected float16; found float32"));
        let key = if lines { "\tb\n" } else { "\"b\"" };
        let report = against(&text.replace(key, &key.replace('b', "c")));
        assert_eq!(report.result.manifest, Some(MatchingEntries { entries: 3, matching: 1 }));
        let reported: Vec<&str> =
            report.result.problems.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(reported, ["it is not in the manifest", "it is missing"]);
    }
    // An empty container as first value.
    for text in ["{}\tdict\t\tv\n", "[]\tlist\t\tv\n"] {
        let Manifest::Lines(lines) = Manifest::parse(text.as_bytes()).unwrap() else { panic!() };
        assert_eq!(lines[0][3], "v");
    }
    for text in ["", "{}", "[]", "some text\n", "{\"entries\":[{\"key\":\"a\",\"shape\":[2]}]}"] {
        let error = Manifest::parse(text.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("manifest"), "{error}");
    }
    assert_eq!(Text::from("a"), found.leaves()[0].flat);
}

#[test]
fn one_pass_yields_statistics_and_hashes() {
    let found = checkpoint(&[
        ("a", span(0, 16), 4, None),
        ("b", span(16, 32), 8, None),
        ("c", Layout::Fill(1f32.to_le_bytes().into()), 3, None),
    ]);
    let ids: Vec<TensorId> =
        found.leaves().iter().map(|leaf| found.tensor_of(leaf.target).unwrap().0).collect();
    // A checksum of both tensors, and one that does not match.
    let checks = vec![check("storage", 0, 48, sum(0, 48)), check("rest", 48, 16, 1)];
    let checks = Checks { checks, ..Checks::default() };
    let mut all = Verification::new(found.clone(), checks, true).with_statistics();
    drive(&mut all, &mut Buffer::new(7), &mut Unwatched).unwrap();

    let mut survey = statelens_values::weights::Survey::new(found.clone(), ids.iter().copied());
    drive(&mut survey, &mut Buffer::new(BUFFER), &mut Unwatched).unwrap();
    let expected: Vec<_> = survey
        .take()
        .into_iter()
        .map(|(id, outcome)| match outcome {
            statelens_values::weights::TensorOutcome::Read(summary) => (id, summary.statistics()),
            other => panic!("{other:?}"),
        })
        .collect();
    let mut summaries = all.take_summaries();
    summaries.sort_by_key(|(id, _)| ids.iter().position(|one| one == id));
    let reported: Vec<_> =
        summaries.iter().map(|(id, summary)| (*id, summary.statistics())).collect();
    assert_eq!(reported, expected);
    assert_eq!(reported[1].1.nan, 1);

    let leaves = found.leaves();
    let mut measuring = statelens_describe::share::Measuring::new(&found, &leaves, false);
    drive(&mut measuring, &mut Buffer::new(BUFFER), &mut Unwatched).unwrap();
    let (mut one, mut other) = (
        statelens_describe::share::Outline::new(&found, &leaves, None),
        statelens_describe::share::Outline::new(&found, &leaves, None),
    );
    measuring.finish(&mut one).unwrap();
    other.take_hashes(&found, &leaves, all.hashes().clone());
    assert_eq!(other.content, one.content);

    let report = all.into_report(None).unwrap();
    assert_eq!(troubles(&report), [(Trouble::Checksum, "rest")]);
    assert_eq!(report.result.not_finite.len(), 1);
}
