//! A chart of norms, deviations and changes by layer, for all tensors of one role.

use std::rc::Rc;

use statelens_compare::diff::{PairChange, Quantity, by_layer, role_of};
use statelens_values::picture::{Chart, Series};
use yew::prelude::*;

use crate::compare::model::ComparisonState;
use crate::compare::state::RowPair;
use crate::page::chart::ChartView;
use crate::page::choice::{choice, store};

#[derive(Properties, PartialEq)]
pub(super) struct LayersProps {
    pub(super) compare: Rc<ComparisonState>,
    pub(super) pair: RowPair,
}

/// The section; empty if the tensor is the only one of its role.
#[component]
pub(super) fn LayersSection(props: &LayersProps) -> Html {
    let compare = &props.compare;
    let first = if compare.quantised { Quantity::Change } else { Quantity::default() };
    let quantity = use_state(|| first);
    let row = compare.pairs.as_ref().and_then(|pairs| pairs.first(&props.pair));
    let Some((role, _)) = row.and_then(|row| role_of(&row.key)) else { return html! {} };
    let Some(all) = compare.layers.get(&role).filter(|all| all.len() > 1) else { return html! {} };
    let mut layers: Vec<(u64, &PairChange)> = all.iter().map(|(at, of)| (*at, of)).collect();
    statelens_checkpoint::order::by_key(&mut layers, |(at, _)| *at);
    let chart = by_layer(&role, *quantity, &layers);
    let quantities =
        [(Quantity::Norm, "norm"), (Quantity::Deviation, "\u{3c3}"), (Quantity::Change, "change")];
    html! {
        <section id="by-layer">
            <div class="hd"><h3>{ "By layer" }</h3><span class="tools">
                { choice(true, "Quantity by layer", &quantities, *quantity, store(&quantity)) }</span></div>
            <ChartView {chart} height={220} name={format!("{role} by layer")} />
        </section>
    }
}

/// The most roles that the chart of errors shows.
const MAX_ROLES: usize = 6;

/// Renders the relative error of a quantised side by layer, a line for each of the worst roles;
/// nothing for other comparisons.
pub(super) fn errors(compare: &ComparisonState) -> Html {
    if !compare.quantised {
        return html! {};
    }
    let worst =
        |all: &[(u64, PairChange)]| all.iter().filter_map(|(_, of)| of.change).fold(0.0, f64::max);
    let mut roles: Vec<(&String, &Vec<(u64, PairChange)>)> =
        compare.layers.iter().filter(|(_, all)| all.len() > 1 && worst(all) > 0.0).collect();
    statelens_checkpoint::order::by(&mut roles, |one, other| {
        worst(other.1).total_cmp(&worst(one.1)).then_with(|| one.0.cmp(other.0))
    });
    roles.truncate(MAX_ROLES);
    if roles.is_empty() {
        return html! {};
    }
    let line = |(role, all): &(&String, &Vec<(u64, PairChange)>)| {
        let mut points: Vec<(f64, f64)> =
            all.iter().map(|(at, of)| (*at as f64, of.change.unwrap_or(f64::NAN))).collect();
        statelens_checkpoint::order::by(&mut points, |one, other| one.0.total_cmp(&other.0));
        // What the roles have in common says nothing.
        let name = role.rsplit_once("*.").map_or(role.as_str(), |(_, name)| name);
        Series { name: name.trim_end_matches(".weight").to_owned(), points }
    };
    let chart = Chart {
        title: "Relative error by layer, worst first".into(),
        across: "layer".into(),
        up: Quantity::Change.word().into(),
        log: true,
        lines: roles.iter().map(line).collect(),
        ..Chart::default()
    };
    html! { <div id="errors" class="errors"><ChartView {chart} height={190} name="quantisation error by layer" /></div> }
}
