//! Histograms drawn with characters.

use statelens::Summary;
use statelens::parts::values::number_text;

use crate::print::grouped;

/// Width of the longest bar, in characters.
const WIDTH: u64 = 40;

/// Draws a histogram with one line per bin, followed by the statistics of the values.
pub(crate) fn drawn(summary: &Summary, edges: &[f64], counts: &[u64]) -> Vec<String> {
    let of = summary.statistics();
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let mut lines: Vec<String> = counts
        .iter()
        .zip(edges.windows(2))
        .map(|(count, edges)| {
            let [low, high] = [edges[0], edges[1]].map(number_text);
            // Length in eighths of a character.
            let eighths = (u128::from(*count) * u128::from(WIDTH) * 8).div_ceil(most.into()) as u64;
            let mut bar = "█".repeat((eighths / 8) as usize);
            bar.extend([' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8) as usize));
            let line = format!("{low:>11} {high:>11}  {:>15}  {bar}", grouped(*count));
            line.trim_end().to_owned()
        })
        .collect();
    let mut rest = vec![format!("{} values", grouped(of.count))];
    for (name, count) in [
        ("NaN", of.nan),
        ("+inf", of.pos_inf),
        ("-inf", of.neg_inf),
        ("zero", of.zeros),
        ("beyond 6 std", of.beyond_6_std),
    ] {
        if count > 0 {
            rest.push(format!("{} {name}", grouped(count)));
        }
    }
    for (name, value) in [("mean", of.mean), ("std", of.std)] {
        rest.extend(value.map(|value| format!("{name} {}", number_text(value))));
    }
    lines.push(rest.join(", "));
    lines
}
