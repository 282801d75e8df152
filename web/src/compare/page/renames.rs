//! Search for tensors that have another key on the other side. The result is a list of renames.

use yew::prelude::*;

use crate::compare::message::tensor_diff::Renames;
use crate::compare::model::ComparisonState;
use crate::compare::state::Mark;
use crate::page::drop::save_text;
use crate::page::error::short_error;
use crate::page::model::actor::Actor;
use crate::page::running::{bytes_done, running_line};
use crate::protocol::job::JobKind;
use crate::protocol::task::TaskRequest;
use crate::state::fmt;
use crate::state::task::Task;

/// Maximum number of rules passed to a conversion.
const RULES: usize = 500;

/// Renders the offer to search, or the result; empty if there are no unmatched keys on both sides.
pub(super) fn renames(actor: &Actor, compare: &ComparisonState) -> Html {
    let Some(pairs) = &compare.pairs else { return html! {} };
    let alone = |mark: Mark| pairs.pairs.iter().any(|pair| pair.mark == mark);
    let applied = !compare.options.names.is_empty();
    let renaming = &compare.renaming;
    if *renaming == Task::Idle && !applied && !(alone(Mark::Added) && alone(Mark::Removed)) {
        return html! {};
    }
    let search = {
        let options = compare.options.clone();
        actor.on(move |actor, _: MouseEvent| {
            let options = Box::new((*options).clone());
            actor.start(TaskRequest::Renames(options));
            actor.compare(|compare| compare.renaming.start());
        })
    };
    let body = match renaming {
        Task::Idle if applied => {
            html! { <p class="dim">{ "Keys of A are renamed from a list. " }{ forget(actor) }</p> }
        }
        Task::Idle => html! {
            <p class="dim">{ "Some tensors exist on one side only. " }
                <button class="textlink" id="find-renames" onclick={search}>{ "Search for renames" }</button></p>
        },
        Task::Running(task) => {
            let stop = actor.on(move |actor, _: MouseEvent| {
                actor.stop(JobKind::Renames);
                actor.compare(|compare| compare.renaming = Task::Idle);
            });
            let (done, total) = (task.now.done, task.now.total);
            let bar = Some(("Hashing tensors", (done, total)));
            let words = format!("{} hashed", bytes_done(done, total));
            html! { <p>{ running_line("stop-renames", bar, words, stop) }</p> }
        }
        Task::Failed(error) => short_error(error),
        Task::Done(found) => found_text(actor, found, applied),
    };
    html! { <div id="renames">{ body }</div> }
}

fn found_text(actor: &Actor, found: &Renames, applied: bool) -> Html {
    let all: u64 = found.counts.iter().sum();
    if all == 0 {
        return html! { <p class="dim" role="status">{ "No renamed tensors were found." }</p> };
    }
    let words = [
        "with identical bytes",
        "with identical bytes (several candidates, matched in order)",
        "matched by shape and order (a guess)",
    ];
    let parts: Vec<String> = found
        .counts
        .iter()
        .zip(words)
        .filter(|(count, _)| **count > 0)
        .map(|(count, word)| format!("{} {word}", fmt::exact(*count)))
        .collect();
    let columns: String = found.names.iter().map(|(from, to)| format!("{from}\t{to}\n")).collect();
    let apply = actor.on(move |actor, _: MouseEvent| {
        let names = columns.clone();
        actor.compare(move |compare| {
            // The list replaces the previous rules: it includes the keys that they renamed.
            compare.change_options(|options| {
                (options.names, options.rename) = (names, Vec::new());
                options.strip_prefix.clear();
                options.prefix.clear();
            });
        });
    });
    let save = {
        let list = found.list.clone();
        Callback::from(move |_: MouseEvent| save_text(&list, "names.txt"))
    };
    let convert = {
        let names = found.names.clone();
        actor.on(move |actor, _: MouseEvent| {
            let rules = names.iter().map(|(from, to)| rule(from, to)).collect();
            super::leave(actor);
            actor.update(|model| model.start_convert());
            actor.convert(move |convert| convert.options.rename = rules);
        })
    };
    let few = found.names.len() <= RULES;
    html! {
        <p role="status">
            { format!("{} of A {} another key in B: {}. ", fmt::plural(all, "tensor"), if all == 1 { "has" } else { "have" }, parts.join(", ")) }
            if applied { { forget(actor) } } else { <button class="textlink" id="use-renames" onclick={apply}>{ "Compare with these renames" }</button> }
            { " " }<button class="textlink" id="save-renames" onclick={save}>{ "Save the list" }</button>
            if few { { " " }<button class="textlink" id="convert-renames" onclick={convert}>{ "Convert A with the list\u{2026}" }</button> }
        </p>
    }
}

fn forget(actor: &Actor) -> Html {
    let onclick = actor.on(move |actor, _: MouseEvent| {
        actor.compare(|compare| {
            compare.renaming = Task::Idle;
            compare.change_options(|options| options.names.clear());
        });
    });
    html! { <button class="textlink" {onclick}>{ "Forget the list" }</button> }
}

/// Returns the replacement rule for exactly one key.
fn rule(from: &str, to: &str) -> String {
    let mut pattern = String::with_capacity(from.len() + 8);
    for letter in from.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    format!("^{pattern}$=>{}", to.replace('$', "$$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rename_rule_matches_the_whole_key() {
        assert_eq!(rule("a.0-b", "c$d"), "^a\\.0\\-b$=>c$$d");
        assert_eq!(rule("a <b>", "c"), "^a <b>$=>c");
    }
}
