//! `statelens singular`.

use statelens::Error;
use statelens::PathText as _;
use statelens::parts::checkpoint::{shape_text, visible};
use statelens::parts::values::number_text;
use statelens::parts::values::singular::{Spectrum, Which, plan_text, spectrum_facts};
use statelens::statistics::SingularReport;

use super::selected::SelectedTensor;
use crate::args::SingularArgs;
use crate::limits::limits;
use crate::print::{CommandResult, Printer, grouped};
use crate::progress::{Bar, Unit};

/// Values that are listed, and characters of the longest bar.
const LISTED: usize = 32;
const WIDTH: f64 = 32.0;

pub(crate) fn run(args: &SingularArgs) -> CommandResult {
    let (file, with) = (&args.input.file, &args.input.common.with);
    let opened = crate::commands::quantised::open(file, with, &[&args.key])?;
    let checkpoint = opened.inner();
    let leaves = checkpoint.leaves();
    let named = |error: Error| error.in_file(args.input.file.to_text());
    let SelectedTensor { title, tensor, .. } =
        SelectedTensor::find(checkpoint, &leaves, &args.key, &args.input.file)?;
    let which = match (args.all, args.top) {
        (true, _) => Which::All,
        (_, Some(count)) => Which::Largest(count),
        _ => Which::Usual,
    };
    let mut report = SingularReport::plan(&tensor, &title, which).map_err(named)?;
    let all = checkpoint.unfolded().writing(report.plan.bytes);
    all.check("reading it so often", limits()).map_err(named)?;
    if !args.dry_run {
        let mut bar = Bar::stoppable("multiplying", Unit::Work)?;
        report.read(&checkpoint.files, &tensor, &mut bar).map_err(named)?;
    }
    let mut printer = Printer::new();
    if args.input.common.json {
        printer.report(&report)?;
    } else {
        let (dtype, shape) = (&tensor.dtype, shape_text(&tensor.shape));
        printer.line(&format!("{}  {dtype} {shape}", visible(&title)))?;
        match &report.found {
            Some(found) => lines(found, &mut printer)?,
            None => printer.line(&format!("would find {}", plan_text(&report.plan)))?,
        }
    }
    printer.success()
}

fn lines(found: &Spectrum, printer: &mut Printer) -> Result<(), crate::print::Failure> {
    for (name, text) in spectrum_facts(found) {
        printer.line(&format!("  {name:16} {text}"))?;
    }
    printer.line("")?;
    // The bars are logarithmic and scaled to the values that are listed.
    let log = |value: f64| if value > 0.0 { value.log10() } else { f64::NEG_INFINITY };
    let most = found.values.first().map_or(0.0, |value| log(*value));
    let listed = &found.values[..found.values.len().min(LISTED)];
    let least = listed.iter().rev().map(|value| log(*value)).find(|log| log.is_finite());
    let span = (most - least.unwrap_or(most)).max(1.0);
    for ((number, value), error) in (1u64..).zip(listed).zip(&found.errors) {
        let part = ((log(*value) - most) / span + 1.0).clamp(0.0, 1.0);
        let bar = "█".repeat((part * WIDTH).ceil() as usize);
        let (value, error) = (number_text(*value), number_text(*error));
        let line = format!("{number:>6}  {value:>11} ± {error:<9}  {bar}");
        printer.line(line.trim_end())?;
    }
    let rest = found.values.len() - listed.len();
    if rest > 0 {
        printer.line(&format!("        and {} more: --json lists them", grouped(rest as u64)))?;
    }
    Ok(())
}
