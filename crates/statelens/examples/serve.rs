//! Serves the files of a folder on this machine with range requests, for `statelens info http://…`
//! and the page: `cargo run --example serve -- folder`. Exits at the end of its standard input.
#![allow(clippy::print_stdout, reason = "a program prints")]

use std::path::Path;

use statelens_serve::{ServedFolder, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder")?;
    let server = Server::start(ServedFolder::new(Path::new(&folder))?, 0)?;
    println!("{}", server.address());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
