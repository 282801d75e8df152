//! The list of keyboard shortcuts.

use yew::prelude::*;

use crate::page::hooks::use_focus_trap;
use crate::page::marks::{cap, close_icon};
use crate::page::model::actor::Actor;

type Shortcut = (&'static str, &'static [&'static str]);
type ShortcutGroup = (&'static str, &'static [Shortcut]);

const GROUPS: [&[ShortcutGroup]; 3] = [
    &[
        (
            "Open and close",
            &[
                ("Open files", &["O"]),
                ("Open folder", &["\u{21e7}", "O"]),
                ("Open URL", &["U"]),
                ("Close sheet, cancel", &["Esc"]),
                ("Next, previous file of the drop", &["]", "["]),
            ],
        ),
        (
            "Act",
            &[
                ("Convert", &["C"]),
                ("Compare", &["D"]),
                ("Share", &["S"]),
                ("Findings", &["F"]),
                ("Read everything, verify", &["V"]),
                ("View as heatmap", &["E"]),
                ("Where the bytes are", &["T"]),
                ("Any action or key", &["\u{2318}", "K"]),
                ("Shortcuts", &["?"]),
            ],
        ),
    ],
    &[(
        "Move",
        &[
            ("Row down, up", &["J", "K"]),
            ("Unfold, fold", &["\u{2192}", "\u{2190}"]),
            ("First, last row", &["Home", "End"]),
            ("Next pane", &["Tab"]),
            ("Previous layer, next layer", &[",", "."]),
            ("Value at an index", &["G"]),
            ("Pick a row, extend the pick", &["Space", "\u{21e7}\u{2193}"]),
            ("Pick a row by touch", &["hold"]),
        ],
    )],
    &[
        (
            "Filter and sort",
            &[("Filter", &["/"]), ("Clear filter", &["Esc"]), ("Fold repeated layers", &["L"])],
        ),
        (
            "Copy",
            &[
                ("Key", &["Y"]),
                ("Shape", &["\u{21e7}", "Y"]),
                ("Values as text", &["\u{2318}", "C"]),
            ],
        ),
        (
            "Comparing",
            &[
                ("Swap A and B", &["X"]),
                ("Matching", &["M"]),
                ("Hide equal", &["E"]),
                ("Stop reading, go back", &["Esc"]),
            ],
        ),
        ("Run folder", &[("Open the step", &["\u{23ce}"]), ("Compare two steps", &["D", "D"])]),
    ],
];

/// The sheet with all keyboard shortcuts.
#[component]
pub fn ShortcutsSheet() -> Html {
    let actor = use_context::<Actor>();
    let node = use_node_ref();
    use_focus_trap(&node);
    let close = Callback::from(move |_: MouseEvent| {
        if let Some(actor) = &actor {
            actor.show(None);
        }
    });
    let mac = web_sys::window()
        .and_then(|window| window.navigator().user_agent().ok())
        .is_some_and(|agent| agent.contains("Mac"));
    let name = |key: &'static str| if key == "\u{2318}" && !mac { "Ctrl" } else { key };
    html! {
        <>
            <div class="scrim" onclick={close.clone()}></div>
            <div class="center">
                <div ref={node} class="dlg" role="dialog" aria-modal="true" aria-label="Shortcuts" tabindex="-1">
                    <header>
                        <h2>{ "Shortcuts" }</h2>
                        <span class="dim only-l">{ "the whole page works without a mouse" }</span>
                        <button class="ico" aria-label="Close" title="Close (Esc)" onclick={close}>{ close_icon() }</button>
                    </header>
                    <div class="keys">
                        { for GROUPS.iter().map(|groups| html! {
                            <div>{ for groups.iter().map(|(title, shortcuts)| html! {
                                <section>
                                    <h3>{ *title }</h3>
                                    { for shortcuts.iter().map(|(what, keys)| html! {
                                        <div class="k">
                                            <span>{ *what }</span>
                                            <span class="kk">{ for keys.iter().map(|key| cap(name(key))) }</span>
                                        </div>
                                    }) }
                                </section>
                            }) }</div>
                        }) }
                    </div>
                </div>
            </div>
        </>
    }
}
