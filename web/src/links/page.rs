//! Links to the selection, in the fragment of the page's URL. The page updates the fragment as the
//! selection changes, and follows it when it is opened with one. Browsers don't send fragments to
//! servers.

use std::rc::Rc;

use statelens_checkpoint::visible;
use web_sys::Event;
use yew::prelude::*;

use crate::links::state::{EXPANDED, PageLink};
use crate::matrix::state::view::{MatrixView, text};
use crate::page::hooks::use_window_event;
use crate::page::marks::key;
use crate::page::model::actor::Actor;
use crate::page::model::{PageModel, Screen, Sheet, Tab};
use crate::page::stored::{store_open_name, was_open};
use crate::protocol::job::JobKind;
use crate::state::work::OpenWork;
use crate::values::page::{GoToTarget, number_of};

/// Sheets that a link can open, with their words in the link.
const SHEETS: [(&str, Sheet); 4] = [
    ("convert", Sheet::Convert),
    ("findings", Sheet::Findings),
    ("share", Sheet::Share),
    ("verify", Sheet::Task(JobKind::Verify)),
];
/// The word for a comparison in a link.
const COMPARE: &str = "compare";

impl PageModel {
    /// Returns the link to the current selection, or the link that is still to be followed.
    pub fn link(&self) -> PageLink {
        if let Some(pending_link) = &self.pending_link {
            return (**pending_link).clone();
        }
        let mut link = PageLink::default();
        let shown = matches!(self.screen, Screen::Work | Screen::Compare);
        let Some(work) = self.work.as_ref().filter(|work| shown && !work.opened.summary) else {
            return link;
        };
        if self.address.is_none() {
            link.file.clone_from(&work.opened.name);
        }
        if let Some(second) = self.compare.as_ref().filter(|_| self.screen == Screen::Compare) {
            (link.with, link.view) = (second.name(), COMPARE.into());
            return link;
        }
        if let Some(row) = work.row() {
            let shown = &work.rows[row as usize];
            link.key.clone_from(&shown.key);
            let stood = self.values_panel.at.filter(|(of, _)| *of == row);
            let (slice, index) = match &self.matrix {
                Some(matrix) => (drawn(&matrix.view), Some(matrix.index(matrix.at))),
                None => {
                    let index = |(_, number)| statelens_values::index(&shown.shape, number);
                    (self.values_panel.slice_of(row).to_owned(), stood.map(index))
                }
            };
            let numbers = |index: Vec<u64>| index.iter().map(u64::to_string).collect::<Vec<_>>();
            let index = index.map(|at| format!("[{}]", numbers(at).join(","))).unwrap_or_default();
            (link.slice, link.at) = match slice.is_empty() {
                true => (index, String::new()),
                false => (format!("[{}]", slice.replace(' ', "")), index),
            };
        } else if let Some(fold) = work.fold() {
            link.fold.clone_from(&fold.name);
        }
        if work.filter_error.is_none() {
            link.filter.clone_from(&work.filter);
        }
        let sheet = SHEETS.iter().find(|(_, sheet)| self.sheet == Some(*sheet));
        link.view = match (&self.matrix, sheet) {
            (_, Some((word, _))) => (*word).into(),
            (Some(_), None) => EXPANDED.into(),
            _ => String::new(),
        };
        link
    }

    /// Follows a link in the open checkpoint.
    pub(crate) fn follow(&mut self, link: &PageLink) {
        let Some(work) = &mut self.work else { return };
        let found = work.find(&link.key).filter(|_| !link.key.is_empty());
        let name = &work.opened.name;
        if found.is_none() && !link.file.is_empty() && *name != link.file {
            let text = format!("The link points to {}, but this is {name}.", link.file);
            self.notice = Some(text.into());
            return;
        }
        if work.filter != link.filter {
            work.set_filter(&link.filter);
        }
        let mut goal = None;
        if !link.key.is_empty() {
            match found {
                Some(row) => {
                    if work.row() != Some(row) {
                        work.select_row(row);
                    }
                    self.tab = Tab::Tensor;
                    let shown = &work.rows[row as usize];
                    let found = LinkGoal::of(link, &shown.shape);
                    if let Err(reason) = &found {
                        let (slice, key) = (visible(&link.slice), visible(&shown.key));
                        self.notice = Some(
                            format!(
                                "The link selects {slice} of {key}; the slice is ignored. {reason}"
                            )
                            .into(),
                        );
                    }
                    let LinkGoal { view, number } = goal.insert(found.unwrap_or_default());
                    let slice = view.as_ref().map(|view| text(&view.requested(), &view.shape));
                    let slice = slice.filter(|slice| !slice.is_empty());
                    let stood = number.filter(|_| slice.is_none());
                    self.values_panel.at = stood.map(|number| (row, number));
                    self.values_panel.slice = slice.map(|slice| (row, slice));
                }
                None => {
                    let name = &work.opened.name;
                    let text = format!(
                        "The link points to a key that {name} does not have: {}",
                        visible(&link.key)
                    );
                    self.notice = Some(text.into());
                }
            }
        } else if !link.fold.is_empty() {
            work.select_fold(&link.fold);
        }
        if !link.with.is_empty() {
            let text = format!(
                "The link compares it with {}. Press Compare and choose that file.",
                link.with
            );
            self.notice = Some(text.into());
        }
        let expanded = link.view == EXPANDED;
        let row = self.work.as_ref().and_then(OpenWork::row);
        let shown_row = self.matrix.as_ref().map(|matrix| matrix.selection.row);
        if shown_row != row.filter(|_| expanded) {
            self.expand(expanded);
        }
        if let (Some(matrix), Some(goal)) = (&mut self.matrix, goal) {
            matrix.show(goal.view.unwrap_or_else(|| MatrixView::new(&matrix.view.shape)));
            goal.number.into_iter().for_each(|number| matrix.go(number));
        }
        match SHEETS.iter().find(|(word, _)| link.view == *word) {
            Some((_, Sheet::Convert)) => self.start_convert(),
            Some((_, sheet)) => self.sheet = Some(*sheet),
            None => {}
        }
    }
}

/// The slice or value of a tensor that a link leads to.
#[derive(Default)]
struct LinkGoal {
    /// The slice, if the link has one.
    view: Option<MatrixView>,
    /// The value, by its index in C order.
    number: Option<u64>,
}

impl LinkGoal {
    /// Resolves the slice or value of a link; the error is the message to show if the tensor does
    /// not have it.
    fn of(link: &PageLink, shape: &[u64]) -> Result<Self, String> {
        if link.slice.is_empty() {
            return Ok(Self::default());
        }
        match GoToTarget::typed(&link.slice, shape)? {
            GoToTarget::Value(number) => Ok(Self { view: None, number: Some(number) }),
            GoToTarget::Slice(view) => {
                let at = Some(&link.at).filter(|at| !at.is_empty());
                let number = at.map(|at| number_of(at, shape)).transpose()?;
                Ok(Self { view: Some(view), number })
            }
        }
    }
}

/// Formats the shown slice; empty if it is the last two dimensions in full, since the index of the
/// value determines it then.
fn drawn(view: &MatrixView) -> String {
    let requested = view.requested();
    match view.is_usual() && requested == view.drawn() {
        true => String::new(),
        false => text(&requested, &view.shape),
    }
}

/// Stores the name of the open file, so that the page can show it after a reload.
#[hook]
pub fn use_open_name(model: &UseReducerHandle<PageModel>) {
    let is_file = model.address.is_none() && !model.files.is_empty();
    let work = model.work.as_ref().filter(|_| is_file);
    let name = work.map(|work| work.opened.name.clone());
    use_effect_with(name, |name| name.iter().for_each(|name| store_open_name(name)));
}

/// Follows the link in the URL's fragment when the page loads and when the user changes it.
#[hook]
pub fn use_links(actor: &Actor) {
    let follow = {
        let actor = actor.clone();
        move || {
            let hash = web_sys::window().and_then(|window| window.location().hash().ok());
            if let Some(link) = hash.and_then(|hash| PageLink::parse(&hash)) {
                actor.update(move |model| model.follow_or_defer(Rc::new(link)));
            }
        }
    };
    let changed = follow.clone();
    let onchange = move |_: Event| {
        // Entries that the page itself added have a state; the history handles those.
        let state = web_sys::window().and_then(|window| window.history().ok()?.state().ok());
        if state.is_none_or(|state| state.as_f64().is_none()) {
            changed();
        }
    };
    use_window_event("hashchange", Callback::from(onchange));
    use_effect_with((), move |()| follow());
}

/// Renders a hint with the file that the page's link needs: one that was open before a reload, or
/// one whose link the user received.
pub fn pending_link(link: &PageLink) -> Html {
    if link.file.is_empty() {
        return html! {};
    }
    let leads = if link.key.is_empty() { &link.fold } else { &link.key };
    let file = html! { <b class="m">{ visible(&link.file) }</b> };
    let with = match link.with.is_empty() {
        true => html! {},
        false => html! { <>{ ", compared with " }<b class="m">{ visible(&link.with) }</b></> },
    };
    if was_open(&link.file) {
        return html! {
            <p class="wanted" id="wanted" role="status">
                { "You had " }{ file }{ " open" }{ with }{ ". Drop it again to pick up where you left off" }
                if !leads.is_empty() { { ", at " }{ key(leads) } }
                { "." }
            </p>
        };
    }
    html! {
        <p class="wanted" id="wanted" role="status">
            { "This link points to " }
            if !leads.is_empty() { { key(leads) }{ " in " } }
            { file }{ with }
            { ". Drop that file here, or open it. A link contains no file." }
        </p>
    }
}
