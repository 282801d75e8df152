//! Reports of conversions as JSON.

use std::path::PathBuf;

use statelens_checkpoint::Loss;
use statelens_convert::{Changed, RunReport};
use statelens_tensor::CastReport;
use statelens_values::Json;

/// Keys that a report lists with the effects of casts.
const NAMED: usize = 1000;

/// Writes the field `files`: the paths of the files.
pub fn files_json(json: &mut Json, paths: &[PathBuf]) {
    json.name("files").array(|json| {
        paths.iter().for_each(|path| json.str(&path.to_string_lossy()));
    });
}

/// Writes the field `losses`: the differences from the source.
pub fn losses_json(json: &mut Json, losses: &[Loss]) {
    json.name("losses").value(&losses);
}

/// Writes the field `cast`: what casting did to the numbers, in all and by tensor; `worst` is
/// [`RunReport::worst`].
pub fn cast_json(json: &mut Json, report: &RunReport, worst: &[Changed]) {
    json.name("cast").object(|json| {
        counts(json, &report.cast);
        json.name("pairs").objects(&report.pairs, |json, pair| {
            json.name("from").str(pair.from.name());
            json.name("to").str(pair.to.name());
            json.name("tensors").number(pair.tensors);
            counts(json, &pair.cast);
        });
        json.name("keys").objects(worst.iter().take(NAMED), |json, changed| {
            json.name("key").str(&changed.key);
            counts(json, &changed.cast);
        });
    });
}

fn counts(json: &mut Json, cast: &CastReport) {
    json.name("params").number(cast.elements);
    json.name("changed").number(cast.changed);
    json.name("overflowed").number(cast.overflowed);
    json.name("nonzero").number(cast.nonzero);
    json.name("flushed").number(cast.flushed);
    json.name("largest_relative_error").float(cast.worst);
}
