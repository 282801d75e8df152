//! The button that reads everything once: for checksums, values, hashes and shared summaries.

use std::rc::Rc;

use wasm_bindgen::JsValue;
use yew::prelude::*;

use crate::page::address::RaiseLimit;
use crate::page::model::actor::Actor;
use crate::page::model::verification::{Verification, VerificationStage};
use crate::page::stored::kept_rate;
use crate::protocol::ToWorker;
use crate::protocol::conversion::Running;
use crate::state::fmt;
use crate::state::work::OpenWork;

/// The properties of the button.
#[derive(Properties, PartialEq)]
pub struct ReadEverythingProps {
    /// The id of the button.
    pub id: &'static str,
    /// Its classes.
    #[prop_or("btn pri")]
    pub class: &'static str,
    /// The open checkpoint.
    pub work: OpenWork,
    /// The manifest, and what counts as a problem.
    pub verification: Verification,
    /// Bytes that were read in a millisecond, if that was measured.
    pub rate: Option<f64>,
    /// For a remote checkpoint, how many bytes one action may fetch.
    pub cap: Option<u64>,
}

/// The button, with what it takes. Beyond the fetch limit, what raises the limit stands before it.
#[component]
pub fn ReadEverything(props: &ReadEverythingProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let bytes = props.work.sums.bytes;
    let over = props.cap.filter(|cap| bytes > *cap);
    let unsure = props.work.opened.unfolds.is_some() && !props.verification.sure;
    // Hashing takes longer than statistics alone.
    let rate = kept_rate().or(props.rate.map(|rate| rate * 0.5)).filter(|rate| *rate > 0.0);
    let time = rate.filter(|_| props.cap.is_none()).map(|rate| bytes as f64 / rate);
    let time =
        time.map(|millis| format!(" \u{b7} about {}", fmt::left(millis))).unwrap_or_default();
    let onclick = begin(&actor, &props.verification);
    html! {
        <>
            if let Some(cap) = over { <RaiseLimit needed={bytes} {cap} /> }
            <button class={props.class} id={props.id} disabled={unsure || over.is_some()} {onclick}>
                { format!("Read everything \u{b7} {}{time}", fmt::bytes(bytes)) }</button>
        </>
    }
}

/// Reads everything, with the manifest that was chosen.
fn begin(actor: &Actor, verification: &Verification) -> Callback<MouseEvent> {
    let (actor, manifest) = (actor.clone(), verification.manifest.clone());
    let finite = verification.finite;
    Callback::from(move |_: MouseEvent| {
        let files: js_sys::Array =
            manifest.iter().map(|file| JsValue::from(file.clone())).collect();
        let verify = ToWorker::Verify(Some(finite));
        if actor.ask_with(&verify, &files, &JsValue::UNDEFINED) {
            let now = Running { done: 0, total: 0, millis: 0.0, key: String::new() };
            actor.verify(|verification| {
                verification.stage = VerificationStage::Now(now, Rc::default())
            });
        }
    })
}
