//! View settings stored by the browser.

use web_sys::Storage;

/// Storage key of the chosen columns of values.
const COLUMNS: &str = "columns";
/// Session storage key of the name of the file open in this tab.
const OPEN: &str = "open";

thread_local! {
    /// The stored name when the page was loaded.
    static WAS_OPEN: Option<String> = tab().and_then(|tab| tab.get_item(OPEN).ok().flatten());
}

/// Returns whether a file of this name was open in this tab before the page was reloaded or the tab
/// was restored.
pub fn was_open(name: &str) -> bool {
    WAS_OPEN.with(|was| was.as_deref() == Some(name))
}

/// Stores the name of the open file for the lifetime of the tab.
pub fn store_open_name(name: &str) {
    // Reads the previous name before it is overwritten.
    WAS_OPEN.with(|_| ());
    if let Some(tab) = tab() {
        let _ = tab.set_item(OPEN, name);
    }
}

/// Returns the columns of values that the user chose, as a bit set; the first column is always
/// included.
pub fn chosen_columns() -> Option<u16> {
    let stored = storage().and_then(|storage| storage.get_item(COLUMNS).ok().flatten());
    stored.and_then(|stored| stored.parse::<u16>().ok()).map(|chosen| chosen | 1)
}

/// Stores the chosen columns. Does nothing if the browser has no storage.
pub fn store_columns(shown: u16) {
    if let Some(storage) = storage() {
        let _ = storage.set_item(COLUMNS, &shown.to_string());
    }
}

/// Storage key of the speed of the last full read.
const RATE: &str = "bytes in a millisecond";

/// Returns the speed of the last full read in bytes per millisecond.
pub fn stored_rate() -> Option<f64> {
    let stored = storage()?.get_item(RATE).ok()??;
    stored.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// Stores the speed of a full read in bytes per millisecond.
pub fn store_rate(rate: f64) {
    if let Some(storage) = storage() {
        let _ = storage.set_item(RATE, &rate.to_string());
    }
}

/// Returns the stored width of a pane in pixels.
pub fn stored_width(pane: &str) -> Option<f64> {
    let stored = storage()?.get_item(&format!("width of {pane}")).ok()??;
    stored.parse::<f64>().ok().filter(|width| width.is_finite())
}

/// Stores the width of a pane in pixels; `None` removes it.
pub fn store_width(pane: &str, width: Option<f64>) {
    let Some(storage) = storage() else { return };
    let name = format!("width of {pane}");
    let _ = match width {
        Some(width) => storage.set_item(&name, &width.to_string()),
        None => storage.remove_item(&name),
    };
}

fn tab() -> Option<Storage> {
    web_sys::window()?.session_storage().ok()?
}

fn storage() -> Option<Storage> {
    web_sys::window()?.local_storage().ok()?
}
