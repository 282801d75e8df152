//! Saves the heatmap as a picture, or its numbers as CSV.

use statelens_values::picture::{BlockMap, ColourScaling, Picture, Show, svg};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{Blob, CanvasRenderingContext2d, HtmlCanvasElement, HtmlImageElement};

use crate::convert::state::naming::key_name;
use crate::page::drop::{save, save_text};

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

/// Saves a PNG: the browser draws the SVG, with its own fonts, on a canvas.
fn save_png(picture: &Picture<'_>, name: String) {
    let drawn = svg(picture, SIZE.0, SIZE.1);
    wasm_bindgen_futures::spawn_local(async move {
        if let Ok(canvas) = rendered(&drawn).await {
            let done = Closure::once_into_js(move |blob: Option<Blob>| {
                if let Some(blob) = blob {
                    save(&blob, &name);
                }
            });
            let _ = canvas.to_blob(done.unchecked_ref());
        }
    });
}

/// Renders an SVG on a canvas of twice its size.
async fn rendered(text: &str) -> Result<HtmlCanvasElement, JsValue> {
    let image = HtmlImageElement::new()?;
    image.set_src(&format!("data:image/svg+xml,{}", js_sys::encode_uri_component(text)));
    JsFuture::from(image.decode()).await?;
    let document = web_sys::window().and_then(|window| window.document());
    let document = document.ok_or(JsValue::NULL)?;
    let canvas: HtmlCanvasElement = document.create_element("canvas")?.dyn_into()?;
    canvas.set_width(2 * image.natural_width());
    canvas.set_height(2 * image.natural_height());
    let context = canvas.get_context("2d")?.ok_or(JsValue::NULL)?;
    let context: CanvasRenderingContext2d = context.dyn_into()?;
    let (wide, high) = (f64::from(canvas.width()), f64::from(canvas.height()));
    context.draw_image_with_html_image_element_and_dw_and_dh(&image, 0.0, 0.0, wide, high)?;
    Ok(canvas)
}
