//! `statelens job`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{By, Common, Edits, Spending, Writes};

#[derive(Debug, Subcommand)]
pub(crate) enum Job {
    /// Plans a conversion, or another command for many checkpoints, as numbered tasks
    #[command(after_help = "\
JOB is a new folder or a prefix of an object store, which every worker can reach. It gets the file
job.json: the options, the sources with their sizes and dates, and a digest of the plan. A worker
plans again and refuses if anything differs.

Without a command, SRC is converted as `statelens convert SRC DST` does. Tasks write to a temporary
file next to DST, each to its own places; `statelens job commit` renames it to DST. A compressed
Cerebras file is written by one task.

Examples:
  statelens job plan model.pt model.safetensors -o job --tasks 16
  statelens job plan s3://bucket/model.pt s3://bucket/new.safetensors -o s3://bucket/job
  statelens job plan verify runs/ 'more/*.pt' -o job --tasks 100
  statelens job plan scan --from list.txt -o job")]
    Plan(Box<JobPlan>),

    /// Runs one task; exit status 1 if trying again is useless, 2 if it may help
    #[command(after_help = "\
Without INDEX, the number of the task comes from SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX
(Kubernetes), AWS_BATCH_JOB_ARRAY_INDEX or STATELENS_TASK. A task may be repeated, also at the same
time on another machine. Its result appears last, as results/NNNNN.json.

Exit status: 0 if the task is done, now or before; 1 if the content, the options or a changed source
prevent it; 2 if trying again may help.

Examples:
  statelens job run job 3
  sbatch --array=0-15 --requeue --wrap 'statelens job run job'
  statelens job run job 3 --per 10           tasks 30 to 39")]
    Run(JobRun),

    /// Completes the output when all tasks are done; may be repeated
    #[command(after_help = "\
Exit status: 0 if the output is complete and, for verify and scan, all is well; 1 if it is not, or
the sources have changed; 2 if results are missing or trying again may help.

Examples:
  statelens job commit job
  statelens job commit job --json > report.json")]
    Commit(JobPlace),

    /// Counts the tasks that are done, and lists those that failed or are missing
    #[command(after_help = "\
Examples:
  statelens job status job
  statelens job status job --json | jq -r '.missing | join(\",\")'")]
    Status(JobPlace),

    /// Removes everything that a job has written; the output of a committed job stays
    #[command(after_help = "\
Examples:
  statelens job abort job")]
    Abort(JobPlace),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct JobPlan {
    #[command(subcommand)]
    pub(crate) many: Option<JobMany>,

    #[command(flatten)]
    pub(crate) convert: JobConvert,
}

/// A conversion to plan. Its arguments are absent if another command is planned.
#[derive(Debug, Args)]
pub(crate) struct JobConvert {
    /// The checkpoint to convert
    #[arg(value_name = "SRC", required = true)]
    pub(crate) input: Option<PathBuf>,

    /// The file to write, or a folder to put it in
    #[arg(value_name = "DST", required = true)]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) place: NewJob,

    #[command(flatten)]
    pub(crate) edits: Edits,

    #[command(flatten)]
    pub(crate) writes: Writes,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Where a new job is stored, and into how many tasks it is divided.
#[derive(Debug, Args)]
pub(crate) struct NewJob {
    /// The folder of the job, or a prefix of an object store
    #[arg(short = 'o', long = "job", value_name = "JOB", required = true)]
    pub(crate) job: Option<PathBuf>,

    /// The number of tasks; by default one for every 2 GB, or for every 10 checkpoints
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) tasks: Option<u64>,
}

/// A command for many checkpoints.
#[derive(Debug, Subcommand)]
pub(crate) enum JobMany {
    /// Verifies each checkpoint, as `statelens verify` does
    Verify {
        #[command(flatten)]
        many: ManyCheckpoints,

        /// Counts NaN and infinite values as faults
        #[arg(long)]
        finite: bool,
    },
    /// Scans each file, as `statelens scan` does
    Scan {
        #[command(flatten)]
        many: ManyCheckpoints,

        /// A class or function that you trust and that is not reported; may be repeated
        #[arg(long, value_name = "NAME")]
        allow: Vec<String>,
    },
    /// Computes statistics of each checkpoint and of all together, as `statelens stats` does
    Stats {
        #[command(flatten)]
        many: ManyCheckpoints,

        /// Also combines tensors into groups
        #[arg(long, value_name = "WHAT")]
        by: Option<By>,
    },
    /// Hashes the values of each checkpoint, as `statelens manifest` does
    Manifest {
        #[command(flatten)]
        many: ManyCheckpoints,
    },
}

impl NewJob {
    /// Returns the place of the job, as given.
    pub(crate) fn place(&self) -> &Path {
        self.job.as_deref().unwrap_or(Path::new(""))
    }
}

impl JobMany {
    pub(crate) fn many(&self) -> &ManyCheckpoints {
        match self {
            Self::Verify { many, .. }
            | Self::Scan { many, .. }
            | Self::Stats { many, .. }
            | Self::Manifest { many } => many,
        }
    }
}

/// The checkpoints of a job.
#[derive(Debug, Args)]
pub(crate) struct ManyCheckpoints {
    /// Files, folders, globs in quotes, addresses, prefixes of an object store that end in /, or
    /// @LIST: a file with one of these on each line
    #[arg(value_name = "CHECKPOINT", required_unless_present = "from")]
    pub(crate) paths: Vec<PathBuf>,

    /// A file with one of these on each line; the same as @LIST
    #[arg(long, value_name = "LIST")]
    pub(crate) from: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) place: NewJob,

    /// Prints the recipe as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) spending: Spending,
}

#[derive(Debug, Args)]
pub(crate) struct JobRun {
    #[command(flatten)]
    pub(crate) place: JobPlace,

    /// The number of the task, from 0; with --per, of the group of tasks
    #[arg(value_name = "INDEX")]
    pub(crate) index: Option<u64>,

    /// Runs K tasks: those from INDEX times K
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) per: u64,
}

#[derive(Debug, Args)]
pub(crate) struct JobPlace {
    /// The folder of the job, or the prefix of an object store
    #[arg(value_name = "JOB")]
    pub(crate) job: PathBuf,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Job {
    /// Returns the limits for the checkpoints of a new job.
    pub(super) fn spending(&self) -> Option<&Spending> {
        match self {
            Self::Plan(plan) => Some(match &plan.many {
                Some(many) => &many.many().spending,
                None => &plan.convert.common.spending,
            }),
            Self::Run(_) | Self::Commit(_) | Self::Status(_) | Self::Abort(_) => None,
        }
    }
}
