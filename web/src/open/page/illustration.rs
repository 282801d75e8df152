//! The decorative picture of the start screen: a list of keys with a magnifying lens on one of
//! them.

use yew::prelude::*;

use crate::page::drop_target::drag_hint;

/// Keys of the bundled training state, each with its dtype or kind and its shape or value.
const KEYS: [(&str, &str, &str); 37] = [
    ("model.model.wte.weight", "f32", "[97, 32]"),
    ("model.model.wpe.weight", "f32", "[16, 32]"),
    ("model.model.blocks.0.ln_1.weight", "f32", "[32]"),
    ("model.model.blocks.0.ln_1.bias", "f32", "[32]"),
    ("model.model.blocks.0.qkv.weight", "f32", "[96, 32]"),
    ("model.model.blocks.0.qkv.bias", "f32", "[96]"),
    ("model.model.blocks.0.proj.weight", "f32", "[32, 32]"),
    ("model.model.blocks.0.proj.bias", "f32", "[32]"),
    ("model.model.blocks.0.ln_2.weight", "f32", "[32]"),
    ("model.model.blocks.0.ln_2.bias", "f32", "[32]"),
    ("model.model.blocks.0.fc1.weight", "f32", "[128, 32]"),
    ("model.model.blocks.0.fc1.bias", "f32", "[128]"),
    ("model.model.blocks.0.fc2.weight", "f32", "[32, 128]"),
    ("model.model.blocks.0.fc2.bias", "f32", "[32]"),
    ("model.model.blocks.1.ln_1.weight", "f32", "[32]"),
    ("model.model.blocks.1.ln_1.bias", "f32", "[32]"),
    ("model.model.blocks.1.qkv.weight", "f32", "[96, 32]"),
    ("model.model.blocks.1.qkv.bias", "f32", "[96]"),
    ("model.model.blocks.1.proj.weight", "f32", "[32, 32]"),
    ("model.model.blocks.1.proj.bias", "f32", "[32]"),
    ("model.model.blocks.1.ln_2.weight", "f32", "[32]"),
    ("model.model.blocks.1.ln_2.bias", "f32", "[32]"),
    ("model.model.blocks.1.fc1.weight", "f32", "[128, 32]"),
    ("model.model.blocks.1.fc1.bias", "f32", "[128]"),
    ("model.model.blocks.1.fc2.weight", "f32", "[32, 128]"),
    ("model.model.blocks.1.fc2.bias", "f32", "[32]"),
    ("model.model.ln_f.weight", "f32", "[32]"),
    ("model.model.ln_f.bias", "f32", "[32]"),
    ("model.model.lm_head.weight", "f32", "[97, 32]"),
    ("optimizer.state.0.exp_avg", "f32", "[97, 32]"),
    ("optimizer.state.0.exp_avg_sq", "f32", "[97, 32]"),
    ("optimizer.param_groups.0.lr", "float", "0.001"),
    ("optimizer.param_groups.0.weight_decay", "float", "0.1"),
    ("schedulers.0.last_epoch", "int", "2"),
    ("global_step", "int", "2"),
    ("grad_scaler.growth_tracker", "i32", "[]"),
    ("__metadata__.0.version", "str", "2.10.0"),
];

const SPINES: &str = "M24 42V602M44 42V602M64 82V542M64 562V582M24 622V682M44 622V642M64 622V642M44 662V682M64 662V682";

/// Index of the row under the lens.
const SELECTED: usize = 16;
/// Centre (x, y) of the lens, and the distance of its rows.
const LENS: (f64, f64, f64) = (448.0, 362.0, 41.0);

fn hue(kind: &str) -> &'static str {
    match kind {
        "f32" => "var(--d-f32)",
        "i32" => "var(--d-int)",
        _ => "var(--d-val)",
    }
}

/// Returns the x coordinate where a key's line starts; top-level keys start further left.
fn indent(key: &str) -> u32 {
    match key {
        "global_step" | "grad_scaler.growth_tracker" => 24,
        "schedulers.0.last_epoch" | "__metadata__.0.version" => 44,
        _ => 64,
    }
}

/// Returns the SVG path of 120 ticks around the lens, every tenth longer.
fn ticks() -> String {
    (0..120)
        .map(|at| {
            let (sin, cos) = (f64::from(at) * std::f64::consts::TAU / 120.0).sin_cos();
            let outer = if at % 10 == 0 { 196.0 } else { 190.0 };
            let (x, y, _) = LENS;
            format!(
                "M{:.1} {:.1}L{:.1} {:.1}",
                x + 185.0 * cos,
                y + 185.0 * sin,
                x + outer * cos,
                y + outer * sin
            )
        })
        .collect()
}

/// Renders the picture, with the number of items being dragged over the page.
pub fn illustration(over: Option<usize>) -> Html {
    let (x, y, step) = LENS;
    let bars: String = KEYS
        .iter()
        .enumerate()
        .map(|(at, (key, ..))| format!("M{} {}H86", indent(key), 42 + 20 * at))
        .collect();
    html! {
        <svg class="lensart" viewBox="0 0 760 790" preserveAspectRatio="xMaxYMin meet" aria-hidden="true">
            <defs><clipPath id="lens"><circle cx={x.to_string()} cy={y.to_string()} r="178" /></clipPath></defs>
            <path d={format!("{SPINES}{bars}")} stroke="var(--line)" fill="none" />
            { for KEYS.iter().enumerate().map(|(at, (key, kind, text))| {
                let y = 46 + 20 * at;
                html! {
                    <g class="far">
                        <text x="96" y={y.to_string()}>{ *key }</text>
                        <rect x="426" y={(y - 9).to_string()} width="4" height="9" fill={hue(kind)} opacity="0.45" />
                        <text x="436" y={y.to_string()}>{ *kind }</text>
                        <text x="484" y={y.to_string()}>{ *text }</text>
                    </g>
                }
            }) }
            <circle class="glass" cx={x.to_string()} cy={y.to_string()} r="200" />
            <g clip-path="url(#lens)">
                <rect x="270" y="341.5" width="356" height="41" fill="var(--accent-wash)" />
                if let Some(over) = over {
                    <text class="waits" x={x.to_string()} y="368" text-anchor="middle">{ waiting(over) }</text>
                } else {
                    { for (0..KEYS.len()).filter(|at| at.abs_diff(SELECTED) <= 5).map(|at| {
                        let (key, kind, text) = KEYS[at];
                        let y = 370.0 + (at as f64 - SELECTED as f64) * step;
                        html! {
                            <g class={if at == SELECTED { "near at" } else { "near" }}>
                                <text x="290" y={y.to_string()}>{ key.trim_start_matches("model.model.") }</text>
                                <rect x="482" y={(y - 12.0).to_string()} width="6" height="14" fill="var(--line)" />
                                <rect x="482" y={(y - 8.5).to_string()} width="6" height="10.5" fill={hue(kind)} />
                                <text x="494" y={y.to_string()}>{ kind }</text>
                                <text x="532" y={y.to_string()}>{ text }</text>
                            </g>
                        }
                    }) }
                }
            </g>
            <circle class="ring" cx={x.to_string()} cy={y.to_string()} r="178" fill="none" stroke="var(--accent)" />
            <path d={ticks()} stroke="var(--accent-line)" />
        </svg>
    }
}

fn waiting(over: usize) -> String {
    match over {
        0 => "files".to_owned(),
        1 => "1 item".to_owned(),
        count => format!("{count} items"),
    }
}

/// Returns the heading of the start screen.
pub fn heading(over: Option<usize>) -> String {
    if over.is_some() { drag_hint(over) } else { "Drop a checkpoint anywhere on this page.".into() }
}
