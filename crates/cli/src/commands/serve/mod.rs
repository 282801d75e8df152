//! `statelens serve` and `statelens open`: serve the page from this program to a browser on this
//! machine.

mod browser;
mod site;

use std::path::Path;

use statelens::PathText as _;
use statelens::{Error, Result};
use statelens_serve::{ServedFolder, Server};

use crate::args::{OpenArgs, Serve, ServeAt};
use crate::commands::serve::site::{PAGE, Served};
use crate::print::{CommandResult, Printer, warn};
use crate::source;

pub(crate) fn run(args: &Serve) -> CommandResult {
    let folder = args.folder.as_deref().map(folder_at).transpose()?;
    start(folder, None, &args.at)
}

pub(crate) fn open(args: &OpenArgs) -> CommandResult {
    let is_folder = args.file.is_dir();
    let file = match source::named(&args.file) {
        // The page lists the files of the folder.
        Err(_) if is_folder => return start(Some(folder_at(&args.file)?), None, &args.at),
        file => file?,
    };
    let folder = match file.parent() {
        _ if is_folder => args.file.as_path(),
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let name = site::name_of(file.strip_prefix(folder).unwrap_or(&file)).ok_or_else(|| {
        Error::unsupported("its name is not valid Unicode, so it can't be in an address")
            .in_file(file.to_text())
            .advice("Rename it.")
    })?;
    let folder = folder_at(folder)?;
    if folder.locate(&name).is_none() {
        return Err(Error::unsupported("this is a link to outside of its folder")
            .in_file(file.to_text())
            .advice("Serve the folder that holds both: statelens serve DIR")
            .into());
    }
    start(Some(folder), Some(&name), &args.at)
}

/// Returns the page, if this program was built with the page in one file.
pub fn single_page() -> Option<&'static [u8]> {
    match PAGE {
        [("index.html", bytes)] => Some(bytes),
        _ => None,
    }
}

/// Returns whether the page was built into this program.
pub(crate) fn has_page() -> bool {
    !PAGE.is_empty()
}

/// Serves until the program is stopped.
fn start(folder: Option<ServedFolder>, name: Option<&str>, at: &ServeAt) -> CommandResult {
    if !has_page() {
        return Err(Error::unsupported("this statelens was built without the page")
            .advice("Build it with `cargo xtask build`: that puts the page into target/release/statelens.")
            .into());
    }
    let token = token()?;
    let query = name.map(|name| format!("?url=files/{}", site::encoded(name)));
    let server = Server::start(Served::new(token.clone(), folder), at.port)
        .map_err(|error| Error::io(error.to_string()))?;
    let address = format!("{}{token}/{}", server.address(), query.unwrap_or_default());
    let mut printer = Printer::new();
    printer.line(&format!("Statelens is at {address}  (Ctrl-C stops it)"))?;
    printer.finish()?;
    if !at.no_browser && !browser::open(&address) {
        warn("no browser could be started; open the address above in one");
    }
    server.wait();
    Ok(true)
}

fn folder_at(path: &Path) -> Result<ServedFolder> {
    let error = |text: String| Err(Error::io(text).in_file(path.to_text()));
    match ServedFolder::new(path) {
        Ok(folder) if folder.path().is_dir() => Ok(folder),
        Ok(_) => error("this is not a folder".into()).map_err(|error| {
            error.advice("`statelens open FILE` opens a checkpoint; `serve` takes a folder.")
        }),
        Err(why) => error(format!("it can't be served: {why}")),
    }
}

/// Returns a token that can't be guessed: 128 bits from the system, in hexadecimal digits.
fn token() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::io(format!("the system provides no random numbers: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
