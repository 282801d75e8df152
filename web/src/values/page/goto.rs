//! Going to a value by its index, or showing a slice.

use statelens_tensor::Slice;
use web_sys::HtmlInputElement;
use yew::prelude::*;

use crate::matrix::state::view::{MatrixView, text};
use crate::page::marks::prose;
use crate::page::model::actor::Actor;
use crate::state::fmt;
use crate::text::sentence;

/// Properties of the box.
#[derive(Properties, PartialEq)]
pub struct GoToProps {
    /// Row of the tensor.
    pub row: u32,
    /// Shape of the tensor.
    pub shape: Vec<u64>,
}

/// An input for an index or a slice; Enter goes there.
#[component]
pub fn GoTo(props: &GoToProps) -> Html {
    let Some(actor) = use_context::<Actor>() else { return html! {} };
    let wrong = use_state(|| None::<String>);
    let last: Vec<u64> = props.shape.iter().map(|dim| dim.saturating_sub(1)).collect();
    let onkeydown = {
        let (wrong, row, shape) = (wrong.clone(), props.row, props.shape.clone());
        Callback::from(move |event: KeyboardEvent| {
            let Some(input) = event.target_dyn_into::<HtmlInputElement>() else { return };
            if event.key() != "Enter" {
                return wrong.set(None);
            }
            match GoToTarget::typed(&input.value(), &shape) {
                Ok(goal) => {
                    wrong.set(None);
                    // The values are below, where a low window would not show them.
                    input.scroll_into_view();
                    match goal {
                        GoToTarget::Value(number) => actor.go_to(row, number),
                        GoToTarget::Slice(view) => {
                            let slice = text(&view.requested(), &shape);
                            actor.values_panel(move |it| {
                                (it.slice, it.at) = (Some((row, slice)), None);
                            });
                        }
                    }
                }
                Err(error) => wrong.set(Some(error)),
            }
        })
    };
    html! {
        <div class="goto">
            <label class="inp"><span class="lab">{ "go to" }</span>
                <input id="go-to" type="text" {onkeydown} placeholder={fmt::shape(&last)} aria-label="Go to the value at an index, or to a slice"
                    title={HINT} aria-invalid={wrong.is_some().to_string()} autocomplete="off" spellcheck="false" /><kbd>{ "G" }</kbd></label>
            if let Some(error) = &*wrong { <span class="w-warn" role="alert">{ prose(error) }</span> }
        </div>
    }
}

/// Description of the accepted input.
pub const HINT: &str = "An index, or a slice as in Python: [0:2, -4:], [0, :, 3, :]";

/// The place in a tensor to go to.
#[derive(Debug, Clone, PartialEq)]
pub enum GoToTarget {
    /// A value, by its index in C order.
    Value(u64),
    Slice(MatrixView),
}

impl GoToTarget {
    /// Parses the input: an index with as many numbers as the tensor has dimensions, or a slice.
    /// The error is a sentence to show.
    pub fn typed(typed: &str, shape: &[u64]) -> Result<Self, String> {
        let inner = typed.trim().trim_start_matches('[').trim_end_matches(']').trim();
        let numbers = inner.split([',', ' ']).filter(|word| !word.is_empty()).count();
        if inner.is_empty() || !inner.contains([':', '.']) && numbers >= shape.len() {
            return number(typed, shape).map(Self::Value);
        }
        let slice = inner.replace('\u{2212}', "-").parse::<Slice>();
        let view = slice.and_then(|slice| MatrixView::of(shape, &slice));
        view.map(Self::Slice).map_err(|error| sentence(error.what()))
    }
}

/// Parses an index such as `[120, 576]`, `120 576` or `-1, 0`, and returns the index of the value
/// in C order. The error is a sentence to show.
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
            return Err(format!(
                "Index {word} is out of range (0\u{2013}{}).",
                dim.saturating_sub(1)
            ));
        }
        at = at.saturating_mul(dim).saturating_add(index as u64);
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_indices_in_displayed_form() {
        for text in ["[120, 576]", "120,576", "120 576", " [120,576 ", "-80, -424"] {
            assert_eq!(number(text, &[200, 1000]), Ok(120_576), "{text}");
        }
        assert_eq!(number("7", &[8]), Ok(7));
        assert_eq!(number("8", &[8]), Err("Index 8 is out of range (0\u{2013}7).".into()));
        assert_eq!(number("-9", &[8]), Err("Index -9 is out of range (0\u{2013}7).".into()));
        assert_eq!(number("1", &[8, 8]), Err("An index has 2 numbers here.".into()));
        assert_eq!(number("a", &[8]), Err("\u{2018}a\u{2019} is not a number.".into()));
        assert!(number("99999999999999999999999999999999999999999", &[8]).is_err());
    }

    #[test]
    fn other_input_parses_as_slice() {
        let slice = |typed: &str, shape: &[u64]| match GoToTarget::typed(typed, shape) {
            Ok(GoToTarget::Slice(view)) => view.requested().to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(slice("[0:2, -4:]", &[8, 16]), "0:2, 12:16");
        assert_eq!(slice("0, :, 3, :", &[2, 3, 4, 5]), "0, :, 3, :");
        assert_eq!(slice("[3]", &[8, 16]), "3, :");
        assert_eq!(slice("..., \u{2212}1", &[8, 16]), ":, 15");
        assert_eq!(GoToTarget::typed("3 5", &[8, 16]), Ok(GoToTarget::Value(53)));
        assert_eq!(GoToTarget::typed("[3, 5]", &[8, 16]), Ok(GoToTarget::Value(53)));
        for (typed, texts) in [
            ("9", "index 9 is outside of 8"),
            (":, :, :", "more parts than the tensor has dimensions"),
            ("8:", "has no values"),
            ("a:", "not a whole number"),
            ("1, 2, 3", "An index has 2 numbers here."),
            ("", "An index has 2 numbers here."),
        ] {
            let error = GoToTarget::typed(typed, &[8, 16]).unwrap_err();
            assert!(error.contains(texts), "{typed}: {error}");
        }
    }
}
