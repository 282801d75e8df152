//! `statelens upgrade`.

use statelens::parts::checkpoint::visible;
use statelens::parts::formats::cerebras::rewrite::{upgrade, with_suffix};
use statelens::parts::values::Json;

use super::writing::{file_name, forced, write};
use crate::args::Upgrade;
use crate::commands::convert::losses_text;
use crate::print::{CommandResult, Printer, grouped};

pub(crate) fn run(args: &Upgrade) -> CommandResult {
    let (checkpoint, sources) =
        super::open(&args.input.file, &args.input.common.with)?.into_parts();
    let name = args.input.file.display().to_string();
    let before = checkpoint.format.version.clone();
    let target = match args.out.as_ref().or(args.output.as_ref()) {
        Some(output) => output.clone(),
        None => with_suffix(&args.input.file, &format!("_{}", args.to)),
    };
    let plan = upgrade(&checkpoint, &args.to, file_name(&target)?, args.lossy);
    let mut printer = Printer::new();
    let Some(plan) = plan.map_err(|error| error.in_file(name.clone()))? else {
        match args.input.common.json {
            true => printer.line(&json(&before, &args.to, None))?,
            false => {
                let text =
                    format!("{} already has format {before}: nothing was written", visible(&name));
                printer.line(&text)?;
            }
        }
        printer.finish()?;
        return Ok(true);
    };
    let losses = plan.losses.clone();
    let replace = forced(args.force);
    let bytes = write(plan, &target, replace, &sources, args.lossy, args.durable.sync())?;
    match args.input.common.json {
        true => {
            printer.line(&json(&before, &args.to, Some((&target.to_string_lossy(), bytes))))?;
        }
        false => {
            printer.line(&format!(
                "wrote {}: format {before} became {}, {} bytes",
                visible(&target.display().to_string()),
                args.to,
                grouped(bytes)
            ))?;
            losses_text(&losses, &mut printer)?;
        }
    }
    printer.finish()?;
    Ok(true)
}

fn json(before: &str, after: &str, written: Option<(&str, u64)>) -> String {
    let mut json = Json::new();
    json.object(|json| {
        json.name("statelens").number(1);
        json.name("from").str(before);
        json.name("to").str(after);
        json.name("output");
        match written {
            None => json.null(),
            Some((path, bytes)) => {
                json.str(path);
                json.name("bytes").number(bytes);
            }
        }
    });
    json.take()
}
