//! Widths of characters, measured in the browser: faces differ, and so do their sizes if the user
//! sets a minimum. Lengths in `ch` would be those of one face, and only within the style sheet; the
//! lines of wrapped keys are computed from numbers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use wasm_bindgen::JsCast;
use web_sys::HtmlElement;

use crate::state::wrap::CHARACTER;

thread_local! {
    /// The width of a character of ASCII, which is the same for all; 0 if it is not known yet.
    static ASCII: Cell<f64> = const { Cell::new(0.0) };
    /// How many times as large type is as usual.
    static SCALE: Cell<f64> = const { Cell::new(1.0) };
    /// The widths of other characters, which may come from other faces.
    static OTHERS: RefCell<HashMap<char, f64>> = RefCell::new(HashMap::new());
}

/// Number of copies of a character that are measured together, because a browser may round the
/// width of a text.
const COPIES: usize = 32;

/// Returns the width in pixels of a character of the monospaced face, at the size of data.
pub fn character_width(character: char) -> f64 {
    if !character.is_ascii() {
        let known = OTHERS.with_borrow(|widths| widths.get(&character).copied());
        return known.unwrap_or_else(|| {
            let width = measured(character).unwrap_or(CHARACTER);
            OTHERS.with_borrow_mut(|widths| widths.insert(character, width));
            width
        });
    }
    if ASCII.get() == 0.0 {
        ASCII.set(measured('0').filter(|width| *width > 0.0).unwrap_or(CHARACTER));
    }
    ASCII.get()
}

/// Returns the height in pixels of a line of a wrapped text, as in the style sheet.
pub fn line_height() -> f64 {
    (16.0 * SCALE.get()).round()
}

/// Sets how many times as large type is as usual, and forgets the widths.
pub fn set_scale(scale: f64) {
    SCALE.set(scale);
    ASCII.set(0.0);
    OTHERS.with_borrow_mut(HashMap::clear);
}

/// Measures a character in an element that is not visible.
fn measured(character: char) -> Option<f64> {
    let document = web_sys::window()?.document()?;
    let element: HtmlElement = document.create_element("span").ok()?.dyn_into().ok()?;
    element.set_class_name("m measure");
    element.set_text_content(Some(&character.to_string().repeat(COPIES)));
    document.body()?.append_child(&element).ok()?;
    let width = element.get_bounding_client_rect().width() / COPIES as f64;
    element.remove();
    Some(width)
}
