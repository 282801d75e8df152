//! Wheels of the Python package: makes them with maturin, tries and tests them. The one that is
//! published is [`release::wheel`](crate::release).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result, bail};

use crate::site::Goal;
use crate::venv::Venv;
use crate::{notebook, project, python, shell, single, site};

/// Builds the wheel with the profile of the tests, tries it in a clean environment, and runs its own
/// tests, which compare it with the real libraries. Fails if the stubs differ from the module.
/// `features` are those of the other steps, whose artifacts it then shares.
pub(crate) fn test(features: &[&str]) -> Result<()> {
    let python = python::package(project::root()).map_err(Error::msg)?;
    let options = [&["--profile", "dev"], features].concat();
    let page = single::folder(&site::build(Goal::Fast)?)?;
    let wheel = make(&python, &options, Some(&page), &project::target().join("wheels"))?;
    install(&wheel, &project::target().join("python").join("clean"))?;
    let mut pip = shell::command(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", "--no-index"]);
    shell::run(pip.arg(&wheel))?;
    let fixtures = statelens_fixtures::make().context("making target/fixtures")?;
    let mut tests = shell::command(&python);
    tests.current_dir(package()).env("STATELENS_FIXTURES", fixtures);
    shell::run(tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]))?;
    let stubtest = ["-m", "mypy.stubtest", "pystatelens", "--allowlist", "stubtest.txt"];
    for arguments in [
        &["-m", "mypy", "python/pystatelens"][..],
        &[&stubtest[..], &["--mypy-config-file", "pyproject.toml"]].concat(),
    ] {
        shell::run(shell::command(&python).current_dir(package()).args(arguments))?;
    }
    notebook::test(&wheel)
}

/// Returns the folder of the package.
pub(crate) fn package() -> PathBuf {
    project::root().join("crates/python")
}

/// Makes a wheel in an empty folder with the maturin, and for `--zig` the Zig, of an environment of
/// Python. `site` is the folder of the page that becomes a part of it. Returns its path.
pub(crate) fn make(
    python: &Path,
    options: &[&str],
    site: Option<&Path>,
    folder: &Path,
) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder).context("removing the previous wheel")?;
    }
    let mut maturin = shell::command(python);
    maturin.current_dir(package()).args(["-m", "maturin", "build", "--locked"]).args(options);
    maturin.env("CARGO_TARGET_DIR", project::target());
    maturin.env("CARGO_ZIGBUILD_PYTHON_PATH", python);
    if let Some(site) = site {
        maturin.env("STATELENS_SITE", site);
    }
    shell::run(maturin.arg("--interpreter").arg(python).arg("--out").arg(folder))?;
    let mut files = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?.into_iter();
    match (files.next(), files.next()) {
        (Some(wheel), None) => Ok(wheel.path()),
        _ => bail!("maturin left {} without one wheel", folder.display()),
    }
}

/// Installs a wheel as a user would, into a new environment that has nothing else, without any
/// network, and runs its code. Returns the environment.
pub(crate) fn install(wheel: &Path, folder: &Path) -> Result<Venv> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let venv = Venv::empty(folder)?;
    let mut pip = shell::command(venv.program("python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"]);
    shell::run(pip.arg(wheel))?;
    shell::run(shell::command(venv.program("statelens")).arg("--version"))?;
    let file = statelens_fixtures::path("torch/zip_module_state_dict.pt");
    shell::run(shell::command(venv.program("python")).arg("-c").arg(SMOKE).arg(file))?;
    Ok(venv)
}

/// Works without NumPy and torch.
const SMOKE: &str = "
import importlib.metadata, sys, pystatelens
licences = {file.name for file in importlib.metadata.files('pystatelens') if 'licenses' in file.parts}
assert licences >= {'LICENSE-APACHE', 'LICENSE-MIT'}, licences
checkpoint = pystatelens.open(sys.argv[1])
key, tensor = next(checkpoint.tensors())
assert len(tensor.tobytes()) == tensor.nbytes > 0
assert pystatelens.verify(checkpoint)['sound'] and pystatelens.scan(sys.argv[1])['worst'] is None
print(checkpoint, tensor)
";
