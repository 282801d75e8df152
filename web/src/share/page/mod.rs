//! The share sheet: the link and its content on the left, what the recipient sees on the right.
//! Also opens such links.

mod picture;

use std::rc::Rc;

use statelens_checkpoint::visible;
use statelens_describe::FileGrade;
use statelens_describe::share::{KeysAs, LinkOptions};
use wasm_bindgen::JsValue;
use yew::prelude::*;

use crate::byte_map::page::TapeView;
use crate::page::choice::choice;
use crate::page::grade::grade_mark;
use crate::page::hooks::use_window_event;
use crate::page::marks::{Copy, breakable, cap, classes, copy, when};
use crate::page::model::actor::Actor;
use crate::page::running::{percent, running_line};
use crate::page::sheet::SheetFrame;
use crate::protocol::ToWorker;
use crate::protocol::job::JobKind;
use crate::share::message::SharedSummary;
use crate::share::page::picture::PictureSection;
use crate::share::state::{KINDS, fits, is_reachable, without_secrets};
use crate::state::fmt;
use crate::state::task::Task;
use crate::state::work::OpenWork;
use crate::verify::model::Verification;
use crate::verify::page::read_all::ReadAll;
use crate::verify::page::unpack_confirmation;

/// Maximum number of characters of a link, as defined by the core.
const MAX_LINK: u64 = statelens_describe::share::MAX_CHARACTERS as u64;

/// Start of a URL's fragment that holds a summary.
pub const MARK: &str = "#s=";

/// Opens the summary in the fragment of the page's URL, when the page loads and when the URL
/// changes.
#[hook]
pub fn use_link_of_page(actor: &Actor) {
    let open = {
        let actor = actor.clone();
        move || {
            let hash = web_sys::window().and_then(|window| window.location().hash().ok());
            if let Some(fragment) = hash.filter(|hash| hash.starts_with(MARK)) {
                actor.replace_open(move |actor| {
                    let open = ToWorker::OpenLink { fragment: fragment.clone() };
                    actor.begin_session(&open, &JsValue::UNDEFINED, |model| {
                        model.begin_opening(Vec::new(), None);
                    });
                });
            }
        }
    };
    let changed = open.clone();
    use_window_event("hashchange", Callback::from(move |_: web_sys::Event| changed()));
    use_effect_with((), move |()| open());
}

/// Returns the page's URL without query and fragment.
fn base() -> String {
    let href = web_sys::window().and_then(|window| window.location().href().ok());
    let href = href.unwrap_or_default();
    href.split(['#', '?']).next().unwrap_or_default().to_owned()
}

/// Returns the link in the form to be shared.
fn address(link: &str) -> String {
    format!("{}{link}", without_secrets(&base()))
}

/// Copies the shown link. Returns whether there is one.
pub fn copy_link(shared: Option<&Rc<SharedSummary>>) -> bool {
    let link = shared.and_then(|shared| shared.link.as_ref().ok());
    if let Some(link) = link {
        copy(&address(link));
    }
    link.is_some()
}

/// Properties of the share sheet.
#[derive(Properties, PartialEq)]
pub struct ShareProps {
    /// The open checkpoint.
    pub work: OpenWork,
    /// The name to show: the folder of a set of shards, else the file.
    pub title: AttrValue,
    /// The latest summary that the worker made.
    pub shared: Option<Rc<SharedSummary>>,
    /// The state of reading everything.
    pub verification: Verification,
    /// Whether all tensors have been read, which adds statistics to what can be shared.
    pub scanned: bool,
    /// Measured speed in bytes per millisecond.
    pub rate: Option<f64>,
    /// Maximum bytes that one action may fetch, for a remote checkpoint.
    pub cap: Option<u64>,
    /// The server of the checkpoint, if it is remote.
    pub host: Option<AttrValue>,
}

#[component]
pub fn ShareSheet(props: &ShareProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let options = use_state(|| {
        let initial = LinkOptions { findings: true, ..LinkOptions::default() };
        props.shared.as_ref().map_or(initial, |shared| shared.options)
    });
    {
        let actor = actor.clone();
        let read = matches!(props.verification.task, Task::Done(_));
        use_effect_with((*options, props.scanned, read), move |(options, ..)| {
            actor.request(&ToWorker::Share { options: *options })
        });
    }
    let copied = use_state(|| false);
    let work = &props.work;
    let note = html! { <span class="m dim cut">{ visible(&props.title) }</span> };
    let Some(shared) = &props.shared else {
        return html! { <SheetFrame title="Share a summary" class="sharing" {note}><div class="two"></div><footer></footer></SheetFrame> };
    };
    let set = {
        let (options, copied) = (options.setter(), copied.setter());
        Callback::from(move |next: LinkOptions| {
            options.set(next);
            copied.set(false);
        })
    };
    let now = *options;
    let plain = now.keys == KeysAs::Plain;
    let tick = |on: bool, next: LinkOptions| on.then(|| set.reform(move |_: Event| next));
    let address = shared.link.as_ref().ok().map(|link| address(link));
    // The URL for this browser includes the secret of a local server, which shared links omit.
    let url = shared.link.as_ref().ok().map(|link| format!("{}{link}", base()));
    let copy_all = {
        let (shared, copied) = (shared.clone(), copied.clone());
        Callback::from(move |_: MouseEvent| copied.set(copy_link(Some(&shared))))
    };
    // While the shown link was made for other options, it can't be shared.
    let late = shared.options != *options;
    html! {
        <SheetFrame title="Share a summary" class="sharing" {note}>
            <div class="two">
                <div class="formside">
                    <div class="fs"><span class="lab">{ "Link" }</span><div>{ link_part(shared, address.as_deref()) }</div></div>
                    <PictureSection svg={AttrValue::from(shared.picture.clone())} name={props.title.clone()} />
                    <div class="fs"><span class="lab">{ "Content" }</span><div>
                        <div class="states one">
                            { part("name, format, size", shared.parts.head, true, None) }
                            { part("keys, dtypes and shapes, layers folded", shared.parts.keys, true, None) }
                            { part(if shared.measured { "statistics, rounded" } else { "statistics, after reading everything" }, shared.parts.statistics, now.statistics,
                                tick(shared.measured, LinkOptions { statistics: !now.statistics, ..now })) }
                            { part("findings", shared.parts.findings, now.findings && plain, tick(plain, LinkOptions { findings: !now.findings, ..now })) }
                            { part("values that are not tensors", shared.parts.values, now.values && plain, tick(plain, LinkOptions { values: !now.values, ..now })) }
                        </div>
                        <p class="dim">{ "Numbers are lengths in characters. The link never contains weights." }
                            if !plain { { " Findings and values may contain names, so they are included with plain keys only." } }</p>
                    </div></div>
                    <div class="fs"><span class="lab">{ "Keys" }</span><div>
                        { choice(false, "Keys", &[(KeysAs::Plain, "as they are"), (KeysAs::Coded, "coded"), (KeysAs::Hidden, "hidden")],
                            now.keys, set.reform(move |keys| LinkOptions { keys, ..now })) }
                        <p class="dim">{ keys_hint(now.keys) }</p>
                    </div></div>
                    <div class="fs"><span class="lab">{ "Or a file" }</span><div>
                        <div class="files">{ for KINDS.iter().zip(shared.sizes).map(|((kind, name), size)| {
                            let kind = *kind;
                            let onclick = actor.on(move |actor, _: MouseEvent| actor.request(&ToWorker::Summarize { kind }));
                            html! { <button class="btn" {onclick}>{ *name }<span class="m dim">{ format!(" {}", fmt::bytes(size)) }</span></button> }
                        }) }</div>
                        <p class="dim">{ "The HTML is one page that opens offline. Files hold all keys, values and findings, as " }
                            <code>{ "statelens summary" }</code>{ " writes them." }</p>
                    </div></div>
                    { statistics(&actor, props) }
                    <div class="fs"><span class="lab">{ "Fingerprint" }</span><div>
                        <span class="m print">{ &shared.structure }</span><Copy text={shared.structure.clone()} label="fingerprint" />
                        if let Some(content) = &shared.content {
                            <p class="content">{ "content " }<span class="m print">{ content }</span><Copy text={content.clone()} label="fingerprint of the content" /></p>
                        }
                        <p class="dim">{ "Covers all keys, dtypes and shapes: two checkpoints with the same 16-character code have the same structure, whatever their format." }</p>
                    </div></div>
                </div>
                <aside aria-label="What the other person sees" tabindex="0">
                    <div class="lab">{ "What the other person sees" }</div>
                    <div class={classes(&["seen", when(late, "late")])}>{ recipient_view(work, shared) }</div>
                </aside>
            </div>
            <footer>
                <span class="grow dim">{ "Made on this computer. Nothing was uploaded." }</span>
                if let Some(url) = url.filter(|_| !late) {
                    <a class="btn" href={url} target="_blank" rel="noopener">{ "Open as the other person" }</a>
                }
                <button class="btn pri" onclick={copy_all} disabled={late || shared.link.is_err()}>
                    if *copied { <span role="status">{ "Copied" }</span> } else { { "Copy link " }{ cap("\u{23ce}") } }
                </button>
            </footer>
        </SheetFrame>
    }
}

/// Renders the offer to read everything, which adds statistics of values to the summary.
fn statistics(actor: &Actor, props: &ShareProps) -> Html {
    let work = &props.work;
    if work.opened.summary || work.sums.bytes == 0 {
        return html! {};
    }
    let shared = props.shared.as_ref();
    let state = match shared {
        Some(shared) if shared.content.is_some() => "read",
        Some(shared) if shared.measured => "scanned",
        _ => "offered",
    };
    let body = match &props.verification.task {
        _ if state == "read" => {
            html! { <p>{ "The files hold the statistics of each tensor; including them in the link is optional." }</p> }
        }
        Task::Running(running) => {
            let now = &running.now;
            let stop = actor.on(move |actor, _: MouseEvent| actor.stop_task(JobKind::Verify));
            let bar = Some(("Reading everything", (now.done, now.total)));
            running_line("stop-reading-all", bar, format!("{} % read", percent(now)), stop)
        }
        task => {
            let confirm = actor.on(move |actor, _: Event| {
                actor.verify(|verification| {
                    verification.unpack_confirmed = !verification.unpack_confirmed
                });
            });
            html! {
                <>
                    if let Some(error) = task.error() { <p class="w-warn">{ &error.title }{ " " }{ crate::text::place(error) }</p> }
                    if let Some(unfolds) = work.opened.unfolds { { unpack_confirmation(unfolds, props.verification.unpack_confirmed, confirm) } }
                    <ReadAll id="read-all" class="btn" work={work.clone()} verification={props.verification.clone()} rate={props.rate} cap={props.cap} />
                    <p class="dim">{ match state {
                        "scanned" => "The statistics from the scan are included already. This adds a fingerprint of the content.",
                        _ => "Adds minimum, maximum, mean and deviation of each tensor to the files, optionally to the link, and a fingerprint of the content.",
                    } }
                        if let Some(host) = &props.host { <b>{ format!(" Fetches about {} from {host}.", fmt::bytes(work.sums.bytes)) }</b> }</p>
                </>
            }
        }
    };
    html! { <div class="fs" id="share-statistics" data-state={state}><span class="lab">{ "Statistics" }</span><div>{ body }</div></div> }
}

/// Renders the link, its length, and a gauge of where links of that length are accepted.
fn link_part(shared: &SharedSummary, address: Option<&str>) -> Html {
    let wide = (shared.length as f64 / MAX_LINK as f64 * 100.0).min(100.0);
    html! {
        <>
            if let Some(address) = address {
                <div class="cmd"><code class="cut">{ address.to_owned() }</code><Copy text={address.to_owned()} label="link" /></div>
            }
            <div class="long"><span class="big">{ fmt::exact(shared.length) }</span><span class="dim">{ "characters" }</span></div>
            <div class={classes(&["gauge", when(address.is_none(), "over")])} aria-hidden="true">
                <i style={format!("width:{wide:.2}%")}></i>
                { for [0, 2_000, 4_000, 8_000, MAX_LINK].into_iter().map(|tick| html! {
                    <span class={classes(&[when(tick == MAX_LINK, "end")])} style={format!("left:{:.2}%", tick as f64 / MAX_LINK as f64 * 100.0)}>{ fmt::exact(tick) }</span>
                }) }
            </div>
            if let Err(reason) = &shared.link {
                <p class="w-warn">{ reason }{ " Share a file below instead." }</p>
            } else {
                <p class="dim">{ fits(shared.length) }{ " Everything in it is after the " }<code>{ "#" }</code>
                    { ", which browsers don\u{2019}t send to a server. Anyone who has the link can read the items listed here." }</p>
                if !is_reachable(&base()) {
                    <p class="w-warn">{ "This page is on your computer, so others can't open its address. Make the link for a page on the web: " }
                        <code>{ "statelens summary --link https://\u{2026} FILE" }</code></p>
                }
            }
        </>
    }
}

fn part(name: &'static str, length: usize, on: bool, onchange: Option<Callback<Event>>) -> Html {
    let fixed = onchange.is_none();
    let included = length > 0 && on;
    html! {
        <label>
            <input type="checkbox" class="cb" checked={on} disabled={fixed} {onchange} />
            <span class="t">{ name }</span>
            <span class="num">{ if included { fmt::exact(length as u64) } else if on { "none".into() } else { "not included".to_owned() } }</span>
        </label>
    }
}

fn keys_hint(keys: KeysAs) -> &'static str {
    match keys {
        KeysAs::Plain => "Anyone who has the link can read every name.",
        KeysAs::Coded => {
            "Each part of a name becomes four letters, in order of appearance. Equal names get equal letters in this link, and no table maps them back."
        }
        KeysAs::Hidden => "Keys become positions. Dtypes and shapes stay.",
    }
}

/// Renders the content of the link as its recipient sees it.
fn recipient_view(work: &OpenWork, shared: &SharedSummary) -> Html {
    let opened = &work.opened;
    let (grade, _) = FileGrade::of_findings(&opened.findings);
    let (number, what) = match opened.model_params {
        0 => (work.sums.params, " elements"),
        params => (params, " params"),
    };
    html! {
        <>
            <div class="who"><b class="m">{ visible(&base_name(&opened.name)) }</b><span class="badge">{ opened.format.text() }</span>
                if shared.options.findings && shared.options.keys == KeysAs::Plain && !grade.is_good() {
                    <span class="graded" data-grade={grade.word()}>{ grade_mark(Some(grade)) }{ grade.word() }</span>
                }</div>
            <div class="m sums"><span>{ fmt::count(number) }<span class="dim">{ what }</span></span>
                <span>{ fmt::bytes(work.sums.bytes) }</span>
                <span>{ fmt::exact(work.sums.tensors) }<span class="dim">{ " tensors" }</span></span></div>
            // The tape shows names of states, so it is for plain keys only.
            if work.sums.bytes > 0 && shared.options.keys == KeysAs::Plain { <TapeView parts={work.parts.clone()} layers={work.layers.clone()} /> }
            <ul class="shared-keys" aria-label="Keys">
                { for shared.lines.iter().map(|line| html! {
                    <li><span class="wrapkey">{ breakable(&line.key) }</span>
                        if line.times > 1 { <span class="dim">{ format!("\u{d7}{}", fmt::exact(line.times)) }</span> }
                        <span class="num">{ &line.what }</span>
                        if !line.std.is_empty() { <span class="num std"><span class="dim">{ "\u{3c3} " }</span>{ &line.std }</span> }</li>
                }) }
                if shared.more > 0 { <li class="dim">{ format!("and {} more", fmt::exact(shared.more)) }</li> }
            </ul>
            <p class="dim">{ "This is a summary. The sender has the file." }</p>
        </>
    }
}

fn base_name(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).to_owned()
}
