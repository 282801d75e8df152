//! Makes the files of a release. Each step of `.github/workflows/release.yml` and `publish.yml` is a
//! step here, and `--dry-run` makes and tries all files of this platform.
//!
//! | step | output in `target/release-files` |
//! |---|---|
//! | page | `statelens-page-VERSION.zip`, `statelens-VERSION.html` |
//! | archive | `statelens-VERSION-TARGET.tar.gz`, or `.zip` for Windows, with a `.sha256` |
//! | wheel | `pystatelens-VERSION-….whl` |
//! | crates | none: `target/package` has them |

mod archive;
mod crates;
mod github;
mod image;
mod licences;
mod notes;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) use crates::UNPUBLISHED;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand};
use sha2::{Digest as _, Sha256};

use crate::built::hex;
use crate::setup::wasm;
use crate::site::{self, Goal};
use crate::{dist, project, setup, shell, single};

/// The version of the release: that of all crates.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The profile that crates and archives are compiled with, unless another is given.
const PROFILE: &str = "release";

#[derive(Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct Release {
    #[command(subcommand)]
    step: Option<Step>,
    /// Makes the page, archive, crates and wheel for this platform, installs each into an empty
    /// folder, and runs it. Publishes nothing.
    #[arg(long, required = true)]
    dry_run: bool,
    /// A profile of cargo, to be faster than `release`: `dev`.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
}

#[derive(Subcommand)]
enum Step {
    /// Fails if the versions in Cargo.toml, CITATION.cff and CHANGELOG.md differ.
    Check {
        /// The tag of the release, which must be `v` and the version; the changelog must then have a date.
        #[arg(long)]
        tag: Option<String>,
    },
    /// Builds the small page, as a zip and as one file.
    Page,
    /// Builds the command with the page in it, packs it with its documents, and tries it.
    Archive {
        #[command(flatten)]
        build: Build,
    },
    /// Builds the wheel of the Python package, and tries it in an empty environment.
    Wheel {
        #[command(flatten)]
        build: Build,
    },
    /// Packages the crates, and installs the command from the packages.
    Crates {
        /// Publishes them on crates.io in the order of their dependencies.
        #[arg(long)]
        publish: bool,
        /// The profile of cargo that the command is compiled with.
        #[arg(long, default_value = "dev")]
        profile: String,
    },
    /// Prints the section of CHANGELOG.md about this version.
    Notes,
    /// Creates a draft release on GitHub with all files in target/release-files.
    Draft {
        /// The tag of the release.
        #[arg(long)]
        tag: String,
        /// Prints the command instead.
        #[arg(long)]
        dry_run: bool,
    },
    /// Downloads files of a release from GitHub into target/release-files, and checks who built them.
    Fetch {
        /// The tag of the release.
        #[arg(long)]
        tag: String,
        /// The names of the files.
        #[arg(long)]
        pattern: String,
        /// Unpacks zip files, too.
        #[arg(long)]
        unpack: bool,
        /// Prints the commands instead.
        #[arg(long)]
        dry_run: bool,
    },
    /// Builds the container image from the archives for Linux in target/release-files.
    Image {
        /// Pushes it to the registry, with REGISTRY_USER and REGISTRY_TOKEN.
        #[arg(long)]
        push: bool,
        /// Prints the commands instead, after laying out the files of the image.
        #[arg(long, conflicts_with = "push")]
        dry_run: bool,
    },
}

/// The target of an archive or a wheel.
#[derive(Args, Clone, Default)]
pub(crate) struct Build {
    /// The target; by default that of this machine.
    #[arg(long)]
    target: Option<String>,
    /// A folder with the small page. By default it is built.
    #[arg(long, value_name = "FOLDER")]
    site: Option<PathBuf>,
    /// The profile of cargo.
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
}

impl Build {
    /// Returns the folder of the page. With another profile than that of a release, the page may be
    /// missing.
    fn site(&self) -> Result<Option<PathBuf>> {
        if let Some(folder) = &self.site {
            let folder = project::root().join(folder);
            ensure!(folder.join("index.html").is_file(), "{} is not a page", folder.display());
            return Ok(Some(folder));
        }
        match self.profile.is_some() {
            true => {
                Ok(Some(Goal::Small.folder()).filter(|folder| folder.join("index.html").is_file()))
            }
            false => site::build(Goal::Small).map(Some),
        }
    }

    /// Returns the target, after adding its standard library if it is not that of this machine.
    fn prepared_target(&self) -> Result<String> {
        let host = host()?;
        let target = self.target.clone().unwrap_or_else(|| host.clone());
        if target != host {
            shell::run_for(
                shell::command("rustup").args(["target", "add", &target]),
                wasm::RUSTUP_LIMIT,
            )?;
        }
        Ok(target)
    }
}

pub(crate) fn run(release: &Release) -> Result<()> {
    match &release.step {
        None => dry_run(release.profile.as_deref()),
        Some(Step::Check { tag }) => notes::check(tag.as_deref()),
        Some(Step::Page) => page().map(drop),
        Some(Step::Archive { build }) => archive::make(build).map(drop),
        Some(Step::Wheel { build }) => wheel::make(build).map(drop),
        Some(Step::Crates { publish: true, .. }) => crates::publish(),
        Some(Step::Crates { profile, .. }) => crates::check(profile),
        Some(Step::Notes) => {
            println!("{}", notes::section()?);
            Ok(())
        }
        Some(Step::Draft { tag, dry_run }) => github::draft(tag, *dry_run),
        Some(Step::Fetch { tag, pattern, unpack, dry_run }) => {
            github::fetch(tag, pattern, *unpack, *dry_run)
        }
        Some(Step::Image { push, dry_run }) => image::make(*push, *dry_run),
    }
}

/// Makes the wheel of the Python package for this machine, with the page if it has been built.
pub(crate) fn wheel() -> Result<()> {
    wheel::make(&Build { profile: Some("wheel".to_owned()), ..Build::default() }).map(drop)
}

/// Makes everything for this platform, and tries it.
fn dry_run(profile: Option<&str>) -> Result<()> {
    let build = Build { profile: profile.map(str::to_owned), ..Build::default() };
    notes::check(None)?;
    let files = files();
    if files.exists() {
        fs::remove_dir_all(&files).context("removing the files of the previous run")?;
    }
    if profile.is_none() {
        page()?;
    }
    archive::make(&build)?;
    wheel::make(&build)?;
    crates::check(profile.unwrap_or("dev"))?;
    github::draft(&format!("v{VERSION}"), true)?;
    println!("\nIn {}:", files.display());
    for file in list(&files)? {
        println!("{:>11} bytes  {}", fs::metadata(&file)?.len(), name(&file));
    }
    println!("Each was installed into an empty folder and run. Nothing was published.");
    Ok(())
}

/// Builds the small page and packs it; checks its size.
fn page() -> Result<()> {
    let site = site::build(Goal::Small)?;
    dist::weigh(&site)?;
    let files = files();
    fs::create_dir_all(&files)?;
    let zip = files.join(format!("statelens-page-{VERSION}.zip"));
    dist::pack(&site, &crate::built::files_under(&site)?, &zip)?;
    let html = files.join(format!("statelens-{VERSION}.html"));
    fs::copy(single::build(&site)?, &html)?;
    for file in [&zip, &html] {
        checksum(file)?;
    }
    Ok(())
}

/// Returns the folder that the files of a release are made in.
fn files() -> PathBuf {
    project::target().join("release-files")
}

/// Returns an empty folder, to install something in.
fn empty(name: &str) -> Result<PathBuf> {
    let folder = project::target().join("release-trial").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Lists the files of a folder, sorted.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut found = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    found.retain(|path| path.is_file());
    found.sort();
    Ok(found)
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes `FILE.sha256` in the format of `sha256sum`, and returns its path.
fn checksum(file: &Path) -> Result<PathBuf> {
    let digest = hex(&Sha256::digest(fs::read(file)?));
    let path = file.with_file_name(format!("{}.sha256", name(file)));
    fs::write(&path, format!("{digest}  {}\n", name(file)))?;
    Ok(path)
}

/// Returns the target of this machine.
fn host() -> Result<String> {
    let text = shell::output(shell::command("rustc").arg("-vV")).context("`rustc -vV` failed")?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("`rustc -vV` names no host")
}

/// Fails with the command to install the C compiler for musl, which `ring` is compiled with.
fn needs_musl(target: &str) -> Result<()> {
    if !target.ends_with("-linux-musl") || shell::find("musl-gcc").is_some() {
        return Ok(());
    }
    if std::env::var_os("CI").is_some() && setup::apt::present() {
        return setup::apt::install(&["musl-tools"]);
    }
    bail!(
        "musl-gcc is missing; run `sudo {}`, then this task again",
        setup::apt::line(&["musl-tools"])
    )
}

/// Runs an installed command as a user would: its version, a checkpoint, and a scan.
fn try_command(command: &Path, folder: &Path) -> Result<()> {
    let printed = shell::output(shell::command(command).current_dir(folder).arg("--version"))
        .with_context(|| format!("{} does not run", command.display()))?;
    ensure!(printed == format!("statelens {VERSION}"), "`statelens --version` prints {printed:?}");
    let file = statelens_fixtures::path("torch/zip_module_state_dict.pt");
    for arguments in [&["info"][..], &["scan"], &["verify"]] {
        shell::run(shell::command(command).current_dir(folder).args(arguments).arg(&file))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_sha256sum() {
        let folder = std::env::temp_dir().join(format!("statelens-sum-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.txt"), "abc").unwrap();
        let sum = fs::read_to_string(checksum(&folder.join("a.txt")).unwrap()).unwrap();
        assert_eq!(
            sum,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.txt\n"
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
