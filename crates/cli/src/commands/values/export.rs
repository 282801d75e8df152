//! `statelens export`.

use std::borrow::Cow;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use statelens_checkpoint::{
    Array, Builder, Checkpoint, DType, Dict, DictKey, Error, FormatInfo, Layout, Leaf, Result,
    Tensor, Value, float_repr,
};
use statelens_convert::dtype_named;
use statelens_formats::{Asked, writing};
use statelens_inspect::{Json, element_text, missing, shape_text, visible};
use statelens_tensor::{BUFFER, Cast, drain};

use crate::args::Export;
use crate::commands::show::slice::Slice;
use crate::commands::toolbox::writing::{file_name, forced, write};
use crate::limits::limits;
use crate::output::{Folders, Output, check_target, keep_all, stop_signal};
use crate::print::{Failure, Outcome, Printer, grouped};
use crate::progress::{Bar, Unit};
use crate::source::FileSource;

/// What a slice may take in memory, of a tensor that can't be read in parts where it lies.
const MOST: u64 = 1 << 30;

/// What is written.
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

pub(crate) fn run(args: &Export) -> Outcome {
    let format = ExportFormat::of(&args.output)?;
    let dtype = args.dtype.as_deref().map(dtype_named).transpose()?;
    let (checkpoint, sources) = crate::commands::open(&args.input.file, &args.input.common.with)?;
    let leaves = checkpoint.leaves();
    let (leaf, slice) = find(&leaves, args)?;
    let key = leaf.flat.to_lossy().into_owned();
    let tensor = wanted(&checkpoint, leaf, slice, &key)?;
    let tensor = upcast(tensor, dtype, format)?;
    let (dtype, shape) = (tensor.dtype.clone(), tensor.shape.clone());
    let all = checkpoint.unfolded().writing(tensor.nbytes().unwrap_or(u64::MAX));
    let named = |error: Error| error.in_file(args.input.file.display().to_string());
    all.check("saving it", limits()).map_err(named)?;
    let bytes = match format {
        ExportFormat::Csv | ExportFormat::Raw => {
            plain(args, format, &checkpoint, &sources, &tensor)?
        }
        ExportFormat::Png | ExportFormat::Svg => {
            let title = match slice {
                Some(slice) => format!("{key}[{slice}]"),
                None => key.clone(),
            };
            let is_svg = format == ExportFormat::Svg;
            super::picture::write(args, is_svg, &checkpoint, &sources, &tensor, &visible(&title))?
        }
        ExportFormat::Npy | ExportFormat::Npz | ExportFormat::Safetensors => {
            let name = match format {
                ExportFormat::Npy => "npy",
                ExportFormat::Npz => "npz",
                _ => "safetensors",
            };
            let target = writing(name)?.target(&Asked::default())?;
            let alone = Arc::new(alone(&checkpoint, &key, tensor)?);
            let plan = statelens_formats::plan(alone, &target, file_name(&args.output)?)?;
            let replace = forced(args.force);
            // What the format has no place for is what stands around the tensor, not its values.
            write(plan, &args.output, replace, &sources, true, args.durable.sync())?
        }
    };
    let mut printer = Printer::new();
    let output = args.output.display().to_string();
    if args.input.common.json {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            json.name("key").str(&key);
            json.name("dtype").str(dtype.name());
            json.name("shape").numbers(&shape);
            json.name("output").str(&output);
            json.name("bytes").number(bytes);
        });
        printer.line(json.as_str())?;
    } else {
        let (output, key) = (visible(&output), visible(&key));
        let shape = shape_text(&shape);
        let bytes = grouped(bytes);
        printer.line(&format!("wrote {output}: {key}, {dtype} {shape}, {bytes} bytes"))?;
    }
    printer.finish()?;
    Ok(true)
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
                return Err(Error::refused("its extension does not say what to write")
                    .in_file(output.display().to_string())
                    .expected(".npy, .npz, .safetensors, .csv, .raw, .png or .svg"));
            }
        })
    }
}

/// The leaf of the key, and the slice behind it. A key that is there with its brackets is that.
fn find<'a>(leaves: &'a [Leaf], args: &'a Export) -> Result<(&'a Leaf, Option<&'a str>)> {
    let parts = args.key.strip_suffix(']').and_then(|text| text.rsplit_once('['));
    match (crate::commands::leaf(leaves, &args.key, &args.input.file), parts) {
        (Ok(leaf), _) => Ok((leaf, None)),
        (Err(_), Some((key, slice))) => {
            crate::commands::leaf(leaves, key, &args.input.file).map(|leaf| (leaf, Some(slice)))
        }
        (Err(error), None) => Err(error),
    }
}

/// The tensor, or what the slice takes of it.
fn wanted(
    checkpoint: &Checkpoint,
    leaf: &Leaf,
    slice: Option<&str>,
    key: &str,
) -> Result<Tensor, Failure> {
    let tensor = checkpoint.tensor_of(leaf.target).map(|(_, tensor)| tensor);
    let Some(tensor) = tensor else {
        return Err(Error::refused(format!("`{key}` is not a tensor")).into());
    };
    if let Some(why) = missing(tensor) {
        let why = why.to_lossy();
        return Err(Error::refused(format!("`{key}` has no data to write: {why}")).into());
    }
    let Some(tensor) = statelens_tensor::numbers(tensor).map(Cow::into_owned) else {
        let dtype = &tensor.dtype;
        return Err(
            Error::unsupported(format!("`{key}`: the numbers of {dtype} are not known")).into()
        );
    };
    let Some(slice) = slice else { return Ok(tensor) };
    let slice = Slice::parse(slice, &tensor.shape)?;
    let shape = slice.shape().to_vec();
    let plain = !matches!(tensor.stored, DType::Blocks(_));
    if let Some(layout) = slice.view(&tensor).filter(|_| plain) {
        return Ok(Tensor { shape, layout, storage: None, ..tensor });
    }
    let bytes = slice.len().saturating_mul(tensor.dtype.itemsize());
    if bytes > MOST {
        return Err(Error::refused(format!(
            "a slice of {} bytes of a tensor that is not stored in one run",
            grouped(bytes)
        ))
        .advice("Take less of it, or the whole tensor.")
        .into());
    }
    let mut data = Vec::new();
    slice.each(&checkpoint.files, &tensor, u64::MAX, &mut |_, element| {
        data.extend_from_slice(element);
        Ok(())
    })?;
    Ok(Tensor::new(tensor.dtype.clone(), shape, Layout::Inline(data.into())))
}

/// The tensor in the dtype that was asked for; an error if what is written has none like it.
fn upcast(mut tensor: Tensor, dtype: Option<DType>, format: ExportFormat) -> Result<Tensor> {
    let numpy = matches!(format, ExportFormat::Npy | ExportFormat::Npz);
    match dtype {
        Some(dtype) => {
            // Fails for what can't be cast.
            Cast::new(&tensor.stored, &dtype)?;
            tensor.dtype = dtype;
        }
        None if numpy && tensor.dtype.is_float() && !has_numpy(&tensor.dtype) => {
            return Err(Error::refused(format!("numpy has no {}", tensor.dtype))
                .advice("Add --as float32, which holds all its numbers."));
        }
        None => {}
    }
    Ok(tensor)
}

fn has_numpy(dtype: &DType) -> bool {
    matches!(dtype, DType::F16 | DType::F32 | DType::F64)
}

/// A checkpoint of this tensor alone.
fn alone(checkpoint: &Checkpoint, key: &str, tensor: Tensor) -> Result<Checkpoint> {
    let mut builder = Builder::new(limits());
    let tensor = builder.push_tensor(tensor)?;
    let value = builder.push(Value::Array(Array { tensor, scalar: false }))?;
    let entries = vec![(DictKey::from(key), value)];
    let root = builder.push(Value::Dict(Dict { entries, ..Dict::default() }))?;
    builder.finish(root, FormatInfo::default(), checkpoint.files.clone(), Vec::new())
}

/// Writes its numbers as text, a line for each row, or its bytes.
fn plain(
    args: &Export,
    format: ExportFormat,
    checkpoint: &Checkpoint,
    sources: &[Arc<FileSource>],
    tensor: &Tensor,
) -> Result<u64> {
    let target = &args.output;
    check_target(target, args.force, sources)?;
    let mut folders = Folders::make(target.parent())?;
    let output = Output::create(target, args.force, 0)?;
    let failed = |error: std::io::Error| {
        Error::io(format!("writing failed: {error}")).in_file(target.display().to_string())
    };
    let mut bar = Bar::new("writing", Unit::Bytes).stopped_by(stop_signal()?);
    let mut file = BufWriter::with_capacity(BUFFER, &*output.file);
    let mut bytes = 0;
    let item = usize::try_from(tensor.dtype.itemsize()).unwrap_or(usize::MAX).max(1);
    let row = tensor.shape.last().copied().unwrap_or(1).max(1);
    let (mut begun, mut number) = (Vec::new(), 0u64);
    drain(&checkpoint.files, tensor, BUFFER, &mut bar, &mut |piece| {
        if format == ExportFormat::Raw {
            bytes += piece.len() as u64;
            return file.write_all(piece).map_err(failed);
        }
        // Elements may be cut between two pieces.
        begun.extend_from_slice(piece);
        let whole = begun.len() - begun.len() % item;
        for element in begun[..whole].chunks_exact(item) {
            number += 1;
            let end = if number.is_multiple_of(row) { "\n" } else { "," };
            let text = cell(&tensor.dtype, element);
            bytes += (text.len() + end.len()) as u64;
            file.write_all(text.as_bytes())
                .and_then(|()| file.write_all(end.as_bytes()))
                .map_err(failed)?;
        }
        begun.drain(..whole);
        Ok(())
    })?;
    file.flush().map_err(failed)?;
    drop(file);
    keep_all(vec![output], args.durable.sync())?;
    folders.keep();
    Ok(bytes)
}

/// An element as a cell of CSV: floats by the digits that tell them, of one or two in quotes.
fn cell(dtype: &DType, element: &[u8]) -> String {
    let text = match (dtype, element.first_chunk()) {
        (DType::F64, Some(bytes)) => float_repr(f64::from_le_bytes(*bytes)),
        _ => element_text(dtype, element),
    };
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}
