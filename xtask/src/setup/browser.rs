//! A Chromium for the page's tests.

use std::env;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::{announce, apt};
use crate::shell;

/// Names the browser to use instead of the one that is found.
const VARIABLE: &str = "STATELENS_CHROMIUM";

const PROGRAMS: [&str; 4] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

const MAC: [&str; 2] = [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
];

/// The browser that the tests run in: the one that `STATELENS_CHROMIUM` names, one that is
/// installed, or Debian's, which this installs.
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
    announce("Install Chromium", "The page's tests run in it, without a window.");
    if apt::present() {
        apt::install(&["chromium"])?;
    }
    match installed() {
        Some(path) => Ok(path),
        None => bail!(
            "no Chromium or Chrome is installed here; install one, or name its program in {VARIABLE}"
        ),
    }
}

fn installed() -> Option<PathBuf> {
    let on_path = PROGRAMS.iter().find_map(|program| shell::find(program));
    on_path.or_else(|| MAC.iter().map(PathBuf::from).find(|path| path.is_file()))
}
