//! What is typed to do the same in a terminal.

use crate::state::fmt::quoted;

/// Words for `statelens`, quoted for a shell.
pub(super) fn command_line<Word: AsRef<str>>(words: &[Word]) -> String {
    let mut line = "statelens".to_owned();
    for word in words {
        line.push(' ');
        line.push_str(&quoted(word.as_ref()));
    }
    line
}
