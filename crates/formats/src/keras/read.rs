use statelens_checkpoint::json::utf8;
use statelens_checkpoint::{
    Checkpoint, Error, FileSet, Finding, FindingKind, FormatInfo, Grade, Layout, Limits, Progress,
    Result, Span, Text,
};
use statelens_hdf5::Hdf5File;

use super::code;
use super::config::Config;
use super::detect::is_index;
use super::grow::Growing;
use super::lists;
use crate::archive::{Archive, is_zip, names};
use crate::not_a_checkpoint;
use crate::paths::{base, folder};

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    progress.check(0, 0)?;
    let main = files.main()?;
    let head = files.read_vec(main, 0, files.len(main).min(4096))?;
    if is_zip(&head) {
        return read_model(files, limits, progress);
    }
    if is_index(&head) {
        let index = files.name(main).to_owned();
        return read_shards(files, &index, limits, progress);
    }
    if let Some(index) = index_of(&files) {
        return read_shards(files, &index, limits, progress);
    }
    let growing = Growing::new(limits).add(&files, main, 0, progress)?;
    let id = if growing.legacy { "keras-h5" } else { "keras-weights" };
    let name = if growing.legacy { "Keras HDF5" } else { "Keras weights" };
    let format = FormatInfo { id, name, ..FormatInfo::default() };
    finish(growing, format, files)
}

/// Reads a `.keras` file, a zip file of `metadata.json`, `config.json` and the weights.
fn read_model(files: FileSet, limits: &Limits, progress: &mut dyn Progress) -> Result<Checkpoint> {
    let main = files.main()?;
    let archive = Archive::open(files.structure(main)?, main, limits)?;
    let weights = WEIGHTS.iter().find_map(|name| Some((*name, archive.find(name)?)));
    let (name, weights) = weights.ok_or_else(|| match archive.find("metadata.json").is_some() {
        true => Error::unsupported(format!("this Keras model has no {}", WEIGHTS[0]))
            .advice("It may hold the configuration only; look for its weights next to it."),
        false => Error::unsupported(format!(
            "this zip archive is not a Keras model: it has no {}",
            WEIGHTS[0]
        ))
        .coded(crate::archive::ARCHIVE)
        .advice("If it holds files, unpack it and open the checkpoint in it."),
    })?;
    let growing = Growing::new(limits);
    // If the weights are cut short, other members follow where they should continue.
    let is_whole = |span: &Span| {
        let file = Hdf5File::open_at(&files, span.file, span.offset, limits);
        !file.is_ok_and(|file| file.recorded_end().is_some_and(|end| end > span.len))
    };
    let mut growing = match archive.layout(weights)? {
        Layout::Span(span) if name.ends_with(".npz") => growing.add_npz(&files, span, progress)?,
        Layout::Span(span) if is_whole(&span) => {
            growing.add(&files, span.file, span.offset, progress)?
        }
        // HDF5 needs random access, so the member is decompressed whole, as in Keras.
        _ => {
            let (bytes, intact) = archive
                .read(weights, limits)
                .map_err(|error| error.advice("Unpack the archive and open the weights in it."))?;
            let mut growing = growing.add_unpacked(name, bytes, progress)?;
            growing.findings.extend((!intact).then(|| {
                Finding::new(Grade::Damage, format!("The checksum of {name} is wrong"))
                    .detail("Some of the weights have changed since they were written.")
                    .advice("Fetch the file again.")
            }));
            growing
        }
    };
    growing.findings.extend(names::finding(archive.records().iter()));
    let mut format = FormatInfo { id: "keras", name: "Keras model", ..FormatInfo::default() };
    for member in ["metadata.json", "config.json"] {
        let Some(record) = archive.find(member) else { continue };
        let (bytes, intact) = archive.read(record, limits)?;
        let bytes = utf8(&bytes).into_owned();
        let config = Config::parse(&bytes);
        if member == "config.json" {
            growing.findings.extend(code::findings(&bytes));
        }
        let config = match config {
            Ok(config) if intact => config,
            _ => {
                growing.findings.push(
                    Finding::new(Grade::Warning, format!("{member} can't be read"))
                        .detail("The weights do not depend on it."),
                );
                continue;
            }
        };
        match member {
            "metadata.json" => {
                if let Some(version) = config.text("keras_version") {
                    format.producer = format!("Keras {version}");
                }
                if let Some(date) = config.text("date_saved") {
                    format.facts.push(("Saved".into(), date.to_string()));
                }
            }
            _ => {
                format.facts.extend(config.model().map(|model| ("Model".to_owned(), model)));
                if let Some(root) = growing.root {
                    growing.layers = config.layers();
                    for layer in &growing.layers {
                        growing.order.push(root, layer.path.as_str());
                    }
                }
            }
        }
        let text = Text::from(String::from_utf8_lossy(&bytes).into_owned());
        growing.attributes.push((member.into(), text));
    }
    let known = [name, "metadata.json", "config.json"];
    let others = archive.records().iter().filter(|record| {
        !known.iter().any(|known| known.as_bytes() == record.raw_name())
            && !record.raw_name().ends_with(b"/")
    });
    let others = others.count();
    if others > 0 {
        growing.findings.push(
            Finding::new(
                Grade::Note,
                format!("{others} further files in the archive are not shown"),
            )
            .detail("Vocabularies and other assets of layers; they are not weights."),
        );
    }
    finish(growing, format, files)
}

/// The members that may hold the weights, the usual one first.
const WEIGHTS: [&str; 2] = ["model.weights.h5", "model.weights.npz"];

/// Returns the index that a shard belongs to, if it exists: `X.weights.json` for
/// `X_00000.weights.h5`.
fn index_of(files: &FileSet) -> Option<String> {
    let name = files.name(files.main().ok()?);
    let (stem, digits) = name.strip_suffix(".weights.h5")?.rsplit_once('_')?;
    let numbered = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let index = format!("{stem}.weights.json");
    let id = if numbered { files.find(&index)? } else { return None };
    let head = files.read_vec(id, 0, files.len(id).min(4096)).ok()?;
    is_index(&head).then_some(index)
}

/// Reads sharded weights. Missing shards are reported; the others are opened.
fn read_shards(
    files: FileSet,
    index: &str,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let id = files.find(index).ok_or_else(|| Error::io("the index is missing"))?;
    let len = files.len(id);
    Limits::check("bytes of the index", len, limits.structure)?;
    let text = files.read_vec(id, 0, len)?;
    let broken = || Error::damaged("the index of the shards can't be read").in_file(index);
    let config = Config::parse(&text).map_err(|error| error.in_file(index))?;
    let (paths, shards) = config.shards().ok_or_else(broken)?;
    Limits::check("shards of the set", shards.len() as u64, limits.members)?;
    let mut growing = Growing::new(limits);
    let mut missing = Vec::new();
    for shard in &shards {
        let path = format!("{}{shard}", folder(index));
        match not_a_checkpoint::data_file(&files, &path) {
            Some(id) => {
                growing = growing
                    .add(&files, id, 0, progress)
                    .map_err(|error| error.in_file(files.name(id)))?;
            }
            None => missing.push(path),
        }
    }
    let Some(root) = growing.root else {
        return Err(Error::unsupported("none of the shards of this set was found")
            .in_file(index)
            .advice(format!("Open it together with {}.", missing.join(", "))));
    };
    if !missing.is_empty() {
        growing.findings.push(
            Finding::new(
                Grade::Damage,
                format!("{} of {} shards are missing", missing.len(), shards.len()),
            )
            .detail(format!("Missing: {}.", missing.join(", ")))
            .advice("Put them next to the others, or open all of them together.")
            .missing(missing)
            .kind(FindingKind::UnlistedFiles),
        );
    }
    for path in paths {
        growing.order.push(root, path);
    }
    let format = FormatInfo {
        id: "keras-weights",
        name: "Keras weights in shards",
        facts: vec![
            ("Shards".into(), shards.len().to_string()),
            ("Index".into(), base(index).to_owned()),
        ],
        ..FormatInfo::default()
    };
    finish(growing, format, files)
}

fn finish(growing: Growing, mut format: FormatInfo, files: FileSet) -> Result<Checkpoint> {
    let Growing { mut builder, mut findings, order, lists, layer_names, layers, .. } = growing;
    let (root, attributes) = (growing.root, growing.attributes);
    let root = root.ok_or_else(|| Error::damaged("no weights"))?;
    let find = |name: &str| {
        let found = attributes.iter().find(|(key, _)| *key == *name);
        found.map(|(_, text)| text.to_lossy().into_owned())
    };
    let model_config = find("model_config").and_then(|text| Config::parse(text.as_bytes()).ok());
    // What can't be read is missing as well, and was reported.
    if findings.iter().all(|finding| finding.grade != Grade::Damage) {
        findings.extend(lists::absent_names(&lists, &builder));
        findings.extend(lists::absent_groups(&layers, &builder, root));
        let of_model = model_config.as_ref().map(Config::layers).unwrap_or_default();
        findings.extend(lists::unlisted_layers(&of_model, &layer_names));
    }
    order.apply(&mut builder, root);
    if let Some(version) = find("keras_version") {
        format.producer = format!("Keras {version}");
    }
    format.facts.extend(find("backend").map(|backend| ("Backend".to_owned(), backend)));
    for text in ["model_config", "training_config"].into_iter().filter_map(find) {
        findings.extend(code::findings(text.as_bytes()));
    }
    let model = model_config.and_then(|config| config.model());
    format.facts.extend(model.map(|model| ("Model".to_owned(), model)));
    if find("training_config").is_some() {
        format
            .facts
            .push(("Training".into(), "its training configuration is shown with the root".into()));
    }
    if !attributes.is_empty() {
        builder.set_raw_attributes(root, attributes);
    }
    builder.finish(root, format, files, findings)
}
