//! The tape: the state along an axis of bytes, drawn to scale, with the lens at the selection.

use std::rc::Rc;

use statelens_checkpoint::visible;
use yew::prelude::*;

use crate::byte_map::state::{
    StateShare, Tape, TapeMark, TapeMarkKind, TapeZoom, lay_out, place_stretches,
};
use crate::convert::message::PlanSummary;
use crate::page::hooks::{use_size, use_small};
use crate::page::marks::{HATCHED, classes, when};
use crate::pieces::message::StoragePlaces;
use crate::pieces::state::color;
use crate::state::dtype::DTypeFamily;
use crate::state::dtype::{self, short};
use crate::state::fmt;

/// Properties of a tape.
#[derive(Properties, PartialEq)]
pub struct TapeProps {
    /// The states to show, with the bytes of their dtypes.
    pub parts: Rc<Vec<StateShare>>,
    /// Offsets of the layers in bytes.
    #[prop_or_default]
    pub layers: Rc<Vec<u64>>,
    /// The files or ranks that the stretches are coloured by; otherwise by dtype.
    #[prop_or_default]
    pub places: Option<Rc<StoragePlaces>>,
    /// The ranges of bytes whose data are missing.
    #[prop_or_default]
    pub missing: Rc<Vec<(u64, u64)>>,
    /// Marks of tensors.
    #[prop_or_default]
    pub marks: Rc<Vec<TapeMark>>,
    /// The range that was brushed.
    #[prop_or_default]
    pub range: Option<(u64, u64)>,
    /// Returns the name of the entry at a byte, shown under the pointer.
    #[prop_or_default]
    pub namer: Option<Callback<u64, Option<String>>>,
    /// Called with a range of bytes that was dragged over.
    #[prop_or_default]
    pub onbrush: Option<Callback<(u64, u64)>>,
    /// The selected byte.
    #[prop_or_default]
    pub lens: Option<u64>,
    /// Number of bytes written, if the tape shows progress.
    #[prop_or_default]
    pub done: Option<u64>,
    /// Called with the byte that was clicked.
    #[prop_or_default]
    pub onpick: Option<Callback<u64>>,
    /// Called with the number of tensors to move by, when a key is pressed.
    #[prop_or_default]
    pub onstep: Option<Callback<i64>>,
    /// The key of the selection.
    #[prop_or_default]
    pub at: Option<AttrValue>,
}

/// The tape.
#[component]
pub fn TapeView(props: &TapeProps) -> Html {
    let node = use_node_ref();
    let (width, _) = use_size(&node);
    let small = use_small();
    let zoom = use_state(|| TapeZoom::WHOLE);
    // The place of the pointer, and where it was pressed, in pixels.
    let pointer = use_state(|| None::<f64>);
    let pressed = use_mut_ref(|| None::<f64>);
    let brushing = use_state(|| None::<f64>);
    let whole = width * zoom.times();
    let tape = use_memo(
        (props.parts.clone(), props.layers.clone(), whole as u32),
        |(parts, layers, width)| lay_out(parts, layers, f64::from(*width)),
    );
    let shift = zoom.from * whole;
    let named = props.parts.iter().any(|part| !part.name.is_empty());
    let top = if !named {
        2.0
    } else if small {
        24.0
    } else {
        16.0
    };
    let height = top + 31.0;
    let total = tape.total;
    let byte_at = {
        let zoom = *zoom;
        move |x: f64| zoom.byte(x / width.max(1.0), total)
    };
    let pick = props.onpick.clone().map(|onpick| {
        let (brushing, pressed, onbrush) =
            (brushing.clone(), pressed.clone(), props.onbrush.clone());
        Callback::from(move |event: MouseEvent| {
            let x = f64::from(event.offset_x());
            let start = pressed.take();
            // Releasing the button after a drag is a click, too.
            match (start.filter(|_| brushing.is_some()), &onbrush) {
                (Some(start), Some(onbrush)) => {
                    onbrush.emit((byte_at(start.min(x)), byte_at(start.max(x))));
                }
                _ if width > 0.0 => onpick.emit(byte_at(x)),
                _ => {}
            }
            brushing.set(None);
        })
    });
    let picks = pick.is_some();
    let onmousedown = picks.then(|| {
        let pressed = pressed.clone();
        Callback::from(move |event: MouseEvent| {
            *pressed.borrow_mut() = Some(f64::from(event.offset_x()));
        })
    });
    let onmousemove = picks.then(|| {
        let (pointer, pressed, brushing) = (pointer.clone(), pressed.clone(), brushing.clone());
        Callback::from(move |event: MouseEvent| {
            let x = f64::from(event.offset_x());
            pointer.set(Some(x));
            let start = pressed.borrow().filter(|_| event.buttons() & 1 == 1);
            let far = start.filter(|start| brushing.is_some() || (x - start).abs() > BRUSH);
            if far.is_some() || brushing.is_some() {
                brushing.set(far);
            }
        })
    });
    let onmouseleave = picks.then(|| {
        let (pointer, brushing) = (pointer.clone(), brushing.clone());
        Callback::from(move |_: MouseEvent| {
            pointer.set(None);
            brushing.set(None);
        })
    });
    let onwheel = picks.then(|| {
        let zoom = zoom.clone();
        Callback::from(move |event: WheelEvent| {
            let place = f64::from(event.offset_x()) / width.max(1.0);
            let factor = if event.delta_y() < 0.0 { ZOOM } else { 1.0 / ZOOM };
            zoom.set(zoom.zoomed(factor, place.clamp(0.0, 1.0)));
        })
    });
    let unzoom = {
        let zoom = zoom.clone();
        Callback::from(move |_: MouseEvent| zoom.set(TapeZoom::WHOLE))
    };
    let is_zoomed = *zoom != TapeZoom::WHOLE;
    let named_at = pointer.zip(props.namer.clone());
    let name = named_at.and_then(|(x, namer)| Some((x, namer.emit(byte_at(x))?)));
    let mark_at = pointer.map(byte_at).and_then(|byte| {
        let near = (width.max(1.0) * zoom.times()).recip() * total as f64 * 5.0;
        let is_near = |mark: &&TapeMark| {
            let (start, end) = (mark.bytes.0 as f64 - near, mark.bytes.1 as f64 + near);
            mark.kind == TapeMarkKind::NotFinite && (start..=end).contains(&(byte as f64))
        };
        props.marks.iter().find(is_near)
    });
    let onkeydown = props.onstep.clone().map(|onstep| {
        let zoom = zoom.clone();
        Callback::from(move |event: KeyboardEvent| {
            let by = match event.key().as_str() {
                "+" | "=" => return zoom.set(zoom.zoomed(ZOOM, 0.5)),
                "-" => return zoom.set(zoom.zoomed(1.0 / ZOOM, 0.5)),
                "ArrowRight" | "ArrowUp" => 1,
                "ArrowLeft" | "ArrowDown" => -1,
                "PageUp" => 20,
                "PageDown" => -20,
                "Home" => i64::MIN,
                "End" => i64::MAX,
                _ => return,
            };
            event.prevent_default();
            onstep.emit(by);
        })
    });
    // If it handles keys, its role is a slider over the state; otherwise an image.
    let slides = onkeydown.is_some();
    let lensed = props.lens.unwrap_or_default();
    html! {
        <div class={classes(&["tapeview", when(picks, "picks"), when(is_zoomed, "zoomed")])} ref={node} {onkeydown} {onmousemove} {onmouseleave} {onmousedown} {onwheel}
            role={slides.then_some("slider")} tabindex={slides.then_some("0")} aria-label={slides.then(|| describe(&props.parts))}
            aria-valuemin={slides.then_some("0")} aria-valuemax={slides.then(|| total.to_string())} aria-valuenow={slides.then(|| lensed.to_string())}
            aria-valuetext={slides.then(|| props.at.clone().unwrap_or_else(|| "nothing selected".into()))}>
            if width > 0.0 && total > 0 {
                <svg width={width.to_string()} height={height.to_string()} viewBox={format!("0 0 {width} {height}")}
                    role={(!slides).then_some("img")} aria-hidden={slides.then_some("true")} aria-label={(!slides).then(|| describe(&props.parts))} onclick={pick}>
                    <g transform={is_zoomed.then(|| format!("translate({:.1} 0)", -shift))}>
                        if let Some(places) = &props.places {
                            { for place_stretches(&places.runs, whole).into_iter().map(|(x, width, place)| html! {
                                <rect x={format!("{x:.1}")} y={top.to_string()} width={format!("{width:.1}")} height="12" fill={color(place, places.names.len())} />
                            }) }
                        } else {
                            { stretches(&tape, top, props.done) }
                        }
                        { gaps(&props.missing, whole / total as f64, top) }
                        if let Some(range) = props.range { { brushed(range, whole / total as f64, top) } }
                        { axis(&tape, top) }
                        { labels(&tape, small, whole) }
                        { marks(&props.marks, whole / total as f64, top) }
                        if let Some(byte) = props.lens { { lens(byte as f64 / total as f64 * whole, top, small) } }
                    </g>
                    if let Some((start, x)) = (*brushing).zip(*pointer) {
                        <rect class="brush" x={format!("{:.1}", start.min(x))} y={(top - 2.0).to_string()} width={format!("{:.1}", (x - start).abs())} height="16" />
                    }
                </svg>
            }
            if let Some((x, name)) = name {
                <span class={classes(&["tapetip", when(x > width / 2.0, "left")])} aria-hidden="true" style={format!("--x:{x:.0}px")}>
                    if mark_at.is_some() { <b class="w-warn">{ "NaN or Inf \u{b7} " }</b> }
                    <span class="m">{ mark_at.map_or(name, |mark| visible(&mark.key)) }</span></span>
            }
            if is_zoomed {
                <button class="btn small unzoom" onclick={unzoom} onmousedown={Callback::from(|event: MouseEvent| event.stop_propagation())}>{ format!("{:.0}\u{d7} \u{b7} whole", zoom.times()) }</button>
            }
        </div>
    }
}

/// Pixels that the pointer moves before a press becomes a drag.
const BRUSH: f64 = 4.0;
/// The factor of a step of zooming.
const ZOOM: f64 = 1.5;
/// Pixels between two marks of the same kind.
const MARKS_APART: f64 = 6.0;

/// Renders the range that the table is limited to.
fn brushed((from, to): (u64, u64), scale: f64, top: f64) -> Html {
    let (x, wide) = (from as f64 * scale, (to - from) as f64 * scale);
    html! { <rect class="brush" x={format!("{x:.1}")} y={(top - 2.0).to_string()} width={format!("{:.1}", wide.max(1.0))} height="16" /> }
}

/// Renders the marks: triangles over tensors that are not finite, and a line below those that differ.
fn marks(marks: &[TapeMark], scale: f64, top: f64) -> Html {
    let mut last = f64::NEG_INFINITY;
    let triangle = |mark: &TapeMark| {
        let x = (mark.bytes.0 + mark.bytes.1) as f64 / 2.0 * scale;
        if (x - last).abs() < MARKS_APART {
            return html! {};
        }
        last = x;
        html! { <path class="notfinite" d={format!("M{x:.1} {:.1}l4.5 -7h-9z", top + 3.0)} /> }
    };
    let mut differing = String::new();
    let mut end = f64::NEG_INFINITY;
    for mark in marks.iter().filter(|mark| mark.kind == TapeMarkKind::Differs) {
        let (from, to) = (mark.bytes.0 as f64 * scale, mark.bytes.1 as f64 * scale);
        let (from, to) = (from.max(end), to.max(from + 1.0));
        if to > from {
            differing.push_str(&format!("M{from:.1} {}H{to:.1}", top + 14.5));
        }
        end = to.max(end);
    }
    html! {
        <>
            if !differing.is_empty() { <path class="differs" d={differing} /> }
            { for marks.iter().filter(|mark| mark.kind == TapeMarkKind::NotFinite).map(triangle) }
        </>
    }
}

/// Describes the tape in words, for screen readers.
fn describe(parts: &[StateShare]) -> String {
    let parts: Vec<String> = parts
        .iter()
        .take(12)
        .map(|part| {
            let bytes = part.runs.iter().map(|run| run.2).sum();
            let word = part.lead().map(|(word, _)| word).unwrap_or_default();
            format!("{} {} {word}", visible(&part.name), fmt::bytes(bytes))
        })
        .collect();
    format!("Bytes in key order: {}", parts.join(", "))
}

fn stretches(tape: &Tape, top: f64, done: Option<u64>) -> Html {
    let width = tape.stretches.last().map_or(0.0, |stretch| stretch.x + stretch.width);
    let ticks: String = tape.layers.iter().map(|x| format!("M{x:.1} {top}v12")).collect();
    let edge = done.map(|done| done as f64 / tape.total.max(1) as f64 * width);
    html! {
        <>
            { for tape.stretches.iter().map(|stretch| html! {
                <rect x={format!("{:.1}", stretch.x)} y={top.to_string()} width={format!("{:.1}", stretch.width)} height="12"
                    fill={match stretch.family {
                        // The file structure that a writer adds; tensors never have this family.
                        Some(DTypeFamily::Value) => "var(--line-2)",
                        Some(family) => family.color(),
                        None => "var(--ink-3)",
                    }} />
            }) }
            <path d={ticks} stroke="var(--panel)" stroke-width=".75" opacity=".7" />
            if let Some(x) = edge.filter(|&x| x < width) {
                <rect x={format!("{x:.1}")} y={top.to_string()} width={format!("{:.1}", width - x)} height="12" fill="var(--panel)" />
                <rect x={format!("{:.1}", x + 0.5)} y={(top + 0.5).to_string()} width={format!("{:.1}", (width - x - 1.0).max(0.0))} height="11"
                    fill="none" stroke="var(--line-2)" />
                <path d={format!("M{x:.1} {}v18", top - 2.0)} stroke="var(--accent)" stroke-width="2" />
            }
        </>
    }
}

/// Renders ranges of missing bytes as gaps in the tape.
fn gaps(missing: &[(u64, u64)], scale: f64, top: f64) -> Html {
    let gap = |(start, end): &(u64, u64)| {
        let (x, wide) = (*start as f64 * scale, (end - start) as f64 * scale);
        html! {
            <g class="gap">
                <rect x={format!("{x:.1}")} y={top.to_string()} width={format!("{:.1}", wide.max(1.0))} height="12" fill={HATCHED} stroke="var(--warn)" />
            </g>
        }
    };
    html! { <>{ for missing.iter().map(gap) }</> }
}

fn axis(tape: &Tape, top: f64) -> Html {
    let path: String = tape
        .marks
        .iter()
        .map(|mark| format!("M{:.1} {}v{}", mark.x, top + 13.0, mark.height))
        .collect();
    let last = tape.marks.len().saturating_sub(1);
    html! {
        <>
            <path d={path} stroke="var(--line-2)" />
            { for tape.marks.iter().enumerate().filter_map(|(at, mark)| {
                let anchor = if at == 0 { "start" } else if at == last { "end" } else { "middle" };
                mark.label.clone().map(|label| html! {
                    <text x={format!("{:.1}", mark.x)} y={(top + 28.0).to_string()} text-anchor={anchor}>{ label }</text>
                })
            }) }
        </>
    }
}

fn labels(tape: &Tape, small: bool, width: f64) -> Html {
    const CHAR: f64 = 6.33;
    let end = tape.labels.last().map_or(0.0, |label| {
        let chars = label.dtype.as_ref().map_or(0, |(word, _)| word.len() + 3)
            + label.size.as_ref().map_or(0, |s| s.len() + 1);
        label.mark_x() + chars as f64 * CHAR
    });
    let note = if tape.layers.is_empty() {
        "in key order"
    } else {
        "in key order \u{b7} ticks mark layers"
    };
    let room = !small && !tape.labels.is_empty() && end + note.len() as f64 * CHAR + 16.0 < width;
    html! {
        <>
            { for tape.labels.iter().map(|label| {
                let mark = label.mark_x();
                let word = label.dtype.as_ref().map_or(0.0, |(word, _)| word.len() as f64 * CHAR);
                html! {
                    <g>
                        <text class="ink" x={format!("{:.1}", label.x)} y="11">{ &label.name }</text>
                        if let Some((name, family)) = &label.dtype {
                            <rect x={format!("{mark:.1}")} y="2" width="5" height="10" fill="var(--line)" />
                            <rect x={format!("{mark:.1}")} y="5" width="5" height="7" fill={family.color()} />
                            <text class="ink2" x={format!("{:.1}", mark + 9.0)} y="11">{ name }</text>
                        }
                        if let Some(size) = &label.size {
                            <text class="ink2" x={format!("{:.1}", mark + 9.0 + word + CHAR)} y="11">{ size }</text>
                        }
                    </g>
                }
            }) }
            if room { <text x={width.to_string()} y="11" text-anchor="end">{ note }</text> }
        </>
    }
}

/// Renders the ring that marks the selection.
fn lens(x: f64, top: f64, small: bool) -> Html {
    let (cx, cy) = (format!("{x:.1}"), (top + 6.0).to_string());
    let r = if small { 9.0 } else { 10.5 };
    html! {
        <g class="lens">
            <circle cx={cx.clone()} cy={cy.clone()} r={(r + 0.5).to_string()} fill="none" stroke="var(--panel)" stroke-width="4" />
            <circle {cx} {cy} r={r.to_string()} fill="none" stroke="var(--accent)" stroke-width="2" />
            <path d={format!("M{x:.1} {}v18", top - 3.0)} stroke="var(--accent)" stroke-width="1.5" />
        </g>
    }
}

/// Returns the output of a plan as the parts of a tape.
pub fn output_parts(plan: &PlanSummary) -> Rc<Vec<StateShare>> {
    let runs =
        plan.runs.iter().map(|(name, bytes)| (short(name), dtype::family(name), *bytes)).collect();
    Rc::new(vec![StateShare { name: String::new(), runs }])
}
