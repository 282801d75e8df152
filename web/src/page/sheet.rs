//! A sheet that slides in from the right over a scrim. It traps the focus and closes with Escape or
//! the cross.

use yew::prelude::*;

use crate::page::hooks::use_focus_trap;
use crate::page::marks::close_icon;
use crate::page::model::actor::Actor;

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
