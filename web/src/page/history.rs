//! Back and forward: each open checkpoint is an entry of the browser's history, and so is the
//! heatmap of a matrix. Back goes to the previously open checkpoint and never leaves the page while
//! one is open. The URL has the address of a remote checkpoint, and the selection in its fragment.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gloo_timers::callback::Timeout;
use statelens_remote::hub::{Endpoint, HubLocation};
use wasm_bindgen::prelude::*;
use web_sys::{Event, PopStateEvent};
use yew::prelude::*;

use crate::compare;
use crate::links::state::PageLink;
use crate::open::message::FetchConsent;
use crate::page::drop::DroppedFile;
use crate::page::embed::is_embedded;
use crate::page::hooks::use_window_event;
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, PendingAction, Screen, StopReason};
use crate::protocol::job::JobKind;
use crate::run_folder::model::RunView;

/// Milliseconds without a change after which the selection is written to the URL. Browsers limit
/// how often a page may do that.
const DEBOUNCE: u32 = 200;

/// A history entry, with all that is needed to show it again.
#[derive(Clone)]
enum HistoryEntry {
    Start,
    Files(Rc<Vec<DroppedFile>>, Option<u32>),
    /// An address, and the same at the commit that is open if it is one of the Hugging Face Hub.
    Address(AttrValue, FetchConsent, Option<AttrValue>),
    /// A summary, which is in the URL's fragment.
    Link(String),
    Run(Rc<RunView>),
    /// A comparison: the first checkpoint, and the files of the second with the chosen one.
    Compare(Box<HistoryEntry>, Rc<Vec<DroppedFile>>, Option<u32>),
}

impl PartialEq for HistoryEntry {
    /// An unspecified file (`None`) equals any: it is the one that the worker chooses.
    fn eq(&self, other: &Self) -> bool {
        let same =
            |one: &Option<u32>, two: &Option<u32>| one == two || one.is_none() || two.is_none();
        match (self, other) {
            (Self::Start, Self::Start) => true,
            (Self::Link(one), Self::Link(two)) => one == two,
            (Self::Files(one, a), Self::Files(two, b)) => are_same(one, two) && same(a, b),
            (Self::Address(one, ..), Self::Address(two, ..)) => one == two,
            (Self::Run(one), Self::Run(two)) => are_same(&one.files, &two.files),
            (Self::Compare(one, b1, m1), Self::Compare(two, b2, m2)) => {
                one == two && are_same(b1, b2) && same(m1, m2)
            }
            _ => false,
        }
    }
}

/// Returns whether both are the same files, by the identity of their handles.
fn are_same(one: &Rc<Vec<DroppedFile>>, two: &Rc<Vec<DroppedFile>>) -> bool {
    Rc::ptr_eq(one, two) || one == two
}

/// Returns an address of the Hub at the commit that is open.
fn pinned(model: &PageModel, address: &str) -> Option<AttrValue> {
    let facts = &model.work.as_ref()?.opened.facts;
    let (_, commit) = facts.iter().find(|(name, _)| name == "commit")?;
    let location = HubLocation::parse(address, &Endpoint::default())?.ok()?;
    Some(location.at(commit).to_string().into())
}

impl HistoryEntry {
    /// Returns the entry for the current screen.
    fn of(model: &PageModel) -> Self {
        let open = || match &model.address {
            Some(address) => Self::Address(address.clone(), model.agreed, pinned(model, address)),
            None if model.files.is_empty() => Self::Link(location().1),
            None => Self::Files(model.files.clone(), model.requested),
        };
        match (model.screen, &model.run, &model.compare) {
            (Screen::Start, ..) => Self::Start,
            (Screen::Run, Some(view), _) => Self::Run(view.clone()),
            (Screen::Compare, _, Some(compared)) => {
                Self::Compare(Box::new(open()), compared.files.clone(), compared.main)
            }
            _ => open(),
        }
    }

    /// Returns whether this is a comparison whose first side is `first`.
    fn is_comparison_of(&self, first: &Self) -> bool {
        matches!(self, Self::Compare(own, ..) if **own == *first)
    }

    /// Returns the address of the open checkpoint at its commit.
    fn pinned(&self) -> Option<&AttrValue> {
        match self {
            Self::Address(_, _, pinned) => pinned.as_ref(),
            Self::Compare(first, ..) => first.pinned(),
            _ => None,
        }
    }

    /// Returns the page's URL for this entry with a selection.
    fn url(&self, link: &PageLink) -> String {
        let (href, _) = location();
        let base = href.split(['#', '?']).next().unwrap_or_default().to_owned();
        match self {
            // A branch may move on, so the link names the commit.
            Self::Address(address, _, pinned) => {
                let address = pinned.as_ref().unwrap_or(address);
                format!("{base}?url={}{}", js_sys::encode_uri_component(address), link.hash())
            }
            // A file that the command serves can be opened again by its address.
            Self::Files(files, main) => {
                let opened = main.and_then(|main| files.get(main as usize));
                match opened.and_then(|file| file.address.as_deref()) {
                    Some(address) => {
                        let address = js_sys::encode_uri_component(address);
                        format!("{base}?url={address}{}", link.hash())
                    }
                    None => base + &link.hash(),
                }
            }
            Self::Link(hash) => format!("{base}{hash}"),
            Self::Compare(first, ..) => first.url(link),
            Self::Start | Self::Run(_) => base,
        }
    }

    /// Shows this entry again.
    fn show(&self, actor: &Actor, model: &PageModel) {
        match self {
            Self::Files(..) | Self::Address(..) if Self::of(model).is_comparison_of(self) => {
                compare::page::leave(actor);
            }
            Self::Start => {
                actor.stop_jobs();
                actor.update(|model| model.go_home());
            }
            Self::Files(files, main) => actor.open_now(files.as_ref().clone(), *main),
            Self::Address(address, agreed, _) => actor.open_address_now(address, *agreed),
            // The browser fires an event for the changed fragment, whose handler opens the link.
            Self::Link(_) => {}
            Self::Run(view) if model.is_of_run(&view.files) => {
                actor.stop_jobs();
                actor.update(|model| model.leave_to_run());
            }
            Self::Run(view) => {
                actor.stop_jobs();
                let view = (**view).clone();
                actor.update(move |model| model.open_run(view));
            }
            Self::Compare(first, files, main) => match first.as_ref() {
                Self::Files(first, requested) => {
                    actor.open_now(first.as_ref().clone(), *requested);
                    compare::page::compare_with(actor, files.as_ref().clone(), *main);
                }
                first => first.show(actor, model),
            },
        }
    }
}

/// The visited history entries by their index, and the browser's position among them.
#[derive(Default)]
struct HistoryTrail {
    history: HashMap<u32, HistoryEntry>,
    /// The selection within each entry.
    links: HashMap<u32, PageLink>,
    at: u32,
    /// Index of the next new entry.
    next: u32,
    /// True while the page itself navigates and the browser's event has not arrived yet.
    going: bool,
    /// True after a reload: the checkpoint that the URL names replaces the current entry.
    reloaded: bool,
    /// True once the user confirmed that the running write may be stopped.
    confirmed: bool,
}

impl HistoryTrail {
    /// Keeps the state of a run folder in its entries, so that going back to it loses nothing.
    fn note_run(&mut self, run: &Rc<RunView>) {
        for entry in self.history.values_mut() {
            if let HistoryEntry::Run(view) = entry
                && are_same(&view.files, &run.files)
            {
                *view = run.clone();
            }
        }
    }
}

/// Keeps the browser's history in sync with the page's state.
#[hook]
pub fn use_history(model: &UseReducerHandle<PageModel>, actor: &Actor) {
    let trail = use_mut_ref(HistoryTrail::default);
    let (place, link) = (HistoryEntry::of(model), model.link());
    {
        let trail = trail.clone();
        use_effect_with((Moved(place), link), move |(Moved(place), link)| {
            let rests = follow(&trail, place, link).then(|| {
                let (trail, place, link) = (trail.clone(), place.clone(), link.clone());
                Timeout::new(DEBOUNCE, move || note(&mut trail.borrow_mut(), &place, &link))
            });
            move || drop(rests)
        });
    }
    {
        let trail = trail.clone();
        use_effect_with(model.run.clone(), move |run| {
            if let Some(run) = run {
                trail.borrow_mut().note_run(run);
            }
        });
    }
    let model = model.clone();
    use_window_event(
        "popstate",
        actor.on(move |actor, event: Event| {
            navigated(&event, &trail, &model, actor);
        }),
    );
}

/// A visit as an effect dependency, compared with the `PartialEq` of [`HistoryEntry`].
struct Moved(HistoryEntry);

impl PartialEq for Moved {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 && self.0.pinned() == other.0.pinned()
    }
}

/// Writes the selection to the URL of the current entry.
fn note(trail: &mut HistoryTrail, place: &HistoryEntry, link: &PageLink) {
    let at = trail.at;
    if trail.going || trail.history.get(&at) != Some(place) || is_written(trail, place, link) {
        return;
    }
    write(at, Some(&place.url(link)), false);
    trail.history.insert(at, place.clone());
    trail.links.insert(at, link.clone());
}

/// Returns whether the URL of the current entry has the selection, and the commit if that is known.
fn is_written(trail: &HistoryTrail, place: &HistoryEntry, link: &PageLink) -> bool {
    let written = trail.history.get(&trail.at).and_then(HistoryEntry::pinned);
    trail.links.get(&trail.at) == Some(link) && written == place.pinned()
}

/// Updates the history after the shown content has changed. Adds an entry unless the browser made
/// the step. Returns true if only the selection changed; the caller then writes that to the URL.
fn follow(trail: &Rc<RefCell<HistoryTrail>>, place: &HistoryEntry, link: &PageLink) -> bool {
    let mut trail = trail.borrow_mut();
    if trail.going {
        return false;
    }
    if trail.history.get(&trail.at) == Some(place) && index().is_some() {
        if matches!(place, HistoryEntry::Start | HistoryEntry::Run(_) | HistoryEntry::Link(_)) {
            return false;
        }
        let known = trail.links.get(&trail.at);
        if known.is_none_or(|known| !known.is_another_view(link)) {
            return !is_written(&trail, place, link);
        }
        let before = trail.at.checked_sub(1).filter(|before| {
            trail.history.get(before) == Some(place) && trail.links.get(before) == Some(link)
        });
        if before.is_some() && trail.at + 1 == trail.next {
            // Closed by its own button or key, which is the same step as Back.
            trail.going = true;
            go(-1);
        } else {
            step(&mut trail, place, link, &place.url(link));
        }
        return false;
    }
    moved(&mut trail, place, link);
    false
}

/// Updates the history after another visit is shown.
fn moved(trail: &mut HistoryTrail, place: &HistoryEntry, link: &PageLink) {
    if trail.history.is_empty() {
        (trail.reloaded, trail.at) = (index().is_some(), index().unwrap_or(0));
        (trail.next, trail.going) = (trail.at + 1, false);
        let at = trail.at;
        trail.history.insert(at, place.clone());
        trail.links.insert(at, link.clone());
        return write(at, None, false);
    }
    let reloaded = std::mem::take(&mut trail.reloaded);
    if reloaded && matches!(place, HistoryEntry::Address(..) | HistoryEntry::Link(_)) {
        let at = trail.at;
        trail.history.insert(at, place.clone());
        trail.links.insert(at, link.clone());
        return write(at, None, false);
    }
    let (href, _) = location();
    let before = trail.at.checked_sub(1).and_then(|before| trail.history.get(&before));
    match index() {
        // Left by its own button or key, which is the same step as Back.
        Some(_) if before == Some(place) && trail.at + 1 == trail.next => {
            trail.going = true;
            go(-1);
        }
        Some(_) => {
            // On the start screen, the URL must no longer name the address that the page was loaded
            // with.
            if trail.history.get(&trail.at) == Some(&HistoryEntry::Start) {
                write(trail.at, Some(&HistoryEntry::Start.url(link)), false);
            }
            let url = if matches!(place, HistoryEntry::Link(_)) { href } else { place.url(link) };
            step(trail, place, link, &url);
        }
        // The user put a link into the address bar, so the browser has already made the step.
        None => {
            let at = trail.next;
            (trail.at, trail.next) = (at, at + 1);
            trail.history.insert(at, place.clone());
            trail.links.insert(at, link.clone());
            write(at, None, false);
        }
    }
}

/// Adds a new history entry after the current one.
fn step(trail: &mut HistoryTrail, place: &HistoryEntry, link: &PageLink, url: &str) {
    trail.at += 1;
    let at = trail.at;
    // Drops the forward entries, as the browser does.
    trail.history.retain(|known, _| *known < at);
    trail.next = at + 1;
    trail.history.insert(at, place.clone());
    trail.links.insert(at, link.clone());
    write(at, Some(url), true);
}

/// Handles the browser's navigation to another history entry.
fn navigated(
    event: &Event,
    trail: &Rc<RefCell<HistoryTrail>>,
    model: &UseReducerHandle<PageModel>,
    actor: &Actor,
) {
    let state = event.dyn_ref::<PopStateEvent>().map(PopStateEvent::state);
    let Some(to) = state.and_then(|state| state.as_f64()).map(|to| to as u32) else { return };
    let from = trail.borrow().at;
    if std::mem::take(&mut trail.borrow_mut().going) {
        trail.borrow_mut().at = to;
        if follow(trail, &HistoryEntry::of(model), &model.link()) {
            note(&mut trail.borrow_mut(), &HistoryEntry::of(model), &model.link());
        }
        return;
    }
    let steps = |from: u32, to: u32| i32::try_from(i64::from(to) - i64::from(from)).unwrap_or(0);
    let stay = || {
        trail.borrow_mut().going = true;
        go(steps(to, from));
    };
    if model.pending.is_some() || model.sheet.is_some() {
        // Back only closes the sheet or the question on top.
        stay();
        actor.confirm(None);
        return actor.show(None);
    }
    // Back undoes a filter before it closes the checkpoint.
    let leaves = trail.borrow().history.get(&to) != Some(&HistoryEntry::of(model));
    let filtered = model.work.as_ref().is_some_and(|work| !work.filter.is_empty());
    if to < from && leaves && filtered && model.screen == Screen::Work {
        stay();
        return actor.work(|work| work.set_filter(""));
    }
    let confirmed = std::mem::take(&mut trail.borrow_mut().confirmed);
    if actor.bridge.is_running(JobKind::Write) && !confirmed {
        stay();
        let trail = trail.clone();
        let then = move |_: &Actor| {
            trail.borrow_mut().confirmed = true;
            go(steps(from, to));
        };
        return actor.confirm(Some(PendingAction::new(StopReason::Leave, then)));
    }
    let (place, link) = {
        let mut trail = trail.borrow_mut();
        trail.at = to;
        trail.next = trail.next.max(to + 1);
        (trail.history.get(&to).cloned(), trail.links.get(&to).cloned().unwrap_or_default())
    };
    match place {
        Some(place) if place == HistoryEntry::of(model) => {
            actor.update(move |model| model.follow_or_defer(link.into()))
        }
        Some(place) => {
            if matches!(place, HistoryEntry::Files(..) | HistoryEntry::Address(..))
                && !HistoryEntry::of(model).is_comparison_of(&place)
            {
                actor.update(move |model| model.pending_link = Some(link.into()));
            }
            place.show(actor, model);
        }
        // The entry is older than the reload of the page, so only its URL is known.
        None => {
            if !crate::open::page::address::open_address_of_page(actor) {
                let (_, hash) = location();
                if !hash.starts_with(crate::share::page::MARK) {
                    HistoryEntry::Start.show(actor, model);
                }
            }
            trail.borrow_mut().history.insert(to, HistoryEntry::of(model));
        }
    }
}

fn location() -> (String, String) {
    let location = web_sys::window().map(|window| window.location());
    let href = location.as_ref().and_then(|location| location.href().ok());
    let hash = location.and_then(|location| location.hash().ok());
    (href.unwrap_or_default(), hash.unwrap_or_default())
}

/// Returns the index that the page stored in the browser's current history entry; `None` if it
/// stored none.
fn index() -> Option<u32> {
    let history = web_sys::window()?.history().ok()?;
    Some(history.state().ok()?.as_f64()? as u32)
}

fn go(by: i32) {
    if is_embedded() {
        return;
    }
    if let Some(Ok(history)) = web_sys::window().map(|window| window.history()) {
        let _ = history.go_with_delta(by);
    }
}

/// Writes a history entry: pushes a new one, or replaces the URL of the current one.
fn write(at: u32, url: Option<&str>, push: bool) {
    // Back and forward are those of the embedding page.
    if is_embedded() {
        return;
    }
    let Some(Ok(history)) = web_sys::window().map(|window| window.history()) else { return };
    let state = JsValue::from(at);
    let note = |url: Option<&str>| match push {
        true => history.push_state_with_url(&state, "", url),
        false => history.replace_state_with_url(&state, "", url),
    };
    // A page loaded from disk may not change its query; then the URL stays unchanged.
    if note(url).is_err() {
        let _ = note(None);
    }
}
