//! Planning a conversion as a job.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{Error, Loss, Progress, Result, Size};

use super::division::{Division, Medium};
use super::options::JobOptions;
use super::planned::medium;
use super::reading::identities;
use super::recipe::{ConvertRecipe, JobOutput, JobWork, Recipe, VERSION, temporary_start};
use super::{digest, memory, objects};
use crate::files::PathText as _;
use crate::output::{Folders, Output};
use crate::refusal::Refusal;
use crate::write::{begin, output_paths};

/// Bytes of a task, unless the number of tasks is given.
const TASK: u64 = 2_000_000_000;
/// Maximum number of tasks, unless their number is given.
const MOST_TASKS: u64 = 1_000;

/// A planned job of conversion that is not stored yet. If it is dropped, its temporary files are
/// removed.
pub(crate) struct NewJob {
    pub(crate) recipe: Recipe,
    pub(crate) losses: Vec<Loss>,
    outputs: Vec<Output>,
    folders: Folders,
    uploads: objects::Uploads,
}

impl NewJob {
    /// Plans a conversion in `tasks` tasks, and creates its temporary files. `refusal` refuses losses,
    /// unless the options accept them.
    pub(crate) fn plan(
        options: JobOptions,
        tasks: Option<u64>,
        refusal: Refusal,
        progress: &mut dyn Progress,
    ) -> Result<Self> {
        let (plan, sources) = options.plan(progress)?;
        if !options.lossy {
            refusal.check_losses(&plan)?;
        }
        if statelens_formats::cerebras::s3::is_prefix(&plan) {
            return Err(Error::unsupported("a job does not write the objects of this format")
                .advice("Write them with one `convert`, or let the job write a .mdl file."));
        }
        let limits = options.reading.limits();
        let bytes = plan.bounded(&limits)?;
        let tasks = tasks.unwrap_or_else(|| bytes.div_ceil(TASK).clamp(1, MOST_TASKS));
        let medium = medium(&options);
        let division = Division::of(&plan, tasks, medium)?;
        let undivided: Vec<usize> = division.undivided().collect();
        let id = id(&options);
        let paths = output_paths(&plan, &options.destination);
        // Dropped from the last to the first: the folders when they are empty.
        let (mut folders, mut outputs) = (Folders::default(), Vec::new());
        let mut uploads = objects::Uploads::default();
        match medium {
            Medium::Objects => objects::check(&plan, &division, &paths, options.replace)?,
            Medium::Files => {
                let create = |index, path: &Path, room| {
                    let start = temporary_start(&id);
                    let name = |attempt| format!("{start}{index}-{attempt}.part");
                    Output::create_as(path, options.replace, room, &name)
                };
                let writing = options.writing(&limits, &sources);
                (folders, outputs) = begin(&paths, &plan, &writing, &create)?;
            }
        }
        let mut named = Vec::new();
        for (index, (path, file)) in paths.into_iter().zip(&plan.files).enumerate() {
            let size = file.size(&plan.source)?;
            let (mut temporary, mut upload) = (None, None);
            match outputs.get(index) {
                Some(output) => {
                    if let Size::Exact(exact) = size {
                        output.file.set_len(exact).map_err(|error| {
                            Error::io(format!("it can't be created: {error}"))
                                .in_file(path.to_text())
                        })?;
                    }
                    temporary = Some(output.temporary().to_owned());
                }
                None => upload = Some(uploads.begin(&path)?),
            }
            let (bytes, undivided) = (size.bytes(), undivided.contains(&index));
            named.push(JobOutput { path, temporary, upload, bytes, undivided });
        }
        let convert = ConvertRecipe {
            sources: identities(&plan.source),
            digest: digest::of(&plan, &division)?,
            parts: tasks,
            outputs: named,
            folders: folders.made().to_vec(),
            options,
        };
        let recipe = Recipe {
            statelens: 1,
            version: VERSION.to_owned(),
            id,
            tasks: division.tasks(),
            memory: memory::of_task(&plan, memory::so_far())?,
            work: JobWork::Convert(Box::new(convert)),
            checksum: String::new(),
        }
        .summed()?;
        Ok(Self { recipe, losses: plan.losses, outputs, folders, uploads })
    }

    /// Leaves the temporary files to the tasks.
    pub(crate) fn keep(mut self) {
        self.outputs.into_iter().for_each(|output| drop(output.leave()));
        self.folders.keep();
        self.uploads.keep();
    }
}

/// Returns a name for temporary files that no other job has.
fn id(options: &JobOptions) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = format!("{now:?} {} {}", std::process::id(), options.destination.to_text());
    statelens_checkpoint::hex(&Sha256::digest(text.as_bytes())[..6])
}
