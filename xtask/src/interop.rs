//! Interop: compares what we read and write with what the real libraries read and write.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::{project, python, shell};

/// Seconds that random pickles are compared in a run of all tests.
const FUZZ_SECONDS: u32 = 30;

/// The scripts to run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    All,
    /// One for each library: files that it wrote, files that we wrote, and code for it.
    Ci,
}

/// The scripts of [`Share::Ci`], in addition to the comparison of all fixtures.
const CI: [&str; 5] = ["snippets", "numpy_archives", "safetensors_files", "bundles", "optimizers"];

/// Runs `tests/interop` with the binary `statelens`; prints counts, and fails on any difference.
pub(crate) fn run(root: &Path, statelens: &Path, share: Share) -> Result<(), String> {
    let python = python::set_up(root)?;
    statelens_fixtures::make().map_err(|error| format!("target/fixtures: {error}"))?;
    let script = |name: &str, interpreter: &Path| {
        let mut command = Command::new(interpreter);
        command.arg(root.join(format!("tests/interop/{name}.py")));
        command.arg("--statelens").arg(statelens);
        // A script that runs in two environments, possibly at the same time, has a folder for each.
        let environment = interpreter.ancestors().nth(2).and_then(Path::file_name);
        let folder = format!("{name}-{}", environment.unwrap_or_default().to_string_lossy());
        command.arg("--work").arg(root.join("target/interop").join(folder));
        command
    };
    let mut all = script("run", &python.current);
    all.arg("--cerebras").arg(&python.cerebras);
    if let Some(h5dump) = shell::find("h5dump") {
        all.arg("--h5dump").arg(h5dump);
        // h5dump reads LZ4 only with the plugin that comes with the Cerebras libraries.
        all.envs(python::hdf5_plugins(&python.cerebras).map(|path| ("HDF5_PLUGIN_PATH", path)));
    }
    let mut matrix = script("matrix", &python.current);
    matrix.arg("--cerebras").arg(&python.cerebras).arg("--tensorflow").arg(&python.tensorflow);
    let mut snippets = script("snippets", &python.current);
    snippets.arg("--cerebras").arg(&python.cerebras).arg("--tensorflow").arg(&python.tensorflow);
    snippets.arg("--jax").arg(&python.jax);
    const SCRIPTS: &str = "
        numpy_archives hdf5_damage safetensors_files torch_sets torch_ranks harmless_pickles
        container_fuzz models bert_mup layouts optimizers adapters torch_older
    ";
    let mut scripts = vec![all, matrix, snippets];
    scripts.extend(SCRIPTS.split_ascii_whitespace().map(|name| script(name, &python.current)));
    scripts.push(script("bundles", &python.tensorflow));
    scripts.push(script("toolbox", &python.cerebras));
    scripts.push(script("torch_older", &python.cerebras));
    scripts.push(pickle_fuzz(root, &python, FUZZ_SECONDS, 1));
    if share == Share::All {
        scripts.push(script("cerebras_s3", &python::s3(root)?));
        scripts.push(script("quantised", &python::quantised(root)?));
    }
    match &python.older {
        Ok(interpreter) => scripts.push(script("older", interpreter)),
        Err(why) => println!("Release 2.4 of cerebras-pytorch is left out: {why}"),
    }
    if share == Share::Ci {
        let is_in = |script: &Command| {
            let name = script.get_args().next().map(Path::new).and_then(Path::file_stem);
            name.is_some_and(|name| name == "run" || CI.iter().any(|listed| name == *listed))
        };
        scripts.retain(is_in);
    }
    // Run all of them, so that one run reports every difference.
    let failed = at_once(scripts);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Runs random pickles through the unpicklers of CPython and through `scan`, using the example
/// `scan_batch` that is built together with the command.
pub(crate) fn fuzz_pickles(root: &Path, seconds: u32, seed: u32) -> Result<(), String> {
    compared(&mut pickle_fuzz(root, &python::set_up(root)?, seconds, seed))
}

/// Each of the two versions of Python gets half of the time.
fn pickle_fuzz(root: &Path, python: &python::Python, seconds: u32, seed: u32) -> Command {
    let mut command = Command::new(&python.current);
    command.arg(root.join("tests/interop/pickle_fuzz.py"));
    command.arg("--batch").arg(project::target().join("debug/examples/scan_batch"));
    command.args(["--seconds", &seconds.to_string(), "--seed", &seed.to_string(), "--python"]);
    command.arg(&python.current).args(&python.older);
    command
}

/// Runs comparison scripts, two at a time, since each keeps one core busy. Their output is printed
/// when they end. Returns the failures.
fn at_once(scripts: Vec<Command>) -> Vec<String> {
    let (waiting, failed) = (Mutex::new(scripts.into_iter()), Mutex::new(Vec::new()));
    let run = || {
        while let Some(mut command) = lock(&waiting).next() {
            if let Err(error) = compared(&mut command) {
                lock(&failed).push(error);
            }
        }
    };
    thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(run))));
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a mutex; a panic in another thread does not invalidate its data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn compared(command: &mut Command) -> Result<(), String> {
    let shown = shell::shown(command);
    let ran = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let [out, err] = [&ran.stdout, &ran.stderr].map(|text| String::from_utf8_lossy(text));
    println!("$ {shown}\n{out}{err}");
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!(
            "what we read or write differs from the real libraries, see above: `{shown}`"
        )),
    }
}
