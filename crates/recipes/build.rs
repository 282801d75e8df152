//! Lists the config tables of `configs/`, so that a family is a file and nothing else.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=configs");
    let mut names = Vec::new();
    for entry in fs::read_dir("configs")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let files = names.iter().map(|name| {
        let path = Path::new(&root).join("configs").join(format!("{name}.yaml"));
        format!("({name:?}, include_str!({path:?})),\n")
    });
    let list = format!("&[\n{}]", files.collect::<String>());
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("configs.rs"), list)
}
