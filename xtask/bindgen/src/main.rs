//! Runs wasm-bindgen: writes `NAME.js` and `NAME_bg.wasm` for a compiled program.
//!
//! This is a separate program because its libraries take more than a minute to compile, and only
//! building the page needs them.

use std::env;

use anyhow::{Context as _, Result, bail};
use wasm_bindgen_cli_support::Bindgen;

fn main() -> Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(program), Some(folder), None) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        bail!("usage: xtask-bindgen PROGRAM.wasm FOLDER");
    };
    Bindgen::new()
        .web(true)?
        .typescript(false)
        .input_path(&program)
        .generate(&folder)
        .with_context(|| format!("wasm-bindgen failed on {program}"))
}
