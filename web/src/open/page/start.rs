//! The start screen: drop a file, open one, or view an example.

use statelens_formats::short_list;
use yew::prelude::*;

use crate::links;
use crate::links::state::PageLink;
use crate::open::page::illustration::{heading, illustration};
use crate::open::page::start_list::start_list;
use crate::page::marks::{cap, classes, logo, tick_icon, when};
use crate::page::model::Sheet;
use crate::page::model::actor::Actor;

/// Maximum number of extensions that are listed for a format.
const MAX_EXTENSIONS: usize = 3;

/// Introduction to the page.
const ABOUT: &str = "A file, its shards, or a whole folder. Statelens shows its content, checks it and converts it. It reads only the structure first, so 100 GB opens as fast as 100 kB.";
/// Explanation shown while a file is dragged over the page.
const DRAGGED: &str = "Read in place. Nothing is copied or uploaded. Shards that belong together open as one checkpoint.";

/// Renders the start screen, with the number of items being dragged over the page.
pub fn start_screen(actor: &Actor, dragged: Option<usize>, link: Option<&PageLink>) -> Html {
    let over = dragged.is_some();
    let on = |act: fn(&Actor)| actor.on(move |actor, _: MouseEvent| act(actor));
    html! {
        <main class={classes(&["start", when(over, "over")])} id="start" aria-label="Statelens: drop a checkpoint">
            <div class="reg" aria-hidden="true"><i></i><i></i><i></i><i></i></div>
            <div class="only-l picture">{ illustration(dragged) }</div>
            <header>
                { logo() }
                <span class="grow"></span>
                <button class="btn quiet only-l" onclick={on(|actor| actor.show(Some(Sheet::Keys)))}>
                    { "Shortcuts " }{ cap("?") }
                </button>
            </header>
            <div class="say">
                // Both texts share one place, so that nothing below moves while a file is dragged.
                <div class="texts">
                    <div class="text">
                        <h1 aria-live="polite">{ heading(dragged) }</h1>
                        <p>{ if over { DRAGGED } else { ABOUT } }</p>
                    </div>
                    if over {
                        <div class="text held" aria-hidden="true"><p class="hero">{ heading(None) }</p><p>{ ABOUT }</p></div>
                    }
                </div>
                { link.map(links::page::pending_link).unwrap_or_default() }
                <div class="rest">
                    <div class="go">
                        <button class="btn pri lg" onclick={on(Actor::choose_files)}>{ "Open files " }{ cap("O") }</button>
                        <button class="btn lg" onclick={on(Actor::choose_folder)}>{ "Open folder " }{ cap("\u{21e7}O") }</button>
                        <button class="btn lg quiet" id="open-address" onclick={on(|actor| actor.show_address_prompt(AttrValue::default()))}>{ "Open URL " }{ cap("U") }</button>
                    </div>
                    { start_list() }
                    <p class="priv">{ tick_icon() }<span>{ "Your files never leave this computer. The page works offline." }</span></p>
                </div>
            </div>
            <footer><div class="fmts">
                <h2 class="vh">{ "Formats" }</h2>
                { formats("Reads and writes", true) }
                { formats("Reads", false) }
            </div></footer>
        </main>
    }
}

fn formats(title: &'static str, written: bool) -> Html {
    let list = short_list(written).into_iter().map(|(name, extensions)| {
        let files = &extensions[..extensions.len().min(MAX_EXTENSIONS)];
        html! { <li>{ name }<span class="m">{ files.join(" ") }</span></li> }
    });
    html! {
        <section>
            <h3 class="lab">{ title }</h3>
            <ul>{ for list }</ul>
        </section>
    }
}
