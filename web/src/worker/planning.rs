//! Plans: what the page asks for, in the core's words, and what comes of it, in the page's.

use std::collections::BTreeMap;
use std::sync::Arc;

use statelens_checkpoint::{Checkpoint, Layout, Plan, Result, Size, Unfolded};
use statelens_convert::{
    Cast, Edit, Pattern, Rename, Share, Target, composable, plan_edited, shards_wanted, shares,
};
use statelens_formats::{Asked, Shards, Writing};
use statelens_inspect::listed;
use statelens_tensor::Narrowing;

use crate::protocol::{self, Choice, ConvertOptions, Loss, Planned, Preview};
use crate::state::dtype::short;
use crate::state::fmt::{plural, quoted};
use crate::worker::preview::preview;
use crate::worker::session::{Job, OpenCheckpoint};
use crate::worker::{repair, text};

/// Numbers beyond this lose digits in JS; no file comes near.
const LARGEST: u64 = (1 << 53) - 1;
/// Keys that are named for a loss.
const NAMED: usize = 4;
/// Sizes of shards: what the command calls them, and the page.
const SHARDS: [(&str, &str); 3] = [("2GB", "2 GB"), ("5GB", "5 GB"), ("10GB", "10 GB")];

/// The formats that can be written, with what there is to choose.
#[must_use]
pub fn targets() -> Vec<protocol::Target> {
    let choice = |id: &str, name: &str| Choice { id: id.into(), name: name.into() };
    let choices = |list: &[statelens_formats::Choice]| {
        list.iter().map(|of| choice(of.id, of.name)).collect::<Vec<_>>()
    };
    let target = |writing: &Writing| protocol::Target {
        id: writing.id.into(),
        name: writing.label.into(),
        extension: writing.extensions.first().copied().unwrap_or_default().into(),
        about: writing.about.into(),
        versions: choices(writing.versions),
        compressions: choices(writing.compressions),
        shards: match writing.shards {
            true => {
                let sizes = SHARDS.iter().map(|(id, name)| choice(id, name));
                std::iter::once(choice("", "one file")).chain(sizes).collect()
            }
            false => Vec::new(),
        },
        objects: writing.graphs,
        casts: vec![
            choice("", "as it is"),
            choice("float32", "f32"),
            choice("bfloat16", "bf16"),
            choice("float16", "f16"),
        ],
    };
    statelens_formats::writings().map(target).collect()
}

/// The id of a target of the format that a checkpoint is in; its own if it can't be written.
#[must_use]
pub fn target_of(format: &str) -> String {
    statelens_formats::writing_of(format).map_or(format, |writing| writing.id).into()
}

/// What is written.
#[derive(Clone)]
pub struct Made {
    /// The files.
    pub plan: Plan,
    /// Further files, each plan of another source.
    pub more: Vec<Plan>,
    /// Files of text that belong to them: names and texts.
    pub texts: Vec<(String, String)>,
}

impl From<Plan> for Made {
    fn from(plan: Plan) -> Self {
        Self { plan, more: Vec::new(), texts: Vec::new() }
    }
}

/// Plans a conversion.
///
/// # Errors
/// As the core says them: a pattern that matches nothing, a value that the target can't hold.
pub fn plan(open: &OpenCheckpoint, options: &ConvertOptions, job: &Job) -> Result<(Made, Planned)> {
    if let Some(rewrite) = &options.rewrite {
        let (plan, planned) = repair::plan(open, rewrite, options, job)?;
        return Ok((plan.into(), planned));
    }
    let texts = Unfolded { tensor_bytes: 0, ..open.checkpoint.unfolded() };
    texts.check("writing the file", &open.limits)?;
    let edit = edit(options)?;
    let (source, changes) = if edit.is_empty() {
        (open.checkpoint.clone(), Vec::new())
    } else {
        let (edited, changes) = edit.apply_and_preview(&open.checkpoint)?;
        (Arc::new(edited), changes)
    };
    let target = target(options, &source)?;
    let plan = plan_edited(source, &changes, &target, &options.name)?;
    let mut planned = told(open, &plan, options, job)?;
    planned.preview = preview(changes);
    planned.command = command(open, options);
    Ok((plan.into(), planned))
}

fn edit(options: &ConvertOptions) -> Result<Edit> {
    Ok(Edit {
        untie: options.untie,
        states: options.states.clone(),
        select: Pattern::all(&options.select)?,
        exclude: Pattern::all(&options.exclude)?,
        strip_prefix: options.strip_prefix.clone(),
        rename: Rename::all(&options.rename)?,
        prefix: options.prefix.clone(),
        nest: options.nest,
        casts: Cast::all(options.casts.iter().chain(&options.cast))?,
    })
}

fn target(options: &ConvertOptions, source: &Arc<Checkpoint>) -> Result<Target> {
    let asked = Asked {
        version: options.version.clone(),
        compression: options.compress.clone(),
        object_graph: options.object_graph,
        state_file: options.state_file,
    };
    let target = statelens_formats::writing(&options.to)?.target(&asked)?;
    let rules = options.shard.as_deref().unwrap_or_default();
    let shards = shards_wanted(options.shard_size.as_deref(), rules, || Ok(source))?;
    target.sharded(shards.unwrap_or(Shards::One))
}

/// What is told of a plan: how large, made in which way, what it loses.
///
/// # Errors
/// If the sizes of its files can't be told.
pub(super) fn told(
    open: &OpenCheckpoint,
    plan: &Plan,
    options: &ConvertOptions,
    job: &Job,
) -> Result<Planned> {
    let size = plan.size()?;
    let mut made = 0u64;
    let mut copied = 0u64;
    let mut computed = 0u64;
    let mut how = Ways::default();
    let mut runs: Vec<(String, u64)> = Vec::new();
    let mut run = |name: &str, bytes: u64| match runs.last_mut() {
        _ if bytes == 0 => {}
        Some((last, sum)) if last == name => *sum = sum.saturating_add(bytes).min(LARGEST),
        _ => runs.push((name.to_owned(), bytes.min(LARGEST))),
    };
    for found in shares(plan) {
        let (share, bytes, tensor) = found?;
        let sum = match share {
            Share::Made => &mut made,
            Share::Copied => &mut copied,
            Share::Gathered | Share::Cast | Share::Compressed => &mut computed,
        };
        *sum = sum.saturating_add(bytes);
        match tensor {
            Some(_) if share == Share::Copied => how.unchanged += 1,
            Some(tensor) => how.add(tensor),
            None => {}
        }
        run(tensor.map_or("", |tensor| tensor.dtype.name()), bytes);
    }
    let leaves = plan.source.leaves();
    let tensors = leaves.iter().filter(|leaf| plan.source.tensor_of(leaf.id).is_some()).count();
    let compress =
        options.compress.as_deref().map(|name| format!(", then {name}")).unwrap_or_default();
    let weights = format!("{}{compress}", how.text());
    Ok(Planned {
        names: plan.files.iter().map(|file| file.name.clone()).collect(),
        size: size.bytes().min(LARGEST),
        exact: matches!(size, Size::Exact(_)),
        made: made.min(LARGEST),
        copied: copied.min(LARGEST),
        computed: computed.min(LARGEST),
        weights,
        tensors: tensors as u64,
        keys: leaves.len() as u64,
        runs,
        losses: plan
            .losses
            .iter()
            .filter(|loss| !loss.harmless)
            .map(loss_text)
            .chain(much_to_fetch(open, copied.saturating_add(computed), job))
            .chain(much_to_write(open, size.bytes()))
            .collect(),
        notes: plan.losses.iter().filter(|loss| loss.harmless).map(note).collect(),
        narrows: plan
            .source
            .tensors()
            .iter()
            .any(|tensor| Narrowing::of(&tensor.stored, &tensor.dtype).is_some()),
        zero_copy: composable(plan) && open.sources.server().is_none(),
        preview: Preview::default(),
        changes: Vec::new(),
        command: String::new(),
    })
}

impl Planned {
    /// Tells of further files that are written with these.
    pub(super) fn add(&mut self, more: Self) {
        self.names.extend(more.names);
        self.size = self.size.saturating_add(more.size).min(LARGEST);
        self.exact &= more.exact;
        self.made = self.made.saturating_add(more.made).min(LARGEST);
        self.copied = self.copied.saturating_add(more.copied).min(LARGEST);
        self.computed = self.computed.saturating_add(more.computed).min(LARGEST);
        self.tensors += more.tensors;
        self.keys += more.keys;
        self.runs.extend(more.runs);
        self.losses.extend(more.losses);
        self.notes.extend(more.notes);
        self.zero_copy &= more.zero_copy;
    }
}

/// That what is small in the source is large in what is written.
fn much_to_write(open: &OpenCheckpoint, bytes: u64) -> Option<Loss> {
    let all = open.checkpoint.unfolded().writing(bytes);
    let of = |bytes| crate::state::fmt::bytes(bytes);
    all.is_over(&open.limits).then(|| Loss {
        title: format!("This writes {} of what the source has in {}", of(bytes), of(all.stored_bytes)),
        why: "Nothing is lost. The source names the same bytes many times over, and the new file needs each of them.".into(),
    })
}

/// That a conversion fetches more than an action may without being asked for it.
fn much_to_fetch(open: &OpenCheckpoint, bytes: u64, job: &Job) -> Option<Loss> {
    let host = open.sources.server()?.host();
    (bytes > job.allowance().cap()).then(|| Loss {
        title: format!("This fetches about {} from {host}", crate::state::fmt::bytes(bytes)),
        why: "Nothing is lost. The weights are not on this computer, and the new file needs them."
            .into(),
    })
}

/// What becomes of tensors: how many are cast to what, rewritten, or copied as they are; of the
/// first two, how many have to be unpacked for that.
#[derive(Default)]
struct Ways {
    unchanged: u64,
    rewritten: Way,
    cast: BTreeMap<String, Way>,
}

/// So many tensors, and how many of them are stored in which way.
#[derive(Default)]
struct Way {
    count: u64,
    stored: BTreeMap<String, u64>,
}

impl Ways {
    /// Counts a tensor that is not copied byte for byte.
    fn add(&mut self, tensor: &statelens_checkpoint::Tensor) {
        let way = if tensor.stored == tensor.dtype {
            &mut self.rewritten
        } else {
            self.cast.entry(short(tensor.dtype.name())).or_default()
        };
        way.count += 1;
        if let Some(stored) = stored(tensor) {
            *way.stored.entry(stored).or_default() += 1;
        }
    }

    /// `114 cast to bf16 (85 of them LZ4), 1 unchanged`.
    fn text(&self) -> String {
        let mut parts: Vec<String> =
            self.cast.iter().map(|(to, way)| way.text(&format!("cast to {to}"))).collect();
        if self.rewritten.count > 0 {
            parts.push(self.rewritten.text("rewritten"));
        }
        match (parts.is_empty(), self.unchanged) {
            (true, 0) => return "none".to_owned(),
            (true, 1) => return "copied unchanged".to_owned(),
            (true, count) => return format!("all {count} copied unchanged"),
            (false, 0) => {}
            (false, count) => parts.push(format!("{count} unchanged")),
        }
        parts.join(", ")
    }
}

impl Way {
    fn text(&self, what: &str) -> String {
        let stored: Vec<String> = self
            .stored
            .iter()
            .map(|(stored, count)| match *count == self.count {
                true => stored.clone(),
                false => format!("{count} of them {stored}"),
            })
            .collect();
        match stored.is_empty() {
            true => format!("{} {what}", self.count),
            false => format!("{} {what} ({})", self.count, stored.join(", ")),
        }
    }
}

/// How a tensor is stored that can't be taken as it is.
fn stored(tensor: &statelens_checkpoint::Tensor) -> Option<String> {
    Some(match &tensor.layout {
        Layout::Chunked(chunked) => match chunked.chunks.describe() {
            filters if filters.is_empty() => "in chunks".to_owned(),
            filters => filters,
        },
        Layout::Packed(_) => "deflated".into(),
        Layout::Strided(_) => "views".into(),
        Layout::Fill(_) => "of one value".into(),
        Layout::Concat(_) => "in parts".into(),
        Layout::Computed(_) => "computed".into(),
        Layout::Span(_) | Layout::Deferred(_) | Layout::Inline(_) | Layout::Missing(_) => {
            return None;
        }
    })
}

fn loss_text(loss: &statelens_checkpoint::Loss) -> Loss {
    let count = match loss.keys.len() {
        0 => String::new(),
        len => format!("{}: ", plural(len as u64, "key")),
    };
    let why = format!(
        "{} {}",
        listed(&loss.keys, NAMED),
        if loss.why.is_empty() { String::new() } else { text::sentence(&loss.why) }
    );
    Loss {
        title: text::of_page(&format!(
            "{count}{}",
            if count.is_empty() { text::title(&loss.what) } else { loss.what.clone() }
        )),
        why: text::of_page(why.trim()),
    }
}

fn note(loss: &statelens_checkpoint::Loss) -> String {
    text::of_page(&match loss.keys.len() {
        0 => loss.what.clone(),
        1..=2 => format!("{}: {}", loss.keys.join(", "), loss.what),
        len => format!("{len} keys: {}", loss.what),
    })
}

/// The command that does the same, quoted for a shell.
fn command(open: &OpenCheckpoint, options: &ConvertOptions) -> String {
    let mut words = vec![
        "convert".into(),
        source_name(open),
        options.name.clone(),
        "--to".into(),
        options.to.clone(),
    ];
    let mut add = |flag: &str, value: &str| words.extend([flag.to_owned(), value.to_owned()]);
    if !options.states.is_empty() {
        add("--states", &options.states.join(","));
    }
    options.select.iter().for_each(|pattern| add("--select", pattern));
    options.exclude.iter().for_each(|pattern| add("--exclude", pattern));
    if !options.strip_prefix.is_empty() {
        add("--strip-prefix", &options.strip_prefix);
    }
    options.rename.iter().for_each(|rule| add("--rename", rule));
    if !options.prefix.is_empty() {
        add("--prefix", &options.prefix);
    }
    options.casts.iter().for_each(|rule| add("--cast", rule));
    for (flag, value) in [
        ("--cast", &options.cast),
        ("--compress", &options.compress),
        ("--shard-size", &options.shard_size),
        ("--format-version", &options.version),
    ] {
        if let Some(value) = value {
            add(flag, value);
        }
    }
    options.shard.iter().flatten().for_each(|rule| words.extend(["--shard".into(), rule.clone()]));
    for (flag, on) in [
        ("--untie", options.untie),
        ("--nest", options.nest),
        ("--object-graph", options.object_graph),
        ("--state-file", options.state_file),
    ] {
        words.extend(on.then(|| flag.to_owned()));
    }
    command_line(&words)
}

/// The name or the address of the file that is open.
pub(super) fn source_name(open: &OpenCheckpoint) -> String {
    let files = &open.checkpoint.files;
    let main = || files.main().map(|main| files.name(main).to_owned()).ok();
    let url = open.sources.server().map(|server| server.url().to_owned());
    url.or_else(main).unwrap_or_default()
}

/// Words for `statelens`, quoted for a shell.
pub(super) fn command_line<Word: AsRef<str>>(words: &[Word]) -> String {
    let mut line = "statelens".to_owned();
    for word in words {
        line.push(' ');
        line.push_str(&quoted(word.as_ref()));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_tensors_is_counted_once() {
        let way = |count, stored: &[(&str, u64)]| Way {
            count,
            stored: stored.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        let cast = [("bf16".to_owned(), way(114, &[("LZ4", 85)]))].into();
        let ways = Ways { unchanged: 1, rewritten: Way::default(), cast };
        assert_eq!(ways.text(), "114 cast to bf16 (85 of them LZ4), 1 unchanged");
        let rewritten = way(3, &[("deflated", 3)]);
        let ways = Ways { rewritten, ..Ways::default() };
        assert_eq!(ways.text(), "3 rewritten (deflated)");
        assert_eq!(Ways { unchanged: 2, ..Ways::default() }.text(), "all 2 copied unchanged");
        assert_eq!(Ways::default().text(), "none");
    }
}
