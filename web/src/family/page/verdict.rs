//! The verdict on whether the converted model would load.

use statelens_checkpoint::Grade;
use yew::prelude::*;

use crate::convert::state::Conversion;
use crate::page::marks::{prose, severity, tick_icon};
use crate::state::fmt::exact;

/// Renders the verdict, its basis, and the parts that were not checked.
pub fn verdict(convert: &Conversion) -> Html {
    let shown = convert.family.as_ref().and_then(|reply| reply.shown.as_ref());
    let Some(loads) = shown.and_then(|shown| shown.loads.as_ref()) else { return html! {} };
    let keys = || format!("{} of {} keys", exact(loads.keys.0), exact(loads.keys.1));
    let (mark, answer) = match loads.would {
        Some(true) => (tick_icon(), format!("Yes: {}", keys())),
        Some(false) => (severity(Grade::Danger), format!("No: {}", keys())),
        None => (severity(Grade::Note), "Not known".to_owned()),
    };
    let class = match loads.would {
        Some(true) => "w-good",
        Some(false) => "w-danger",
        None => "mid-ink",
    };
    html! {
        <div class="wouldload" id="loads">
            <h3>{ "Would it load?" }</h3>
            <p class="answer"><b {class}>{ mark }{ " " }{ answer }</b></p>
            <ul class="checks">
                { for loads.bad.iter().map(|line| html! { <li>{ severity(Grade::Danger) }<span>{ prose(line) }</span></li> }) }
                { for loads.good.iter().map(|line| html! { <li>{ tick_icon() }<span>{ prose(line) }</span></li> }) }
                if !loads.open.is_empty() {
                    <li>{ severity(Grade::Note) }<span>{ "Not checked: " }{ prose(&loads.open.join("; ")) }{ "." }</span></li>
                }
            </ul>
        </div>
    }
}
