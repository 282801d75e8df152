//! The outputs of this tab in the private file system, and which of them are not needed any more.
//!
//! A download has no end that the page could see, so an output is removed some time after it is no
//! longer needed. A tab that is closed before then leaves it to the next one.

use std::cell::RefCell;

use gloo_timers::future::TimeoutFuture;
use js_sys::Array;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::File;

use crate::worker::private;

/// Milliseconds that a download has at least, and bytes per millisecond that it is expected to copy.
/// The browser may ask for a place first, and the place may be a slow disk.
const DOWNLOAD: (f64, f64) = (120_000.0, 2_000.0);

/// A finished output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Output {
    /// The name of its file in the private file system.
    pub(crate) private: String,
    /// The name and the size under which the page knows it.
    pub(crate) known: (String, u64),
}

/// The outputs that were not removed yet.
#[derive(Default)]
struct Outputs(Vec<Output>);

thread_local! {
    static OUTPUTS: RefCell<Outputs> = RefCell::default();
}

impl Outputs {
    /// Removes from the list and returns the outputs that are not among the `used` files.
    fn take_unused(&mut self, used: &[(String, u64)]) -> Vec<Output> {
        let (used, unused) =
            std::mem::take(&mut self.0).into_iter().partition(|it| used.contains(&it.known));
        self.0 = used;
        unused
    }
}

/// Adds finished files that are in the private file system, with the names that the page gives
/// them.
pub(crate) fn add(files: &Array, names: &[String]) {
    let output = |(file, name): (JsValue, &String)| {
        let file: File = file.dyn_into().ok()?;
        Some(Output { private: file.name(), known: (name.clone(), file.size() as u64) })
    };
    let outputs = files.iter().zip(names).filter_map(output);
    OUTPUTS.with_borrow_mut(|all| all.0.extend(outputs));
}

/// Removes all outputs, except for the `used` files, once their downloads are over.
pub(crate) fn release(used: &[(String, u64)]) {
    for output in OUTPUTS.with_borrow_mut(|all| all.take_unused(used)) {
        spawn_local(async move {
            TimeoutFuture::new(patience(output.known.1)).await;
            private::remove(&output.private).await;
        });
    }
}

/// Returns the milliseconds to wait for a download of `bytes` bytes.
fn patience(bytes: u64) -> u32 {
    (DOWNLOAD.0 + bytes as f64 / DOWNLOAD.1).min(f64::from(i32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_that_are_open_stay() {
        let output = |name: &str, bytes: u64| Output {
            private: format!("tab.{name}"),
            known: (name.to_owned(), bytes),
        };
        let mut all = Outputs(vec![output("a.pt", 1), output("b.pt", 2), output("a.pt", 3)]);
        let unused = all.take_unused(&[("a.pt".to_owned(), 3), ("c.pt".to_owned(), 1)]);
        assert_eq!(unused, [output("a.pt", 1), output("b.pt", 2)]);
        assert_eq!(all.0, [output("a.pt", 3)]);
        assert_eq!(all.take_unused(&[]), [output("a.pt", 3)], "after it was closed");
        assert_eq!((patience(0), patience(200_000_000)), (120_000, 220_000));
        assert_eq!(patience(u64::MAX), i32::MAX as u32);
    }
}
