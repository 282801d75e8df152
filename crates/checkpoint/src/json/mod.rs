//! JSON.
//!
//! [`Document`] and the writer use the dialect of Python's `json` module, which extends JSON by
//! `NaN` and `Infinity`, integers of any size, and lone surrogates. [`Parser`] is a pull parser for
//! documents that are too large to hold in memory; it has a strict mode.

mod document;
mod encoding;
mod node;
mod parser;
mod write;

pub use document::Document;
pub use encoding::utf8;
pub use node::{Id, JsonNode};
pub use parser::Parser;
pub use write::{Json, escaped, float, quote, quote_str, quote_utf8, separate};
