//! Shell commands equivalent to an action of the page.

use crate::state::fmt::quoted;

/// Joins arguments of `statelens` into a command, quoted for a shell.
pub(crate) fn command_line<Word: AsRef<str>>(words: &[Word]) -> String {
    let mut line = "statelens".to_owned();
    for word in words {
        line.push(' ');
        line.push_str(&quoted(word.as_ref()));
    }
    line
}
