//! Reads and writes the files of configs and recipes.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use statelens::PathText as _;
use statelens::parts::checkpoint::visible;
use statelens::{Error, Result};
use statelens_recipes::config::{Converted, Language, Map, Value, parse};

use crate::args::Replacing;
use crate::output::{check_target, write_small};
use crate::print::{Failure, Printer};
use crate::remote;

/// The path and the text of a file to write.
pub(super) type TextFile = (PathBuf, String);

/// Bytes; more than any config or recipe has.
const MAX: u64 = 16 << 20;

pub(super) fn read_text(path: &Path) -> Result<String> {
    let name = path.to_text();
    if let Some(url) = remote::address(path) {
        let bytes = statelens::remote::read(url, MAX)?;
        return text_of(bytes, name);
    }
    let failed = |error: std::io::Error| Error::io(error.to_string()).in_file(name.clone());
    let file = fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX {
        return Err(Error::limit("more than 16 MiB of text").in_file(name));
    }
    text_of(bytes, name)
}

fn text_of(bytes: Vec<u8>, name: String) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| Error::damaged("this is not text in UTF-8").in_file(name))
}

/// Reads a config, or those of several parts in a folder.
pub(super) fn read_config(path: &Path, parts: &[String]) -> Result<Value> {
    if parts.is_empty() {
        let name = path.to_text();
        let language = Language::of_name(&name).unwrap_or(Language::Yaml);
        return parse(&read_text(path)?, language).map_err(|error| error.in_file(name));
    }
    let mut whole = Map::new();
    for part in parts {
        whole.set(part.as_str(), read_config(&path.join(part).join("config.json"), &[])?);
    }
    Ok(Value::Map(whole))
}

/// Returns the files of a new config: one in a folder, or one per part, each in the folder of its
/// part.
pub(super) fn of(converted: &Converted, folder: &Path, name: &str) -> Vec<TextFile> {
    let text = |value: &Value| match converted.language {
        Language::Json => value.to_json(),
        Language::Yaml => value.to_yaml(),
    };
    if converted.parts.is_empty() {
        return vec![(folder.join(name), text(&converted.config))];
    }
    let mut files = Vec::new();
    for part in &converted.parts {
        if let Some(config) = converted.config.as_map().and_then(|parts| parts.get(part)) {
            files.push((folder.join(part).join("config.json"), text(config)));
        }
    }
    let further = converted.files.iter();
    files.extend(further.map(|(path, value)| (folder.join(path), text(value))));
    files
}

/// Fails if one of the files can't be written, or exists and may not be replaced.
pub(super) fn check(files: &[TextFile], replace: bool) -> Result<()> {
    files.iter().try_for_each(|(path, _)| check_target(path, replace, &[]))
}

/// Writes the files, and prints `line`, if there is one, and their paths, unless the result is JSON.
pub(super) fn write_and_list(
    files: &[TextFile],
    replacing: Replacing,
    line: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    write(files, replacing)?;
    let mut printer = Printer::new();
    if !json {
        line.map_or(Ok(()), |line| printer.line(line))?;
        list(files, &mut printer)?;
    }
    printer.finish()
}

/// Prints the paths of files that were written.
pub(super) fn list(files: &[TextFile], printer: &mut Printer) -> Result<(), Failure> {
    files
        .iter()
        .try_for_each(|(path, _)| printer.line(&format!("wrote {}", visible(&path.to_text()))))
}

/// Writes the files; all get their names when all are complete.
pub(super) fn write(files: &[TextFile], replacing: Replacing) -> Result<()> {
    check(files, replacing.force)?;
    write_small(files, replacing.force, replacing.sync())
}
