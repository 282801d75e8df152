//! Describes what a checkpoint contains: summaries, manifests, one-line descriptions of leaves, the
//! model's architecture, and links and pages to share.
//!
//! Reads the bytes of tensors only where hashes or statistics are requested; writes into strings
//! and sinks, never to a terminal or a file.

mod attributes;
mod contents;
mod entry;
mod exact;
mod file_grade;
mod grade;
pub mod info;
mod kind;
mod manifest;
pub mod model;
mod optimizer;
mod parameters;
mod pieces;
pub mod share;
mod suggest;
mod summary;
mod text;
mod totals;
pub mod treemap;
mod typed;

pub use statelens_fold as fold;

pub use attributes::{Attributes, GroupAttributes, group, groups_with_attributes};
pub use exact::{class_text, types_text};
pub use file_grade::FileGrade;
pub use grade::grade_word;
pub use info::Info;
pub use kind::LeafKind;
pub use manifest::{Hashes, ManifestWriter, Unread, write_manifest, write_manifest_lines};
pub use optimizer::{Parameter, Parameters};
pub use parameters::ParameterCount;
pub use pieces::{StoredPiece, in_pieces, piece, pieces};
pub use suggest::{distance, near_keys};
pub use summary::CheckpointSummary;
pub use text::{
    MISSING, attribute_text, dtype_of, fields_text, kind_of, layout_text, link_text, shape_of,
    text_of, type_name, value_text,
};
pub use totals::{Count, StateSummary, Totals};
pub use typed::{element_json, leaf_json};
