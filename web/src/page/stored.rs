//! What the browser keeps of how the page is shown.

use web_sys::Storage;

use crate::state::table::SHOWN;

/// The name under which it has the columns of values.
const COLUMNS: &str = "columns";

/// The columns of values that were chosen, now or another time; the first is always there.
#[must_use]
pub fn shown_columns() -> u16 {
    let known = storage().and_then(|storage| storage.get_item(COLUMNS).ok().flatten());
    known.and_then(|known| known.parse::<u16>().ok()).map_or(SHOWN, |shown| shown | 1)
}

/// Keeps which are chosen. Where the browser keeps nothing it is for now.
pub fn keep_columns(shown: u16) {
    if let Some(storage) = storage() {
        let _ = storage.set_item(COLUMNS, &shown.to_string());
    }
}

fn storage() -> Option<Storage> {
    web_sys::window()?.local_storage().ok()?
}
