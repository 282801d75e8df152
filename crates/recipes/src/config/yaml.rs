//! YAML 1.1 as PyYAML's safe loader and dumper implement it.

mod parse;
mod resolve;
mod write;

pub(super) use parse::parse;
pub(super) use write::write;
