//! A Chromium for the page's tests.

use std::env;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::shell;

/// Names the browser to use instead of an installed one.
const VARIABLE: &str = "STATELENS_CHROMIUM";

/// The headless shell comes first: a page starts in it with less than half of the processor time.
const PROGRAMS: [&str; 5] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

const MAC: [&str; 2] = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
];

/// Returns the browser that the tests run in: the one that `STATELENS_CHROMIUM` names, or one that
/// is installed.
pub(crate) fn chromium() -> Result<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) {
        if path.is_file() {
            return Ok(path);
        }
        bail!("{VARIABLE} names {}, which is not a file", path.display());
    }
    if let Some(path) = installed() {
        return Ok(path);
    }
    bail!("no Chromium or Chrome is installed here; install one, or name its program in {VARIABLE}")
}

/// Returns whether there is no browser yet. A wrong path in `STATELENS_CHROMIUM` is a different
/// failure.
pub(super) fn is_missing() -> bool {
    env::var_os(VARIABLE).is_none() && installed().is_none()
}

fn installed() -> Option<PathBuf> {
    let on_path = PROGRAMS.iter().find_map(|program| shell::find(program));
    on_path.or_else(|| MAC.iter().map(PathBuf::from).find(|path| path.is_file()))
}
