//! `statelens diff`.

mod layers;
mod renames;
mod tensor_diff;

use statelens::parts::checkpoint::Checkpoint;
use statelens::parts::compare::check::{expected_of, parts_sides, prefix_between};
use statelens::parts::compare::diff::{ComparisonReport, Tolerance};
use statelens::parts::convert::{Edit, Pattern, Rename};
use statelens::sides::{EditedSides, SideEdits, comparison_json};
use statelens::{DiffOptions, Error, Result, diff_with};

use crate::args::{Diff, DiffOrder, EqualityTest};
use crate::commands::edits::listed_renames;
use crate::print::{CommandResult, Failure, Printer, TextTable, counted, grouped, warn};
use crate::progress::{Bar, Unit};

pub(crate) fn run(args: &Diff) -> CommandResult {
    let left = super::open(&args.left, &args.common.with)?;
    let right = super::open(&args.right, &args.common.with)?;
    let (left, right, quantised) = crate::commands::quantised::alike(left, right)?;
    for side in [&left, &right] {
        side.check_size("comparing all values")?;
    }
    let mut renames = Rename::all(&args.rename)?;
    renames.extend(listed_renames(args.rename_map.as_deref())?);
    let rename = Edit {
        strip_prefix: args.strip_prefix.clone(),
        rename: renames,
        prefix: args.prefix.clone(),
        ..Edit::default()
    };
    let filter = Edit {
        select: Pattern::all(&args.select)?,
        exclude: Pattern::all(&args.exclude)?,
        ..Edit::default()
    };
    let tolerance = tolerance(args)?;
    // As in `convert`, patterns select by the keys of the file, which are renamed afterwards.
    let EditedSides { left, right, unused } = SideEdits { filter, rename }.apply(left, right)?;
    for pattern in unused {
        warn(&format!("--exclude {pattern}: no key matches"));
    }
    let options = DiffOptions {
        tolerance,
        nan_differs: args.nan_differs,
        ignore_dtype: args.ignore_dtype,
        ignore_type: args.ignore_type,
        structure: args.structure,
    };
    if !args.closer.is_empty() {
        return tensor_diff::run(args, &left, &right);
    }
    if args.renames {
        return renames::run(args, &left, &right, options);
    }
    let mut bar = Bar::stoppable("comparing", Unit::Bytes)?;
    let mut report = diff_with(&left, &right, options, &mut bar)?;
    drop(bar);
    // A quantised weight always differs: the question is how much.
    if quantised || args.sort == DiffOrder::Change {
        report.sort_by_change();
    }
    if args.quiet {
        return Ok(report.matches());
    }
    let (left, right) = (left.inner(), right.inner());
    let mut printer = Printer::for_verdict();
    match args.common.json {
        true => printer.line(&comparison_json(&report, args.by_layer))?,
        false => {
            show(&report, &mut printer)?;
            if args.by_layer {
                layers::show(&report.changes, &mut printer)?;
            }
            if let Some(hint) = prefix_hint(&report, left, right) {
                printer.line(&hint)?;
            }
        }
    }
    printer.finish()?;
    Ok(report.matches())
}

/// Returns a hint on the options to use if the keys of the sides differ by a prefix, so that few
/// match.
fn prefix_hint(report: &ComparisonReport, left: &Checkpoint, right: &Checkpoint) -> Option<String> {
    let (of_left, of_right) = (left.leaves(), right.leaves());
    let fewer = of_left.len().min(of_right.len()) as u64;
    if !parts_sides(fewer, report.keys, fewer) {
        return None;
    }
    let (of, to) = (expected_of(left, &of_left), expected_of(right, &of_right));
    let change =
        prefix_between(&of, &to).filter(|change| parts_sides(change.keys, report.keys, fewer))?;
    let select = match of_left.len() as u64 > change.keys && !change.from.is_empty() {
        true => format!("--select '{}*' ", change.from),
        false => String::new(),
    };
    Some(format!(
        "hint: the keys differ by a prefix: {} would be on both sides with {select}{}",
        counted(change.keys, "key"),
        change.option
    ))
}

/// Returns the tolerance: none with `--op equal`, or with neither `--op` nor a given tolerance.
fn tolerance(args: &Diff) -> Result<Option<Tolerance>> {
    let given = args.rtol.is_some() || args.atol.is_some();
    match args.op {
        Some(EqualityTest::Equal) if given => Err(Error::refused("--op equal has no tolerance")
            .advice("Leave --rtol and --atol out, or compare with --op allclose.")),
        Some(EqualityTest::Equal) => Ok(None),
        None if !given => Ok(None),
        _ => {
            let usual = Tolerance::default();
            Ok(Some(Tolerance {
                relative: args.rtol.unwrap_or(usual.relative),
                absolute: args.atol.unwrap_or(usual.absolute),
            }))
        }
    }
}

fn show(report: &ComparisonReport, printer: &mut Printer) -> Result<(), Failure> {
    let mut table = TextTable::new(&["", ""]);
    for difference in &report.differences {
        let key = difference.key.to_lossy().into_owned();
        let text = match difference.parameter_text() {
            Some(parameter) => format!("of {parameter}: {}", difference.text()),
            None => difference.text(),
        };
        table.row(vec![key, text]);
    }
    table.print_body(printer)?;
    let close = match report.close {
        0 => String::new(),
        close => format!(", {} of them within the tolerance only", grouped(close)),
    };
    if report.by_number {
        printer.line(
            "the parameters of the optimizer's entries are known on one side only, so the entries \
             were compared by their numbers",
        )?;
    }
    if report.array_kinds > 0 {
        let keys = match report.array_kinds {
            1 => "1 key is a".to_owned(),
            count => format!("{} are a", counted(count, "key")),
        };
        printer.line(&format!(
            "hint: {keys} tensor on one side and a NumPy array on the other; --ignore-type compares their values"
        ))?;
    }
    let differences = match report.differences.len() {
        0 => "the checkpoints match".to_owned(),
        count => counted(count as u64, "difference"),
    };
    printer.line(&format!(
        "{differences}: {} on both sides, {} read{close}",
        counted(report.keys, "key"),
        counted(report.tensors, "tensor")
    ))
}
