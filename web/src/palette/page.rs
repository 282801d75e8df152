//! The palette's dialog.

use statelens_checkpoint::visible;
use yew::prelude::*;

use crate::convert::state::presets::Preset;
use crate::page::hooks::use_focus_trap;
use crate::page::marks::{cap, classes, typed, when};
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Sheet};
use crate::palette::state::{ACTIONS, PaletteAction, PaletteEntry, entries};
use crate::protocol::job::JobKind;
use crate::state::work::OpenWork;
use crate::{compare, treemap};

/// Properties of the palette.
#[derive(Properties, PartialEq)]
pub struct PaletteProps {
    pub model: UseReducerHandle<PageModel>,
    /// The shown checkpoint.
    #[prop_or_default]
    pub work: Option<OpenWork>,
}

/// A field, and below it the actions and keys that match its text.
#[component]
pub fn Palette(props: &PaletteProps) -> Html {
    let node = use_node_ref();
    use_focus_trap(&node);
    let text = use_state(String::new);
    let at = use_state(|| 0usize);
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let rows = props.work.as_ref().map(|work| &work.rows[..]);
    let found = entries(&text, rows);
    let chosen = (*at).min(found.len().saturating_sub(1));
    {
        let node = node.clone();
        use_effect_with((chosen, found.len()), move |_| {
            let list = node.cast::<web_sys::Element>();
            let current =
                list.and_then(|it| it.query_selector("[aria-selected=true]").ok().flatten());
            if let Some(current) = current {
                current.scroll_into_view_with_bool(false);
            }
        });
    }
    let go = {
        let (actor, model) = (actor.clone(), props.model.clone());
        Callback::from(move |entry: PaletteEntry| run(&model, &actor, &entry))
    };
    let oninput = {
        let (text, at) = (text.clone(), at.clone());
        Callback::from(move |event: InputEvent| {
            if let Some(value) = typed(&event) {
                text.set(value);
                at.set(0);
            }
        })
    };
    let onkeydown = {
        let (found, at, go) = (found.clone(), at.clone(), go.clone());
        Callback::from(move |event: KeyboardEvent| {
            match event.key().as_str() {
                "ArrowDown" => at.set((chosen + 1).min(found.len().saturating_sub(1))),
                "ArrowUp" => at.set(chosen.saturating_sub(1)),
                "Enter" => found.get(chosen).into_iter().for_each(|entry| go.emit(entry.clone())),
                _ => return,
            }
            event.prevent_default();
        })
    };
    let close = actor.on(move |actor, _: MouseEvent| actor.show(None));
    let option = |(index, entry): (usize, &PaletteEntry)| {
        let (name, key) = match entry {
            PaletteEntry::Action(at) => (html! { { ACTIONS[*at].1 } }, ACTIONS[*at].3),
            PaletteEntry::Key(row) => {
                let key = rows.and_then(|rows| rows.get(*row as usize)).map_or("", |row| &row.key);
                (html! { <span class="m">{ visible(key) }</span> }, "")
            }
        };
        let onclick = {
            let (go, entry) = (go.clone(), entry.clone());
            Callback::from(move |_: MouseEvent| go.emit(entry.clone()))
        };
        html! {
            <li key={index} id={format!("palette-{index}")} role="option" class={classes(&[when(index == chosen, "on")])}
                aria-selected={(index == chosen).to_string()} {onclick}>
                <span class="cut">{ name }</span>if !key.is_empty() { { cap(key) } }</li>
        }
    };
    html! {
        <>
            <div class="scrim" onclick={close}></div>
            <div class="center high">
                <div ref={node} class="dlg palette" id="palette" role="dialog" aria-modal="true" aria-label="Actions and keys" tabindex="-1">
                    <label class="inp"><input type="text" data-focus="true" role="combobox" aria-expanded="true" aria-controls="palette-list"
                        aria-activedescendant={format!("palette-{chosen}")} value={(*text).clone()} {oninput} {onkeydown}
                        placeholder={if rows.is_some() { "an action, or a key as in: l3 up_proj" } else { "an action" }} aria-label="Action or key" autocomplete="off" autocapitalize="off" spellcheck="false" /></label>
                    <ul id="palette-list" role="listbox" aria-label="Actions and keys">
                        { for found.iter().enumerate().map(option) }
                    </ul>
                    if found.is_empty() { <p class="empty" role="status">{ "No action and no key has these words." }</p> }
                </div>
            </div>
        </>
    }
}

/// Runs an action, or selects a key.
fn run(model: &UseReducerHandle<PageModel>, actor: &Actor, entry: &PaletteEntry) {
    actor.show(None);
    let action = match entry {
        PaletteEntry::Key(row) => {
            let row = *row;
            actor.update(|model| (model.matrix, model.treemap) = (None, None));
            return actor.work(move |work| work.select_row(row));
        }
        PaletteEntry::Action(at) => match ACTIONS.get(*at) {
            Some((action, ..)) => *action,
            None => return,
        },
    };
    match action {
        PaletteAction::OpenFiles => actor.choose_files(),
        PaletteAction::OpenFolder => actor.choose_folder(),
        PaletteAction::OpenAddress => actor.show_address_prompt(AttrValue::default()),
        PaletteAction::Compare => compare::page::offer(model, actor),
        PaletteAction::Convert => actor.update(|model| model.start_convert()),
        PaletteAction::WeightsOnly => {
            actor.update(|model| model.start_convert());
            actor.update(weights_only);
        }
        PaletteAction::Findings => actor.show(Some(Sheet::Findings)),
        PaletteAction::Verify => actor.show(Some(Sheet::Task(JobKind::Verify))),
        PaletteAction::Scan => actor.scan(),
        PaletteAction::Share => actor.show(Some(Sheet::Share)),
        PaletteAction::Treemap => {
            treemap::page::toggle(model, actor);
        }
        PaletteAction::Heatmap => actor.expand(true),
        PaletteAction::FoldLayers => actor.work(OpenWork::toggle_folding),
        PaletteAction::Shortcuts => actor.show(Some(Sheet::Keys)),
        PaletteAction::Close => actor.leave(),
    }
}

/// Sets the open convert sheet to the weights alone, if the checkpoint has other states.
fn weights_only(model: &mut PageModel) {
    let (Some(convert), Some(work)) = (&mut model.convert, &model.work) else { return };
    let states: Vec<String> = work.states.iter().map(|(name, _)| name.clone()).collect();
    let all = Preset::all(convert, &states, work.opened.shards);
    match all.iter().find(|preset| matches!(preset, Preset::WeightsOnly(_))) {
        Some(preset) => preset.apply(convert, &states),
        None => convert.options.cast = Some("bfloat16".to_owned()),
    }
    convert.request += 1;
    convert.planning = true;
}
