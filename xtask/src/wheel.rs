//! The Python package: builds its wheel, and tests it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};

use crate::{notebook, project, python, shell};

/// Bytes of the largest wheel that is published.
const MAX_WHEEL: u64 = 12_000_000;

/// The platform of the wheel that is published: systems with glibc 2.28, such as RHEL 8, and later.
const PLATFORM: &str = "manylinux_2_28";

/// Builds the wheel with optimisations; returns its path. It is linked by Zig, which has the symbols of
/// older C libraries, so that the machine that builds it does not matter.
pub(crate) fn build() -> Result<PathBuf> {
    let folder = project::target().join("dist").join("wheels");
    let python = python::wheel(project::root()).map_err(Error::msg)?;
    let options = ["--features", "object-store", "--zig", "--compatibility", PLATFORM];
    let wheel = with_profile(&python, "wheel", &options, &folder)?;
    let len = fs::metadata(&wheel)?.len();
    println!("Wheel:  {} ({len} bytes)", wheel.display());
    if len > MAX_WHEEL {
        bail!("the wheel has more than {MAX_WHEEL} bytes");
    }
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    if !name.contains(PLATFORM) {
        bail!("the wheel is not for {PLATFORM}: {name}");
    }
    smoke(&wheel)?;
    Ok(wheel)
}

/// Builds the wheel with the profile of the tests, tries it in a clean environment, and runs its own
/// tests, which compare it with the real libraries. Fails if the stubs differ from the module.
/// `features` are those of the other steps, whose artifacts it then shares.
pub(crate) fn test(features: &[&str]) -> Result<()> {
    let python = python::package(project::root()).map_err(Error::msg)?;
    let wheel = with_profile(&python, "dev", features, &project::target().join("wheels"))?;
    smoke(&wheel)?;
    let mut pip = shell::command(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", "--no-index"]);
    shell::run(pip.arg(&wheel))?;
    let fixtures = statelens_fixtures::make().context("making target/fixtures")?;
    let mut tests = shell::command(&python);
    tests.current_dir(package()).env("STATELENS_FIXTURES", fixtures);
    shell::run(tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]))?;
    for arguments in [
        &["-m", "mypy", "python/pystatelens"][..],
        &["-m", "mypy.stubtest", "pystatelens", "--mypy-config-file", "pyproject.toml"],
    ] {
        shell::run(shell::command(&python).current_dir(package()).args(arguments))?;
    }
    notebook::test(&wheel)
}

fn package() -> PathBuf {
    project::root().join("crates/python")
}

/// Builds the wheel with a profile of cargo into a folder of its own; returns its path.
fn with_profile(python: &Path, profile: &str, more: &[&str], folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder).context("removing the previous wheel")?;
    }
    let mut maturin = shell::command(python);
    maturin.args(["-m", "maturin"]);
    // The Python that has Zig, if it links.
    maturin.env("CARGO_ZIGBUILD_PYTHON_PATH", python);
    maturin.current_dir(package()).args(["build", "--locked", "--profile", profile]).args(more);
    maturin.env("CARGO_TARGET_DIR", project::target());
    shell::run(maturin.arg("--interpreter").arg(python).arg("--out").arg(folder))?;
    let mut files = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?.into_iter();
    match (files.next(), files.next()) {
        (Some(wheel), None) => Ok(wheel.path()),
        _ => bail!("maturin left {} without one wheel", folder.display()),
    }
}

/// Tries a wheel as a user would: in a new environment that has nothing else.
fn smoke(wheel: &Path) -> Result<()> {
    let folder = project::target().join("python").join("clean");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let python = python::package(project::root()).map_err(Error::msg)?;
    shell::run(shell::command(python).args(["-m", "venv"]).arg(&folder))?;
    let own = folder.join("bin/python");
    shell::run(
        shell::command(&own).args(["-m", "pip", "install", "--quiet", "--no-index"]).arg(wheel),
    )?;
    shell::run(shell::command(folder.join("bin/statelens")).arg("--version"))?;
    let file = statelens_fixtures::path("torch/zip_module_state_dict.pt");
    shell::run(shell::command(&own).arg("-c").arg(SMOKE).arg(file))
}

/// Works without NumPy and torch.
pub(crate) const SMOKE: &str = "
import importlib.metadata, sys, pystatelens
licences = {file.name for file in importlib.metadata.files('pystatelens') if 'licenses' in file.parts}
assert licences >= {'LICENSE-APACHE', 'LICENSE-MIT'}, licences
checkpoint = pystatelens.open(sys.argv[1])
key, tensor = next(checkpoint.tensors())
assert len(tensor.tobytes()) == tensor.nbytes > 0
assert pystatelens.verify(checkpoint)['sound'] and pystatelens.scan(sys.argv[1])['worst'] is None
print(checkpoint, tensor)
";
