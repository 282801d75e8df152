//! Configs and recipes given by the user: dropped on the sheet, or chosen in it.

use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{File, HtmlInputElement};
use yew::prelude::*;

use crate::family::message::NamedText;
use crate::family::page::request::set;
use crate::page::controls::change;
use crate::page::drop::{DroppedFile, asset_text};
use crate::page::model::actor::{Actor, click};
use crate::page::model::{PageModel, Sheet};
use crate::protocol::ToWorker;
use crate::state::task::Task;

/// Maximum size in bytes of a config or recipe, far more than any has.
const MAX_FILE_SIZE: u64 = 16 << 20;

/// Takes the dropped files if the convert sheet is open and all of them are configs or recipes.
/// Returns whether it did.
pub fn accept_files(model: &PageModel, actor: &Actor, dropped: &[DroppedFile]) -> bool {
    let form = model.convert.as_ref().is_some_and(|convert| convert.task == Task::Idle);
    let all = dropped.iter().all(|file| {
        (is_config(&file.name.path) || is_recipe(&file.name.path))
            && file.name.size <= MAX_FILE_SIZE
    });
    if model.sheet != Some(Sheet::Convert) || !form || dropped.is_empty() || !all {
        return false;
    }
    actor.update(move |model| model.dragged = None);
    for file in dropped {
        let apply = if is_recipe(&file.name.path) { recipe } else { config };
        let (actor, file) = (actor.clone(), file.file.clone());
        spawn_local(async move {
            if let Some(text) = read(&file).await {
                apply(&actor, text);
            }
        });
    }
    true
}

/// Fetches the family files that the worker requests, and requests the plan again.
#[hook]
pub fn use_families(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let needed_files =
        model.convert.as_ref().map(|convert| convert.needed_files.clone()).unwrap_or_default();
    let actor = actor.clone();
    use_effect_with(needed_files, move |needed_files| {
        if needed_files.is_empty() {
            return;
        }
        let needed_files = needed_files.clone();
        spawn_local(async move {
            let texts = needed_files.iter().map(|path| async {
                let text = asset_text(path).await;
                (path.clone(), text)
            });
            let mut files = Vec::new();
            for text in texts {
                files.push(text.await);
            }
            actor.request(&ToWorker::Provide(files));
            actor.convert(|convert| {
                convert.needed_files = std::rc::Rc::default();
                convert.request += 1;
            });
        });
    });
}

fn is_recipe(path: &str) -> bool {
    path.to_ascii_lowercase().ends_with(".recipe")
}

fn is_config(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    let ends = [".json", ".yaml", ".yml"].iter().any(|end| path.ends_with(end));
    // An index of shards is part of a checkpoint, not a config.
    ends && !path.ends_with(".index.json")
}

/// Uses a recipe of the user, and shows it in the editor.
pub(super) fn recipe(actor: &Actor, text: NamedText) {
    change(actor, move |convert| {
        convert.options.family.recipe = Some(text);
        convert.options.family.model = None;
        convert.rules += 1;
        convert.editing = true;
        convert.acknowledged.clear();
    });
}

/// Uses a config of the user.
pub(super) fn config(actor: &Actor, text: NamedText) {
    set(actor, move |request| (request.config, request.is_filled_in) = (Some(text), false));
}

async fn read(file: &File) -> Option<NamedText> {
    if file.size() > MAX_FILE_SIZE as f64 {
        return None;
    }
    let text = JsFuture::from(file.text()).await.ok()?.as_string()?;
    Some(NamedText { name: file.name(), text })
}

/// Properties of the button.
#[derive(Properties, PartialEq)]
pub struct ChooseProps {
    /// The id of the button.
    #[prop_or_default]
    pub id: Option<&'static str>,
    /// CSS class of the button.
    #[prop_or("textlink")]
    pub class: &'static str,
    /// Label of the button.
    pub label: AttrValue,
    /// File types that the dialog shows, as in the `accept` attribute.
    pub accept: AttrValue,
    /// Called with the chosen file.
    pub onfile: Callback<NamedText>,
}

/// A button that opens a dialog for choosing a text file.
#[component]
pub fn Choose(props: &ChooseProps) -> Html {
    let input = use_node_ref();
    let onclick = {
        let input = input.clone();
        Callback::from(move |_: MouseEvent| click(&input))
    };
    let onchange = {
        let onfile = props.onfile.clone();
        Callback::from(move |event: Event| {
            // Otherwise the page would open the file as a checkpoint.
            event.stop_propagation();
            let files = event.target_dyn_into::<HtmlInputElement>().and_then(|input| input.files());
            let Some(file) = files.and_then(|files| files.get(0)) else { return };
            let onfile = onfile.clone();
            spawn_local(async move {
                if let Some(text) = read(&file).await {
                    onfile.emit(text);
                }
            });
        })
    };
    html! {
        <>
            <button class={props.class} id={props.id} {onclick}>{ props.label.clone() }</button>
            <input ref={input} type="file" hidden={true} accept={props.accept.clone()} {onchange} tabindex="-1" aria-hidden="true" />
        </>
    }
}
