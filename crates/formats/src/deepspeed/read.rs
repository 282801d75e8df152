//! Opens a checkpoint: with ZeRO, without it, or a universal one.

use std::collections::HashMap;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, DictKey, Error, FileSet, Finding, FormatInfo, Grade, Layout,
    Limits, Progress, Result, Tensor, ValueId, listed,
};

use super::names::Members;
use super::reading::{Entries, MODULE, OPTIMIZER, Reading, dict};
use super::universal;
use crate::joined::UnreadFiles;

/// The state with everything else in the model's states.
const CLIENT: &str = "client_state";
/// Entries of the model's states that are not shown again.
const USED: [&str; 8] = [
    "module",
    "optimizer",
    "param_shapes",
    "frozen_param_shapes",
    "frozen_param_fragments",
    "shared_params",
    "buffer_names",
    "param_slice_mappings",
];

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let main = files.main()?;
    let mut members = Members::of(&files, main);
    let Some(model) = members.models.values().next().copied() else {
        return Err(Error::unsupported(
            "these are states of an optimizer of DeepSpeed, and the file with the names of the \
             parameters was not given",
        )
        .expected(
            "mp_rank_00_model_states.pt, or with stage 3 zero_pp_rank_0_mp_rank_00_model_states.pt",
        )
        .advice("Open the whole folder of the checkpoint."));
    };
    let size = members.models.values().chain(members.optims.values());
    let size = size.fold(0u64, |sum, id| sum.saturating_add(files.len(*id)));
    let mut reading = Reading {
        files: &files,
        builder: Builder::new(&limits.fitted(size)),
        storages: 0,
        findings: Vec::new(),
        unread: UnreadFiles::default(),
        partial: HashMap::new(),
        entries: Vec::new(),
        tensors: 0,
    };
    // The model's states of all ranks have the same names.
    let mut states = None;
    for id in members.models.values() {
        states = states.or(reading.load(*id, progress)?);
        if states.is_some() {
            break;
        }
    }
    let Some(states) = states else {
        let error = reading.unread.first().cloned();
        return Err(error.unwrap_or_else(|| Error::damaged("there is no file of the model")));
    };
    if reading.get(states, "ds_autoep_layers").is_some() {
        members.leave_experts(&files);
    }
    if reading.get(states, MODULE).is_none() && reading.get(states, "param_shapes").is_none() {
        return Err(Error::unsupported(
            "this is not a checkpoint of DeepSpeed: it has no `module`",
        )
        .in_file(files.name(model))
        .advice("Open the file under another name to see what is in it."));
    }
    reading.others(&members);
    let parameters = universal::find(&files, main);
    let experts = reading.experts(&members.experts, progress)?;
    let line = if !parameters.is_empty() {
        universal::read(&mut reading, states, &parameters, progress)?
    } else if reading.shapes(states).is_empty() {
        reading.unsharded(states, experts)?
    } else {
        match reading.zero(states, &members, &experts, progress)? {
            Some(line) => line,
            None => reading.only_module(states, experts)?,
        }
    };
    reading.client(states)?;
    reading.finish(line, &members)
}

impl Reading<'_> {
    /// Reports files that are not joined.
    fn others(&mut self, members: &Members) {
        if members.others.is_empty() {
            return;
        }
        let title = match members.others.as_slice() {
            [one] => format!("The file {one} is not joined"),
            more => format!("{} files are not joined: {}", more.len(), listed(more, 5)),
        };
        let finding = Finding::new(Grade::Damage, title)
            .detail(
                "They hold layers of a pipeline, the parts of other tensor-parallel ranks \
                 (`mp_rank_01`), or experts of such a run. Nothing in them says along which \
                 dimension a tensor was cut. The part of the first rank is shown.",
            )
            .advice("Open each by its name. Megatron's and DeepSpeed's own scripts join them.");
        self.findings.push(finding);
    }

    /// Reads stage 0: the model's states have the weights, and the files of experts have theirs.
    fn unsharded(&mut self, states: ValueId, experts: Entries) -> Result<String> {
        self.entries = self.module(states, experts);
        self.tensors = self.entries.len() as u64;
        if let Some(optimizer) = self.get(states, OPTIMIZER) {
            self.further(OPTIMIZER, optimizer);
        }
        Ok("DeepSpeed without ZeRO".to_owned())
    }

    /// Reads ZeRO without the files of the optimizer: only the 16-bit weights are there.
    fn only_module(&mut self, states: ValueId, experts: Entries) -> Result<String> {
        self.findings.push(
            Finding::new(Grade::Warning, "The float32 weights are not here")
                .detail(
                    "They are in the optimizer's files (`zero_pp_rank_*_optim_states.pt`). The \
                     weights in the dtype of the training are shown.",
                )
                .advice("Put the files of all ranks into one folder, and open that."),
        );
        let entries = self.module(states, experts);
        let shapes: HashMap<String, Vec<u64>> = self
            .shapes(states)
            .into_iter()
            .flatten()
            .map(|(name, shape)| (name.to_lossy().into_owned(), shape))
            .collect();
        for (key, id) in entries {
            let is_empty = self.tensor(id).is_some_and(|tensor| tensor.shape == [0]);
            let known = shapes.get(&key.to_string()).filter(|_| is_empty);
            match known {
                // With stage 3, the model's states have no weights either.
                Some(shape) => {
                    let why = Layout::Missing("it is in the optimizer's files".into());
                    let tensor = Tensor::new(DType::F32, shape.clone(), why);
                    let id = self.push(tensor)?;
                    self.entries.push((key, id));
                }
                None => self.entries.push((key, id)),
            }
        }
        self.tensors = self.entries.len() as u64;
        Ok("DeepSpeed ZeRO, weights in the dtype of the training".to_owned())
    }

    /// Adds the rest of the model's states.
    fn client(&mut self, states: ValueId) -> Result<()> {
        let is_used = |key: &DictKey| USED.iter().any(|used| *key == DictKey::from(*used));
        let rest: Vec<(DictKey, ValueId)> =
            self.dict(states).iter().filter(|(key, _)| !is_used(key)).cloned().collect();
        if !rest.is_empty() {
            let rest = self.builder.push(dict(rest))?;
            self.further(CLIENT, rest);
        }
        Ok(())
    }

    fn finish(mut self, line: String, members: &Members) -> Result<Checkpoint> {
        let root = self.builder.push(dict(self.entries))?;
        let count = members.models.len() + members.optims.len() + members.experts.len();
        self.findings.extend(self.unread.findings(self.files));
        let format = FormatInfo {
            id: "deepspeed",
            name: "DeepSpeed",
            facts: vec![("Joined".into(), line), ("Files".into(), count.to_string())],
            ..FormatInfo::default()
        };
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
        let mut opened = self.builder.finish(root, format, self.files.clone(), self.findings)?;
        opened.partial = self.partial;
        Ok(opened)
    }
}
