//! Prints keys as a tree. Layers that differ only in their number are folded into one.

use statelens::parts::checkpoint::{Checkpoint, Leaf, shape_text, size_text, visible};
use statelens::parts::describe::share::{FoldedLine, Outline, lines};

use crate::print::{Failure, Printer, grouped};

/// Prints the tree of the given leaves, one line per level of a key.
pub(super) fn print(
    checkpoint: &Checkpoint,
    leaves: &[Leaf],
    printer: &mut Printer,
) -> Result<(), Failure> {
    let mut above: Vec<String> = Vec::new();
    for line in lines(&Outline::new(checkpoint, leaves, None)) {
        let mut steps: Vec<String> = line.entry.key.split('.').map(str::to_owned).collect();
        let name = steps.pop().unwrap_or_default();
        let same = above.iter().zip(&steps).take_while(|(one, other)| one == other).count();
        above.truncate(same);
        for step in steps.into_iter().skip(same) {
            printer.line(&format!("{}{}", indent(above.len()), visible(&step)))?;
            above.push(step);
        }
        printer.line(&format!("{}{}", indent(above.len()), visible(&leaf(&name, &line))))?;
    }
    Ok(())
}

fn indent(depth: usize) -> String {
    // The indent is limited: a key may have a thousand dots.
    "  ".repeat(depth.min(40))
}

fn leaf(name: &str, line: &FoldedLine) -> String {
    let entry = &line.entry;
    let mut text = format!("{name}  {}", entry.type_word());
    if !entry.dtype.is_empty() {
        text.push_str(&format!(" {}", shape_text(&entry.shape)));
    }
    if line.times > 1 {
        text.push_str(&format!(" \u{d7}{}", grouped(line.times)));
    }
    if entry.bytes > 0 {
        let all = entry.bytes.saturating_mul(line.times);
        text.push_str(&format!("  {}", size_text(all)));
    }
    match (&entry.link, entry.value.as_str()) {
        (Some(link), _) => text.push_str(&format!("  = {link}")),
        (None, "") => {}
        (None, value) => text.push_str(&format!("  {value}")),
    }
    text
}
