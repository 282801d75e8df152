//! The button that reads everything once, for checksums, statistics of values, hashes and shared
//! summaries.

use wasm_bindgen::JsValue;
use yew::prelude::*;

use crate::page::fetch_limit::RaiseLimit;
use crate::page::model::actor::Actor;
use crate::page::stored::stored_rate;
use crate::protocol::ToWorker;
use crate::protocol::task::TaskRequest;
use crate::state::fmt;
use crate::state::work::OpenWork;
use crate::verify::message::VerifyRequest;
use crate::verify::model::Verification;

/// Properties of the button.
#[derive(Properties, PartialEq)]
pub struct ReadAllProps {
    /// The id of the button.
    pub id: &'static str,
    /// CSS classes of the button.
    #[prop_or("btn pri")]
    pub class: &'static str,
    /// The open checkpoint.
    pub work: OpenWork,
    /// The manifest, and the options of the verification.
    pub verification: Verification,
    /// Measured speed in bytes per millisecond.
    pub rate: Option<f64>,
    /// Maximum bytes that one action may fetch, for a remote checkpoint.
    pub cap: Option<u64>,
}

/// The button, with the estimated time. If the bytes exceed the fetch limit, a button that raises
/// the limit is shown before it.
#[component]
pub fn ReadAll(props: &ReadAllProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let bytes = props.work.sums.bytes;
    let over = props.cap.filter(|cap| bytes > *cap);
    let unsure = props.work.opened.unfolds.is_some() && !props.verification.unpack_confirmed;
    // Halved because hashing is slower than statistics alone.
    let rate = stored_rate().or(props.rate.map(|rate| rate * 0.5)).filter(|rate| *rate > 0.0);
    let time = rate.filter(|_| props.cap.is_none()).map(|rate| bytes as f64 / rate);
    let time =
        time.map(|millis| format!(" \u{b7} about {}", fmt::time_left(millis))).unwrap_or_default();
    let onclick = on_start(&actor, &props.verification);
    html! {
        <>
            if let Some(cap) = over { <RaiseLimit needed={bytes} {cap} /> }
            <button class={props.class} id={props.id} disabled={unsure || over.is_some()} {onclick}>
                { format!("Read everything \u{b7} {}{time}", fmt::bytes(bytes)) }</button>
        </>
    }
}

/// Returns a callback that reads everything and verifies it against the chosen manifest.
fn on_start(actor: &Actor, verification: &Verification) -> Callback<MouseEvent> {
    let manifest = verification.manifest.clone();
    let finite = verification.finite;
    actor.on(move |actor, _: MouseEvent| {
        let files: js_sys::Array =
            manifest.iter().map(|file| JsValue::from(file.clone())).collect();
        if actor.request_with(
            &ToWorker::Start(TaskRequest::Verify(VerifyRequest { finite })),
            &files,
            &JsValue::UNDEFINED,
        ) {
            actor.verify(|verification| verification.task.start());
        }
    })
}
