//! A sheet that slides in from the right over a scrim. It traps the focus and closes with Escape or
//! the cross.
//! A task has such a sheet if its line in `features` names the function that renders it.

use yew::prelude::*;

use crate::page::hooks::use_focus_trap;
use crate::page::marks::close_icon;
use crate::page::model::PageModel;
use crate::page::model::actor::Actor;
use crate::state::work::OpenWork;

/// What the sheet of a task is about.
pub struct TaskSheet<'a> {
    /// The page's state, which has that of the task.
    pub model: &'a PageModel,
    /// The open checkpoint.
    pub work: OpenWork,
    /// Its name: the folder of a set of shards, else the file.
    pub title: AttrValue,
    /// Maximum bytes that one action may fetch, for a remote checkpoint.
    pub cap: Option<u64>,
    /// Opens the checkpoint again with ten times the limits, if the task reached a limit.
    pub raise: Option<Callback<MouseEvent>>,
}

#[derive(Properties, PartialEq)]
pub struct SheetProps {
    pub title: AttrValue,
    /// Content next to the title.
    #[prop_or_default]
    pub note: Html,
    /// Additional CSS classes.
    #[prop_or_default]
    pub class: Classes,
    /// Body and footer.
    pub children: Html,
}

#[component]
pub fn SheetFrame(props: &SheetProps) -> Html {
    let actor = use_context::<Actor>();
    let node = use_node_ref();
    use_focus_trap(&node);
    let close = Callback::from(move |_: MouseEvent| {
        if let Some(actor) = &actor {
            actor.show(None);
        }
    });
    html! {
        <>
            <div class="scrim" onclick={close.clone()}></div>
            <div ref={node} class={classes!("sheet", props.class.clone())} role="dialog" aria-modal="true"
                aria-label={props.title.clone()} tabindex="-1">
                <header>
                    <h2>{ props.title.clone() }</h2>
                    { props.note.clone() }
                    <button class="ico" aria-label="Close" title="Close (Esc)" onclick={close}>{ close_icon() }</button>
                </header>
                { props.children.clone() }
            </div>
        </>
    }
}
