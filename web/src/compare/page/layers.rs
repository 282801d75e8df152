//! A chart of norms, deviations and changes by layer, for all tensors of one role.

use std::rc::Rc;

use statelens_compare::diff::{PairChange, Quantity, by_layer, role_of};
use yew::prelude::*;

use crate::compare::model::ComparisonState;
use crate::compare::state::RowPair;
use crate::page::chart::ChartView;
use crate::page::marks::one_of;

#[derive(Properties, PartialEq)]
pub(super) struct LayersProps {
    pub(super) compare: Rc<ComparisonState>,
    pub(super) pair: RowPair,
}

/// The section; empty if the tensor is the only one of its role.
#[component]
pub(super) fn LayersSection(props: &LayersProps) -> Html {
    let quantity = use_state(Quantity::default);
    let compare = &props.compare;
    let row = compare.pairs.as_ref().and_then(|pairs| pairs.first(&props.pair));
    let Some((role, _)) = row.and_then(|row| role_of(&row.key)) else { return html! {} };
    let Some(all) = compare.layers.get(&role).filter(|all| all.len() > 1) else { return html! {} };
    let mut layers: Vec<(u64, &PairChange)> = all.iter().map(|(at, of)| (*at, of)).collect();
    statelens_checkpoint::order::by_key(&mut layers, |(at, _)| *at);
    let chart = by_layer(&role, *quantity, &layers);
    let choice = |of: Quantity, name: &'static str| {
        let quantity = quantity.clone();
        one_of(
            "radio",
            *quantity == of,
            name,
            Callback::from(move |_: MouseEvent| quantity.set(of)),
        )
    };
    html! {
        <section id="by-layer">
            <div class="hd"><h3>{ "By layer" }</h3><span class="tools">
                <span class="seg small" role="radiogroup" aria-label="Quantity by layer">
                    { choice(Quantity::Norm, "norm") }{ choice(Quantity::Deviation, "\u{3c3}") }{ choice(Quantity::Change, "change") }</span></span></div>
            <ChartView {chart} height={220} name={format!("{role} by layer")} />
        </section>
    }
}
