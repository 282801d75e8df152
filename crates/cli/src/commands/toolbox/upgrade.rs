//! `statelens upgrade`.

use statelens::PathText as _;
use statelens::parts::checkpoint::visible;
use statelens::parts::formats::cerebras::rewrite::{upgrade, with_suffix};
use statelens::parts::values::fields;
use statelens::write::file_name;

use crate::args::Upgrade;
use crate::commands::losses::losses_text;
use crate::commands::writing::{file_options, output_fields, write};
use crate::print::{CommandResult, Printer, grouped};

pub(crate) fn run(args: &Upgrade) -> CommandResult {
    let (checkpoint, sources) =
        super::open(&args.input.file, &args.input.common.with)?.into_parts();
    let name = args.input.file.to_text();
    let before = checkpoint.format.version.clone();
    let target = match args.out.as_ref().or(args.output.as_ref()) {
        Some(output) => output.clone(),
        None => with_suffix(&args.input.file, &format!("_{}", args.to)),
    };
    let plan = upgrade(&checkpoint, &args.to, &file_name(&target)?, args.lossy)
        .map_err(|error| error.in_file(name.clone()))?;
    let losses = plan.as_ref().map(|plan| plan.losses.clone()).unwrap_or_default();
    let options = file_options(args.replacing, &sources, args.lossy);
    let bytes = plan.map(|plan| write(plan, &target, &options)).transpose()?;
    let mut printer = Printer::new();
    if args.input.common.json {
        printer.report(&fields! {
            from: &before,
            to: &args.to,
            #[serde(flatten)]
            output: output_fields(&target, bytes),
        })?;
        return printer.success();
    }
    match bytes {
        None => printer.line(&format!(
            "{} already has format {before}: nothing was written",
            visible(&name)
        ))?,
        Some(bytes) => printer.line(&format!(
            "wrote {}: format {before} became {}, {} bytes",
            visible(&target.to_text()),
            args.to,
            grouped(bytes)
        ))?,
    }
    losses_text(&losses, &mut printer)?;
    printer.success()
}
