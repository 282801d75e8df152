//! Conversions in tasks: the output is byte for byte that of one run, in whatever order tasks run,
//! and whether they are repeated or fail in between.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use statelens::job::{
    Committed, EditTexts, Job, JobOptions, JobWork, ManyCommand, Reading, TaskEnd,
};
use statelens::parts::checkpoint::Unwatched;
use statelens::parts::convert::{OutputOptions, RunReport};
use statelens::{DType, Opener, Refusal, Result, Target, convert};

const TARGETS: [(Target, &str); 6] = [
    (Target::Registered("npy"), "npy"),
    (Target::Safetensors, "safetensors"),
    (Target::Torch, "pt"),
    (Target::Numpy, "npz"),
    (Target::TensorFlow, "index"),
    (Target::Cerebras, "mdl"),
];

fn options(source: &Path, destination: &Path, to: &str) -> JobOptions {
    JobOptions {
        source: source.to_owned(),
        destination: destination.to_owned(),
        output: OutputOptions { to: to.to_owned(), ..OutputOptions::default() },
        edits: EditTexts::default(),
        lossy: true,
        replace: false,
        reading: Reading::default(),
    }
}

fn plan(place: &Path, options: JobOptions, tasks: u64) -> Result<Job> {
    let refusal = Refusal::default();
    Job::plan_conversion(place, options, Some(tasks), refusal, &mut Unwatched).map(|(job, _)| job)
}

fn run(job: &Job, task: u64) -> Result<TaskEnd> {
    let mut ended = None;
    job.run([task], &mut Unwatched, &mut |_, end| {
        ended = Some(end);
        Ok(())
    })?;
    Ok(ended.unwrap())
}

fn commit(job: &Job) -> Result<Option<RunReport>> {
    match job.commit(Refusal::default(), &mut Unwatched)? {
        Committed::Before(_) => Ok(None),
        Committed::Now(committed) => Ok(Some(committed.report)),
    }
}

/// Returns the tasks in another order, which depends on `seed`.
fn shuffled(tasks: u64, seed: usize) -> Vec<u64> {
    let mut order: Vec<u64> = (0..tasks).collect();
    let mut state = seed as u64 ^ 0x9e37_79b9;
    for at in (1..order.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}

/// Returns the names and contents of the files in a folder.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|one| (one.file_name().into_string().unwrap(), fs::read(one.path()).unwrap()))
        .collect()
}

/// Returns the fixtures that this test converts.
fn sources() -> Vec<PathBuf> {
    let (mut open, mut files) = (vec![statelens_fixtures::root().to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            // Those of attacks are damaged.
            if path.is_dir() && !name.starts_with("attacks") && !name.ends_with("flips") {
                open.push(path);
            } else if path.is_file() && fs::metadata(&path).unwrap().len() < 2_000_000 {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

#[test]
fn tasks_write_what_one_run_writes() {
    let sources: Vec<PathBuf> =
        sources().into_iter().step_by(statelens_fixtures::times(60, 1)).collect();
    // Each result is flushed to the disk, which takes most of the time.
    let threads = 8;
    let written: Vec<(&str, u64)> = thread::scope(|scope| {
        let sources = &sources;
        let of_thread = |thread| sources.iter().enumerate().skip(thread).step_by(threads);
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let written =
                        of_thread(thread).map(|(number, path)| convert_both_ways(path, number));
                    written.flatten().collect::<Vec<_>>()
                })
            })
            .collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let targets: BTreeSet<&str> = written.iter().map(|(end, _)| *end).collect();
    let divided = written.iter().filter(|(_, tasks)| *tasks > 2).count();
    assert!(targets.len() >= TARGETS.len() - 1 && divided > 5, "{targets:?} {divided}");
}

/// Converts a file to every target that takes it, in one run and as a job, and compares the outputs.
/// Returns the targets and the numbers of tasks.
fn convert_both_ways(source: &Path, number: usize) -> Vec<(&'static str, u64)> {
    let mut converted = Vec::new();
    let Ok(checkpoint) = Opener::new().open(source) else { return converted };
    for (target, end) in TARGETS {
        let folder = tempfile::tempdir().unwrap();
        let [one, many] = ["one", "many"].map(|name| folder.path().join(name));
        fs::create_dir(&one).unwrap();
        let name = format!("out.{end}");
        let Ok(written) = convert(&checkpoint, target).lossy().write(one.join(&name)) else {
            continue;
        };
        let place = folder.path().join("job");
        let options = options(source, &many.join(&name), target.id());
        let job = plan(&place, options, 1 + number as u64 % 7).unwrap();
        let tasks = job.recipe().tasks;
        let order = shuffled(tasks, number);
        for task in &order {
            assert_eq!(run(&job, *task).unwrap(), TaskEnd::Done);
        }
        // A result that is lost makes a task run again.
        let again = order[number % order.len()];
        fs::remove_file(place.join(format!("results/{again:05}.json"))).unwrap();
        assert_eq!(run(&job, again).unwrap(), TaskEnd::Done);
        assert_eq!(run(&job, again).unwrap(), TaskEnd::DoneBefore);
        let report = commit(&job).unwrap().unwrap();
        assert!(contents(&one) == contents(&many), "{} to {end}", source.display());
        assert_eq!(report.bytes, written.report.bytes);
        assert!(commit(&job).unwrap().is_none());
        converted.push((end, tasks));
    }
    converted
}

#[test]
fn casts_and_packed_sources_are_reported_as_by_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.safetensors");
    fs::write(&source, large()).unwrap();
    let checkpoint = statelens::open(&source).unwrap();
    let packed = folder.path().join("packed.mdl");
    convert(&checkpoint, Target::Cerebras).compression("lz4").write(&packed).unwrap();
    for (number, (source, cast)) in
        [(&source, "bfloat16"), (&source, "float16"), (&packed, ""), (&packed, "bfloat16")]
            .into_iter()
            .enumerate()
    {
        let checkpoint = statelens::open(source).unwrap();
        for (target, end) in TARGETS.into_iter().skip(1) {
            let folder = tempfile::tempdir().unwrap();
            let [one, many] = ["one", "many"].map(|name| folder.path().join(name));
            fs::create_dir(&one).unwrap();
            let mut conversion = convert(&checkpoint, target).lossy();
            let mut options = options(source, &many.join(format!("out.{end}")), target.id());
            if !cast.is_empty() {
                let dtype = if cast == "float16" { DType::F16 } else { DType::BF16 };
                conversion = conversion.cast("*", dtype);
                options.edits.cast = vec![format!("*={cast}")];
            }
            let written = conversion.write(one.join(format!("out.{end}"))).unwrap();
            let job = plan(&folder.path().join("job"), options, 5).unwrap();
            assert_eq!(job.recipe().tasks, 5);
            for task in shuffled(5, number) {
                run(&job, task).unwrap();
            }
            let report = commit(&job).unwrap().unwrap();
            assert!(contents(&one) == contents(&many), "{} to {end}", source.display());
            let casts = |report: &RunReport| {
                (report.cast, report.pairs.clone(), report.changed.clone(), report.bytes)
            };
            assert_eq!(casts(&report), casts(&written.report), "{cast} to {end}");
            // Checksums of tensors that several tasks wrote.
            let sums = |report: &RunReport| -> Vec<_> {
                report.outcomes.iter().flatten().filter_map(|one| one.checksum).collect()
            };
            assert_eq!(sums(&report), sums(&written.report), "{cast} to {end}");
        }
    }
}

#[test]
fn a_compressed_file_is_one_task_and_shards_are_several() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.safetensors");
    fs::write(&source, large()).unwrap();
    let checkpoint = statelens::open(&source).unwrap();
    let [one, many] = ["one", "many"].map(|name| folder.path().join(name));
    fs::create_dir(&one).unwrap();
    let of = |name: &str, to: &str| options(&source, &many.join(name), to);
    convert(&checkpoint, Target::Cerebras).compression("gzip").write(one.join("out.mdl")).unwrap();
    let mut compressed = of("out.mdl", "cerebras");
    compressed.output.compression = Some("gzip".into());
    let job = plan(&folder.path().join("job"), compressed, 9).unwrap();
    assert_eq!(job.recipe().tasks, 1);
    let JobWork::Convert(recipe) = &job.recipe().work else { panic!() };
    assert!(recipe.outputs[0].undivided);
    run(&job, 0).unwrap();
    commit(&job).unwrap();
    assert!(contents(&one) == contents(&many));
    for (target, end) in &TARGETS[1..3] {
        let name = format!("m.{end}");
        convert(&checkpoint, *target).shard_size("1MB").write(one.join(&name)).unwrap();
        let mut sharded = of(&name, target.id());
        sharded.output.shard_size = Some("1MB".into());
        let job = plan(&folder.path().join(format!("job-{end}")), sharded, 6).unwrap();
        for task in shuffled(job.recipe().tasks, 3) {
            run(&job, task).unwrap();
        }
        commit(&job).unwrap();
        assert!(contents(&one) == contents(&many), "{end}");
    }
}

/// A write that fails leaves no result, and the task can be run again.
#[cfg(target_os = "linux")]
#[test]
fn a_failed_task_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.safetensors");
    fs::write(&source, large()).unwrap();
    let place = folder.path().join("job");
    let out = folder.path().join("out.pt");
    let job = plan(&place, options(&source, &out, "torch"), 3).unwrap();
    let JobWork::Convert(recipe) = &job.recipe().work else { panic!() };
    let temporary = recipe.outputs[0].temporary.clone().unwrap();
    run(&job, 0).unwrap();
    // A link in place of the file, which is not followed.
    let aside = folder.path().join("aside");
    fs::rename(&temporary, &aside).unwrap();
    std::os::unix::fs::symlink("/dev/full", &temporary).unwrap();
    let error = run(&job, 1).unwrap_err();
    assert!(error.to_string().contains("it is a link"), "{error}");
    assert!(statelens::job::worth_trying_again(&error));
    fs::rename(&aside, &temporary).unwrap();
    let status = job.status().unwrap();
    assert_eq!((status.done, status.missing.as_slice()), (1, &[1, 2][..]));
    assert!(status.failed[0].1.contains("it is a link"), "{status:?}");
    let error = commit(&job).unwrap_err();
    assert_eq!(error.code(), "results-missing");
    assert!(statelens::job::worth_trying_again(&error));
    run(&job, 1).unwrap();
    run(&job, 2).unwrap();
    assert!(job.status().unwrap().failed.is_empty());
    commit(&job).unwrap();
    let one = folder.path().join("one.pt");
    convert(&statelens::open(&source).unwrap(), Target::Torch).write(&one).unwrap();
    assert!(fs::read(&out).unwrap() == fs::read(&one).unwrap());
}

/// A commit that was killed while it gave the files their names is completed by the next one.
#[test]
fn a_commit_may_be_interrupted_between_names() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.safetensors");
    fs::write(&source, large()).unwrap();
    let [one, many] = ["one", "many"].map(|name| folder.path().join(name));
    fs::create_dir(&one).unwrap();
    let checkpoint = statelens::open(&source).unwrap();
    convert(&checkpoint, Target::Torch).shard_size("1MB").write(one.join("m.pt")).unwrap();
    let mut options = options(&source, &many.join("m.pt"), "torch");
    options.output.shard_size = Some("1MB".into());
    let place = folder.path().join("job");
    let job = plan(&place, options, 4).unwrap();
    for task in 0..job.recipe().tasks {
        run(&job, task).unwrap();
    }
    commit(&job).unwrap();
    let done = contents(&many);
    assert!(done == contents(&one) && done.len() > 2);
    // As the kill leaves it: the first file has its name, the second both, the others not.
    let JobWork::Convert(recipe) = &job.recipe().work else { panic!() };
    for (number, output) in recipe.outputs.iter().enumerate().skip(1) {
        let temporary = output.temporary.as_ref().unwrap();
        match number {
            1 => fs::hard_link(&output.path, temporary).unwrap(),
            _ => fs::rename(&output.path, temporary).unwrap(),
        }
    }
    fs::remove_file(place.join("committed.json")).unwrap();
    assert!(commit(&job).unwrap().is_some());
    assert!(contents(&many) == done);
}

/// Changes one byte of each output of a job whose tasks are done.
#[test]
fn commit_refuses_output_that_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.safetensors");
    fs::write(&source, large()).unwrap();
    for (target, extension) in TARGETS {
        let out = folder.path().join(format!("out.{extension}"));
        let place = folder.path().join(format!("job-{extension}"));
        let mut options = options(&source, &out, target.id());
        if extension == "npy" {
            options.edits.select = vec!["*".to_owned()];
        }
        let Ok(job) = plan(&place, options, 4) else {
            assert_eq!(extension, "npy", "only one tensor fits");
            continue;
        };
        let JobWork::Convert(recipe) = &job.recipe().work else { panic!("a conversion") };
        (0..job.recipe().tasks)
            .for_each(|task| assert_eq!(run(&job, task).unwrap(), TaskEnd::Done));
        let written = recipe.outputs.iter().filter(|output| output.bytes > 100_000);
        let temporary = written.filter_map(|output| output.temporary.clone()).next().unwrap();
        let sound = fs::read(&temporary).unwrap();
        for at in [sound.len() / 3, sound.len() * 2 / 3] {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            fs::write(&temporary, &bytes).unwrap();
            let error = commit(&job).unwrap_err();
            assert_eq!(error.code(), "output-changed", "{extension}: {error}");
            assert!(!out.exists());
        }
        fs::write(&temporary, &sound[..sound.len() / 2]).unwrap();
        assert!(commit(&job).is_err(), "{extension}");
        fs::write(&temporary, &sound).unwrap();
        commit(&job).unwrap();
        // A second commit returns the same report.
        let again = job.commit(Refusal::default(), &mut Unwatched).unwrap();
        let report: serde_json::Value = serde_json::from_str(&recipe.json(&again)).unwrap();
        assert_eq!(report["committed_before"], true);
        assert!(report["bytes"].as_u64().unwrap() > 100_000 && report["cast"].is_object());
    }
}

/// A job writes to the paths that were planned, and to nothing that a link leads to.
#[test]
fn changed_paths_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.safetensors");
    fs::write(&source, large()).unwrap();
    let out = folder.path().join("out.npz");
    let victim = folder.path().join("victim.npz");
    fs::write(&victim, b"mine").unwrap();
    let place = folder.path().join("job");
    let job = plan(&place, options(&source, &out, "npz"), 3).unwrap();
    let JobWork::Convert(recipe) = &job.recipe().work else { panic!("a conversion") };
    let temporary = recipe.outputs[0].temporary.clone().unwrap();
    let json = fs::read_to_string(place.join("job.json")).unwrap();
    let quoted = |path: &Path| serde_json::to_string(path).unwrap();
    for (path, other) in [
        (&out, &victim),
        (&temporary, &victim),
        (&temporary, &temporary.with_file_name(".statelens-job-0-0.part")),
    ] {
        let at = json.rfind(&quoted(path)).unwrap();
        let changed = [&json[..at], &quoted(other), &json[at + quoted(path).len()..]].concat();
        fs::write(place.join("job.json"), changed).unwrap();
        assert!(Job::open(&place).is_err(), "{}", other.display());
    }
    fs::write(place.join("job.json"), &json).unwrap();
    // Links in place of the temporary file.
    #[cfg(unix)]
    {
        let aside = folder.path().join("aside");
        fs::rename(&temporary, &aside).unwrap();
        std::os::unix::fs::symlink(&victim, &temporary).unwrap();
        run(&job, 0).unwrap_err();
        fs::remove_file(&temporary).unwrap();
        fs::hard_link(&victim, &temporary).unwrap();
        run(&job, 0).unwrap_err();
        fs::remove_file(&temporary).unwrap();
        fs::rename(&aside, &temporary).unwrap();
    }
    (0..job.recipe().tasks).for_each(|task| assert_eq!(run(&job, task).unwrap(), TaskEnd::Done));
    #[cfg(unix)]
    {
        fs::create_dir(folder.path().join("elsewhere")).unwrap();
        let other = folder.path().join("elsewhere/other.npz");
        fs::write(&other, b"mine").unwrap();
        std::os::unix::fs::symlink(&other, &out).unwrap();
        commit(&job).unwrap_err();
        assert_eq!(fs::read(&other).unwrap(), b"mine");
        fs::remove_file(&out).unwrap();
    }
    commit(&job).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), b"mine");
}

/// The result of another task, or a changed one.
#[test]
fn results_of_other_tasks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..3)
        .map(|at| {
            let path = folder.path().join(format!("{at}.safetensors"));
            fs::write(&path, large()).unwrap();
            path
        })
        .collect();
    let (place, scan) = (folder.path().join("job"), ManyCommand::Scan { allow: Vec::new() });
    let job = Job::plan_many(&place, scan, &paths, None, Reading::default(), Some(3)).unwrap();
    (0..3).for_each(|task| assert_eq!(run(&job, task).unwrap(), TaskEnd::Done));
    let result = |task: u64| job.place().join(format!("results/{task:05}.json"));
    let [first, last] = [0, 2].map(|task| fs::read_to_string(result(task)).unwrap());
    let renamed = first.replace("0.safetensors", "2.safetensors");
    let numbered = renamed.replace("\"task\":0", "\"task\":2");
    let passing = last.replace("\"passes\":true", "\"passes\":false");
    for changed in [&first, &renamed, &numbered, &passing] {
        assert!(*changed != last);
        fs::write(result(2), changed).unwrap();
        let error = job.commit_many().unwrap_err();
        assert!(error.to_string().contains("not the result of task 2"), "{error}");
        // It does not count as done, either.
        run(&job, 2).unwrap_err();
    }
    fs::write(result(2), &last).unwrap();
    assert_eq!(job.commit_many().unwrap().passed, 3);
}

#[test]
fn a_changed_source_or_another_plan_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source.safetensors");
    fs::write(&source, large()).unwrap();
    let place = folder.path().join("job");
    let out = folder.path().join("out.npz");
    let before = contents(folder.path()).len();
    let job = plan(&place, options(&source, &out, "npz"), 3).unwrap();
    let taken = plan(&place, options(&source, &out, "npz"), 3).err().unwrap();
    assert_eq!(taken.code(), "exists");
    run(&job, 0).unwrap();
    run(&job, 1).unwrap();
    let recipe = fs::read_to_string(place.join("job.json")).unwrap();
    for (change, by, code) in [
        (
            &*format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION")),
            "\"version\":\"0.0.7\"",
            "version-differs",
        ),
        ("\"parts\":3", "\"parts\":2", "recipe-changed"),
        ("\"cast\":[]", "\"cast\":[\"bfloat16\"]", "recipe-changed"),
    ] {
        assert!(recipe.contains(change), "{recipe}");
        fs::write(place.join("job.json"), recipe.replacen(change, by, 1)).unwrap();
        let error = Job::open(&place).and_then(|job| run(&job, 2)).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(!statelens::job::worth_trying_again(&error));
    }
    fs::write(place.join("job.json"), &recipe).unwrap();
    // The same size, another date.
    let file = fs::OpenOptions::new().write(true).open(&source).unwrap();
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    file.set_modified(past).unwrap();
    for outcome in [run(&job, 2).map(drop), commit(&job).map(drop)] {
        let error = outcome.unwrap_err();
        let known = ["source-changed", "results-missing"].contains(&error.code());
        assert!(known, "{error}");
    }
    let error = run(&job, 2).unwrap_err();
    assert_eq!(error.code(), "source-changed");
    // Nothing of the job is left.
    job.abort().unwrap();
    let mut left = contents_and_folders(folder.path());
    left.retain(|name| name != "source.safetensors");
    assert!(left.is_empty() && before == 1, "{left:?}");
}

fn contents_and_folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns a safetensors file of 5 MB, some of whose numbers a cast rounds.
fn large() -> Vec<u8> {
    let shapes = [("a.weight", [501, 1_499]), ("b.bias", [3, 7]), ("c.weight", [37, 14_001])];
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    let mut state = 7u32;
    for (key, shape) in shapes {
        let start = data.len();
        for _ in 0..shape[0] * shape[1] {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            data.extend_from_slice(&((state >> 20) as f32 * 1.001 - 2_000.0).to_le_bytes());
        }
        let entry = serde_json::json!({
            "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()],
        });
        header.insert(key.to_owned(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    [&(header.len() as u64).to_le_bytes(), &*header, &data].concat()
}
