//! Checks a folder or a repository by the rules of `statelens check`.

use std::rc::Rc;

use statelens_checkpoint::{Limits, Result, Unwatched};
use statelens_compare::folder::{FolderReport, RuleLevels, check_folder};
use wasm_bindgen::JsValue;

use crate::folder_check::message::FolderCheckRequest;
use crate::open::message::FileName;
use crate::open::worker::address::HubRepository;
use crate::protocol::FromWorker;
use crate::text;
use crate::worker::job::Job;
use crate::worker::session::SharedSession;
use crate::worker::sources::Sources;

/// Begins the check.
pub(crate) fn start(
    session: &SharedSession,
    job: Job,
    request: FolderCheckRequest,
    data: &JsValue,
) {
    // Those of an embedding page came with the request to open them.
    let offered = session.borrow_mut().kept(|offered: &mut Option<Rc<Sources>>| offered.clone());
    let sources = offered.unwrap_or_else(|| Rc::new(Sources::sent(data, &request.files, &job)));
    job.clone().spawn(async move {
        let reply = match check(request, &sources, &job).await {
            Ok(report) => FromWorker::Done(Box::new(report).into()),
            Err(error) => FromWorker::Failed(job.kind(), text::failure(&error)),
        };
        job.post(&reply);
    });
}

async fn check(request: FolderCheckRequest, sources: &Sources, job: &Job) -> Result<FolderReport> {
    let (levels, limits) = (RuleLevels::default(), Limits::default());
    let found = HubRepository::find(&request.address, &request.token, job).await?;
    let (files, only) = match &found {
        Some(repository) => repository.folder(request.agreed.follow, job)?,
        None => (sources.set(&within_folder(request.files)), None),
    };
    check_folder(&files, only, &levels, &limits, &mut Unwatched)
}

/// Returns the names relative to the folder that all files are in, if there is one.
fn within_folder(mut files: Vec<FileName>) -> Vec<FileName> {
    let first = files.first().and_then(|file| file.path.split_once('/'));
    let folder = first.map(|(folder, _)| format!("{folder}/")).unwrap_or_default();
    if files.iter().all(|file| file.path.starts_with(&folder)) {
        files.iter_mut().for_each(|file| file.path.replace_range(..folder.len(), ""));
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_relative_to_the_common_folder() {
        let names = |paths: &[&str]| {
            let files = paths.iter().map(|path| FileName { path: (*path).to_owned(), size: 1 });
            within_folder(files.collect()).into_iter().map(|file| file.path).collect::<Vec<_>>()
        };
        assert_eq!(names(&["m/config.json", "m/a/x.pt"]), ["config.json", "a/x.pt"]);
        assert_eq!(names(&["m/config.json", "n/x.pt"]), ["m/config.json", "n/x.pt"]);
        assert_eq!(names(&["config.json", "x.pt"]), ["config.json", "x.pt"]);
        assert_eq!(names(&[]), [""; 0]);
    }
}
