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
    let chosen_by_user = convert.options.family.config.is_some();
    let onclick = actor.on(move |actor, _: MouseEvent| set(actor, |request| request.config = None));
    let choose = actor.on(move |actor, text: NamedText| files::config(actor, text));
    html! {
        <div class="fs"><span class="lab">{ "Config" }</span><div class="line" id="family-config-name">
            if reply.recognised.config.is_empty() {
                <span class="mid-ink">{ "No config.json next to the checkpoint." }</span>
            } else {
                <span class="m">{ &reply.recognised.config }</span>
                <span class="dim">{ if chosen_by_user { "chosen by you" } else { "next to the checkpoint" } }</span>
            }
            if chosen_by_user { <button class="textlink" id="config-remove" {onclick}>{ "Remove" }</button> }
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

/// Renders a button to choose a config if the conversion to a family needs one and none was found.
pub fn missing_config(actor: &Actor, convert: &Conversion) -> Html {
    let lacks = convert.family.as_ref().is_some_and(|reply| reply.recognised.config.is_empty());
    if convert.options.family.target.is_none() || !lacks {
        return html! {};
    }

    let onfile = actor.on(move |actor, text: NamedText| files::config(actor, text));
    html! { <p class="refused"><Choose id="config-missing" class="btn" label="Choose config.json\u{2026}" accept=".json,.yaml,.yml" {onfile} /></p> }
}
