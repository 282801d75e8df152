//! A canvas of coloured cells, one pixel each; the style sheet enlarges them.

use statelens_values::picture::Rgb;
use wasm_bindgen::{Clamped, JsCast};
use web_sys::{CanvasRenderingContext2d, HtmlCanvasElement, ImageData};
use yew::prelude::*;

/// Colours of cells in row-major order. Cells without a colour show the background.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ColouredCells {
    /// Number of cells per row.
    pub width: usize,
    pub colours: Vec<Option<Rgb>>,
}

#[derive(Properties, PartialEq)]
pub struct CanvasProps {
    /// The cells to draw.
    pub cells: ColouredCells,
}

/// A canvas that is redrawn whenever the cells change.
#[component]
pub fn Canvas(props: &CanvasProps) -> Html {
    let node = use_node_ref();
    {
        let node = node.clone();
        use_effect_with(props.cells.clone(), move |cells| draw(&node, cells));
    }
    let height = props.cells.colours.len() / props.cells.width.max(1);
    html! {
        <canvas ref={node} width={props.cells.width.to_string()} height={height.to_string()} aria-hidden="true"></canvas>
    }
}

fn draw(node: &NodeRef, cells: &ColouredCells) {
    let Some(canvas) = node.cast::<HtmlCanvasElement>() else { return };
    let dots: Vec<u8> = cells
        .colours
        .iter()
        .flat_map(|colour| match colour {
            Some([red, green, blue]) => [*red, *green, *blue, 255],
            None => [0; 4],
        })
        .collect();
    put_pixels(&canvas, &dots, cells.width);
}

/// Draws RGBA pixels into a canvas.
fn put_pixels(canvas: &HtmlCanvasElement, dots: &[u8], width: usize) {
    let context = canvas.get_context("2d").ok().flatten();
    let context = context.and_then(|it| it.dyn_into::<CanvasRenderingContext2d>().ok());
    let image = ImageData::new_with_u8_clamped_array(Clamped(dots), width as u32);
    if let (Some(context), Ok(image)) = (context, image) {
        let _ = context.put_image_data(&image, 0.0, 0.0);
    }
}
