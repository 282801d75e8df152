//! The container image: the command for Linux, and nothing else.

use std::env;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use super::{VERSION, archive, empty, files, github::perform};
use crate::{project, shell};

const IMAGE: &str = "ghcr.io/statelens/statelens";

/// The platforms of the image, and the targets of their archives.
const PLATFORMS: [(&str, &str); 2] =
    [("amd64", "x86_64-unknown-linux-musl"), ("arm64", "aarch64-unknown-linux-musl")];

/// The files of an archive that the image holds.
const CONTENTS: [&str; 4] =
    ["statelens", "LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES.txt"];

/// Certificates that servers of object stores are checked against.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Lays out the files of the image, for each platform whose archive is there, and builds it.
pub(super) fn make(push: bool, dry_run: bool) -> Result<()> {
    let folder = empty("image")?;
    let mut platforms = Vec::new();
    for (platform, target) in PLATFORMS {
        let archive = files().join(format!("statelens-{VERSION}-{target}.tar.gz"));
        if archive.is_file() {
            archive::unpack(&archive, &CONTENTS, &folder.join(platform))?;
            platforms.push(format!("linux/{platform}"));
        }
    }
    ensure!(!platforms.is_empty(), "target/release-files has no archive for Linux");
    ensure!(!push || platforms.len() == PLATFORMS.len(), "an archive for Linux is missing");
    fs::copy(CERTIFICATES, folder.join("ca-certificates.crt"))
        .with_context(|| format!("copying {CERTIFICATES}"))?;
    fs::copy(project::root().join("Containerfile"), folder.join("Containerfile"))?;
    if push {
        log_in()?;
    }
    // The default builder makes images for one platform only.
    let mut builder = shell::command("docker");
    perform(builder.args(["buildx", "create", "--use", "--name", "statelens"]), dry_run)?;
    let mut docker = shell::command("docker");
    docker.args(["buildx", "build", "--platform", &platforms.join(",")]);
    docker.args(["--tag", &format!("{IMAGE}:{VERSION}"), "--tag", &format!("{IMAGE}:latest")]);
    docker.args(["--provenance", "mode=max"]);
    if push {
        docker.arg("--push");
    }
    docker.arg("--file").arg(folder.join("Containerfile"));
    perform(docker.arg(&folder), dry_run)
}

/// Logs in to the registry. Writes the token to a pipe, because lists of processes show arguments.
fn log_in() -> Result<()> {
    let variable = |name: &str| env::var(name).with_context(|| format!("{name} is missing"));
    let (user, token) = (variable("REGISTRY_USER")?, variable("REGISTRY_TOKEN")?);
    let registry = IMAGE.split('/').next().unwrap_or(IMAGE);
    let mut docker = shell::command("docker");
    docker.args(["login", registry, "--username", &user, "--password-stdin"]);
    let mut child = docker.stdin(Stdio::piped()).spawn().context("could not start docker")?;
    child.stdin.take().context("docker has no input")?.write_all(token.as_bytes())?;
    ensure!(child.wait()?.success(), "`docker login {registry}` failed");
    Ok(())
}
