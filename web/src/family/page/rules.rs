//! The conversion rules: the table of keys that they map, and the editor of their text.

use gloo_timers::callback::Timeout;
use statelens_checkpoint::Grade;
use web_sys::HtmlTextAreaElement;
use yew::prelude::*;

use crate::convert::state::Conversion;
use crate::family::message::{FamilyReply, NamedText};
use crate::family::page::request::set;
use crate::family::page::table::FamilyTable;
use crate::page::controls::change;
use crate::page::drop::save_text;
use crate::page::marks::{check, prose, severity, tick_icon};
use crate::page::model::actor::Actor;
use crate::protocol::error::ErrorText;
use crate::state::fmt::{exact, plural};

/// Milliseconds without a keystroke after which the rules are applied.
const DEBOUNCE: u32 = 250;

/// Renders the section with the table of keys and the editor of the rules.
pub(super) fn keys(actor: &Actor, convert: &Conversion, reply: &std::rc::Rc<FamilyReply>) -> Html {
    let Some(shown) = &reply.shown else { return html! {} };
    let request = &convert.options.family;
    let own = request.recipe.is_none();
    let rules = request.recipe.clone().unwrap_or_else(|| shown.recipe.clone());
    let edit = actor.on(move |actor, _: MouseEvent| {
        actor.convert(|convert| convert.editing = !convert.editing);
    });
    let reset = actor.on(move |actor, _: MouseEvent| {
        change(actor, |convert| {
            convert.options.family.recipe = None;
            convert.rules += 1;
        });
    });
    let save = {
        let rules = rules.clone();
        Callback::from(move |_: MouseEvent| save_text(&rules.text, &rules.name))
    };
    let onrules = {
        let name = rules.name.clone();
        actor.on(move |actor, text: String| {
            let name = if name.is_empty() { "mine.recipe".to_owned() } else { name.clone() };
            set(actor, move |request| request.recipe = Some(NamedText { name, text }));
        })
    };
    html! {
        <div class="fs"><span class="lab">{ "Keys" }</span><div id="family-keys">
            <div class="line rulebar">
                <span class="inp grow"><span class="ph">{ "recipe" }</span><span class="m cut">{ &rules.name }</span>
                    <span class="dim">{ if own { "built in" } else { "yours" } }</span></span>
                if !own {
                    <button class="btn quiet" id="rules-save" onclick={save}>{ "Save" }</button>
                    <button class="btn quiet" id="rules-reset" onclick={reset}>{ "Discard" }</button>
                }
                <button class="btn" id="rules-edit" aria-expanded={convert.editing.to_string()} onclick={edit}>{ if convert.editing { "Close the rules" } else { "Edit rules" } }</button>
            </div>
            if convert.editing { <Editor key={convert.rules} value={rules} {own} {onrules} /> }
            if let Some(error) = &shown.wrong { { wrong(error) } }
            <FamilyTable reply={reply.clone()} />
            { counts(actor, convert, reply) }
        </div></div>
    }
}

fn wrong(error: &ErrorText) -> Html {
    html! {
        <div class="wrong" id="rules-wrong" role="alert">
            <p>{ severity(Grade::Warning) }<b>{ prose(&error.title) }</b></p>
            { for error.next.iter().map(|(text, _)| html! { <p class="m">{ prose(text) }</p> }) }
        </div>
    }
}

fn counts(actor: &Actor, convert: &Conversion, reply: &FamilyReply) -> Html {
    let Some(shown) = &reply.shown else { return html! {} };
    if shown.rows.is_empty() {
        return html! {};
    }
    let onchange = {
        let apply = |convert: &mut Conversion| {
            convert.options.family.drop_unmatched = !convert.options.family.drop_unmatched;
        };
        actor.on(move |actor, _: Event| change(actor, apply))
    };
    let done: u64 = shown.rows.iter().filter(|row| row.rearranged).map(|row| row.times).sum();
    let request = &convert.options.family;
    html! {
        <>
            <p class="counts mid-ink">
                <span>{ format!("{} become {}", plural(shown.keys.0, "key"), exact(shown.keys.1)) }</span>
                if done > 0 { <span>{ format!("{} rearranged", exact(done)) }</span> }
                if shown.unmatched == 0 { <span>{ tick_icon() }{ " every key has a rule" }</span> }
            </p>
            if shown.unmatched > 0 {
                { check("drop-unmatched", request.drop_unmatched,
                    &format!("Leave out {} that no rule covers", plural(shown.unmatched, "key")), onchange) }
            }
        </>
    }
}

#[derive(Properties, PartialEq)]
pub struct EditorProps {
    /// The rules: the initial text, and the current text while they are those of the family.
    pub value: NamedText,
    /// Whether the rules are those of the family, not edited by the user.
    pub own: bool,
    /// Called with the edited text, after a pause in typing.
    pub onrules: Callback<String>,
}

/// An editor with line numbers, to which error messages refer.
#[component]
pub fn Editor(props: &EditorProps) -> Html {
    let text = use_state(|| props.value.text.clone());
    let scrolled = use_state_eq(|| 0);
    let waiting = use_mut_ref(|| None::<Timeout>);
    {
        let text = text.clone();
        use_effect_with((props.own, props.value.clone()), move |(own, value)| {
            if *own {
                text.set(value.text.clone());
            }
        });
    }
    let oninput = {
        let (text, onrules) = (text.clone(), props.onrules.clone());
        Callback::from(move |event: InputEvent| {
            let Some(area) = event.target_dyn_into::<HtmlTextAreaElement>() else { return };
            let value = area.value();
            text.set(value.clone());
            let onrules = onrules.clone();
            *waiting.borrow_mut() = Some(Timeout::new(DEBOUNCE, move || onrules.emit(value)));
        })
    };
    let onscroll = {
        let scrolled = scrolled.clone();
        Callback::from(move |event: Event| {
            if let Some(area) = event.target_dyn_into::<HtmlTextAreaElement>() {
                scrolled.set(area.scroll_top());
            }
        })
    };
    let count = text.split('\n').count();
    let numbers: String = (1..=count).map(|number| format!("{number}\n")).collect();
    html! {
        <div class="recipe-text">
            <div class="nums" aria-hidden="true"><pre style={format!("transform:translateY({}px)", -*scrolled)}>{ numbers }</pre></div>
            <textarea id="rules" aria-label="Rules of the recipe" value={(*text).clone()} {oninput} {onscroll}
                wrap="off" autocomplete="off" autocapitalize="off" spellcheck="false" />
        </div>
    }
}
