//! Summaries of a checkpoint to share with people who do not have it: Markdown, JSON, text, a
//! self-contained HTML page, a picture, and a link that holds the structure. They contain no weights, no
//! folder names and no dates: the same checkpoint gives the same bytes, in the command and in the
//! page.

mod bytes;
mod columns;
mod fingerprint;
mod folded;
mod fragment;
mod html;
mod json;
mod link;
mod markdown;
mod measure;
mod outline;
mod pack;
mod picture;
#[cfg(test)]
mod tests;
mod words;

pub use crate::entry::LeafSummary;
pub use fingerprint::{Fingerprint, structure_fingerprint};
pub use folded::{FoldedLine, lines};
pub use fragment::write_fragment;
pub use html::write_html;
pub use json::write_json;
pub use link::{
    KeysAs, LinkOptions, LinkParts, MAX_CHARACTERS, address, link, open_link, without_link,
};
pub use markdown::{write_markdown, write_text};
pub use measure::Measuring;
pub use outline::Outline;
pub use picture::{SIZE as PICTURE_SIZE, write_picture};
