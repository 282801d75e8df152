//! Reads JSON as Python's `json` module does, from front to back.

use statelens_checkpoint::json::Parser;
use statelens_checkpoint::{Limits, Result};

use super::rules::Rules;

/// The maximum nesting. Python itself stops far earlier.
const MAX_DEPTH: u64 = 100_000;

/// Judges the entries of a JSON text.
pub(super) fn read(text: &[u8], rules: &mut Rules<'_>) -> Result<()> {
    let mut parser = Parser::lenient(text);
    // The open containers: whether it is an object, and whether it is still empty.
    let mut open: Vec<(bool, bool)> = Vec::new();
    while !rules.is_full() {
        let is_object = parser.at_object();
        if is_object || parser.at_array() {
            if is_object {
                parser.object()?
            } else {
                parser.array()?
            }
            Limits::check("nested values in one JSON text", open.len() as u64, MAX_DEPTH)?;
            open.push((is_object, true));
            rules.begin(is_object);
        } else if parser.at_text() {
            rules.text(&parser.text()?.to_lossy());
        } else {
            rules.other(&parser.compact()?);
        }
        loop {
            let Some((is_object, first)) = open.last_mut() else { return parser.end() };
            let more = match is_object {
                true => match parser.entry(first)? {
                    Some(key) => {
                        rules.key(&key.to_lossy());
                        true
                    }
                    None => false,
                },
                false => parser.item(first)?,
            };
            if more {
                break;
            }
            open.pop();
            rules.end();
        }
    }
    Ok(())
}
