//! Runs wasm-bindgen: writes `NAME.js` and `NAME_bg.wasm` for a compiled program.
//!
//! This is a separate program because its libraries take more than a minute to compile, and only
//! building the page needs them. It takes those arguments of wasm-bindgen's own command that Trunk
//! passes, so that Trunk can call it under that name.

#![allow(clippy::print_stdout, reason = "its version is read from standard output")]

use std::env;

use anyhow::{Context as _, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut bindgen = Bindgen::new();
    let mut files = (None, None);
    for argument in env::args().skip(1) {
        match argument.split_once('=').unwrap_or((&argument, "")) {
            ("--version", "") => {
                println!("wasm-bindgen {}", wasm_bindgen_shared::version());
                return Ok(());
            }
            ("--target", "web") => _ = bindgen.web(true)?,
            ("--no-typescript", "") => _ = bindgen.typescript(false),
            ("--out-dir", folder) => files.1 = Some(folder.to_owned()),
            ("--out-name", name) => _ = bindgen.out_name(name),
            (program, "") if !program.starts_with('-') => files.0 = Some(program.to_owned()),
            _ => bail!("the argument `{argument}` is not supported"),
        }
    }
    let (Some(program), Some(folder)) = files else {
        bail!("usage: xtask-bindgen PROGRAM.wasm --out-dir=FOLDER --target=web --no-typescript");
    };
    bindgen
        .input_path(&program)
        .generate(&folder)
        .with_context(|| format!("wasm-bindgen failed on {program}"))
}
