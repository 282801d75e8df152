//! Runs wasm-bindgen: writes `NAME.js` and `NAME_bg.wasm` for a compiled program. `split` divides
//! such a Wasm file into two.
//!
//! This is a separate program because its libraries take more than a minute to compile, and only
//! building the page needs them. It takes those arguments of wasm-bindgen's own command that Trunk
//! passes, so that Trunk can call it under that name.

#![allow(clippy::print_stdout, reason = "its version is read from standard output")]

mod split;

use std::env;
use std::fs;

use anyhow::{Context as _, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [command, program, main, rest, modules @ ..] if command == "split" => {
            let wasm = fs::read(program).with_context(|| format!("reading {program}"))?;
            let parts = split::split(&wasm, modules)?;
            fs::write(main, parts.main).with_context(|| format!("writing {main}"))?;
            fs::write(rest, parts.rest).with_context(|| format!("writing {rest}"))
        }
        _ => bind(arguments),
    }
}

fn bind(arguments: Vec<String>) -> Result<()> {
    let mut bindgen = Bindgen::new();
    let mut files = (None, None);
    for argument in arguments {
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
