//! Saving a tensor, or a slice of it, to a file of its own.

use yew::prelude::*;

use crate::convert::state::naming::key_name;
use crate::matrix::message::{ExportFormat, ExportRequest, ExportedFile};
use crate::page::error::short_error;
use crate::page::model::actor::Actor;
use crate::page::running::{percent, running_line};
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::state::task::Task;

/// Properties of the buttons.
#[derive(Properties, PartialEq)]
pub(crate) struct SaveAsProps {
    pub(crate) row: u32,
    /// Key of the tensor.
    pub(crate) tensor: AttrValue,
    /// The slice in Python syntax, without brackets; empty for the whole tensor.
    #[prop_or_default]
    pub(crate) slice: String,
    /// Label of the buttons.
    #[prop_or(AttrValue::Static("save as"))]
    pub(crate) label: AttrValue,
    pub(crate) dtype: AttrValue,
    /// Whether the convert sheet writes the tensor as PyTorch's format.
    #[prop_or_default]
    pub(crate) sheet: bool,
}

/// Returns a key with its slice in Python syntax.
pub(crate) fn sliced_key(key: &str, slice: &str) -> String {
    if slice.is_empty() { key.to_owned() } else { format!("{key}[{slice}]") }
}

/// Returns whether NumPy does not have the dtype, so that a cast to float32 is offered.
fn is_short(dtype: &str) -> bool {
    dtype == "bfloat16" || dtype.starts_with("float8")
}

/// The buttons, one for each format.
#[component]
pub(crate) fn SaveAs(props: &SaveAsProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let upcast = use_state(|| false);
    let short = is_short(&props.dtype);
    let single = short && *upcast;
    let take = |kind: ExportFormat| {
        let (row, slice) = (props.row, props.slice.clone());
        let extension = kind.extension();
        let name = key_name(&sliced_key(&props.tensor, &slice), extension);
        let single = single || short && kind.is_numpy();
        let onclick = actor.on(move |actor, _: MouseEvent| {
            let (slice, name) = (slice.clone(), name.clone());
            let request = ExportRequest { row, slice, kind, single, name };
            actor.start(TaskRequest::Export(request));
            actor.values_panel(|it| it.export.start());
        });
        html! { <button class="textlink" {onclick}>{ format!(".{extension}") }</button> }
    };
    let row = props.row;
    let convert = actor.on(move |actor, _: MouseEvent| {
        actor.update(move |model| model.save_key(row, "torch".to_owned(), single));
    });
    let onchange = {
        let upcast = upcast.clone();
        Callback::from(move |_: Event| upcast.set(!*upcast))
    };
    html! {
        <div class="saveas lab" role="group" aria-label={format!("{} these formats", props.label)}><span>{ props.label.clone() }</span>
            { for ExportFormat::ALL.into_iter().map(take) }
            if props.sheet {
                <button class="textlink" onclick={convert}>{ ".pt\u{2026}" }</button>
            }
            if short {
                <label class="upcast" title={format!("NumPy has no {}: NumPy files always get float32", props.dtype)}><input type="checkbox" class="cb" checked={*upcast} {onchange} />{ "as float32" }</label>
            }
        </div>
    }
}

/// Renders the progress of saving, or its error.
pub(crate) fn export_progress(actor: &Actor, export: &Task<ExportedFile>) -> Html {
    match export {
        Task::Idle | Task::Done(_) => html! {},
        Task::Running(task) => {
            let stop = actor.on(move |actor, _: MouseEvent| {
                actor.stop(JobKind::Export);
                actor.values_panel(|it| it.export = Task::Idle);
            });
            let bar = Some(("Saving", (task.now.done, task.now.total)));
            let line = running_line("stop-saving", bar, format!("{} %", percent(&task.now)), stop);
            html! { <p class="saveas" id="taking">{ line }</p> }
        }
        Task::Failed(error) => short_error(error),
    }
}
