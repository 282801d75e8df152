//! Small Python environments for tools from PyPI, on any system with Python 3.9 or newer.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::setup::announce;
use crate::{project, shell};

pub(crate) struct Venv {
    folder: PathBuf,
}

impl Venv {
    /// Returns the environment `target/python/NAME` with these packages, which is made if it is
    /// missing or has others.
    pub(crate) fn with(name: &str, packages: &[&str]) -> Result<Self> {
        let folder = project::target().join("python").join(name);
        let stamp = folder.join("packages.txt");
        if fs::read_to_string(&stamp).is_ok_and(|text| text == packages.join("\n")) {
            return Ok(Self { folder });
        }
        announce(&format!("Install {} from PyPI", packages.join(", ")), "Into target/python.");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        let venv = Self::empty(&folder)?;
        let mut pip = shell::command(venv.program("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        shell::run(pip.args(packages))?;
        fs::write(stamp, packages.join("\n"))?;
        Ok(venv)
    }

    /// Makes an environment without packages.
    pub(crate) fn empty(folder: &Path) -> Result<Self> {
        let Some(python) = ["python3", "python"].into_iter().find(|name| {
            let check = "import sys, venv; sys.exit(sys.version_info < (3, 9))";
            shell::output(shell::command(name).args(["-c", check])).is_some()
        }) else {
            bail!(
                "Python 3.9 or newer with `venv` is missing; install it, then run this task again"
            );
        };
        shell::run(shell::command(python).args(["-m", "venv"]).arg(folder))?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Returns the path of a program of the environment.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        match cfg!(windows) {
            true => self.folder.join("Scripts").join(format!("{name}.exe")),
            false => self.folder.join("bin").join(name),
        }
    }
}
