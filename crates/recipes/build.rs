//! Embeds the recipes of `families/` and the config tables of `configs/`. A new family needs no
//! change of the code.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=configs");
    println!("cargo::rerun-if-changed=families");
    list("configs", "yaml", "")?;
    list("families", "recipe", "")?;
    list("families/steps", "recipe", "steps/")
}

/// Writes the names and texts of a folder's files, sorted by name, to a file for `include!`.
fn list(folder: &str, extension: &str, before: &str) -> io::Result<()> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|own| own == extension));
    paths.sort();
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let files = paths.iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let path = Path::new(&root).join(path);
        format!("({:?}, include_str!({path:?})),\n", format!("{before}{name}"))
    });
    let list = format!("&[\n{}]", files.collect::<String>());
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join(format!("{}.rs", folder.replace('/', "-"))), list)
}
