//! A line chart, drawn as SVG by the core, with buttons that save the picture and its numbers.

use statelens_values::picture::Chart;
use yew::prelude::*;

use crate::convert::state::naming::key_name;
use crate::page::drop::save_text;
use crate::page::hooks::use_size;

/// Properties of a line chart.
#[derive(Properties, PartialEq)]
pub struct ChartProps {
    pub chart: Chart,
    /// Height in pixels.
    pub height: u32,
    /// Base name of saved files.
    pub name: String,
    /// The CSV to save, if it differs from the chart's points.
    #[prop_or_default]
    pub csv: Option<String>,
}

/// A line chart.
#[component]
pub fn ChartView(props: &ChartProps) -> Html {
    let node = use_node_ref();
    let (wide, _) = use_size(&node);
    let wide = (wide as u32).max(200);
    let svg = use_memo((props.chart.clone(), wide, props.height), |(chart, wide, height)| {
        AttrValue::from(chart.svg(*wide, *height))
    });
    let save = |kind: &'static str| {
        let (chart, name, csv) = (props.chart.clone(), props.name.clone(), props.csv.clone());
        Callback::from(move |_: MouseEvent| {
            let text = match kind {
                "svg" => chart.svg(720, 360),
                _ => csv.clone().unwrap_or_else(|| chart.csv()),
            };
            save_text(&text, &key_name(&name, kind));
        })
    };
    html! {
        <figure class="chartbox" ref={node}>
            { Html::from_html_unchecked((*svg).clone()) }
            <figcaption class="saves">
                <span class="lab">{ "Save" }</span>
                <button class="textlink" onclick={save("svg")}>{ "SVG" }</button>
                <button class="textlink" onclick={save("csv")}>{ "CSV" }</button>
            </figcaption>
        </figure>
    }
}
