//! Statistics of tensor values: a scan of all tensors on demand, and those of the selected tensor.

pub mod cells;
mod finding;
mod gauge;
mod goto;
mod histogram;
mod picker;
mod statistics;
mod task;

use wasm_bindgen::JsCast;
use yew::prelude::*;

use crate::page::model::PageModel;
use crate::page::model::actor::Actor;
use crate::protocol::ToWorker;
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::state::task::Task;
use crate::state::work::OpenWork;
use crate::values::message::ScanRequest;
use crate::values::model::ValuesPanel;

pub use cells::columns;
pub use finding::{article, no_findings};
pub use gauge::{scan_button, status};
pub use goto::{GoTo, GoToTarget, HINT, number as number_of};
pub use histogram::HistogramView;
pub use picker::picker;
pub use statistics::{StatisticsProps, StatisticsSection};

/// Maximum size in bytes of a tensor that is read when selected; larger ones are read on demand.
const MAX_UNASKED: u64 = 64_000_000;

impl Actor {
    /// Changes the state of reading values.
    pub fn values_panel(&self, change: impl FnOnce(&mut ValuesPanel) + 'static) {
        self.update(|model| change(&mut model.values_panel));
    }

    /// Starts a scan of all tensors that have not been read yet.
    pub fn scan(&self) {
        self.start(TaskRequest::Scan(ScanRequest {}));
        self.values_panel(|values_panel| {
            values_panel.scan.start();
            values_panel.stopping = false;
        });
    }

    /// Stops the scan. The worker replies with the results so far.
    pub fn stop_scan(&self) {
        self.stop(JobKind::Scan);
        self.values_panel(|values_panel| values_panel.stopping = true);
    }

    /// Starts reading a tensor.
    pub fn read_values(&self, row: u32) {
        self.start(TaskRequest::TensorStats(row));
        self.values_panel(move |values_panel| values_panel.one = Some((row, Task::started())));
    }

    /// Stops reading the tensor.
    pub fn stop_reading(&self) {
        self.stop(JobKind::TensorStats);
        self.values_panel(|values_panel| values_panel.one = None);
    }

    /// Selects a value of a row, by the value's index in C order.
    pub fn go_to(&self, row: u32, number: u64) {
        self.update(move |model| model.go_to(row, number));
    }
}

/// Scrolls the inspector so that a value is in its middle, unless the lines around the value are
/// visible.
fn reveal(value: &web_sys::Element) {
    let Ok(Some(pane)) = value.closest(".insp") else { return };
    let (frame, value) = (pane.get_bounding_client_rect(), value.get_bounding_client_rect());
    let margin = frame.height() / 4.0;
    if value.top() < frame.top() + margin || value.bottom() > frame.bottom() - margin {
        let middle = |of: &web_sys::DomRect| (of.top() + of.bottom()) / 2.0;
        pane.set_scroll_top(pane.scroll_top() + (middle(&value) - middle(&frame)) as i32);
    }
}

/// Reads the selected tensor unless that takes long, and stops when the selection changes.
#[hook]
pub fn use_values_panel(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let work = model.work.as_ref();
    let row = work.and_then(OpenWork::row);
    let inspected = model.inspected.as_ref().filter(|inspected| Some(inspected.row) == row);
    let has_values =
        row.is_some_and(|row| work.is_some_and(|work| work.view.weights.get(row).is_some()));
    let unread = inspected.and_then(|inspected| inspected.unread);
    let remote = inspected.is_some_and(|inspected| inspected.remote);
    let scanning = model.values_panel.scan.is_running();
    {
        let (actor, model) = (actor.clone(), model.clone());
        use_effect_with(
            (row, unread, has_values, scanning),
            move |(row, unread, has_values, scanning)| {
                let one = model.values_panel.one.as_ref();
                if one.is_some_and(|(of, _)| Some(*of) != *row) {
                    actor.stop_reading();
                }
                let (Some(row), Some(unread)) = (*row, *unread) else { return };
                if *has_values {
                    // A scan has read it meanwhile.
                    actor.request(&ToWorker::Inspect { row });
                } else if unread <= MAX_UNASKED && !remote && !scanning {
                    if one.is_none_or(|(of, _)| *of != row) {
                        actor.read_values(row);
                    }
                } else if model.values_panel.rate.is_none() && !remote && !scanning {
                    actor.request(&ToWorker::Rate(row));
                }
            },
        );
    }
    let shown = model.values.as_ref().map(|values| (values.row, values.start));
    use_effect_with((model.values_panel.at, shown), |_| {
        let document = web_sys::window().and_then(|window| window.document());
        let selected = document.and_then(|it| it.query_selector(".vals .here").ok().flatten());
        if let Some(selected) = selected {
            reveal(&selected);
            // The sheet that led here has closed, and its focus went with it.
            let document = web_sys::window().and_then(|window| window.document());
            let active = document.and_then(|it| it.active_element());
            if active.is_none_or(|it| it.tag_name() == "BODY")
                && let Some(selected) = selected.dyn_ref::<web_sys::HtmlElement>()
            {
                let _ = selected.focus();
            }
        }
    });
}
