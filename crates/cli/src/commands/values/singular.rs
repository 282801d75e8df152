//! `statelens singular`.

use statelens::Error;
use statelens::parts::checkpoint::{shape_text, visible};
use statelens::parts::tensor::{BUFFER, Buffer, drive};
use statelens::parts::values::singular::{
    Singular, SingularPlan, Spectrum, Which, plan_text, spectrum_facts, spectrum_json,
};
use statelens::parts::values::{Matrix, number_text};

use super::selected::SelectedTensor;
use crate::args::SingularArgs;
use crate::limits::limits;
use crate::print::{CommandResult, Printer, grouped};
use crate::progress::{Bar, Unit};

/// Memory limit in bytes.
const MEMORY: u64 = 1 << 30;
/// Values that are listed, and characters of the longest bar.
const LISTED: usize = 32;
const WIDTH: f64 = 32.0;

pub(crate) fn run(args: &SingularArgs) -> CommandResult {
    let (file, with) = (&args.input.file, &args.input.common.with);
    let opened = crate::commands::quantised::open(file, with, &[&args.key])?;
    let checkpoint = opened.inner();
    let leaves = checkpoint.leaves();
    let named = |error: Error| error.in_file(args.input.file.display().to_string());
    let SelectedTensor { title, tensor, .. } =
        SelectedTensor::find(checkpoint, &leaves, &args.key, &args.input.file)?;
    let shape = &tensor.shape;
    if shape.len() != 2 {
        let rest = vec!["0, "; shape.len().saturating_sub(2)].concat();
        let error = Error::refused(format!("`{title}` has the shape {}", shape_text(shape)))
            .expected("a matrix: only matrices have singular values");
        return Err(named(match shape.len() {
            3.. => error.advice(format!("Choose one with a slice after the key: [{rest}:, :].")),
            _ => error,
        })
        .into());
    }
    let matrix = Matrix::of(shape, &[]);
    let matrix = matrix.ok_or_else(|| named(Error::refused(format!("`{title}` has no values"))))?;
    let which = match (args.all, args.top) {
        (true, _) => Which::All,
        (_, Some(count)) => Which::Largest(count),
        _ => Which::Usual,
    };
    let plan = SingularPlan::new(&tensor.dtype, matrix, which, MEMORY).map_err(named)?;
    let all = checkpoint.unfolded().writing(plan.bytes);
    all.check("reading it so often", limits()).map_err(named)?;
    let found = match args.dry_run {
        true => None,
        false => {
            let mut machine = Singular::new(&checkpoint.files, &tensor, matrix, plan)?;
            let mut bar = Bar::stoppable("multiplying", Unit::Work)?;
            drive(&mut machine, &mut Buffer::new(BUFFER), &mut bar).map_err(named)?;
            machine.found().cloned()
        }
    };
    let mut printer = Printer::new();
    if args.input.common.json {
        printer.json(|json| {
            json.name("key").str(&title);
            json.name("dtype").str(tensor.dtype.name());
            json.name("shape").numbers(shape);
            json.name("plan").value(&plan);
            if let Some(found) = &found {
                spectrum_json(json, found);
            }
        })?;
    } else {
        let (dtype, shape) = (&tensor.dtype, shape_text(shape));
        printer.line(&format!("{}  {dtype} {shape}", visible(&title)))?;
        match &found {
            Some(found) => lines(found, &mut printer)?,
            None => printer.line(&format!("would find {}", plan_text(&plan)))?,
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
