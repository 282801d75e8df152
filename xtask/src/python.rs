//! The Python environments with the real libraries, which interop compares us with.
//!
//! There are five: cerebras-pytorch 2.10 requires torch 2.4, but files should also load in today's
//! torch; TensorFlow and JAX are compatible with neither; and release 2.4 of cerebras-pytorch, for
//! which format 0.4 is written, needs Python 3.8, and is skipped where that is missing. Others add
//! packages to one of these: for tests of the Python package ([`package`]), for checkpoints in S3
//! ([`s3`]), for quantised weights ([`quantised`]), and for checkpoints of ranks ([`ranks`]). Their
//! packages are pinned in `tests/interop/requirements-*.txt`. The environments are in
//! `target/python`, and are rebuilt only when those files change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub(crate) struct Python {
    /// Current torch.
    pub(crate) current: PathBuf,
    /// cerebras-pytorch, with the torch that it needs.
    pub(crate) cerebras: PathBuf,
    pub(crate) tensorflow: PathBuf,
    pub(crate) jax: PathBuf,
    /// cerebras-pytorch 2.4, if there is a Python to run it; otherwise the reason.
    pub(crate) older: Result<PathBuf, String>,
}

/// Makes sure that the environments exist; `root` is the top of the repository.
///
/// The first run downloads 2.8 GB and takes a minute or two; afterwards it does nothing.
pub(crate) fn set_up(root: &Path) -> Result<Python, String> {
    let environments = ["current", "cerebras", "tensorflow", "jax"]
        .map(|name| Environment::new(root, name, VERSION));
    let older = Environment::new(root, "cerebras-2.4", OLDER_VERSION);
    let base_of_older = base_interpreter(OLDER_VERSION);
    let mut missing: Vec<&Environment> =
        environments.iter().filter(|environment| !environment.is_ready()).collect();
    if base_of_older.is_ok() && !older.is_ready() {
        missing.push(&older);
    }
    if !missing.is_empty() {
        let base = match missing.iter().any(|environment| environment.version == VERSION) {
            true => base_interpreter(VERSION)?,
            false => String::new(),
        };
        let base_of_older = base_of_older.clone().unwrap_or_default();
        println!(
            "Installing the real libraries (torch, cerebras-pytorch, tensorflow, jax) for interop into {}: \
             2.8 GB to download, 7.5 GB on disk, once",
            root.join("target/python").display()
        );
        let start = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> = missing
                .iter()
                .map(|environment| {
                    let base = match environment.version {
                        VERSION => &base,
                        _ => &base_of_older,
                    };
                    scope.spawn(move || environment.build(base, None))
                })
                .collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().map_err(|_| "setting up Python panicked".to_owned())?
            })
        })?;
        println!("Installed in {} s", start.elapsed().as_secs());
    }
    let [current, cerebras, tensorflow, jax] =
        environments.map(|environment| environment.interpreter());
    let older = match older.is_ready() {
        true => Ok(older.interpreter()),
        false => Err(base_of_older.err().unwrap_or_default()),
    };
    Ok(Python { current, cerebras, tensorflow, jax, older })
}

/// Returns whether [`set_up`] has nothing to do.
pub(crate) fn is_set_up(root: &Path) -> bool {
    let ready = |name, version| Environment::new(root, name, version).is_ready();
    ["current", "cerebras", "tensorflow", "jax"].iter().all(|name| ready(name, VERSION))
        && (ready("cerebras-2.4", OLDER_VERSION) || base_interpreter(OLDER_VERSION).is_err())
}

/// Returns the interpreter of the environment that builds and tests the Python package: that of
/// `current`, with what only this needs. If the libraries of `current` are not installed, the
/// package can still be built.
pub(crate) fn package(root: &Path) -> Result<PathBuf, String> {
    with_libraries_of(root, "package", "current")
}

/// Returns the interpreter of cerebras-pytorch with boto3.
pub(crate) fn s3(root: &Path) -> Result<PathBuf, String> {
    with_libraries_of(root, "s3", "cerebras")
}

/// Returns the interpreter of current torch with libraries of quantised weights.
pub(crate) fn quantised(root: &Path) -> Result<PathBuf, String> {
    with_libraries_of(root, "quantised", "current")
}

/// Returns the interpreter of current torch with DeepSpeed, for benchmarks.
pub(crate) fn ranks(root: &Path) -> Result<PathBuf, String> {
    with_libraries_of(root, "ranks", "current")
}

/// Returns the interpreter of an environment that also has the packages of another one.
fn with_libraries_of(
    root: &Path,
    name: &'static str,
    base: &'static str,
) -> Result<PathBuf, String> {
    let environment = Environment::new(root, name, VERSION);
    let libraries = Environment::new(root, base, VERSION).site_packages();
    if !environment.is_ready() {
        environment.build(&base_interpreter(VERSION)?, Some(&libraries))?;
    }
    environment.add(&libraries)?;
    Ok(environment.interpreter())
}

/// Returns the folder of the HDF5 filters (LZ4) of an environment, for tools that load them by
/// path.
pub(crate) fn hdf5_plugins(interpreter: &Path) -> Option<PathBuf> {
    let environment = interpreter.parent()?.parent()?;
    Some(environment.join(format!("lib/python{VERSION}/site-packages/hdf5plugin/plugins")))
}

/// Required by the cp311 wheels of cerebras-pytorch.
const VERSION: &str = "3.11";
/// Required by its wheels up to release 2.5.
const OLDER_VERSION: &str = "3.8";

struct Environment {
    name: &'static str,
    version: &'static str,
    folder: PathBuf,
    requirements: PathBuf,
    stand_ins: PathBuf,
}

impl Environment {
    fn new(root: &Path, name: &'static str, version: &'static str) -> Self {
        let interop = root.join("tests/interop");
        Self {
            name,
            version,
            folder: root.join("target/python").join(name),
            requirements: interop.join(format!("requirements-{name}.txt")),
            stand_ins: interop.join("cuda_stand_ins.py"),
        }
    }

    fn interpreter(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// Returns the inputs of the environment. They are saved in it when it is complete, and
    /// compared on every run.
    fn recipe(&self) -> Result<String, String> {
        let mut recipe = String::new();
        for path in [&self.requirements, &self.stand_ins] {
            let text = fs::read_to_string(path);
            recipe += &text.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(recipe)
    }

    fn site_packages(&self) -> PathBuf {
        self.folder.join(format!("lib/python{}/site-packages", self.version))
    }

    fn stamp(&self) -> PathBuf {
        self.folder.join("complete.txt")
    }

    fn is_ready(&self) -> bool {
        let stamp = fs::read_to_string(self.stamp()).ok();
        stamp.is_some() && stamp == self.recipe().ok() && self.interpreter().exists()
    }

    /// Lets the environment import the packages in a folder.
    fn add(&self, libraries: &Path) -> Result<(), String> {
        let link = self.site_packages().join("base.pth");
        fs::write(&link, libraries.display().to_string())
            .map_err(|error| format!("{}: {error}", link.display()))
    }

    fn build(&self, base: &str, libraries: Option<&Path>) -> Result<(), String> {
        let recipe = self.recipe()?;
        // An existing folder is incomplete or outdated.
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .map_err(|error| format!("{}: {error}", self.folder.display()))?;
        }
        run(Command::new(base).args(["-m", "venv"]).arg(&self.folder))?;
        run(Command::new(self.interpreter())
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir"])
            .args(["--no-compile", "--disable-pip-version-check", "--requirement"])
            .arg(&self.requirements))?;
        run(Command::new(self.interpreter()).arg(&self.stand_ins).arg(self.site_packages()))?;
        if let Some(libraries) = libraries {
            self.add(libraries)?;
        }
        let proof = match self.name {
            "cerebras" | "cerebras-2.4" => "import cerebras.pytorch",
            "tensorflow" => "import tensorflow",
            "jax" => "import h5py, jax",
            "package" => "import maturin, mypy, pytest",
            "s3" => "import boto3, cerebras.pytorch",
            "quantised" => "import bitsandbytes, compressed_tensors, torchao",
            "ranks" => "import deepspeed.utils.zero_to_fp32",
            _ => "import torch, h5py",
        };
        run(Command::new(self.interpreter()).args(["-W", "ignore", "-c", proof]))?;
        fs::write(self.stamp(), recipe).map_err(|error| error.to_string())
    }
}

/// Returns the command of a Python of that version that can create environments.
fn base_interpreter(version: &str) -> Result<String, String> {
    let check = format!(
        "import sys, platform, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '{version}' \
         or (sys.platform, platform.machine()) != ('linux', 'x86_64'))"
    );
    let mut commands = vec![format!("python{version}"), "python3".to_owned()];
    // Pythons of version managers, which may not be on the PATH.
    for (manager, arguments, end) in
        [("uv", ["python", "find"], ""), ("pyenv", ["prefix", ""], "/bin/python")]
    {
        let arguments = arguments.into_iter().filter(|argument| !argument.is_empty());
        let found = Command::new(manager).args(arguments).arg(version).output();
        if let Ok(found) = found.as_ref().map(|found| String::from_utf8_lossy(&found.stdout)) {
            commands.extend(found.lines().next().map(|path| format!("{path}{end}")));
        }
    }
    for command in commands {
        let found = Command::new(&command).args(["-c", &check]).output();
        if found.is_ok_and(|output| output.status.success()) {
            return Ok(command);
        }
    }
    Err(format!(
        "interop needs Python {version} with `venv` on 64-bit x86 Linux, which the wheels of \
         cerebras-pytorch are built for. On Debian 12 3.11 comes with `apt-get install python3-venv`; \
         else `uv python install {version}` or `pyenv install {version}`, with `python{version}` on \
         the PATH."
    ))
}

/// Runs a command; the error has the command and the end of its output.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = printed.lines().rev().take(15).collect();
    let last: Vec<&str> = lines.into_iter().rev().collect();
    Err(format!("{command:?} failed ({}):\n{}", output.status, last.join("\n")))
}
