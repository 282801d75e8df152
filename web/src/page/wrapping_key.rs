//! Keys that wrap if they are too long for their column.

use statelens_checkpoint::visible;
use yew::prelude::*;

use crate::page::marks::{lined, parts_of_key};
use crate::page::text_width::character_width;
use crate::state::wrap::text_lines;

/// The characters after which a key wraps.
const BREAKS: [char; 4] = ['.', '/', '_', '-'];
/// A key that has more lines than this is shortened in the middle.
const MAX_LINES: usize = 3;
/// Height in pixels of a line of text.
const LINE: f64 = 16.0;

/// A key in a column.
#[derive(Default)]
pub struct WrappingKey {
    /// Width in pixels of what stands before the key.
    pub indent: f64,
    /// The parts of the key, with their CSS classes.
    pub parts: Vec<(&'static str, String)>,
    /// The number of layers, if it is shown.
    pub times: Option<u64>,
}

impl WrappingKey {
    /// Returns a key of which this text is shown, with invisible characters escaped.
    pub fn new(text: &str, indent: f64) -> Self {
        Self { indent, parts: parts_of_key(&visible(text)), times: None }
    }

    /// Returns the lengths in bytes of the lines of text in a column of this width in pixels; one
    /// line if the key would have too many.
    fn lines(&self, width: f64) -> Vec<usize> {
        let text = self.text();
        let room = width - self.indent;
        // A character has at most the width of its bytes, so most keys are not measured.
        if text.len() as f64 * character_width('0') <= room {
            return vec![text.len()];
        }
        let lines = text_lines(&text, &BREAKS, room, &character_width);
        match lines.len() <= MAX_LINES {
            true => lines.into_iter().map(str::len).collect(),
            false => vec![text.len()],
        }
    }

    /// Returns the height in pixels of a row whose key has several lines if the column of keys has
    /// this width, given the height of other rows.
    pub fn height(&self, width: f64, each: f64) -> f64 {
        each + LINE * (self.lines(width).len() - 1) as f64
    }

    fn text(&self) -> String {
        let parts = self.parts.iter().map(|(_, text)| &**text);
        parts.chain([&*self.repeated()]).collect()
    }

    fn repeated(&self) -> String {
        self.times.map(|times| format!(" \u{d7}{times}")).unwrap_or_default()
    }

    /// Renders the key, with the button of a fold before it.
    pub fn html(&self, button: Option<Html>, width: f64) -> Html {
        let (lines, repeated) = (self.lines(width), self.repeated());
        let times = ("x", repeated.trim_start());
        let parts = self.parts.iter().map(|(class, text)| (*class, &**text));
        html! {
            <span class="key">
                { for button }
                if lines.len() > 1 {
                    <span class="keylines">{ lined(&parts.chain([("x", &*repeated)]).collect::<Vec<_>>(), lines.into_iter()) }</span>
                } else {
                    { for parts.chain([times]).filter(|(_, text)| !text.is_empty()).map(|(class, text)| html! { <span {class}>{ text.to_owned() }</span> }) }
                }
            </span>
        }
    }
}
