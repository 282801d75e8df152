//! Python code that reads the selected row, to be copied.

use yew::prelude::*;

use crate::page::marks::{Copy, when};

#[derive(Properties, PartialEq)]
pub struct CodeSectionProps {
    /// Pairs of library and code, the most common library first.
    pub code: Vec<(String, String)>,
}

/// The code section of the inspector. The library chosen last stays selected for other rows if it
/// has code for them.
#[component]
pub fn CodeSection(props: &CodeSectionProps) -> Html {
    let chosen = use_state(String::new);
    let all = &props.code;
    let found = all.iter().find(|(library, _)| *library == *chosen).or_else(|| all.first());
    let Some((library, code)) = found else { return html! {} };
    let code = code.trim_end().to_owned();
    html! {
        <section id="code">
            <div class="hd"><h3>{ "In Python" }</h3>
                <span class="tools">
                    if all.len() > 1 {
                        <span class="seg small" role="group" aria-label="Library">
                            { for all.iter().map(|(name, _)| {
                                let (chosen, to) = (chosen.clone(), name.clone());
                                let onclick = Callback::from(move |_: MouseEvent| chosen.set(to.clone()));
                                let on = name == library;
                                html! { <button class={when(on, "on")} aria-pressed={on.to_string()} {onclick}>{ name }</button> }
                            }) }
                        </span>
                    } else {
                        <span class="lab">{ library }</span>
                    }
                    <Copy text={code.clone()} label="code" />
                </span>
            </div>
            <pre class="whole m code" tabindex="0">{ code }</pre>
        </section>
    }
}
