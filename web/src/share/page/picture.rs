//! The picture to paste: its preview, and buttons that copy and save it.

use js_sys::Function;
use statelens_describe::share::PICTURE_SIZE;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};
use yew::prelude::*;

use crate::messages::get;
use crate::page::drop::{save, save_text};

#[derive(Properties, PartialEq)]
pub(super) struct PictureProps {
    /// The picture as SVG.
    pub(super) svg: AttrValue,
    /// The name of the checkpoint.
    pub(super) name: AttrValue,
}

/// Calls a function of `files` (web/files.js) with the picture. Returns its result, or `None` if it
/// failed.
async fn call(function: &str, svg: &str) -> Option<JsValue> {
    let files = get(&js_sys::global(), "files");
    let function: Function = get(&files, function).dyn_into().ok()?;
    let (width, height) = PICTURE_SIZE;
    let promise = function.call3(&files, &svg.into(), &width.into(), &height.into()).ok()?;
    JsFuture::from(js_sys::Promise::resolve(&promise)).await.ok()
}

/// The picture, with its buttons.
#[component]
pub(super) fn PictureSection(props: &PictureProps) -> Html {
    let copied = use_state(|| "");
    let source = use_memo(props.svg.clone(), |svg| {
        let svg = js_sys::encode_uri_component(svg).as_string().unwrap_or_default();
        format!("data:image/svg+xml,{svg}")
    });
    {
        let copied = copied.clone();
        use_effect_with(props.svg.clone(), move |_| copied.set(""));
    }
    let copy = {
        let (svg, copied) = (props.svg.clone(), copied.clone());
        Callback::from(move |_: MouseEvent| {
            let (svg, copied) = (svg.clone(), copied.clone());
            spawn_local(async move {
                let done = call("copyPng", &svg).await.is_some();
                copied.set(if done {
                    "Copied"
                } else {
                    "The browser can\u{2019}t copy pictures: save it"
                });
            });
        })
    };
    let base = format!("{}.summary", props.name);
    let png = {
        let (svg, name) = (props.svg.clone(), format!("{base}.png"));
        Callback::from(move |_: MouseEvent| {
            let (svg, name) = (svg.clone(), name.clone());
            spawn_local(async move {
                let made = call("png", &svg).await.and_then(|it| it.dyn_into().ok());
                if let Some(blob) = made {
                    save(&blob, &name);
                }
            });
        })
    };
    let vector = {
        let (svg, name) = (props.svg.clone(), format!("{base}.svg"));
        Callback::from(move |_: MouseEvent| save_text(&svg, &name))
    };
    html! {
        <div class="fs" id="share-picture"><span class="lab">{ "Picture" }</span><div>
            <img class="card" src={(*source).clone()} width="1200" height="630" alt="The picture: name, size, bytes by dtype, grade and fingerprint" />
            <div class="files">
                <button class="btn" id="copy-picture" onclick={copy}>{ "Copy picture" }</button>
                <button class="btn" id="save-png" onclick={png}>{ "PNG" }</button>
                <button class="btn" id="save-svg" onclick={vector}>{ "SVG" }</button>
                <span class="dim" role="status">{ *copied }</span>
            </div>
            <p class="dim">{ "For a chat or a model card. It has no values." }</p>
        </div></div>
    }
}
