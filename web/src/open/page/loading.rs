//! The loading screen: the layout of the workspace, filled in while a file is being opened.

use yew::prelude::*;

use crate::page::marks::{cap, classes, logo};
use crate::page::model::LoadingState;
use crate::page::model::actor::Actor;
use crate::page::running::progress;
use crate::state::fmt;
use crate::table::page::TablePane;

/// Renders the loading screen for a file with a name and a size in bytes.
pub fn loading_screen(
    actor: &Actor,
    loading: &LoadingState,
    name: String,
    size: u64,
    privacy: Html,
) -> Html {
    let cancel = actor.on(move |actor, _: MouseEvent| actor.stop_opening());
    let LoadingState { doing, keys, read, calls, first, .. } = loading;
    let doing = if doing.is_empty() { "Reading the structure" } else { doing };
    html! {
        <main class="app loading" id="loading">
            <header class="top">
                { logo() }<span class="vr"></span><h1 class="name">{ name }</h1>
                if size > 0 { <span class="facts"><span><b>{ fmt::bytes(size) }</b>{ " on disk" }</span></span> }
                <span class="acts"><button class="btn" onclick={cancel}>{ "Cancel " }{ cap("Esc") }</button></span>
            </header>
            <div class="tape reading" role="status">
                <div class="line">
                    <b>{ doing.to_owned() }</b>
                    if *keys > 0 { <span class="m">{ fmt::plural(*keys, "key") }</span> }
                    if *calls > 0 { <span class="m dim">{ format!("{} read in {}", fmt::bytes(*read), fmt::plural(*calls, "call")) }</span> }
                    <span class="grow"></span>
                    <span class="m dim only-l">{ "the weights are not read" }</span>
                </div>
                { progress(classes(&["prog", "open"]), "Reading the structure", None, html! { <i></i> }) }
            </div>
            <div class="cols">
                <nav class="tree" aria-label="Tree"><div class="pane-h"><b>{ "State" }</b></div></nav>
                if let Some(first) = first {
                    // Read-only: positions of the keys in the file are not known yet.
                    <section class="mid" inert=true><TablePane work={first.clone()} /></section>
                } else {
                <section class="mid"><p class="empty">{ "The keys are shown as soon as the structure is read." }</p></section>
                }
            </div>
            <footer class="status"><span>{ "reading" }</span><span class="grow"></span>
                { privacy }</footer>
        </main>
    }
}
