//! The outputs of this tab in the private file system.
//!
//! The page can't see when a download ends, so it never removes an output by itself: the user does,
//! or the next tab does after this one is closed.

use std::cell::RefCell;

use js_sys::Array;
use wasm_bindgen::prelude::*;
use web_sys::File;

use crate::worker::private;

/// A finished output.
#[derive(Debug, Clone, PartialEq)]
struct Output {
    /// The name of its file in the private file system.
    private: String,
    /// The name and the size under which the page knows it.
    known: (String, u64),
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

    /// Returns the number of bytes of all outputs.
    fn bytes(&self) -> u64 {
        self.0.iter().map(|output| output.known.1).fold(0, u64::saturating_add)
    }
}

/// Adds finished files that are in the private file system, with the names that the page gives
/// them. Returns the number of bytes of all outputs.
pub(crate) fn add(files: &Array, names: &[String]) -> u64 {
    let output = |(file, name): (JsValue, &String)| {
        let file: File = file.dyn_into().ok()?;
        Some(Output { private: file.name(), known: (name.clone(), file.size() as u64) })
    };
    let outputs = files.iter().zip(names).filter_map(output);
    OUTPUTS.with_borrow_mut(|all| {
        all.0.extend(outputs);
        all.bytes()
    })
}

/// Removes all outputs except for the `used` files. Returns the number of bytes of those that stay.
pub(crate) async fn free(used: &[(String, u64)]) -> u64 {
    for output in OUTPUTS.with_borrow_mut(|all| all.take_unused(used)) {
        private::remove(&output.private).await;
    }
    OUTPUTS.with_borrow(Outputs::bytes)
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
        assert_eq!(all.bytes(), 6);
        let unused = all.take_unused(&[("a.pt".to_owned(), 3), ("c.pt".to_owned(), 1)]);
        assert_eq!(unused, [output("a.pt", 1), output("b.pt", 2)]);
        assert_eq!((&all.0[..], all.bytes()), (&[output("a.pt", 3)][..], 3));
        assert_eq!(all.take_unused(&[]), [output("a.pt", 3)], "after it was closed");
    }
}
