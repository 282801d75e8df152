//! The menu that opens files, a folder or a URL.

use yew::prelude::*;

use crate::page::action_menu::{ActionMenu, MenuItem};
use crate::page::model::actor::Actor;

/// Renders the menu.
pub(crate) fn open_menu() -> Html {
    let item = |name, key, act: fn(&Actor)| -> MenuItem {
        (name, key, Callback::from(move |actor: Actor| act(&actor)))
    };
    let items = vec![
        item("Files\u{2026}", "O", Actor::choose_files),
        item("Folder\u{2026}", "\u{21e7}O", Actor::choose_folder),
        item("URL\u{2026}", "U", |actor| actor.show_address_prompt(AttrValue::default())),
    ];
    html! { <ActionMenu id="open-menu" text="Open" name="Open" {items} /> }
}
