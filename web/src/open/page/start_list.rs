//! Checkpoints that one click opens: those of the folder that the command serves, recently opened
//! files, or the bundled examples.

use js_sys::Array;
use statelens_checkpoint::natural_order;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use web_sys::{Event, HtmlInputElement};
use yew::prelude::*;

use crate::messages::get;
use crate::open::message::FileName;
use crate::open::page::address::{absolute, served};
use crate::open::page::made_examples::{self, MADE};
use crate::page::drop::DroppedFile;
use crate::page::drop_target::open_files;
use crate::page::hooks::use_window_event;
use crate::page::model::actor::Actor;
use crate::page::stored_files::{call, dropped, global, remembers, settled};
use crate::protocol::error::{ErrorKind, ErrorText};
use crate::run_folder;
use crate::state::fmt;

/// Bundled examples: files written by the real libraries, and one that attacks its reader.
const EXAMPLES: [(&str, &str, &str); 3] = [
    ("gpt_small.mdl", "A Cerebras training state: weights, AdamW, 167 keys", "1.5 MB"),
    ("zip_training_ckpt.pt", "A PyTorch training state, as torch.save writes it", "33 kB"),
    ("builtins_eval.pt", "A malicious pickle: shown, never run", "437 B"),
];

/// The folder that the command serves.
struct ServedFolder {
    folder: String,
    checkpoints: Vec<ServedCheckpoint>,
    /// All files, if the folder holds a run.
    run: Option<Vec<DroppedFile>>,
}

struct ServedCheckpoint {
    /// Path of the file to open, relative to the folder.
    main: String,
    /// Number of its files, and their total size in bytes.
    files: u32,
    bytes: u64,
}

/// A recently opened file, as `web/files.js` lists it.
#[derive(Clone)]
struct RecentFile {
    id: JsValue,
    name: String,
    about: String,
}

/// Renders the list of the start screen.
pub fn start_list() -> Html {
    match served() {
        Some(base) => html! { <Served {base} /> },
        None => html! { <RecentOrExamples /> },
    }
}

#[derive(Properties, PartialEq)]
struct ServedProps {
    base: AttrValue,
}

#[component]
fn Served(props: &ServedProps) -> Html {
    let actor = use_context::<Actor>();
    let listing = use_state(|| None::<Result<ServedFolder, String>>);
    {
        let listing = listing.clone();
        use_effect_with(props.base.clone(), move |base| {
            let base = base.clone();
            spawn_local(async move { listing.set(Some(listed(&base).await)) });
        });
    }
    let Some(actor) = actor else { return html! {} };
    match &*listing {
        None => html! { <div class="lab exhead">{ "Reading the folder\u{2026}" }</div> },
        Some(Err(reason)) => html! { <p class="priv" role="alert">{ reason }</p> },
        Some(Ok(listing)) if listing.checkpoints.is_empty() => html! {
            <div class="lab exhead">{ format!("{} contains no checkpoint that Statelens can read", listing.folder) }</div>
        },
        Some(Ok(listing)) => html! {
            <>
                <div class="lab exhead">{ format!("In {}", listing.folder) }</div>
                <div class="exs">
                if let Some(files) = listing.run.clone() {
                    { row(&listing.folder, "The checkpoints of a run", "run", actor.on(move |actor, _| open_files(actor, files.clone()))) }
                }
                { for listing.checkpoints.iter().map(|found| {
                    let about = match found.files {
                        1 => String::new(),
                        files => format!("{files} files"),
                    };
                    let url = address(&props.base, &found.main);
                    row(&found.main, &about, &fmt::bytes(found.bytes), actor.on(move |actor, _| actor.prompt_address(&url)))
                }) }
                </div>
            </>
        },
    }
}

#[component]
fn RecentOrExamples() -> Html {
    let actor = use_context::<Actor>();
    let recent = use_state(Vec::<RecentFile>::new);
    let load = {
        let recent = recent.clone();
        move || {
            let recent = recent.clone();
            spawn_local(async move {
                let list = settled("list", &JsValue::UNDEFINED).await.unwrap_or_default();
                let list: Array = list.dyn_into().unwrap_or_default();
                let entry = |entry: JsValue| RecentFile {
                    id: get(&entry, "id"),
                    name: text(&entry, "name"),
                    about: text(&entry, "about"),
                };
                recent.set(list.iter().map(entry).collect());
            });
        }
    };
    let changed = load.clone();
    use_effect_with((), move |()| load());
    use_window_event("recentfiles", Callback::from(move |_: Event| changed()));
    let Some(actor) = actor else { return html! {} };
    let list = match recent.as_slice() {
        [] => html! {
            <>
                <div class="lab exhead" data-list="examples">{ "Try an example" }</div>
                { for MADE.iter().map(|&(example, name, about, size)| {
                    row(name, about, size, actor.on(move |actor, _| made_examples::open(actor, example)))
                }) }
                { for EXAMPLES.iter().map(|&(name, about, size)| {
                    row(name, about, size, actor.on(move |actor, _| actor.open_example(name)))
                }) }
            </>
        },
        recent => html! {
            <>
                <div class="lab exhead" data-list="recent">{ "Opened before" }</div>
                { for recent.iter().map(|entry| {
                    let entry = entry.clone();
                    let (name, about) = (entry.name.clone(), entry.about.clone());
                    row(&name, &about, "", actor.on(move |actor, _| open_recent(actor, &entry)))
                }) }
            </>
        },
    };
    let turn = Callback::from(|event: Event| {
        if let Some(input) = event.target_dyn_into::<HtmlInputElement>() {
            call("turn", &input.checked().into());
        }
    });
    let can = global().is_some_and(|files| get(&files, "can").is_truthy());
    html! {
        <>
            { list }
            if can {
                <label class="priv keep">
                    <input type="checkbox" class="cb" checked={remembers()} onchange={turn} />
                    <span>{ "Remember, in this browser only, which files I open. Untick to forget them all." }</span>
                </label>
            }
        </>
    }
}

fn row(name: &str, about: &str, size: &str, onclick: Callback<MouseEvent>) -> Html {
    html! {
        <button class="ex" data-name={name.to_owned()} {onclick}>
            <span class="m">{ name.to_owned() }</span><span>{ about.to_owned() }</span><span class="tag">{ size.to_owned() }</span>
        </button>
    }
}

fn open_recent(actor: &Actor, entry: &RecentFile) {
    let (actor, entry) = (actor.clone(), entry.clone());
    spawn_local(async move {
        match settled("open", &entry.id).await {
            Ok(files) => actor.open(dropped(&files), None),
            Err(error) => actor.fail(ErrorText {
                kind: ErrorKind::Io,
                title: format!("{} could not be opened again.", entry.name),
                text: format!(
                    "It was moved or removed, or the browser was not allowed to read it: {}.",
                    text(&error, "message")
                ),
                file: String::new(),
                offset: None,
                lines: Vec::new(),
                next: vec![("Open it from its new location".into(), String::new())],
            }),
        }
    });
}

/// Returns the address of a served file, relative to the page.
fn address(base: &str, path: &str) -> String {
    let names: Vec<String> =
        path.split('/').map(|name| String::from(js_sys::encode_uri_component(name))).collect();
    format!("{base}{}", names.join("/"))
}

async fn listed(base: &str) -> Result<ServedFolder, String> {
    let failed = |_| "statelens, which serves this page, no longer responds.".to_owned();
    let window = web_sys::window().ok_or_else(String::new)?;
    let answer = JsFuture::from(window.fetch_with_str(base)).await.map_err(failed)?;
    let answer: web_sys::Response = answer.dyn_into().map_err(failed)?;
    if !answer.ok() {
        let text = JsFuture::from(answer.text().map_err(failed)?).await.map_err(failed)?;
        return Err(text.as_string().unwrap_or_default());
    }
    let json = JsFuture::from(answer.json().map_err(failed)?).await.map_err(failed)?;
    let listed = |found: JsValue| {
        let files = list(&found, "files");
        let bytes =
            files.iter().map(|file| get(&file, "bytes").as_f64().unwrap_or_default() as u64);
        ServedCheckpoint {
            main: text(&found, "main"),
            files: files.length(),
            bytes: bytes.fold(0, u64::saturating_add),
        }
    };
    let mut checkpoints: Vec<_> = list(&json, "checkpoints").iter().map(listed).collect();
    // Steps of a run come in their order.
    statelens_checkpoint::order::by(&mut checkpoints, |one: &ServedCheckpoint, other| {
        natural_order(one.main.as_bytes(), other.main.as_bytes())
    });
    let folder = text(&json, "folder");
    let file = |found: JsValue| {
        let path = text(&found, "path");
        let address = absolute(&address(base, &path)).into();
        let size = get(&found, "bytes").as_f64().unwrap_or_default() as u64;
        let name = FileName { path: format!("{folder}/{path}"), size };
        DroppedFile::served(name, address, get(&found, "modified").as_f64().unwrap_or_default())
    };
    let files: Vec<DroppedFile> = list(&json, "files").iter().filter_map(file).collect();
    let names: Vec<FileName> = files.iter().map(|file| file.name.clone()).collect();
    let run = run_folder::state::find(&names).map(|_| files);
    Ok(ServedFolder { folder, checkpoints, run })
}

/// Returns an array property of a JS object; empty if it does not have one.
fn list(object: &JsValue, name: &str) -> Array {
    get(object, name).dyn_into().unwrap_or_default()
}

/// Returns a string property of a JS object; empty if it does not have one.
fn text(object: &JsValue, name: &str) -> String {
    get(object, name).as_string().unwrap_or_default()
}
