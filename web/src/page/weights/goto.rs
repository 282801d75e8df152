//! Going to a value by its index.

use web_sys::HtmlInputElement;
use yew::prelude::*;

use crate::page::model::actor::Actor;
use crate::state::fmt;

/// The box.
#[derive(Properties, PartialEq)]
pub struct GoToProps {
    /// The row.
    pub row: u32,
    /// Its shape.
    pub shape: Vec<u64>,
}

/// A box for an index; Enter goes there.
#[component]
pub fn GoTo(props: &GoToProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let wrong = use_state(|| None::<String>);
    let last: Vec<u64> = props.shape.iter().map(|dim| dim.saturating_sub(1)).collect();
    let onkeydown = {
        let (wrong, row, shape) = (wrong.clone(), props.row, props.shape.clone());
        Callback::from(move |event: KeyboardEvent| {
            let Some(input) = event.target_dyn_into::<HtmlInputElement>() else { return };
            match (event.key().as_str(), number(&input.value(), &shape)) {
                ("Enter", Ok(number)) => {
                    wrong.set(None);
                    actor.go_to(row, number);
                }
                ("Enter", Err(why)) => wrong.set(Some(why)),
                _ => wrong.set(None),
            }
        })
    };
    html! {
        <div class="goto">
            <label class="inp"><span class="lab">{ "go to" }</span>
                <input id="go-to" type="text" {onkeydown} placeholder={fmt::shape(&last)} aria-label="Go to the value at an index"
                    aria-invalid={wrong.is_some().to_string()} autocomplete="off" spellcheck="false" inputmode="numeric" /><kbd>{ "G" }</kbd></label>
            if let Some(why) = &*wrong { <span class="w-warn" role="alert">{ why.clone() }</span> }
        </div>
    }
}

/// The number of the value at an index that somebody typed: `[120, 576]`, `120 576`, `-1, 0`.
pub fn number(text: &str, shape: &[u64]) -> Result<u64, String> {
    let words = text.trim().trim_start_matches('[').trim_end_matches(']');
    let words: Vec<&str> =
        words.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.len() != shape.len() {
        let were = fmt::plural(shape.len() as u64, "number");
        return Err(format!("An index has {were} here."));
    }
    let mut at = 0u64;
    for (word, &dim) in words.iter().zip(shape) {
        let typed: i128 = word
            .replace('\u{2212}', "-")
            .parse()
            .map_err(|_| format!("\u{2018}{word}\u{2019} is not a number."))?;
        let dim_len = i128::from(dim);
        let index = if typed < 0 { typed + dim_len } else { typed };
        if !(0..dim_len).contains(&index) {
            return Err(format!("{word} is not below {dim}."));
        }
        at = at.saturating_mul(dim).saturating_add(index as u64);
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_read_as_they_are_shown() {
        for text in ["[120, 576]", "120,576", "120 576", " [120,576 ", "-80, -424"] {
            assert_eq!(number(text, &[200, 1000]), Ok(120_576), "{text}");
        }
        assert_eq!(number("7", &[8]), Ok(7));
        assert_eq!(number("8", &[8]), Err("8 is not below 8.".into()));
        assert_eq!(number("-9", &[8]), Err("-9 is not below 8.".into()));
        assert_eq!(number("1", &[8, 8]), Err("An index has 2 numbers here.".into()));
        assert_eq!(number("a", &[8]), Err("\u{2018}a\u{2019} is not a number.".into()));
        assert!(number("99999999999999999999999999999999999999999", &[8]).is_err());
    }
}
