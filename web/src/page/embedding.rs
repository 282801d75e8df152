//! The page in a frame of another page, which offers it files (`web/embed.js`, docs/embed.md).

use std::rc::Rc;

use js_sys::Array;
use statelens_checkpoint::visible;
use wasm_bindgen::prelude::*;
use web_sys::File;
use yew::prelude::*;

use crate::links::state::PageLink;
use crate::messages::get;
use crate::open::message::FileName;
use crate::page::drop::DroppedFile;
use crate::page::embed::{self, is_embedded, say};
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Screen};

/// Opens the files that the embedding page offers, and reports the selection to it.
#[hook]
pub fn use_embedder(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    {
        let actor = actor.clone();
        use_effect_with((), move |()| {
            if is_embedded() {
                start(&actor);
            }
        });
    }
    let opened = model.work.as_ref().filter(|_| model.screen == Screen::Work);
    let selected = opened.and_then(|work| Some(work.rows[work.row()? as usize].key.clone()));
    let is_open = opened.is_some();
    let opened = opened.map(|work| {
        let opened = &work.opened;
        (model.session, opened.name.clone(), opened.format.title.clone(), work.rows.len() as u32)
    });
    use_effect_with(opened, |opened| {
        if let Some((_, name, format, keys)) = opened {
            let fields: [(&str, JsValue); 3] =
                [("name", name.into()), ("format", format.into()), ("keys", (*keys).into())];
            say("opened", &fields);
        }
    });
    use_effect_with((is_open, selected), |(is_open, key)| {
        if *is_open {
            say("selected", &[("key", key.as_ref().map_or(JsValue::NULL, JsValue::from))]);
        }
    });
    let failed = model.error.as_ref().filter(|_| model.screen == Screen::Error);
    let failed = failed.map(|error| format!("{} {}", error.title, error.text).trim().to_owned());
    use_effect_with(failed, |failed| {
        if let Some(message) = failed {
            say("failed", &[("message", message.into())]);
        }
    });
}

/// Renders the screen of an embedded page before files are offered, and after they are closed.
pub fn waiting_screen() -> Html {
    html! { <main class="unsupported starting" id="start"><p role="status">{ "Waiting for a checkpoint\u{2026}" }</p></main> }
}

fn start(actor: &Actor) {
    let opened = {
        let actor = actor.clone();
        Closure::<dyn FnMut(JsValue, JsValue, JsValue)>::new(
            move |files: JsValue, main: JsValue, selected: JsValue| {
                let files = Array::from(&files).iter().filter_map(|file| offered(&file)).collect();
                let link = selected.as_string().map(|key| PageLink { key, ..PageLink::default() });
                actor.open(files, main.as_f64().map(|main| main as u32));
                // Opening drops a link that names no file.
                actor.update(|model| model.pending_link = link.map(Rc::new));
            },
        )
    };
    let closed = {
        let actor = actor.clone();
        Closure::<dyn FnMut()>::new(move || actor.go_home())
    };
    embed::start(opened.as_ref(), closed.as_ref());
    // The closures are needed as long as the page exists.
    opened.forget();
    closed.forget();
}

/// Returns an offered file. Its bytes are read by the worker, through a port.
fn offered(file: &JsValue) -> Option<DroppedFile> {
    let path = get(file, "name").as_string()?;
    let size = get(file, "size").as_f64()? as u64;
    let nothing = File::new_with_str_sequence(&Array::new(), &visible(&path)).ok()?;
    Some(DroppedFile { name: FileName { path, size }, file: nothing, address: None })
}
