//! The Python environments with the real libraries, which interop compares us with.
//!
//! There are three, since cerebras-pytorch 2.10 is bound to torch 2.4, files should also load in
//! today's torch, and TensorFlow goes with neither. What is in them is pinned in
//! `tests/interop/requirements-*.txt`; they live in `target/python` and are built again only when
//! those files change.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The interpreters of the environments.
pub(crate) struct Python {
    /// Current torch.
    pub(crate) current: PathBuf,
    /// cerebras-pytorch, with the torch that it needs.
    pub(crate) cerebras: PathBuf,
    /// TensorFlow.
    pub(crate) tensorflow: PathBuf,
}

/// Makes sure that the environments exist; `root` is the top of the repository.
///
/// A first run downloads 1.9 GB and takes a minute or two; afterwards nothing happens here.
pub(crate) fn set_up(root: &Path) -> Result<Python, String> {
    let environments =
        ["current", "cerebras", "tensorflow"].map(|name| Environment::new(root, name));
    let missing: Vec<&Environment> =
        environments.iter().filter(|environment| !environment.is_ready()).collect();
    if !missing.is_empty() {
        let base = base_interpreter()?;
        println!(
            "Installing the real libraries (torch, cerebras-pytorch, tensorflow) for interop into {}: \
             1.9 GB to download, 5 GB on disk, once",
            root.join("target/python").display()
        );
        let start = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> = missing
                .iter()
                .map(|environment| scope.spawn(|| environment.build(&base)))
                .collect();
            workers.into_iter().try_for_each(|worker| {
                worker.join().map_err(|_| "setting up Python panicked".to_owned())?
            })
        })?;
        println!("Installed in {} s", start.elapsed().as_secs());
    }
    let [current, cerebras, tensorflow] = environments.map(|environment| environment.interpreter());
    Ok(Python { current, cerebras, tensorflow })
}

/// Where the HDF5 filters (LZ4) of an environment are, for tools that load them by path.
pub(crate) fn hdf5_plugins(interpreter: &Path) -> Option<PathBuf> {
    let environment = interpreter.parent()?.parent()?;
    Some(site_packages(environment).join("hdf5plugin/plugins"))
}

/// The cp311 wheels of cerebras-pytorch leave no choice.
const VERSION: &str = "3.11";

struct Environment {
    name: &'static str,
    folder: PathBuf,
    requirements: PathBuf,
    stand_ins: PathBuf,
}

impl Environment {
    fn new(root: &Path, name: &'static str) -> Self {
        let interop = root.join("tests/interop");
        Self {
            name,
            folder: root.join("target/python").join(name),
            requirements: interop.join(format!("requirements-{name}.txt")),
            stand_ins: interop.join("cuda_stand_ins.py"),
        }
    }

    fn interpreter(&self) -> PathBuf {
        self.folder.join("bin/python")
    }

    /// What the environment was made from: left in it when it is complete, compared on every run.
    fn recipe(&self) -> Result<String, String> {
        let mut recipe = String::new();
        for path in [&self.requirements, &self.stand_ins] {
            let text = fs::read_to_string(path);
            recipe += &text.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(recipe)
    }

    fn stamp(&self) -> PathBuf {
        self.folder.join("complete.txt")
    }

    fn is_ready(&self) -> bool {
        let stamp = fs::read_to_string(self.stamp()).ok();
        stamp.is_some() && stamp == self.recipe().ok() && self.interpreter().exists()
    }

    fn build(&self, base: &str) -> Result<(), String> {
        let recipe = self.recipe()?;
        // Whatever is there is incomplete or outdated.
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)
                .map_err(|error| format!("{}: {error}", self.folder.display()))?;
        }
        run(Command::new(base).args(["-m", "venv"]).arg(&self.folder))?;
        run(Command::new(self.interpreter())
            .args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir"])
            .args(["--disable-pip-version-check", "--requirement"])
            .arg(&self.requirements))?;
        run(Command::new(self.interpreter())
            .arg(&self.stand_ins)
            .arg(site_packages(&self.folder)))?;
        let proof = match self.name {
            "cerebras" => "import cerebras.pytorch",
            "tensorflow" => "import tensorflow",
            _ => "import torch, h5py",
        };
        run(Command::new(self.interpreter()).args(["-W", "ignore", "-c", proof]))?;
        fs::write(self.stamp(), recipe).map_err(|error| error.to_string())
    }
}

fn site_packages(environment: &Path) -> PathBuf {
    environment.join(format!("lib/python{VERSION}/site-packages"))
}

/// The command of a Python 3.11 that can make environments.
fn base_interpreter() -> Result<String, String> {
    let check = format!(
        "import sys, platform, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '{VERSION}' \
         or (sys.platform, platform.machine()) != ('linux', 'x86_64'))"
    );
    for command in ["python3.11", "python3"] {
        let found = Command::new(command).args(["-c", &check]).output();
        if found.is_ok_and(|output| output.status.success()) {
            return Ok(command.to_owned());
        }
    }
    Err(format!(
        "interop needs Python {VERSION} with `venv` on 64-bit x86 Linux, which the wheels of \
         cerebras-pytorch are built for. On Debian 12: `apt-get install python3-venv`; elsewhere \
         `uv python install {VERSION}` or `pyenv install {VERSION}`, with `python3.11` on the PATH."
    ))
}

/// Runs to the end; an error holds the command and the last of what it printed.
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
