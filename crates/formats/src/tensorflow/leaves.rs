//! Collects the leaves of a checkpoint and the problems with them.

use std::collections::BTreeSet;

use statelens_checkpoint::{
    Array, Builder, ByteOrder, Checkpoint, DType, Dict, DictKey, FileSet, Finding, FormatInfo,
    Global, Grade, Layout, Limits, Opaque, Result, Tensor, Text, Value, ValueId, capitalised,
    try_alloc,
};

use super::graph::KeyObject;
use super::{dtype, graph, strings};

/// The result of the reader of either version.
pub(super) type Contents = (BundleLeaves, FormatInfo, Vec<Finding>);

/// The leaves found so far, as a flat dict.
pub(super) struct BundleLeaves {
    builder: Builder,
    found: Vec<BundleLeaf>,
    problems: Vec<Problem>,
    graph: Option<Vec<u8>>,
}

/// A leaf: its key in the file, its value, and further information in the file.
struct BundleLeaf {
    key: Vec<u8>,
    value: ValueId,
    attributes: Vec<(Text, Text)>,
}

struct Problem {
    grade: Grade,
    title: &'static str,
    first: String,
    detail: String,
    count: u64,
}

pub(super) const NO_CHECKSUM: &str =
    "Tensors have no checksum, and TensorFlow refuses to restore them";
const GRAPH_IS_STALE: &str = "The object graph names keys that are missing";
/// The maximum size of a graph that is read. It would take a hundred thousand variables to exceed
/// it.
const MAX_GRAPH: usize = 8 << 20;

impl BundleLeaves {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { builder: Builder::new(limits), found: Vec::new(), problems: Vec::new(), graph: None }
    }

    pub(super) fn problem(
        &mut self,
        grade: Grade,
        title: &'static str,
        key: &[u8],
        detail: impl Into<String>,
    ) {
        match self.problems.iter_mut().find(|problem| problem.title == title) {
            Some(problem) => problem.count += 1,
            None => self.problems.push(Problem {
                grade,
                title,
                first: String::from_utf8_lossy(key).into_owned(),
                detail: detail.into(),
                count: 1,
            }),
        }
    }

    /// Adds a tensor of plain elements, or the reason why its bytes are not available.
    pub(super) fn tensor(
        &mut self,
        key: &[u8],
        number: u64,
        shape: &[u64],
        layout: Result<Layout, String>,
        byte_order: ByteOrder,
    ) -> Result<()> {
        let Some(elements) = dtype::elements(number) else {
            return self.opaque(key, number, shape);
        };
        let layout = layout.unwrap_or_else(|reason| {
            self.problem(Grade::Damage, "Tensors have no data", key, reason.clone());
            Layout::Missing(reason.into())
        });
        let numpy = matches!(elements, DType::Numpy(_));
        let mut attributes = Vec::new();
        if dtype::name(number).is_some_and(|name| name != elements.name()) {
            attributes
                .push((dtype::ATTRIBUTE.into(), dtype::name(number).unwrap_or_default().into()));
        }
        if let Layout::Concat(_) = layout {
            attributes.push(("partitioned".into(), "yes".into()));
        }
        let mut tensor = Tensor::new(elements, shape.to_vec(), layout);
        tensor.byte_order = byte_order;
        let tensor = self.builder.push_tensor(tensor)?;
        let value = self.builder.push(match numpy {
            true => Value::Array(Array { tensor, scalar: false }),
            false => Value::Tensor(tensor),
        })?;
        try_alloc::push(&mut self.found, BundleLeaf { key: key.to_vec(), value, attributes })
    }

    /// Adds a tensor of strings, or the reason why they are not available.
    pub(super) fn strings(
        &mut self,
        key: &[u8],
        shape: &[u64],
        found: Result<Vec<&[u8]>, String>,
    ) -> Result<()> {
        let value = match found {
            Ok(found) => {
                if let (graph::KEY, [graph]) = (key, &found[..]) {
                    self.graph = Some(graph.to_vec());
                }
                strings::value(&mut self.builder, shape, &found)?
            }
            Err(reason) => {
                self.problem(Grade::Damage, "Strings can't be read", key, reason.clone());
                let layout = Layout::Missing(reason.into());
                // The length is arbitrary: all string dtypes in numpy have a fixed length.
                let strings = DType::from_numpy_code("S1").unwrap_or(DType::U8);
                let tensor = Tensor::new(strings, shape.to_vec(), layout);
                let tensor = self.builder.push_tensor(tensor)?;
                self.builder.push(Value::Array(Array { tensor, scalar: false }))?
            }
        };
        self.found.push(BundleLeaf { key: key.to_vec(), value, attributes: Vec::new() });
        Ok(())
    }

    /// Adds a tensor of variants or of an unknown dtype: only its name is known.
    fn opaque(&mut self, key: &[u8], number: u64, shape: &[u64]) -> Result<()> {
        let name = match dtype::name(number) {
            Some(name) => name.to_owned(),
            None => format!("dtype {number}"),
        };
        self.problem(
            Grade::Warning,
            "Values of TensorFlow's own types are only listed",
            key,
            format!("It holds elements of type {name}, which only TensorFlow can restore."),
        );
        let repr = format!("<tensorflow {name} of shape {shape:?}>");
        let value = self.builder.push(Value::Opaque(Box::new(Opaque::reference(
            Global::new("tensorflow", name),
            Some(repr.into()),
        ))))?;
        self.found.push(BundleLeaf { key: key.to_vec(), value, attributes: Vec::new() });
        Ok(())
    }

    /// Adds the object to which each leaf belongs.
    fn name_objects(&mut self) -> Option<()> {
        let graph = self.graph.take()?;
        let names = if graph.len() > MAX_GRAPH {
            Err("It is larger than any that TensorFlow writes.".to_owned())
        } else {
            graph::names(&graph, self.builder.limits()).map_err(|error| error.to_string())
        };
        let names = match names {
            Ok(names) => names,
            Err(why) => {
                let title = "The object graph is not read, so no objects are named";
                self.problem(Grade::Warning, title, graph::KEY, why);
                return None;
            }
        };
        // An object with several tensors, such as a table, is named by the start of their keys.
        let known: BTreeSet<&[u8]> = self.found.iter().map(|leaf| &leaf.key[..]).collect();
        let is_known = |key: &[u8]| {
            let next = known.range(key..).next();
            next.is_some_and(|next| next.starts_with(key))
        };
        let mut missing: Vec<&Vec<u8>> = names.keys().filter(|key| !is_known(key)).collect();
        missing.sort_unstable();
        if let Some(first) = missing.first() {
            let more = match missing.len() {
                1 => String::new(),
                count => format!(" and {} more keys", count - 1),
            };
            let first = String::from_utf8_lossy(first).into_owned();
            let why = format!(
                "The index does not have `{first}`{more}. `tf.train.Checkpoint` can't restore the \
                 objects they belong to."
            );
            self.problem(Grade::Warning, GRAPH_IS_STALE, graph::KEY, why);
        }
        for leaf in &mut self.found {
            let Some(KeyObject { object, slot, variable }) = names.get(&leaf.key) else { continue };
            leaf.attributes.push(("object".into(), object.as_str().into()));
            if let Some((of, slot)) = slot {
                leaf.attributes.push(("slot".into(), format!("{slot} of {of}").into()));
            }
            if !variable.is_empty() {
                leaf.attributes.push(("variable".into(), variable.as_str().into()));
            }
        }
        Some(())
    }

    pub(super) fn finish(
        mut self,
        format: FormatInfo,
        files: FileSet,
        mut findings: Vec<Finding>,
    ) -> Result<Checkpoint> {
        self.name_objects();
        findings.extend(self.problems.into_iter().map(|problem| {
            let more = match problem.count {
                1 => String::new(),
                count => format!(" There are {} more.", count - 1),
            };
            let finding = Finding::new(problem.grade, problem.title)
                .detail(format!("{}{more}", sentence(&problem.detail)))
                .place(problem.first);
            let refused = [NO_CHECKSUM, GRAPH_IS_STALE].contains(&problem.title);
            if refused { finding.refused() } else { finding }
        }));
        let mut entries = Vec::with_capacity(self.found.len());
        for BundleLeaf { key, value, attributes } in self.found {
            let name = match Text::from_surrogatepass(&key) {
                Ok(text) => DictKey::Str(text),
                Err(_) => DictKey::Bytes(key.into()),
            };
            entries.push((name, value));
            if !attributes.is_empty() {
                self.builder.set_raw_attributes(value, attributes);
            }
        }
        let root = Value::Dict(Dict { entries, ..Dict::default() });
        let root = self.builder.push(root)?;
        self.builder.finish(root, format, files, findings)
    }
}

fn sentence(reason: &str) -> String {
    let stop = if reason.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{}{stop}", capitalised(reason))
}
