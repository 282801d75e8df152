//! The wheel of the Python package for one target.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use zip::ZipArchive;

use super::{Build, VERSION, empty, files, host, licences, name};
use crate::setup::wasm;
use crate::venv::Venv;
use crate::{single, wheel};

/// Builds wheels, and links them against an old glibc or musl with zig.
const TOOLS: &[&str] = &["maturin==1.16.0", "ziglang==0.15.2"];

/// The oldest systems that the wheels run on: those with glibc 2.28 (Debian 10, RHEL 8) or musl 1.2.
const GLIBC: &str = "manylinux_2_28";
const MUSL: &str = "musllinux_1_2";

/// Maximum size of a wheel in bytes.
const BUDGET: u64 = 12_000_000;

/// The file with the licences of other crates, which the wheel holds while it is built.
const LICENCES: &str = "LICENSE-THIRD-PARTY.txt";

/// Builds a wheel and checks it; installs it into an empty environment if it runs here. Returns its
/// path.
pub(super) fn make(build: &Build) -> Result<PathBuf> {
    let target = build.prepared_target()?;
    let notices = wheel::package().join(LICENCES);
    let texts = licences::texts(&[("statelens-cli", &target), ("statelens-app", wasm::TARGET)])?;
    fs::write(&notices, texts)?;
    let built = run_maturin(build, &target);
    fs::remove_file(&notices)?;
    let built = built?;
    check(&built, &target)?;
    fs::create_dir_all(files())?;
    let wheel = files().join(name(&built));
    fs::copy(&built, &wheel)?;
    println!("Wheel:   {} ({} bytes)", wheel.display(), fs::metadata(&wheel)?.len());
    // musl's wheels are for other systems than the one that builds them.
    if target == host()? {
        try_wheel(&wheel)?;
    } else {
        println!("It was not run: this machine is {}.", host()?);
    }
    Ok(wheel)
}

fn run_maturin(build: &Build, target: &str) -> Result<PathBuf> {
    let tools = Venv::with("wheels", TOOLS)?;
    let profile = build.profile.as_deref().unwrap_or("wheel");
    let mut options = vec!["--features", "object-store", "--profile", profile, "--target", target];
    options.extend(["--compression-level", "9"]);
    if target.contains("linux") {
        let oldest = if target.ends_with("musl") { MUSL } else { GLIBC };
        options.extend(["--compatibility", oldest, "--zig"]);
    }
    // One copy of the page is both what the command serves and what notebooks show.
    let site = build.site()?.map(|site| single::folder(&site)).transpose()?;
    wheel::make(&tools.program("python"), &options, site.as_deref(), &empty("wheel")?)
}

/// Fails if a wheel is not for the systems that it should be for, lacks licences, or is too large.
fn check(wheel: &Path, target: &str) -> Result<()> {
    let file = name(wheel);
    let system = match target {
        _ if target.ends_with("linux-gnu") => GLIBC,
        _ if target.ends_with("linux-musl") => MUSL,
        _ if target.contains("darwin") => "macosx",
        _ => "win",
    };
    let start = format!("pystatelens-{VERSION}-cp311-abi3-{system}");
    ensure!(file.starts_with(&start), "the wheel is {file}, and not {start}…");
    let size = fs::metadata(wheel)?.len();
    ensure!(size <= BUDGET, "the wheel has {size} bytes; {BUDGET} are allowed");
    let mut zip = ZipArchive::new(File::open(wheel)?)?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE", LICENCES] {
        let path = format!("pystatelens-{VERSION}.dist-info/licenses/{licence}");
        let mut text = String::new();
        let mut entry = zip.by_name(&path).with_context(|| format!("{file} lacks {path}"))?;
        entry.read_to_string(&mut text)?;
        ensure!(text.len() > 500, "{path} is not a licence");
    }
    Ok(())
}

/// Installs a wheel into an empty environment, and runs its code.
fn try_wheel(wheel: &Path) -> Result<()> {
    let venv = wheel::install(wheel, &empty("wheel-environment")?)?;
    super::try_command(&venv.program("statelens"), &empty("wheel-folder")?)
}
