//! The model config: which one is used, and how the conversion changes it.

use std::rc::Rc;

use statelens_checkpoint::Grade;
use yew::prelude::*;

use crate::convert::state::Conversion;
use crate::family::message::{ConfigLines, FamilyReply, NamedText};
use crate::family::page::files;
use crate::family::page::files::Choose;
use crate::family::page::guided::GuidedForm;
use crate::family::page::request::set;
use crate::family::state::GuidedConfig;
use crate::page::drop::save_text;
use crate::page::focus::focus;
use crate::page::marks::{classes, prose, severity, when};
use crate::page::model::actor::Actor;
use crate::state::fmt::plural;
use crate::state::work::OpenWork;

/// Renders which config is used, with the means to choose another one.
pub(super) fn config_choice(
    actor: &Actor,
    work: &OpenWork,
    convert: &Conversion,
    reply: &FamilyReply,
) -> Html {
    let own = convert.options.family.config.as_ref();
    let filled_in = own.filter(|_| convert.options.family.is_filled_in);
    let source = match (own, filled_in) {
        (_, Some(_)) => "filled in by you. The command needs it as a file:",
        (Some(_), None) => "chosen by you",
        (None, None) => "next to the checkpoint",
    };
    let save = filled_in.cloned().map(|NamedText { name, text }| {
        Callback::from(move |_: MouseEvent| save_text(&text, &name))
    });
    let onclick = actor.on(move |actor, _: MouseEvent| set(actor, |request| request.config = None));
    let choose = actor.on(move |actor, text: NamedText| files::config(actor, text));
    html! {
        <div class="fs"><span class="lab">{ "Config" }</span><div class="line" id="family-config-name">
            if reply.recognised.config.is_empty() {
                <span class="mid-ink">{ "No config.json next to the checkpoint." }</span>
            } else {
                <span class="m">{ &reply.recognised.config }</span>
                <span class="dim">{ source }</span>
            }
            if let Some(save) = save { <button class="textlink" id="config-save" onclick={save}>{ "Save config.json" }</button> }
            if own.is_some() { <button class="textlink" id="config-remove" {onclick}>{ "Remove" }</button> }
            <Choose id="config-choose" class="btn small" label={if reply.recognised.config.is_empty() { "Choose\u{2026}" } else { "Choose another\u{2026}" }}
                accept=".json,.yaml,.yml" onfile={choose} />
            <span class="dim">{ "or drop it on this sheet" }</span>
            if let Some(config) = guided(work, reply) { <GuidedForm config={Rc::new(config)} /> }
            if !reply.recognised.mismatch.is_empty() {
                <p class="w-warn" id="config-mismatch">{ severity(Grade::Warning) }{ " " }{ prose(&reply.recognised.mismatch) }</p>
            }
        </div></div>
    }
}

/// Returns the config to fill in; `None` if there is one, or if it has more than the file says.
fn guided(work: &OpenWork, reply: &FamilyReply) -> Option<GuidedConfig> {
    let recognised = &reply.recognised;
    let lacks = recognised.config.is_empty() && recognised.source == "hf";
    lacks.then(|| GuidedConfig::of(&recognised.model, &work.rows)).flatten()
}

/// Renders the config before and after, side by side.
pub(super) fn side_by_side(configs: &ConfigLines) -> Html {
    let changed = configs.after.iter().filter(|(_, changed)| *changed).count() as u64;
    let text: String = configs.after.iter().map(|(line, _)| format!("{line}\n")).collect();
    let name = configs.new.clone();
    let save = Callback::from(move |_: MouseEvent| save_text(&text, &name));
    let side = |which: &'static str, name: &str, lines: &[(String, bool)]| {
        html! {
            <div class="cfg"><div class="lab">{ which }{ " " }<span class="m">{ name.to_owned() }</span></div>
                <div class="scroll" role="group" tabindex="0" aria-label={format!("Config {which}: {name}")}>
                    <div class="cfglines">{ for lines.iter().map(|(line, changed)| html! {
                        <div class={classes(&["cfgline", when(*changed, "cfgnew")])}>if *changed { <mark>{ line.clone() }</mark> } else { { line.clone() } }</div>
                    }) }</div>
                </div></div>
        }
    };
    html! {
        <div class="fs"><span class="lab">{ "Config" }</span><div id="family-config">
            <div class="cfgs">{ side("before", &configs.old, &configs.before) }{ side("after", &configs.new, &configs.after) }</div>
            <p class="counts mid-ink"><span>{ match changed {
                    0 => "no new lines".to_owned(),
                    lines => format!("{} new or changed, marked", plural(lines, "line")),
                } }</span>
                <span>{ "saved together with the checkpoint" }</span>
                <button class="textlink" onclick={save}>{ "save only the config" }</button></p>
            if !configs.dropped.is_empty() {
                <p class="dim">{ "Not in the new checkpoint: " }{ prose(&configs.dropped.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")) }</p>
            }
        </div></div>
    }
}

/// Renders buttons to choose or to fill in a config if the conversion to a family needs one and none
/// was found.
pub fn missing_config(actor: &Actor, work: &OpenWork, convert: &Conversion) -> Html {
    if !lacks_config(convert) {
        return html! {};
    }
    let onfile = actor.on(move |actor, text: NamedText| files::config(actor, text));
    html! {
        <p class="refused presets">
            { fill_in(work, convert, "btn") }
            <Choose id="config-missing" class="btn" label="Choose config.json\u{2026}" accept=".json,.yaml,.yml" {onfile} /></p>
    }
}

/// Returns whether the conversion to a family needs a config and none was found.
fn lacks_config(convert: &Conversion) -> bool {
    let lacks = convert.family.as_ref().is_some_and(|reply| reply.recognised.config.is_empty());
    convert.options.family.target.is_some() && lacks
}

/// Renders a button that shows the form for the config; nothing if there is no such form.
pub fn fill_in(work: &OpenWork, convert: &Conversion, class: &'static str) -> Html {
    let form = convert.family.as_ref().and_then(|reply| guided(work, reply));
    if !lacks_config(convert) || form.is_none() {
        return html! {};
    }
    let onclick = Callback::from(|_: MouseEvent| {
        let document = web_sys::window().and_then(|window| window.document());
        if let Some(form) = document.and_then(|it| it.get_element_by_id("guided-config")) {
            form.scroll_into_view();
            focus("config-num_attention_heads");
        }
    });
    html! { <button {class} data-act="fill-in" {onclick}>{ "Fill it in" }</button> }
}
