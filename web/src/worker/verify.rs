//! Verifies the open checkpoint: all of it passes through one machine, from a stream.

use std::cell::RefCell;
use std::rc::Rc;

use statelens_checkpoint::{Error, FileId, FileSet, Limits, Result};
use statelens_formats::checks::checks;
use statelens_inspect::verify::{Line, Manifest, Need, Verification};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;
use web_sys::File;

use crate::page::bridge::get;
use crate::protocol::verify::{Told, Verified};
use crate::protocol::{FILES, FromWorker, Running};
use crate::worker::planning::quoted;
use crate::worker::reading::Reader;
use crate::worker::running::{Cancel, Guard, Pulse};
use crate::worker::{Desk, Open, blob, now, post, remote, text};

/// The longest manifest that is read.
const LONGEST: u64 = 256 << 20;
/// Lines that are shown; the report has all.
const SHOWN: usize = 200;

/// Begins, with the manifest that may come beside the message; or stops.
pub(super) fn answer(desk: &Rc<RefCell<Desk>>, finite: Option<bool>, data: &JsValue) {
    desk.borrow_mut().verifying = None;
    let open = desk.borrow().open.clone();
    let Some((open, finite)) = open.zip(finite) else { return };
    let manifest = js_sys::Array::from(&get(data, FILES)).get(0).dyn_into::<File>().ok();
    let cancel = Cancel::default();
    desk.borrow_mut().verifying = Some(Guard(cancel.clone()));
    spawn_local(async move {
        let ended = verify(&open, manifest, finite, &cancel).await;
        if cancel.check().is_ok() {
            tell(Told::Ended(ended.map(Box::new).map_err(|error| text::error(&error))));
        }
        remote::tell();
    });
}

fn tell(told: Told) {
    post(&FromWorker::Verify(told));
}

async fn verify(
    open: &Open,
    manifest: Option<File>,
    finite: bool,
    cancel: &Cancel,
) -> Result<Verified> {
    let began = now();
    let checkpoint = &open.checkpoint;
    let name = manifest.as_ref().map(File::name);
    let manifest = manifest.map(read).transpose()?;
    let checks = checks(checkpoint, &Limits::default())?;
    let mut verification = Verification::new(checkpoint.clone(), checks, manifest.is_some());
    let mut reader = Reader::of_open(cancel);
    let fed = feed(&mut verification, &checkpoint.files, &mut reader, cancel, began).await;
    reader.close().await;
    fed?;
    let (bytes, _) = verification.progress();
    let report = verification.into_report(manifest.as_ref())?;
    let lines = report.lines(finite);
    let mut more = report.more();
    if let Some(rest) = lines.len().checked_sub(SHOWN).filter(|rest| *rest > 0) {
        more.insert(0, format!("and {} more lines", crate::state::fmt::exact(rest as u64)));
    }
    let line = |line: Line| (text::severity(line.grade), line.word.to_owned(), line.key, line.text);
    let label = |(label, text): (&str, String)| (label.to_owned(), text);
    Ok(Verified {
        sound: report.answer(finite),
        grade: text::severity(report.grade(finite)),
        verdict: report.verdict(finite),
        looked_at: report.looked_at().into_iter().map(label).collect(),
        lines: lines.into_iter().take(SHOWN).map(line).collect(),
        more,
        command: command(&checkpoint.files, name, finite),
        report: report.json(report.answer(finite)) + "\n",
        bytes,
        millis: now() - began,
    })
}

async fn feed(
    verification: &mut Verification,
    files: &FileSet,
    reader: &mut Reader,
    cancel: &Cancel,
    began: f64,
) -> Result<()> {
    let mut pulse = Pulse::new();
    loop {
        // After each await: the files may be others by now.
        cancel.check()?;
        match verification.need() {
            Need::Done => return Ok(()),
            Need::Step => verification.step()?,
            Need::Feed(span) => {
                // What one action may fetch of a remote file was agreed: beyond that it ends.
                let piece = reader.piece(files, span).await?;
                cancel.check()?;
                verification.feed(&piece)?;
            }
        }
        if pulse.beat().await {
            let (done, total) = verification.progress();
            let millis = now() - began;
            tell(Told::Progress(Running { done, total, millis, key: String::new() }));
            remote::tell();
        }
    }
}

fn read(file: File) -> Result<Manifest> {
    let name = file.name();
    let read = |source: Option<&blob::BlobSource>| {
        let none = || Error::refused("this is no manifest").in_file(&name);
        let source = source.filter(|_| file.size() as u64 <= LONGEST).ok_or_else(none)?;
        let set = FileSet::single(&name, *source);
        let bytes = set.read_vec(FileId(0), 0, file.size() as u64)?;
        Manifest::parse(&bytes).map_err(|error| error.in_file(&name))
    };
    blob::with_more(vec![file.clone()], |sources| read(sources.first()))
}

/// The command that does the same, quoted for a shell.
fn command(files: &FileSet, manifest: Option<String>, finite: bool) -> String {
    let name = files.main().map(|id| files.name(id).to_owned()).unwrap_or_default();
    let mut words = vec!["statelens".to_owned(), "verify".to_owned(), name];
    words.extend(manifest.into_iter().flat_map(|name| ["--manifest".to_owned(), name]));
    if finite {
        words.push("--finite".to_owned());
    }
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}
