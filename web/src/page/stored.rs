//! What the browser keeps of how the page is shown.

use web_sys::Storage;

use crate::state::table::SHOWN;

/// The name under which it has the columns of values.
const COLUMNS: &str = "columns";
/// The name under which this tab has the name of the file that is open in it.
const OPEN: &str = "open";

thread_local! {
    /// What that was when the page was loaded.
    static WAS_OPEN: Option<String> = tab().and_then(|tab| tab.get_item(OPEN).ok().flatten());
}

/// Whether a file was open in this tab before the page was loaded anew, or its tab was brought back.
#[must_use]
pub fn was_open(name: &str) -> bool {
    WAS_OPEN.with(|was| was.as_deref() == Some(name))
}

/// Keeps which file is open, as long as the tab is there.
pub fn keep_open(name: &str) {
    // What was open is asked for before something else is.
    WAS_OPEN.with(|_| ());
    if let Some(tab) = tab() {
        let _ = tab.set_item(OPEN, name);
    }
}

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

/// The name under which it has how fast everything was read.
const RATE: &str = "bytes in a millisecond";

/// Returns how many bytes were read in a millisecond when everything was read the last time.
#[must_use]
pub fn kept_rate() -> Option<f64> {
    let known = storage()?.get_item(RATE).ok()??;
    known.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0)
}

/// Keeps that rate.
pub fn keep_rate(rate: f64) {
    if let Some(storage) = storage() {
        let _ = storage.set_item(RATE, &rate.to_string());
    }
}

/// Returns the width that a pane was given, now or in an earlier visit, in pixels.
#[must_use]
pub fn kept_width(pane: &str) -> Option<f64> {
    let known = storage()?.get_item(&format!("width of {pane}")).ok()??;
    known.parse::<f64>().ok().filter(|width| width.is_finite())
}

/// Keeps the width of a pane; `None` forgets it.
pub fn keep_width(pane: &str, width: Option<f64>) {
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
