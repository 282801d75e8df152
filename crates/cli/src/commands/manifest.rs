//! `statelens manifest`.

use statelens_checkpoint::Error;
use statelens_inspect::{write_manifest, write_manifest_lines};

use crate::args::Input;
use crate::print::{Failure, Outcome, Printer};
use crate::progress::{Bar, Unit};

pub(crate) fn run(args: &Input) -> Outcome {
    let checkpoint = super::open_for_good(&args.file, &args.common.with)?;
    let leaves = checkpoint.leaves();
    let mut printer = Printer::new();
    let mut bar = Bar::new("hashing", Unit::Bytes);
    let mut stopped = None;
    let mut print = |text: &str| {
        printer.text(text).map_err(|failure| {
            stopped = Some(failure);
            Error::cancelled()
        })
    };
    let written = match args.common.json {
        true => write_manifest(checkpoint, &leaves, &mut bar, &mut print),
        false => write_manifest_lines(checkpoint, &leaves, &mut bar, &mut print),
    };
    match (written, stopped) {
        (_, Some(failure)) => return Err(failure),
        (Err(error), None) => return Err(Failure::Error(error)),
        (Ok(()), None) => {}
    }
    printer.finish()?;
    Ok(true)
}
