//! Writes pictures to PNG and SVG files.

use std::path::Path;
use std::sync::Arc;

use statelens::PathText as _;
use statelens::files::FileSource;
use statelens::parts::checkpoint::{FileSet, Tensor, visible};
use statelens::parts::compare::diff::TensorDifference;
use statelens::parts::tensor::{BUFFER, drain, numbers};
use statelens::parts::values::picture::{
    BlockMap, ColourScaling, Picture, Raster, Show, raster, svg,
};
use statelens::parts::values::{MOST_TILES, Matrix, Overview, Scale};
use statelens::{Error, Progress, Result};

use crate::output::{Sync, check_target, write_small};

/// Width of a cell in an SVG, in units. Each cell is an element of the text, so there are fewer of
/// them than in a PNG.
const UNITS: u32 = 4;

/// Width and height of the map of a difference, in pixels.
const DIFFERENCE: (u32, u32) = (1024, 640);

/// How a matrix is drawn, and the file that gets the picture.
#[derive(Debug, Clone, Copy)]
pub struct PictureFile<'a> {
    /// The file to write: `.png` or `.svg`.
    pub target: &'a Path,
    /// The maximum width and height of the map in pixels, without axes.
    pub size: (u32, u32),
    /// How numbers map to colours.
    pub scale: Scale,
    /// Whether a file that exists is replaced.
    pub replace: bool,
    /// When the file must be on the disk.
    pub sync: Sync,
}

impl PictureFile<'_> {
    /// Reads a tensor once and draws it; returns the bytes of the file. Fails if it is not a matrix of
    /// numbers, or if the file exists.
    pub fn draw(&self, tensor: &statelens::Tensor, progress: &mut dyn Progress) -> Result<u64> {
        let (key, dtype) = (tensor.key(), tensor.dtype());
        let _call = tensor.call();
        let decoded = numbers(tensor.inner()).ok_or_else(|| {
            Error::unsupported(format!("`{key}`: values of {dtype} can't be decoded"))
        })?;
        self.draw_of(tensor.files(), tensor.sources(), &decoded, &visible(key), progress)
    }

    /// Like [`draw`](Self::draw), for a tensor of numbers in these files.
    pub(crate) fn draw_of(
        &self,
        files: &FileSet,
        sources: &[Arc<FileSource>],
        tensor: &Tensor,
        title: &str,
        progress: &mut dyn Progress,
    ) -> Result<u64> {
        let is_svg = picture_is_svg(self.target)?;
        check_target(self.target, self.replace, sources)?;
        let map = self.map(is_svg, files, tensor, progress)?;
        sources.iter().try_for_each(|source| source.unchanged())?;
        let picture = Picture {
            map: &map,
            title,
            axes: axes(&tensor.shape),
            show: Show::Value,
            scaling: colours(self.scale),
        };
        save(&picture, self.size, self.target, self.replace, self.sync)
    }

    /// Reads the tensor once.
    fn map(
        &self,
        is_svg: bool,
        files: &FileSet,
        tensor: &Tensor,
        progress: &mut dyn Progress,
    ) -> Result<BlockMap> {
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
        let (across, down) = ((self.size.0 / unit).max(1), (self.size.1 / unit).max(1));
        let blocks = u64::from(across) * u64::from(down);
        if blocks > MOST_TILES {
            return Err(Error::refused(format!("a picture of {across} x {down} blocks"))
                .expected(format!("at most {MOST_TILES}: lower --width or --height")));
        }
        let mut overview = Overview::new(&tensor.dtype, matrix, across, down).ok_or_else(|| {
            Error::unsupported(format!("values of {} can't be decoded", tensor.dtype))
        })?;
        drain(files, tensor, BUFFER, progress, &mut |bytes| {
            overview.feed(bytes);
            Ok(())
        })?;
        Ok(BlockMap::of(&overview))
    }
}

/// Draws where the tensors `key` of two checkpoints differ, |RIGHT - LEFT| in blocks; returns the
/// bytes of the file.
pub fn save_difference(
    key: &str,
    found: &TensorDifference,
    scale: Scale,
    target: &Path,
    replace: bool,
    sync: Sync,
) -> Result<u64> {
    let map =
        found.drawn().ok_or_else(|| Error::refused("a tensor without values has no picture"))?;
    let title = format!("|RIGHT - LEFT| of {}", visible(key));
    let picture = Picture {
        map: &map,
        title: &title,
        axes: axes(&found.shape),
        show: Show::Magnitude,
        scaling: colours(scale),
    };
    save(&picture, DIFFERENCE, target, replace, sync)
}

fn axes(shape: &[u64]) -> (&'static str, &'static str) {
    if shape.len() < 2 { ("-", "elements") } else { ("rows", "columns") }
}

fn colours(scale: Scale) -> ColourScaling {
    match scale {
        Scale::Linear => ColourScaling::Linear,
        Scale::Log => ColourScaling::Log,
    }
}

/// Returns whether the name is that of an SVG; fails if it is not a PNG either.
pub fn picture_is_svg(target: &Path) -> Result<bool> {
    let end = target.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
    match end.as_deref() {
        Some("svg") => Ok(true),
        Some("png") => Ok(false),
        _ => Err(Error::refused("its extension is not supported")
            .in_file(target.to_text())
            .expected(".png or .svg")),
    }
}

/// Writes a picture whose map is at most `size` pixels; returns the bytes of the file.
fn save(
    picture: &Picture<'_>,
    size: (u32, u32),
    target: &Path,
    force: bool,
    sync: Sync,
) -> Result<u64> {
    let bytes = match picture_is_svg(target)? {
        true => svg(picture, size.0, size.1).into_bytes(),
        false => {
            let drawn = raster(picture, size.0, size.1);
            png(&drawn, picture.title, &picture.map.text(), target)?
        }
    };
    save_bytes(&bytes, target, force, sync)
}

/// Writes a small file; returns its size in bytes.
pub(crate) fn save_bytes(bytes: &[u8], target: &Path, force: bool, sync: Sync) -> Result<u64> {
    write_small(&[(target.to_owned(), bytes)], force, sync)?;
    Ok(bytes.len() as u64)
}

fn png(raster: &Raster, title: &str, text: &str, target: &Path) -> Result<Vec<u8>> {
    let failed = |error: png::EncodingError| {
        Error::io(format!("writing failed: {error}")).in_file(target.to_text())
    };
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, raster.width, raster.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    for (name, text) in [("Title", title), ("Description", text)] {
        encoder.add_itxt_chunk(name.to_owned(), text.replace('\0', " ")).map_err(failed)?;
    }
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&raster.rgb).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(bytes)
}
