//! Singular values as text, JSON, CSV and chart.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use statelens_checkpoint::{float_repr, grouped, size_text};

use crate::json::Float;
use crate::picture::{Chart, Series};
use crate::singular::{AtLeast, SingularPlan, Spectrum};
use crate::{fields, number_text};

/// Describes the computation and its cost: `the 32 largest of 4,096, read up to 8 times (268 MB in
/// all), in 6.4 MB of memory, about 10.7 billion operations`.
pub fn plan_text(plan: &SingularPlan) -> String {
    let all = grouped(plan.rows.min(plan.columns));
    let what = match plan.largest {
        None => format!("all {all}, read once ({})", size_text(plan.bytes)),
        Some(count) => format!(
            "the {count} largest of {all}, read up to {} times ({} in all)",
            plan.passes,
            size_text(plan.bytes)
        ),
    };
    let operations = match plan.operations {
        ..1_000_000 => "less than a million operations".to_owned(),
        1_000_000..1_000_000_000 => {
            format!("about {} million operations", plan.operations / 1_000_000)
        }
        many => format!("about {} billion operations", number_text(many as f64 / 1e9)),
    };
    format!("{what}, in {} of memory, {operations}", size_text(plan.memory))
}

/// Returns figures about the matrix with their names.
pub fn spectrum_facts(of: &Spectrum) -> Vec<(&'static str, String)> {
    let all = of.shape.0.min(of.shape.1);
    let shown_values = of.values.len() as u64;
    let mut facts = Vec::new();
    if let Some(most) = of.values.first() {
        facts.push(("largest", number_text(*most)));
    }
    if let Some(last) = of.values.last().filter(|_| shown_values > 1) {
        let name = if of.whole { "smallest" } else { "smallest found" };
        facts.push((name, number_text(*last)));
    }
    let rank = of.rank();
    facts.push(("rank", format!("{} of {}", or_more(rank, grouped), grouped(all))));
    if let Some(condition) = of.condition() {
        let text = match condition.number.is_finite() {
            true => or_more(condition, number_text),
            false => "infinite, up to rounding".into(),
        };
        facts.push(("condition", text));
    }
    facts.extend(of.stable_rank().map(|rank| ("stable rank", number_text(rank))));
    facts.extend(of.effective_rank().map(|rank| ("effective rank", number_text(rank))));
    for (name, part) in [("90 % of squares", 0.9), ("99 % of squares", 0.99)] {
        if of.squares > 0.0 {
            let text = match of.holding(part) {
                Some(count) => format!("in {}", grouped(count)),
                None => format!("not in {}", grouped(shown_values)),
            };
            facts.push((name, text));
        }
    }
    if !of.whole {
        facts.push((
            "not in these",
            format!("{} % of squares", number_text((1.0 - of.captured()) * 100.0)),
        ));
    }
    let error = of.errors.iter().copied().fold(0.0, f64::max);
    facts.push(("error", format!("at most {}", number_text(error))));
    facts
}

/// Serializes the values, with the figures about the matrix.
impl Serialize for Spectrum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (rank, condition) = (self.rank(), self.condition());
        let floats = |values: &[f64]| values.iter().copied().map(Float::from).collect::<Vec<_>>();
        let or_more = condition.map(|condition| fields! { condition_or_more: condition.or_more });
        let fields = fields! {
            whole: self.whole,
            passes: self.passes,
            rank: rank.number,
            rank_or_more: rank.or_more,
            condition: Float(condition.map(|condition| condition.number)),
            #[serde(flatten)]
            or_more: or_more,
            stable_rank: Float(self.stable_rank()),
            effective_rank: Float(self.effective_rank()),
            frobenius: Float::from(self.squares.sqrt()),
            captured: Float::from(self.captured()),
            values: floats(&self.values),
            errors: floats(&self.errors),
        };
        fields.serialize(serializer)
    }
}

/// Returns the values as CSV, one per line, with their maximum errors.
pub fn spectrum_csv(of: &Spectrum) -> String {
    let mut text = "number,singular_value,error\n".to_owned();
    for ((number, value), error) in (1..).zip(&of.values).zip(&of.errors) {
        let _ = writeln!(text, "{number},{},{}", float_repr(*value), float_repr(*error));
    }
    text
}

/// Returns a line chart of the values, the largest first.
pub fn spectrum_chart(of: &Spectrum, title: &str) -> Chart {
    let which = if of.whole { "all" } else { "the largest" };
    Chart {
        title: format!("Singular values of {title}"),
        across: "number".into(),
        up: "singular value".into(),
        log: true,
        lines: vec![Series {
            name: format!("{which} {}", grouped(of.values.len() as u64)),
            points: (1..).map(f64::from).zip(of.values.iter().copied()).collect(),
        }],
        ..Chart::default()
    }
}

fn or_more<T: Copy>(of: AtLeast<T>, text: impl Fn(T) -> String) -> String {
    let number = text(of.number);
    if of.or_more { format!("at least {number}") } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64], whole: bool) -> Spectrum {
        Spectrum {
            values: values.to_vec(),
            errors: vec![1e-9; values.len()],
            shape: (8, 4),
            squares: values.iter().map(|value| value * value).sum::<f64>()
                * if whole { 1.0 } else { 2.0 },
            whole,
            passes: 1,
        }
    }

    #[test]
    fn facts_distinguish_complete_and_partial_spectra() {
        let text = |of: &Spectrum| {
            let facts = spectrum_facts(of);
            facts
                .iter()
                .map(|(name, text)| format!("{name}: {text}"))
                .collect::<Vec<_>>()
                .join("; ")
        };
        assert_eq!(
            text(&of(&[4.0, 2.0, 1.0, 0.0], true)),
            "largest: 4; smallest: 0; rank: 3 of 4; condition: infinite, up to rounding; stable \
             rank: 1.312; effective rank: 2.6; 90 % of squares: in 2; 99 % of squares: in 3; \
             error: at most 1e-09"
        );
        assert_eq!(
            text(&of(&[4.0, 2.0], false)),
            "largest: 4; smallest found: 2; rank: at least 2 of 4; condition: at least 2; stable \
             rank: 2.5; 90 % of squares: not in 2; 99 % of squares: not in 2; not in these: 50 % \
             of squares; error: at most 1e-09"
        );
    }

    #[test]
    fn csv_and_chart_keep_the_order() {
        assert_eq!(
            spectrum_csv(&of(&[2.0, 0.5], true)),
            "number,singular_value,error\n1,2.0,1e-09\n2,0.5,1e-09\n"
        );
        let chart = spectrum_chart(&of(&[100.0, 10.0, 0.0], true), "a<b");
        assert_eq!(chart.lines[0].points, [(1.0, 100.0), (2.0, 10.0), (3.0, 0.0)]);
        assert_eq!((chart.lines[0].name.as_str(), chart.log), ("all 3", true));
        assert!(chart.svg(340, 220).contains("Singular values of a&lt;b"));
        assert_eq!(spectrum_chart(&of(&[4.0], false), "a").lines[0].name, "the largest 1");
        assert!(spectrum_chart(&Spectrum::default(), "a").svg(340, 220).ends_with("</svg>\n"));
    }
}
