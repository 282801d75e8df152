//! `statelens export`.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use statelens::PathText as _;
use statelens::parts::checkpoint::{Checkpoint, Tensor, shape_text, visible};
use statelens::parts::convert::{alone, dtype_named, in_dtype, lacks_numpy};
use statelens::parts::formats::{RequestedOptions, writing};
use statelens::parts::tensor::{BUFFER, drain, has_floats};
use statelens::parts::values::{Csv, fields};
use statelens::write::file_name;
use statelens::{DType, Error, Result};

use super::selected::SelectedTensor;
use crate::args::Export;
use crate::commands::pictures::PictureFile;
use crate::commands::writing::{file_options, write};
use crate::limits::limits;
use crate::output::{check_target, write_file};
use crate::print::{CommandResult, Printer, counted, grouped};
use crate::progress::{Bar, Unit};
use crate::source::FileSource;

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExportFormat {
    Npy,
    Npz,
    Safetensors,
    Csv,
    Raw,
    Png,
    Svg,
}

/// A tensor, or a slice of one, to export.
struct ExportedTensor {
    /// The key, followed by the slice if the key is exported more than once.
    name: String,
    key: String,
    title: String,
    tensor: Tensor,
}

pub(crate) fn run(args: &Export) -> CommandResult {
    let format = ExportFormat::of(&args.output)?;
    let dtype = args.dtype.as_deref().map(dtype_named).transpose()?;
    let (file, with) = (&args.input.file, &args.input.common.with);
    let keys: Vec<&str> = args.keys.iter().map(String::as_str).collect();
    let (checkpoint, sources) = crate::commands::quantised::open(file, with, &keys)?.into_parts();
    let leaves = checkpoint.leaves();
    let mut taken = Vec::new();
    for key in &args.keys {
        let SelectedTensor { key, title, tensor } =
            SelectedTensor::find(&checkpoint, &leaves, key, &args.input.file)?;
        let tensor = upcast(tensor, dtype.clone(), format)?;
        taken.push(ExportedTensor { name: key.clone(), key, title, tensor });
    }
    distinct(&mut taken, args)?;
    let bytes = taken.iter().map(|it| it.tensor.nbytes().unwrap_or(u64::MAX));
    let all = checkpoint.unfolded().writing(bytes.fold(0, u64::saturating_add));
    let named = |error: Error| error.in_file(args.input.file.to_text());
    all.check("saving it", limits()).map_err(named)?;
    let bytes = match (format, taken.as_slice()) {
        (ExportFormat::Csv | ExportFormat::Raw, [one]) => {
            plain(args, format, &checkpoint, &sources, &one.tensor)?
        }
        (ExportFormat::Png | ExportFormat::Svg, [one]) => {
            let (title, tensor) = (visible(&one.title), &one.tensor);
            let picture = PictureFile {
                target: &args.output,
                size: (args.width, args.height),
                scale: args.scale.into(),
                replace: args.replacing.force,
                sync: args.replacing.sync(),
            };
            check_target(picture.target, picture.replace, &sources)?;
            let mut bar = Bar::stoppable("reading", Unit::Bytes)?;
            picture.draw_of(&checkpoint.files, &sources, tensor, &title, &mut bar)?
        }
        (ExportFormat::Npy, [_]) | (ExportFormat::Npz | ExportFormat::Safetensors, _) => {
            let name = match format {
                ExportFormat::Npy => "npy",
                ExportFormat::Npz => "npz",
                _ => "safetensors",
            };
            let target = writing(name)?.target(&RequestedOptions::default())?;
            let each = taken.iter().map(|one| (one.name.as_str(), one.tensor.clone()));
            let alone = Arc::new(alone(&checkpoint, each, limits())?);
            let plan = statelens::parts::formats::plan(alone, &target, &file_name(&args.output)?)?;
            // Losses are accepted: they are about metadata, not about the values of the tensors.
            write(plan, &args.output, &file_options(args.replacing, &sources, true))?
        }
        _ => {
            return Err(named(
                Error::refused(format!(
                    "{} tensors don't fit into one file of this kind",
                    taken.len()
                ))
                .expected(".npz or .safetensors"),
            )
            .into());
        }
    };
    let mut printer = Printer::new();
    let output = args.output.to_text();
    if args.input.common.json {
        let entry = |one: &ExportedTensor| {
            let (key, shape) = (one.key.clone(), one.tensor.shape.clone());
            fields! { key: key, dtype: one.tensor.dtype.name().to_owned(), shape: shape }
        };
        let named = |one: &ExportedTensor| {
            fields! {
                #[serde(flatten)]
                entry: entry(one),
                name: one.name.clone(),
            }
        };
        let (one, several) = match taken.as_slice() {
            [one] => (Some(entry(one)), None),
            several => (None, Some(several.iter().map(named).collect::<Vec<_>>())),
        };
        printer.report(&fields! {
            #[serde(flatten)]
            one: one,
            #[serde(flatten)]
            several: several.map(|tensors| fields! { tensors: tensors }),
            output: &output,
            bytes: bytes,
        })?;
    } else {
        let (output, bytes) = (visible(&output), grouped(bytes));
        let what = match taken.as_slice() {
            [one] => {
                let shape = shape_text(&one.tensor.shape);
                format!("{}, {} {shape}", visible(&one.key), one.tensor.dtype)
            }
            several => counted(several.len() as u64, "tensor"),
        };
        printer.line(&format!("wrote {output}: {what}, {bytes} bytes"))?;
    }
    printer.success()
}

/// Names slices of the same key by their slice; refuses duplicates.
fn distinct(taken: &mut [ExportedTensor], args: &Export) -> Result<()> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for one in taken.iter() {
        *counts.entry(one.key.clone()).or_default() += 1;
    }
    let mut seen = HashSet::new();
    for one in taken {
        if counts.get(&one.key).is_some_and(|count| *count > 1) {
            one.name.clone_from(&one.title);
        }
        if !seen.insert(one.name.clone()) {
            return Err(Error::refused(format!("`{}` is selected twice", one.name))
                .in_file(args.input.file.to_text()));
        }
    }
    Ok(())
}

impl ExportFormat {
    fn of(output: &Path) -> Result<Self> {
        let end = output.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
        Ok(match end.as_deref() {
            Some("npy") => Self::Npy,
            Some("npz") => Self::Npz,
            Some("safetensors") => Self::Safetensors,
            Some("csv") => Self::Csv,
            Some("raw" | "bin") => Self::Raw,
            Some("png") => Self::Png,
            Some("svg") => Self::Svg,
            _ => {
                return Err(Error::refused("its extension is not supported")
                    .in_file(output.to_text())
                    .expected(".npy, .npz, .safetensors, .csv, .raw, .png or .svg"));
            }
        })
    }
}

/// Returns the tensor in the requested dtype; an error if the output format lacks its dtype.
fn upcast(tensor: Tensor, dtype: Option<DType>, format: ExportFormat) -> Result<Tensor> {
    let numpy = matches!(format, ExportFormat::Npy | ExportFormat::Npz);
    match dtype {
        Some(dtype) => in_dtype(tensor, dtype),
        None if numpy && lacks_numpy(&tensor.dtype) => {
            let advice = match has_floats(&tensor.dtype) {
                true => "Add --as float32, which holds all its numbers.",
                false => "Write it to a .safetensors or .raw file.",
            };
            Err(Error::refused(format!("numpy has no {}", tensor.dtype)).advice(advice))
        }
        None => Ok(tensor),
    }
}

/// Writes the bytes of a tensor, or its numbers as text with one line per row.
fn plain(
    args: &Export,
    format: ExportFormat,
    checkpoint: &Checkpoint,
    sources: &[Arc<FileSource>],
    tensor: &Tensor,
) -> Result<u64> {
    let target = &args.output;
    check_target(target, args.replacing.force, sources)?;
    let mut bar = Bar::stoppable("writing", Unit::Bytes)?;
    let mut bytes = 0;
    let (mut csv, mut text) = (Csv::new(&tensor.dtype, &tensor.shape), String::new());
    write_file(target, args.replacing.force, args.replacing.sync(), |out| {
        drain(&checkpoint.files, tensor, BUFFER, &mut bar, &mut |piece| {
            text.clear();
            let written = match format {
                ExportFormat::Raw => piece,
                _ => {
                    csv.feed(piece, &mut text);
                    text.as_bytes()
                }
            };
            bytes += written.len() as u64;
            out(written)
        })?;
        sources.iter().try_for_each(|source| source.unchanged())
    })?;
    Ok(bytes)
}
