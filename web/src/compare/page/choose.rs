//! The dialog for choosing a second checkpoint when the drop contains several.

use std::rc::Rc;

use yew::prelude::*;

use crate::page::drop::DroppedFile;
use crate::page::hooks::use_focus_trap;
use crate::page::marks::close_icon;
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::state::work::OpenWork;

/// Properties of the dialog.
#[derive(Properties, PartialEq)]
pub struct ChooseComparedProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The files of the drop.
    pub files: Rc<Vec<DroppedFile>>,
}

/// The dialog for choosing a second checkpoint.
#[component]
pub fn ChooseComparedDialog(props: &ChooseComparedProps) -> Html {
    let actor = use_context::<Actor>();
    let node = use_node_ref();
    use_focus_trap(&node);
    let Some(actor) = actor else { return html! {} };
    let close = actor.on(move |actor, _: MouseEvent| actor.show(None));
    let choose = |folder: bool| {
        actor.on(move |actor, _: MouseEvent| {
            actor.show(None);
            actor.choose_compared(folder);
        })
    };
    let other = |at: u32| {
        let file = props.files.get(at as usize)?;
        let files = props.files.clone();
        let onclick = actor.on(move |actor, _: MouseEvent| {
            super::compare_with(actor, files.as_ref().clone(), Some(at));
        });
        Some(html! {
            <button class="ex" {onclick}><span class="m">{ &file.name.path }</span><span></span>
                <span class="tag">{ fmt::bytes(file.name.size) }</span></button>
        })
    };
    html! {
        <>
            <div class="scrim" onclick={close.clone()}></div>
            <div class="center">
                <div ref={node} class="dlg choose-file" role="dialog" aria-modal="true" aria-label="Compare with" tabindex="-1">
                    <header>
                        <h2>{ "Compare with" }</h2>
                        <button class="ico" aria-label="Close" title="Close (Esc)" onclick={close}>{ close_icon() }</button>
                    </header>
                    <div class="list">{ for props.work.opened.others.iter().filter_map(|at| other(*at)) }</div>
                    <footer>
                        <button class="btn" onclick={choose(false)}>{ "Choose files" }</button>
                        <button class="btn" onclick={choose(true)}>{ "Choose a folder" }</button>
                    </footer>
                </div>
            </div>
        </>
    }
}
