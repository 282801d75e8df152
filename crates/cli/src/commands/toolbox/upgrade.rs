//! `statelens upgrade`.

use std::sync::Arc;

use statelens_checkpoint::Error;
use statelens_formats::Asked;
use statelens_inspect::{Json, visible};

use super::writing::{Replace, beside, file_name, write};
use crate::args::Upgrade;
use crate::commands::convert::losses_text;
use crate::print::{Outcome, Printer, grouped};

pub(crate) fn run(args: &Upgrade) -> Outcome {
    let (checkpoint, sources) = super::open(&args.input.file, &args.input.common.with)?;
    let name = args.input.file.display().to_string();
    if checkpoint.format.id != "cerebras-h5" {
        let what = format!("this is {}, no Cerebras checkpoint", checkpoint.format.name);
        let error = Error::refused(what).in_file(name);
        return Err(error.advice("Use `statelens convert` to make one of it.").into());
    }
    let before = checkpoint.format.version.clone();
    let mut printer = Printer::new();
    if before == args.to {
        match args.input.common.json {
            true => printer.line(&json(&before, &args.to, None))?,
            false => {
                let text = format!(
                    "{} is of format {before} already: nothing was written",
                    visible(&name)
                );
                printer.line(&text)?;
            }
        }
        printer.finish()?;
        return Ok(true);
    }
    if !args.lossy {
        super::check_whole(&checkpoint, None).map_err(|error| {
            error.in_file(name).advice(
                "If weights are missing that stand there under another name, as in checkpoints of \
                 release 1.7, use `statelens fix-checkpoint-spec --upgrade`. With --lossy what is \
                 there is written.",
            )
        })?;
    }
    let target = match &args.output {
        Some(output) => output.clone(),
        None => beside(&args.input.file, &format!("_{}", args.to)),
    };
    let asked = Asked { version: Some(args.to.clone()), ..Asked::default() };
    let format = statelens_formats::writing("cerebras")?.target(&asked)?;
    let plan = statelens_formats::plan(Arc::new(checkpoint), &format, file_name(&target)?)?;
    let losses = plan.losses.clone();
    let bytes = write(plan, &target, Replace::Nothing, &sources, args.lossy)?;
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
