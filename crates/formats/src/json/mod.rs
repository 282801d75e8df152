//! JSON.
//!
//! [`Document`] and the writer speak it as Python's `json` module does, which is more than JSON:
//! `NaN` and `Infinity`, integers of any size, lone surrogates. [`Parser`] reads it piece by
//! piece for whoever can't hold a whole document, strictly if asked to.

mod document;
mod encoding;
mod node;
mod parser;
mod write;

pub(crate) use document::Document;
pub(crate) use encoding::utf8;
pub(crate) use node::{Id, JsonNode};
pub(crate) use parser::Parser;
pub(crate) use write::{Json, float, quote, quote_str, quote_utf8, separate};
