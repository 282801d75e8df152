//! Lines with axes, drawn by the core, and their numbers to save.

use statelens_inspect::picture::Chart;
use yew::prelude::*;

use crate::page::drop::save_text;
use crate::page::hooks::use_size;
use crate::page::naming::key_name;

/// Lines with axes.
#[derive(Properties, PartialEq)]
pub struct ChartProps {
    /// What is drawn.
    pub chart: Chart,
    /// How high it is, in pixels.
    pub height: u32,
    /// What files are called.
    pub name: String,
    /// Its numbers, where they are not those of its points.
    #[prop_or_default]
    pub csv: Option<String>,
}

/// Lines with axes.
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
