//! Saves the heatmap as a picture, or its numbers as CSV.

use statelens_inspect::picture::{BlockMap, ColourScaling, Picture, Show, raster, svg};
use wasm_bindgen::prelude::*;
use web_sys::{Blob, HtmlCanvasElement};

use super::canvas::put_pixels;
use crate::page::drop::{save, save_text};
use crate::page::naming::key_name;

/// Size in pixels of the map within a saved picture.
const SIZE: (u32, u32) = (1032, 620);

/// The content to save.
pub struct Saved<'a> {
    /// The blocks of the matrix.
    pub map: &'a BlockMap,
    /// The key and the slice, as the title.
    pub title: &'a str,
    /// Names of rows and columns.
    pub axes: (&'a str, &'a str),
    /// The quantity shown for each block.
    pub show: Show,
    /// The mapping from numbers to colours.
    pub scaling: ColourScaling,
}

impl Saved<'_> {
    /// Saves a file of a kind: `png`, `svg` or `csv`.
    pub fn save(&self, kind: &str) {
        let name = key_name(self.title, kind);
        let picture = Picture {
            map: self.map,
            title: self.title,
            axes: self.axes,
            show: self.show,
            scaling: self.scaling,
        };
        match kind {
            "csv" => save_text(&self.map.csv(), &name),
            "svg" => save_text(&svg(&picture, SIZE.0, SIZE.1), &name),
            _ => save_png(&picture, name),
        }
    }
}

/// Saves a PNG, which the browser encodes from a canvas.
fn save_png(picture: &Picture<'_>, name: String) {
    let drawn = raster(picture, SIZE.0, SIZE.1);
    let canvas = web_sys::window()
        .and_then(|window| window.document())
        .and_then(|document| document.create_element("canvas").ok())
        .and_then(|node| node.dyn_into::<HtmlCanvasElement>().ok());
    let Some(canvas) = canvas else { return };
    canvas.set_width(drawn.width);
    canvas.set_height(drawn.height);
    let dots =
        drawn.rgb.as_chunks().0.iter().flat_map(|[red, green, blue]| [*red, *green, *blue, 255]);
    put_pixels(&canvas, &dots.collect::<Vec<u8>>(), drawn.width as usize);
    let done = Closure::once_into_js(move |blob: Option<Blob>| {
        if let Some(blob) = blob {
            save(&blob, &name);
        }
    });
    let _ = canvas.to_blob(done.unchecked_ref());
}
