//! Keys that wrap if they are too long for their column.

use std::borrow::Cow;

use statelens_checkpoint::visible;
use yew::prelude::*;

use crate::page::marks::{lined, parts_of_key};
use crate::page::text_width::{character_width, line_height};
use crate::state::wrap::text_lines;

/// The characters after which a key wraps.
const BREAKS: [char; 4] = ['.', '/', '_', '-'];
/// A key that has more lines than this is shortened in the middle.
const MAX_LINES: usize = 4;

/// A key in a column.
#[derive(Default)]
pub struct WrappingKey<'a> {
    /// Width in pixels of the space before the key.
    pub indent: f64,
    /// The key.
    pub text: Cow<'a, str>,
    /// Length in bytes of the dimmed start of the key; `None` for its prefix.
    pub dimmed: Option<usize>,
    /// The number of layers, if it is shown.
    pub times: Option<u64>,
}

impl<'a> WrappingKey<'a> {
    /// Creates a key that shows this text.
    pub fn new(text: &'a str, indent: f64) -> Self {
        Self { indent, text: text.into(), ..Self::default() }
    }

    /// Returns the height in pixels of a row in a column of this width, given the height of rows
    /// whose keys don't wrap.
    pub fn height(&self, width: f64, each: f64) -> f64 {
        let is_plain =
            self.times.is_none() && self.text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        // Runs for each key of a checkpoint. Most are shown unchanged, and need not be split into
        // parts.
        let lines = match is_plain {
            true => self.lines(&self.text, width).len(),
            false => self.lines(&text_of(&self.parts()), width).len(),
        };
        each + line_height() * (lines - 1) as f64
    }

    /// Renders the key, with the button of a fold before it.
    pub fn html(&self, button: Option<Html>, width: f64) -> Html {
        let parts = self.parts();
        let whole = text_of(&parts);
        let lines = self.lines(&whole, width);
        let is_one = lines.len() == 1;
        let borrowed: Vec<_> = parts.iter().map(|(class, text)| (*class, &**text)).collect();
        let text = lined(&borrowed, lines.into_iter().map(str::len));
        html! {
            <span class="key">
                { for button }
                if is_one { { text } } else { <span class="keylines">{ text }</span> }
            </span>
        }
    }

    /// Returns the parts of the text with their CSS classes. Invisible characters are escaped.
    fn parts(&self) -> Vec<(&'static str, String)> {
        let mut parts = match self.dimmed {
            Some(cut) => {
                let (head, tail) = self.text.split_at(cut);
                vec![("a", visible(head)), ("z", visible(tail))]
            }
            None => parts_of_key(&visible(&self.text)),
        };
        parts.retain(|(_, text)| !text.is_empty());
        parts.extend(self.times.map(|times| ("x", format!(" \u{d7}{times}"))));
        parts
    }

    /// Returns the lines of the text in a column of this width in pixels; one line if there would be
    /// too many.
    fn lines<'t>(&self, text: &'t str, width: f64) -> Vec<&'t str> {
        let room = width - self.indent;
        if text.len() as f64 * character_width('0') <= room && text.is_ascii() {
            return vec![text];
        }
        let lines = text_lines(text, &BREAKS, room, &character_width);
        if lines.len() <= MAX_LINES { lines } else { vec![text] }
    }
}

fn text_of(parts: &[(&str, String)]) -> String {
    parts.iter().map(|(_, text)| &**text).collect()
}
