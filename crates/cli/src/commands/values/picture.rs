//! `statelens export` to a picture: the blocks of a matrix in colours.

use std::sync::Arc;

use statelens::parts::checkpoint::{Checkpoint, Tensor};
use statelens::parts::tensor::{BUFFER, drain};
use statelens::parts::values::picture::{BlockMap, ColourScaling, Picture, Show};
use statelens::parts::values::{MOST_TILES, Matrix, Overview};
use statelens::{Error, Result};

use crate::args::{Export, ScaleArg};
use crate::commands::pictures;
use crate::output::check_target;
use crate::progress::{Bar, Unit};
use crate::source::FileSource;

/// Width of a cell in an SVG, in units. Each cell is an element of the text, so there are fewer of
/// them than in a PNG.
const UNITS: u32 = 4;

/// Writes the picture and returns its size in bytes.
pub(super) fn write(
    args: &Export,
    is_svg: bool,
    checkpoint: &Checkpoint,
    sources: &[Arc<FileSource>],
    tensor: &Tensor,
    title: &str,
) -> Result<u64> {
    let target = &args.output;
    check_target(target, args.replacing.force, sources)?;
    let map = map(args, is_svg, checkpoint, tensor)?;
    sources.iter().try_for_each(|source| source.unchanged())?;
    let picture = Picture {
        map: &map,
        title,
        axes: if tensor.shape.len() < 2 { ("-", "elements") } else { ("rows", "columns") },
        show: Show::Value,
        scaling: match args.scale {
            ScaleArg::Linear => ColourScaling::Linear,
            ScaleArg::Log => ColourScaling::Log,
        },
    };
    pictures::save(
        &picture,
        (args.width, args.height),
        target,
        args.replacing.force,
        args.replacing.sync(),
    )
}

/// Reads the tensor once.
fn map(args: &Export, is_svg: bool, checkpoint: &Checkpoint, tensor: &Tensor) -> Result<BlockMap> {
    let shape = &tensor.shape;
    if shape.len() > 2 {
        let rest = vec!["0"; shape.len() - 2].join(", ");
        return Err(Error::refused(format!(
            "a picture needs a matrix, and this has {} dimensions",
            shape.len()
        ))
        .advice(format!("Choose one with a slice after the key: [{rest}, :, :].")));
    }
    let matrix = Matrix::of(shape, &[])
        .ok_or_else(|| Error::refused("a tensor without values has no picture"))?;
    let unit = if is_svg { UNITS } else { 1 };
    let (across, down) = ((args.width / unit).max(1), (args.height / unit).max(1));
    let blocks = u64::from(across) * u64::from(down);
    if blocks > MOST_TILES {
        return Err(Error::refused(format!("a picture of {across} x {down} blocks"))
            .expected(format!("at most {MOST_TILES}: lower --width or --height")));
    }
    let mut overview = Overview::new(&tensor.dtype, matrix, across, down).ok_or_else(|| {
        Error::unsupported(format!("values of {} can't be decoded", tensor.dtype))
    })?;
    let mut bar = Bar::stoppable("reading", Unit::Bytes)?;
    drain(&checkpoint.files, tensor, BUFFER, &mut bar, &mut |bytes| {
        overview.feed(bytes);
        Ok(())
    })?;
    Ok(BlockMap::of(&overview))
}
