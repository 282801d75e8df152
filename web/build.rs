//! Writes the catalog of model families and the patterns of their keys, so that the page fetches
//! only the files that it needs.

use std::path::Path;
use std::{env, fs, io};

use statelens_recipes::catalog::Catalog;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let catalog = Catalog::written().map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("catalog.txt"), catalog)
}
