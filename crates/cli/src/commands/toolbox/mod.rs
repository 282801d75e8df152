//! The commands for those who train, one file each.

mod diff;
mod states;

use statelens_checkpoint::Result;
use statelens_convert::Pattern;

use super::{open, open_for_good};
use crate::args::Toolbox;
use crate::print::Outcome;

pub(crate) fn run(command: &Toolbox) -> Outcome {
    match command {
        Toolbox::States(args) => states::run(args),
        Toolbox::Diff(args) => diff::run(args),
    }
}

/// Patterns for keys, as they were typed.
fn patterns(texts: &[String]) -> Result<Vec<Pattern>> {
    texts.iter().map(|text| Pattern::parse(text)).collect()
}
