//! `statelens scan`.

use statelens_checkpoint::Grade;
use statelens_inspect::{Json, finding_json, grade_word};

use crate::args::Input;
use crate::print::{Outcome, Printer};

/// The answer is no if anything is dangerous.
pub(crate) fn run(args: &Input) -> Outcome {
    let checkpoint = super::open_for_good(&args.file, &args.common.with)?;
    let worst = checkpoint.findings.iter().map(|finding| finding.grade).max();
    let fine = worst != Some(Grade::Danger);
    let mut printer = Printer::new();
    if args.common.json {
        let mut json = Json::new();
        json.object(|json| {
            json.name("statelens").number(1);
            json.name("worst");
            match worst {
                Some(grade) => json.str(grade_word(grade)),
                None => json.null(),
            }
            json.name("findings").array(|json| {
                checkpoint.findings.iter().for_each(|finding| finding_json(json, finding));
            });
        });
        printer.line(json.as_str()).or_else(closed_is_fine)?;
    } else if checkpoint.findings.is_empty() {
        printer.line("nothing to report").or_else(closed_is_fine)?;
    } else {
        super::print_findings(&checkpoint.findings, &mut printer).or_else(closed_is_fine)?;
    }
    printer.finish().or_else(closed_is_fine)?;
    Ok(fine)
}

/// The exit status must tell the verdict even if nobody reads the words.
fn closed_is_fine(failure: crate::print::Failure) -> Result<(), crate::print::Failure> {
    match failure {
        crate::print::Failure::Closed => Ok(()),
        failure => Err(failure),
    }
}
