//! Describes the contents of a checkpoint in text and numbers, for the command and the page:
//! manifests, summaries, the text of a value, findings as JSON. Reads the bytes of tensors only
//! where hashes, values or statistics are requested; writes into strings and sinks, never to a
//! terminal or a file.

use statelens_checkpoint::{Error, ErrorKind, Result};
pub use statelens_checkpoint::{counted, grouped, listed, size_text};
pub use statelens_fold as fold;

mod attributes;
pub mod check;
mod code;
pub mod compare;
mod contents;
mod csv;
mod dates;
mod describe;
mod element;
mod entry;
mod grade;
mod json;
mod manifest;
pub mod model;
mod natural;
mod optimizer;
mod parameters;
pub mod picture;
mod pieces;
mod read_back;
mod reading;
pub mod runs;
pub mod share;
pub mod singular;
mod statistics;
mod suggest;
mod summary;
pub mod treemap;
mod typed;
mod values;
pub mod verify;
mod visible;
pub mod weights;
pub mod work;

pub use attributes::{attributes_json, group, groups_json, groups_with_attributes};
pub use code::{Snippet, indexed, snippets};
pub use csv::Csv;
pub use describe::{
    MISSING, dtype_of, fields_text, kind_of, layout_text, link_text, shape_of, shape_text, text_of,
    type_name, value_text,
};
pub use element::element_text;
pub use grade::grade_word;
pub use json::{Json, findings_json, report_json, worst};
pub use manifest::{ManifestWriter, Unread, write_manifest, write_manifest_lines};
pub use natural::natural_order;
pub use optimizer::{Parameter, Parameters};
pub use parameters::ParameterCount;
pub use read_back::ReadBack;
pub use reading::{Repetition, missing};
pub use statistics::{Statistician, SummaryStatistics};
pub use suggest::{distance, near_keys};
pub use summary::{CheckpointSummary, Count, StateSummary};
pub use typed::{element_json, leaf_json};
pub use values::{bars, index, number_text, statistics_json};
pub use visible::{is_hidden, visible};

/// Returns an error that concerns only one tensor; fails with errors that must end the whole
/// operation: I/O errors, limits that the user can raise, and cancellation.
fn of_one_tensor(error: Error) -> Result<Error> {
    match error.kind() {
        ErrorKind::Cancelled | ErrorKind::Io => Err(error),
        ErrorKind::Limit if error.next_step().is_some() => Err(error),
        _ => Ok(error),
    }
}
