//! The number of workers does not change any result, to the last bit, even for damaged files.

use std::fs;
use std::ops::DerefMut;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use statelens::machines::{Buffer, Comparison, InOrder, Verification, Work, drive};
use statelens::parallel;
use statelens::parts::checkpoint::{Checkpoint, FileSet, Memory, Unwatched};
use statelens::parts::describe::ManifestWriter;
use statelens::parts::describe::share::{Measuring, Outline};
use statelens::parts::formats::checks;
use statelens::parts::values::weights::Survey;
use statelens::{DiffOptions, Limits, Opener};
use statelens_fixtures::times;

fn fixtures() -> PathBuf {
    statelens_fixtures::root().to_owned()
}

/// One worker on the calling thread, or several threads.
#[derive(Debug, Clone, Copy)]
enum Workers {
    Alone(usize),
    Of(usize),
}

impl Workers {
    const ALL: [Self; 5] = [Self::Alone(61), Self::Of(1), Self::Of(2), Self::Of(3), Self::Of(7)];

    fn drive<W, M>(self, mut machine: M) -> Result<M, String>
    where
        M: DerefMut<Target = InOrder<W>>,
        W: Work + Sync,
        W::Found: Send,
    {
        match self {
            Self::Alone(piece) => drive(&mut *machine, &mut Buffer::new(piece), &mut Unwatched),
            Self::Of(workers) => parallel::drive(&mut machine, workers, &mut Unwatched),
        }
        .map(|()| machine)
        .map_err(|error| error.to_string())
    }
}

/// Returns the results of every job that reads values, for two checkpoints.
fn report_texts(pool: Workers, left: &Arc<Checkpoint>, right: &Arc<Checkpoint>) -> Vec<String> {
    let large = left.tensors().iter().any(|tensor| tensor.nbytes() > Some(1 << 20));
    let verify = |manifest: bool| {
        let checks = checks(left, &Limits::default()).map_err(|error| error.to_string())?;
        let machine = Verification::new(left.clone(), checks, manifest);
        let report = pool.drive(machine)?.into_report(None).map_err(|error| error.to_string())?;
        Ok(report.json(report.answer(true)))
    };
    let manifest = |json: bool| {
        let (mut text, leaves) = (String::new(), left.leaves());
        let mut out = |piece: &str| {
            text.push_str(piece);
            Ok(())
        };
        let machine = match json {
            true => ManifestWriter::json(left, &leaves, &mut out),
            false => ManifestWriter::lines(left, &leaves, &mut out),
        };
        let unread = pool.drive(machine)?.finish().map_err(|error| error.to_string())?;
        Ok(format!("{text}{unread:?}"))
    };
    let statistics = || {
        let tensors = (0..left.tensors().len() as u32).map(statelens::parts::checkpoint::TensorId);
        // Small parts, so that fixtures are divided.
        let mut survey = pool.drive(Survey::divided(left.clone(), tensors, 64))?;
        Ok(format!("{:?}", survey.take()))
    };
    let content = || {
        let leaves = left.leaves();
        let mut outline = Outline::new(left, &leaves, None);
        let measuring = pool.drive(Measuring::new(left, &leaves, true))?;
        measuring.finish(&mut outline).unwrap();
        Ok(format!("{:?} {:?}", outline.content, outline.entries))
    };
    let diff = || {
        let machine = Comparison::new(left.clone(), right.clone(), DiffOptions::default());
        Ok(pool.drive(machine)?.into_report().json())
    };
    if large {
        // Only the jobs that read pieces of millions of elements: the others would take minutes.
        return [verify(false), diff()].map(|report_texts| report_texts.unwrap()).to_vec();
    }
    let all: [Result<String, String>; 7] = [
        verify(false),
        verify(true),
        manifest(true),
        manifest(false),
        statistics(),
        content(),
        diff(),
    ];
    all.into_iter()
        .map(|report_texts| report_texts.unwrap_or_else(|error| format!("failed: {error}")))
        .collect()
}

fn same_by_all(name: &str, left: &Arc<Checkpoint>, right: &Arc<Checkpoint>) -> Vec<String> {
    let first = report_texts(Workers::ALL[0], left, right);
    for pool in &Workers::ALL[1..] {
        for (at, (one, other)) in first.iter().zip(report_texts(*pool, left, right)).enumerate() {
            assert!(*one == other, "{name}, answer {at}: {one}\nby {pool:?}: {other}");
        }
    }
    first
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Larger fixtures, in bytes, have very many keys, which would take minutes.
const LARGE: u64 = 300 << 10;

#[test]
fn reports_do_not_depend_on_worker_count() {
    let mut files = Vec::new();
    for folder in ["torch", "safetensors", "numpy", "cerebras", "gguf", "hdf5_sums", "keras", "tf"]
    {
        walk(&fixtures().join(folder), &mut files);
    }
    files.sort();
    let mut before: Option<Arc<Checkpoint>> = None;
    let mut formats = std::collections::BTreeSet::new();
    // The first files of each format matter most; other runs take all.
    for path in files.into_iter().step_by(times(3, 1)) {
        if fs::metadata(&path).unwrap().len() > LARGE {
            continue;
        }
        let Ok(checkpoint) = Opener::new().open(&path) else { continue };
        let checkpoint = checkpoint.inner().clone();
        if checkpoint.unfolded().check("", &Limits::default()).is_err() {
            continue;
        }
        formats.insert(checkpoint.format.id);
        let other = before.replace(checkpoint.clone()).unwrap_or_else(|| checkpoint.clone());
        let name = path.display().to_string();
        same_by_all(&name, &checkpoint, &other);
        same_by_all(&name, &checkpoint, &checkpoint);
    }
    assert!(formats.len() >= 8, "{formats:?}");
}

/// Returns a safetensors file with one float32 tensor.
fn one_tensor(values: &[f32]) -> Vec<u8> {
    let shape = format!("[{},1024]", values.len() / 1024);
    let bytes = values.len() * 4;
    let header = format!(r#"{{"w":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{bytes}]}}}}"#);
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    file
}

#[test]
fn large_tensor_read_in_pieces_is_reported_as_one() {
    let count = 9 << 20;
    let mut values: Vec<f32> =
        (0..count).map(|at| ((at * 2_654_435_761_usize) % 1_000_003) as f32 / 1e3).collect();
    values[count - 5] = f32::NAN;
    values[(8 << 20) + 1024] = f32::INFINITY;
    let open = |values: &[f32], cut: usize| {
        let mut bytes = one_tensor(values);
        bytes.truncate(bytes.len() - cut);
        let files = FileSet::single("w.safetensors", Memory::from(bytes));
        let open = statelens::parts::formats::open;
        Arc::new(open(files, &Limits::default(), &mut Unwatched).unwrap())
    };
    let left = open(&values, 0);
    values[(5 << 20) + 7] += 0.25;
    values[count - 1] += 0.5;
    let right = open(&values, 0);
    let pools =
        [Workers::Alone(100_003), Workers::Of(1), Workers::Of(2), Workers::Of(3), Workers::Of(7)];
    let by_all = |right: &Arc<Checkpoint>| {
        let mut report_texts = pools.iter().map(|pool| report_texts(*pool, &left, right));
        let first = report_texts.next().unwrap();
        report_texts.for_each(|other| assert!(first == other, "{first:?}\n{other:?}"));
        first
    };
    let report_texts = by_all(&right);
    let json = |at: usize| serde_json::from_str::<serde_json::Value>(&report_texts[at]).unwrap();
    let numbers = &json(0)["not_finite"][0];
    assert_eq!((&numbers["nan"], &numbers["inf"]), (&1.into(), &1.into()), "{numbers}");
    assert_eq!(numbers["first"], serde_json::json!([(8 << 10) + 1, 0]), "{numbers}");
    let found = &json(1)["differences"][0];
    assert_eq!(found["elements"], count, "{found}");
    assert_eq!((&found["differing"], &found["max_abs"]), (&2.into(), &0.5.into()), "{found}");
    assert_eq!(found["first"], serde_json::json!([5 << 10, 7]), "{found}");
    // Expected values over all pieces, in double precision from the original values.
    let finite = || values.iter().filter(|value| value.is_finite()).map(|value| f64::from(*value));
    let squares: f64 = finite().map(|value| value * value).sum();
    let apart = 0.25f64.powi(2) + 0.5f64.powi(2);
    let near = |name: &str, expected: f64| {
        let report_texts = found[name].as_f64().unwrap();
        assert!(
            (report_texts / expected - 1.0).abs() < 1e-9,
            "{name}: {report_texts}, not {expected}"
        );
    };
    near("mse", apart / finite().count() as f64);
    near("change", (apart / squares).sqrt());
    near("cosine", 1.0);
}

#[test]
fn damage_reports_do_not_depend_on_worker_count() {
    let (mut unlike, mut opened) = (0, 0);
    for name in [
        "torch/zip_training_ckpt.pt",
        "torch/zip_all_dtypes.pt",
        "numpy/compressed.npz",
        "cerebras/compat/synthetic_1.7_fixed.mdl",
        "gguf/quants.gguf",
    ] {
        let whole = fs::read(fixtures().join(name)).unwrap_or_else(|_| panic!("{name}"));
        let open = |bytes: Vec<u8>| {
            let files = FileSet::single(name.rsplit('/').next().unwrap(), Memory::from(bytes));
            statelens::parts::formats::open(files, &Limits::default(), &mut Unwatched).ok()
        };
        let sound = Arc::new(open(whole.clone()).unwrap());
        let expected = same_by_all(name, &sound, &sound);
        for at in 1..24usize {
            let mut bytes = whole.clone();
            let place = bytes.len() * at / 24;
            bytes[place] ^= 0x55;
            let Some(damaged) = open(bytes) else { continue };
            opened += 1;
            let name = format!("{name} damaged at {place}");
            unlike += usize::from(same_by_all(&name, &damaged.into(), &sound) != expected);
        }
    }
    // Some bytes are unused, but most are checked.
    assert!(opened > 40 && unlike > opened / 2, "{unlike} of {opened}");
}
