//! Folders that are created for output files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::PathText as _;
use statelens_checkpoint::{Error, Result};

/// Folders created for a file. If they are dropped before [`Folders::keep`], they are removed
/// again.
#[derive(Debug, Default)]
pub struct Folders {
    /// The created folders, outermost first.
    made: Vec<PathBuf>,
    kept: bool,
}

impl Folders {
    /// Creates a folder and its missing ancestors.
    pub fn make(folder: Option<&Path>) -> Result<Self> {
        let mut folders = Self::default();
        let Some(folder) = folder.filter(|folder| *folder != Path::new("")) else {
            return Ok(folders);
        };
        let missing = folder.ancestors().take_while(|one| *one != Path::new("") && !one.exists());
        let missing: Vec<&Path> = missing.collect();
        for one in missing.into_iter().rev() {
            match fs::create_dir(one) {
                Ok(()) => folders.made.push(one.to_owned()),
                // Another process created it meanwhile.
                Err(_) if one.is_dir() => {}
                Err(error) => {
                    return Err(Error::io(format!("this folder can't be created: {error}"))
                        .in_file(one.to_text()));
                }
            }
        }
        Ok(folders)
    }

    /// Returns the created folders, outermost first.
    pub(crate) fn made(&self) -> &[PathBuf] {
        &self.made
    }

    /// Keeps the folders.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        if !self.kept {
            for folder in self.made.iter().rev() {
                // A folder that is not empty stays.
                let _ = fs::remove_dir(folder);
            }
        }
    }
}
