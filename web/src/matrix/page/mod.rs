//! The expanded inspector: a heatmap of a whole matrix, a lens, and the exact values under it.

mod bar;
mod canvas;
mod dims;
mod grid;
mod heatmap;
mod ranked;
mod save;
mod screen;
mod side;
mod spectrum;
mod task;

use gloo_timers::callback::Timeout;
use yew::prelude::*;

use crate::matrix::message::OverviewRequest;
use crate::matrix::state::MatrixState;
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Screen};
use crate::protocol::ToWorker;
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::state::work::OpenWork;

pub use canvas::{Canvas, ColouredCells};
pub use save::Saved;
pub use screen::MatrixScreen;

/// Number of blocks (across, down) that the worker is to compute; `BLOCKS_SMALL` is for small screens.
const BLOCKS: (u32, u32) = (344, 124);
const BLOCKS_SMALL: (u32, u32) = (172, 120);
/// Milliseconds without movement of the lens before its window is read.
const DEBOUNCE: u32 = 40;

impl Actor {
    /// Changes the state of the heatmap.
    pub(crate) fn matrix(&self, change: impl FnOnce(&mut MatrixState) + 'static) {
        self.update(|model| {
            if let Some(matrix) = &mut model.matrix {
                change(matrix);
            }
        });
    }

    /// Shows the selected row as a heatmap, or closes the heatmap.
    pub fn expand(&self, on: bool) {
        self.update(move |model| model.expand(on));
    }
}

/// Requests the data of the heatmap from the worker whenever the view changes.
#[hook]
pub fn use_matrix(model: &UseReducerHandle<PageModel>, actor: &Actor, small: bool) {
    let matrix = model.matrix.as_ref();
    let row = model.work.as_ref().and_then(OpenWork::row);
    {
        // Another row, such as the same tensor of another layer, replaces the one shown.
        let (actor, of) = (actor.clone(), matrix.map(|matrix| matrix.selection.row));
        use_effect_with((row, of), move |(row, of)| {
            if of.is_some() && of != row {
                actor.expand(row.is_some());
            }
        });
    }
    {
        let (actor, selection) = (actor.clone(), matrix.map(|matrix| matrix.selection.clone()));
        use_effect_with((selection, model.session), move |(selection, _)| {
            let (across, down) = if small { BLOCKS_SMALL } else { BLOCKS };
            let stop = selection.is_some().then(|| actor.clone());
            if let Some(selection) = selection.clone() {
                let offers = ToWorker::SingularOffers(selection.clone());
                actor.start(TaskRequest::Overview(OverviewRequest { selection, across, down }));
                actor.request(&offers);
            }
            // Stops reading for a view that is no longer shown.
            move || {
                if let Some(actor) = stop {
                    let kinds = [JobKind::Overview, JobKind::Singular, JobKind::Rank];
                    kinds.into_iter().for_each(|kind| actor.stop(kind));
                }
            }
        });
    }
    let actor = actor.clone();
    let window = matrix.map(|matrix| {
        let (rows, columns) = matrix.window();
        (matrix.selection.clone(), [matrix.lens.0, matrix.lens.1, rows, columns])
    });
    use_effect_with((window, model.session), move |(window, _)| {
        let request = window.clone().map(|(selection, window)| {
            Timeout::new(DEBOUNCE, move || {
                actor.request(&ToWorker::Cells(selection, window));
            })
        });
        move || drop(request)
    });
}

/// Handles a key while the heatmap is shown. Returns whether the key was used.
pub fn press(model: &PageModel, actor: &Actor, key: &str, far: bool) -> bool {
    let Some(matrix) = model.matrix.as_ref().filter(|_| model.screen == Screen::Work) else {
        return false;
    };
    let step = |down: i64, across: i64| actor.matrix(move |it| it.step((down, across), far));
    match key {
        "ArrowDown" => step(1, 0),
        "ArrowUp" => step(-1, 0),
        "ArrowRight" => step(0, 1),
        "ArrowLeft" => step(0, -1),
        "PageDown" => actor.matrix(|it| it.step((1, 0), true)),
        "PageUp" => actor.matrix(|it| it.step((-1, 0), true)),
        "Home" => actor.matrix(|it| it.centre((0, 0))),
        "End" => {
            let last = matrix.size;
            actor.matrix(move |it| it.centre((last.0 - 1, last.1 - 1)));
        }
        "+" | "=" => actor.matrix(|it| it.magnify(1)),
        "-" => actor.matrix(|it| it.magnify(-1)),
        "0" => actor.matrix(MatrixState::fit),
        "t" => actor.matrix(|it| it.transposed = !it.transposed),
        "," => actor.work(|work| work.step_layer(-1)),
        "." => actor.work(|work| work.step_layer(1)),
        "e" => actor.expand(false),
        _ => return false,
    }
    true
}

/// Renders the button that opens the heatmap.
pub fn button(actor: &Actor) -> Html {
    let onclick = actor.on(move |actor, _: MouseEvent| actor.expand(true));
    html! {
        <button class="ico" id="expand" aria-label="View as heatmap" title="View as heatmap (E)" {onclick}>
            <svg width="12" height="12" viewBox="0 0 12 12" fill="none" stroke="currentColor" stroke-width="1.2" aria-hidden="true">
                <path d="M7 1h4v4M5 11H1V7M11 1 7 5M1 11l4-4" />
            </svg>
        </button>
    }
}
