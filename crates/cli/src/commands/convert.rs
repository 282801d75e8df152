//! `statelens convert`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use statelens_checkpoint::{Checkpoint, Error, Loss, Plan, Progress, Result, Segment, Size};
use statelens_convert::{
    Change, Edit, Report, Target, plan, run_blocking, shard_size, shards_by_name,
};
use statelens_formats::{Asked, Shards, Writing};
use statelens_inspect::{Json, ReadBack, visible};

use crate::args::Convert;
use crate::commands::edits;
use crate::limits::{self, limits};
use crate::output::{Output, check_target, keep_all, old_shards, same_file, stop_signal};
use crate::print::{Failure, Outcome, Printer, Table, complain, grouped, size_text};
use crate::progress::{Bar, Unit};
use crate::remote;
use crate::sink::FileSink;
use crate::source::{self, FileSource};

pub(crate) fn run(args: &Convert) -> Outcome {
    let (target, format) = target(args)?;
    let edit = edits::edit(&args.edits)?;
    let (checkpoint, sources) = super::open(&args.input, &args.common.with)?;
    let output = args.output();
    let name = output.file_name().and_then(OsStr::to_str).ok_or_else(|| {
        Error::refused("this names no file").in_file(output.display().to_string())
    })?;
    let checkpoint = Arc::new(checkpoint);
    let target = target.sharded(shards(args, &edit, &checkpoint)?)?;
    // PyTorch's files hold a text once that is named again and again.
    if !matches!(target, Target::Torch(_)) {
        limits::check_texts(&checkpoint, "writing the file")?;
    }
    let plan = plan(checkpoint.clone(), &edit, &target, name)?;
    let size = plan.size()?;
    let paths = planned_paths(args, &plan);
    if args.dry_run {
        let mut printer = Printer::new();
        let changes = if edit.is_empty() { Vec::new() } else { edit.preview(&checkpoint)? };
        show(args, &format, &plan, size, &changes, &mut printer)?;
        printer.finish()?;
        return Ok(true);
    }
    if plan.loses() && !args.lossy {
        return Err(refuse_losses(&plan.losses).into());
    }
    let unfolded = checkpoint.unfolded().writing(size.bytes());
    unfolded
        .check("writing the file", limits())
        .map_err(|error| error.in_file(args.input.display().to_string()))?;
    // What is written may be another one: that of a large file would be in memory twice.
    drop(checkpoint);
    remote::check_cap(&plan)?;
    let losses = plan.losses.clone();
    let source = plan.source.clone();
    let judge = |report: &Report| match args.lossy {
        true => Ok(()),
        false => edits::refuse_false(&source, report),
    };
    let mut bar = Bar::new("writing", Unit::Bytes).stopped_by(stop_signal()?);
    let started = Instant::now();
    let written = match remote::address(&args.output()) {
        Some(_) => remote::write(&paths, plan, args.force, &judge, &mut bar),
        None => write(&paths, plan, args, &sources, &judge, &mut bar),
    };
    let report = written.map_err(|error| match error.file() {
        Some(_) => error,
        None => error.in_file(args.output().display().to_string()),
    })?;
    drop(bar);
    let mut printer = Printer::new();
    let seconds = started.elapsed().as_secs_f64();
    done(args, &format, &paths, &source, &losses, &report, seconds, &mut printer)?;
    printer.finish()?;
    Ok(true)
}

/// Writes files of the disk, which get their names when all are complete and `judge` has nothing
/// against what became of them.
fn write(
    paths: &[PathBuf],
    plan: Plan,
    args: &Convert,
    sources: &[Arc<FileSource>],
    judge: &dyn Fn(&Report) -> Result<()>,
    progress: &mut dyn Progress,
) -> Result<Report> {
    let size = plan.size()?.bytes();
    let replace = args.force;
    let mut outputs = Vec::new();
    for path in paths {
        // And again, for good, when the file gets its name.
        check_target(path, replace, sources)?;
        // The room for all of them is asked for with the first.
        let room = if outputs.is_empty() { size } else { 0 };
        outputs.push(Output::create(path, replace, room)?);
    }
    if let [only] = &outputs[..] {
        only.reserve(size)?;
    }
    let read_back = ReadBack::of(&plan);
    let mut sink = FileSink::new(outputs.iter().map(|output| output.file.clone()).collect());
    let report = run_blocking(plan, &mut sink, progress)?;
    judge(&report)?;
    sink.finish()?;
    let written = outputs.iter().map(|output| source::written(&output.file));
    read_back.check(written.collect::<Result<_>>()?, limits(), progress)?;
    let old = old_shards(paths);
    keep_all(outputs, args.durable.sync())?;
    // Only now that nothing names them any more. The checkpoint that was read may be among them.
    for shard in
        old.iter().filter(|old| !sources.iter().any(|source| same_file(old, source.path())))
    {
        fs::remove_file(shard).map_err(|error| {
            Error::io(format!("this shard of the replaced checkpoint can't be removed: {error}"))
                .in_file(shard.display().to_string())
                .advice("The new checkpoint is complete; nothing names this file any more.")
        })?;
    }
    Ok(report)
}

/// [`run`], to the format that the name of the command says.
pub(crate) fn run_to(mut args: Convert, to: &str) -> Outcome {
    if args.to.as_deref().is_some_and(|asked| asked != to) {
        let error = Error::refused(format!("this command writes {to} files"));
        return Err(error.advice("Use `statelens convert` for another format.").into());
    }
    args.to = Some(to.to_owned());
    run(&args)
}

impl Convert {
    /// Where the output goes: where it is said to, or, as the trainer names a subset of states,
    /// beside the input.
    fn output(&self) -> PathBuf {
        self.output.clone().unwrap_or_else(|| {
            let name = self.input.file_name().unwrap_or_default().to_string_lossy();
            self.input.with_file_name(format!("{}_{name}", self.edits.states.join("_")))
        })
    }
}

/// What to write: as `--to` says, else as the name of the file does.
fn target(args: &Convert) -> Result<(Target, String)> {
    let writing = match &args.to {
        Some(id) => statelens_formats::writing(id)?,
        None => by_extension(&args.output())?,
    };
    let asked = Asked {
        version: args.format_version.clone(),
        compression: args.compress.clone(),
        object_graph: args.object_graph,
        state_file: args.state_file,
    };
    Ok((writing.target(&asked)?, writing.full_name(&asked)))
}

/// What `--shard-size` or `--shard` ask for, of what `edit` leaves of the checkpoint.
fn shards(args: &Convert, edit: &Edit, source: &Checkpoint) -> Result<Shards> {
    match &args.shard_size {
        Some(size) => Ok(Shards::BySize(shard_size(size)?)),
        None if args.shard.is_empty() => Ok(Shards::One),
        None if edit.is_empty() => shards_by_name(&args.shard, source),
        None => shards_by_name(&args.shard, &edit.apply(source)?),
    }
}

fn by_extension(output: &Path) -> Result<&'static Writing> {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    statelens_formats::writing_for_name(&name).ok_or_else(|| {
        let say: Vec<String> = statelens_formats::writings()
            .map(|writing| format!("--to {} (.{})", writing.id, writing.extensions[0]))
            .collect();
        Error::refused("the name does not say which format to write")
            .in_file(output.display().to_string())
            .advice(format!("Say it, or end the name so: {}.", say.join(", ")))
    })
}

/// Tells what would be lost, a line each, and refuses.
pub(super) fn refuse_losses(losses: &[Loss]) -> Error {
    for loss in losses.iter().filter(|loss| !loss.harmless) {
        complain(&format!("would be lost: {}", loss_text(loss)));
    }
    Error::refused("something would be lost, so nothing was written")
        .advice("Go on with --lossy, or leave these keys out with --exclude.")
}

fn loss_text(loss: &Loss) -> String {
    let why = if loss.why.is_empty() { String::new() } else { format!(" {}", loss.why) };
    let keys = match loss.keys.is_empty() {
        true => String::new(),
        false => format!("{}: ", keys_text(&loss.keys)),
    };
    format!("{keys}{}.{why}", loss.what)
}

pub(super) fn keys_text(keys: &[String]) -> String {
    let few: Vec<String> = keys.iter().take(3).map(|key| format!("`{key}`")).collect();
    match keys.len() {
        0..=3 => few.join(", "),
        more => format!("{} and {} more", few.join(", "), grouped(more as u64 - 3)),
    }
}

/// How much of the new file comes about in which way.
#[derive(Default)]
struct Shares {
    made: (u64, u64),
    copied: (u64, u64),
    gathered: (u64, u64),
    cast: (u64, u64),
    compressed: (u64, u64),
}

impl Shares {
    fn of(plan: &Plan) -> Result<Self> {
        let mut shares = Self::default();
        for segment in plan.segments() {
            let (share, len) = match segment {
                Segment::Bytes(bytes) => (&mut shares.made, bytes.len() as u64),
                Segment::Zeros(len) => (&mut shares.made, *len),
                Segment::Late { len, .. } => (&mut shares.made, len.unwrap_or(0)),
                Segment::Data(data) => {
                    let tensor = plan.source.tensor(data.tensor)?;
                    let share = if data.encoding.is_some() {
                        &mut shares.compressed
                    } else if tensor.stored != tensor.dtype {
                        &mut shares.cast
                    } else if statelens_tensor::verbatim_span(tensor).is_some() {
                        &mut shares.copied
                    } else {
                        &mut shares.gathered
                    };
                    (share, tensor.nbytes().unwrap_or(0))
                }
            };
            share.0 += 1;
            share.1 = share.1.saturating_add(len);
        }
        Ok(shares)
    }

    fn rows(&self) -> [(&'static str, &'static str, (u64, u64)); 5] {
        [
            ("made", "parts: headers, indexes, plain values", self.made),
            ("copied", "tensors, as they are", self.copied),
            ("gathered", "tensors, from chunks, views or constants", self.gathered),
            ("cast", "tensors, to another dtype", self.cast),
            ("compressed", "tensors; so many before compression", self.compressed),
        ]
    }
}

/// The plan, not run.
fn show(
    args: &Convert,
    format: &str,
    plan: &Plan,
    size: Size,
    changes: &[Change],
    printer: &mut Printer,
) -> Result<(), Failure> {
    let shares = Shares::of(plan)?;
    if args.common.json {
        let mut json = Json::new();
        json.object(|json| {
            head(json, args, format);
            json.name("dry_run").bool(true);
            json.name("bytes").number(size.bytes());
            json.name("exact").bool(matches!(size, Size::Exact(_)));
            let paths: Vec<PathBuf> = planned_paths(args, plan);
            files_json(json, &paths);
            json.name("segments").object(|json| {
                for (name, _, (count, bytes)) in shares.rows() {
                    json.name(name).object(|json| {
                        json.name("count").number(count);
                        json.name("bytes").number(bytes);
                    });
                }
            });
            losses_json(json, &plan.losses);
            edits::changes_json(json, changes);
        });
        return printer.line(json.as_str());
    }
    let at_most = if matches!(size, Size::Exact(_)) { "" } else { "at most " };
    let mut table = Table::new(&["", ""]);
    for (at, path) in planned_paths(args, plan).iter().enumerate() {
        let word = if at == 0 { "would write" } else { "" };
        table.row(vec![word.into(), path.display().to_string()]);
    }
    table.row(vec!["format".into(), format.into()]);
    let bytes = size.bytes();
    table.row(vec![
        "size".into(),
        format!("{at_most}{} bytes ({})", grouped(bytes), size_text(bytes)),
    ]);
    for (name, what, (count, bytes)) in shares.rows() {
        if count > 0 {
            let text = format!("{} bytes, {} {what}", grouped(bytes), grouped(count));
            table.row(vec![name.into(), text]);
        }
    }
    table.print_body(printer)?;
    losses_text(&plan.losses, printer)?;
    edits::changes_text(changes, printer)
}

pub(super) fn losses_text(losses: &[Loss], printer: &mut Printer) -> Result<(), Failure> {
    for loss in losses {
        let word = if loss.harmless { "changed" } else { "lost" };
        printer.line(&format!("{word:11}  {}", visible(&loss_text(loss))))?;
    }
    Ok(())
}

/// Where the files of a plan go: beside each other.
fn planned_paths(args: &Convert, plan: &Plan) -> Vec<PathBuf> {
    plan.files.iter().map(|file| args.output().with_file_name(&file.name)).collect()
}

fn files_json(json: &mut Json, paths: &[PathBuf]) {
    json.name("files").array(|json| {
        paths.iter().for_each(|path| json.str(&path.to_string_lossy()));
    });
}

fn losses_json(json: &mut Json, losses: &[Loss]) {
    json.name("losses").array(|json| {
        for loss in losses {
            json.object(|json| {
                json.name("keys").array(|json| loss.keys.iter().for_each(|key| json.str(key)));
                json.name("what").str(&loss.what);
                json.name("why").str(&loss.why);
                json.name("harmless").bool(loss.harmless);
            });
        }
    });
}

fn head(json: &mut Json, args: &Convert, format: &str) {
    json.name("statelens").number(1);
    json.name("output").str(&args.output().to_string_lossy());
    json.name("format").str(format);
}

/// What was written.
#[allow(clippy::too_many_arguments, reason = "everything that there is to say, said once")]
fn done(
    args: &Convert,
    format: &str,
    paths: &[PathBuf],
    source: &Checkpoint,
    losses: &[Loss],
    report: &Report,
    seconds: f64,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let bytes = report.bytes;
    if args.common.json {
        let mut json = Json::new();
        json.object(|json| {
            head(json, args, format);
            json.name("dry_run").bool(false);
            json.name("bytes").number(bytes);
            files_json(json, paths);
            edits::cast_json(json, source, report);
            losses_json(json, losses);
        });
        return printer.line(json.as_str());
    }
    let several = match paths {
        [] | [_] => String::new(),
        all => format!(" and {} more", all.len() - 1),
    };
    let first = paths.first().cloned().unwrap_or_else(|| args.output());
    printer.line(&format!(
        "wrote {}{several}: {}, {} bytes in {seconds:.1} s ({}/s)",
        visible(&first.display().to_string()),
        format,
        grouped(bytes),
        size_text((bytes as f64 / seconds.max(1e-3)) as u64)
    ))?;
    losses_text(losses, printer)?;
    edits::cast_text(source, report, printer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_the_format() {
        let id = |name: &str| by_extension(Path::new(name)).map(|writing| writing.id);
        assert_eq!(id("a/b.MDL").unwrap(), "cerebras");
        assert_eq!(id("b.x.pth").unwrap(), "torch");
        assert!(id("mdl").unwrap_err().to_string().contains("--to torch (.pt)"));
    }
}
