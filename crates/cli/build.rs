//! Embeds the built page into the command, if `STATELENS_SITE` names its folder, as `cargo xtask
//! build` does. Without it, the command still compiles, and `serve` explains how to get the page.

use std::path::{Path, PathBuf};
use std::{env, fmt::Write as _, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed=STATELENS_SITE");
    println!("cargo::rerun-if-changed=build.rs");
    let mut table = String::from("&[\n");
    if let Some(site) = env::var_os("STATELENS_SITE").map(PathBuf::from) {
        let site = site.canonicalize()?;
        for file in files_under(&site)? {
            println!("cargo::rerun-if-changed={}", file.display());
            let name: Vec<_> = file
                .strip_prefix(&site)
                .map_err(io::Error::other)?
                .iter()
                .map(|part| part.to_string_lossy())
                .collect();
            writeln!(table, "    ({:?}, include_bytes!({file:?})),", name.join("/"))
                .map_err(io::Error::other)?;
        }
    }
    table.push(']');
    let out = env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?;
    fs::write(Path::new(&out).join("site.rs"), table)
}

fn files_under(site: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut folders, mut files) = (vec![site.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        println!("cargo::rerun-if-changed={}", folder.display());
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    Ok(files)
}
