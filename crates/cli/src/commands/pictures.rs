//! Writes pictures to PNG and SVG files.

use std::path::Path;

use statelens::parts::values::picture::{Picture, Raster, raster, svg};
use statelens::{Error, Result};

use crate::output::{Sync, write_small};

/// Returns whether the name is that of an SVG; fails if it is not a PNG either.
pub(crate) fn is_svg(target: &Path) -> Result<bool> {
    let end = target.extension().map(|end| end.to_string_lossy().to_ascii_lowercase());
    match end.as_deref() {
        Some("svg") => Ok(true),
        Some("png") => Ok(false),
        _ => Err(Error::refused("its extension is not supported")
            .in_file(target.display().to_string())
            .expected(".png or .svg")),
    }
}

/// Writes a picture whose map is at most `size` pixels; returns the bytes of the file.
pub(crate) fn save(
    picture: &Picture<'_>,
    size: (u32, u32),
    target: &Path,
    force: bool,
    sync: Sync,
) -> Result<u64> {
    let bytes = match is_svg(target)? {
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
        Error::io(format!("writing failed: {error}")).in_file(target.display().to_string())
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
