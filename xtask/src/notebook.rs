//! Tests the page in notebooks, in JupyterLab.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::venv::Venv;
use crate::{project, setup, shell};

/// Packages from PyPI that the test needs.
const PACKAGES: &[&str] =
    &["jupyterlab==4.6.6", "anywidget==0.11.0", "ipykernel==7.4.0", "numpy==2.4.6"];

/// Installs JupyterLab and a wheel that contains the page, and shows a checkpoint in a notebook in
/// a headless browser.
pub(crate) fn test(wheel: &Path) -> Result<()> {
    println!("\n== Test the page in JupyterLab");
    let browser = setup::page_tests()?;
    let venv = Venv::with("notebook", PACKAGES)?;
    let python = venv.program("python");
    let mut pip = shell::command(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    shell::run(pip.args(["--force-reinstall", "--no-index"]).arg(wheel))?;
    statelens_fixtures::make().context("making target/fixtures")?;
    let mut node = shell::command("node");
    node.env("STATELENS_CHROMIUM", browser).env("STATELENS_PYTHON", python);
    shell::run(node.arg(project::root().join("tests/page/notebook.mjs")))
}
