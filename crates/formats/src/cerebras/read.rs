mod current;
mod elements;
mod first;
mod legacy;
mod objects;
pub(crate) mod prefix;
mod spec;

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use statelens_checkpoint::{
    Builder, Checkpoint, DType, Dict, Error, ErrorKind, FileId, FileSet, Finding, FormatInfo,
    Global, Grade, Layout, Limits, List, Opaque, Progress, Result, Set, Tensor, Text, Tuple, Value,
    ValueId, float_repr, try_alloc,
};
use statelens_hdf5::{AttributeValues, Browse, Hdf5File, Object, find_file};

use crate::hdf5::read::{about_file, about_structure, raw_attributes};
use crate::source_damage;
use spec::{NodeKind, Spec, SpecContainer, Steps};

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let main = files.main()?;
    let container = Rc::new(CerebrasFile::open(&files, main, limits)?);
    let known = |name: &str| container.about(name);
    let version = known("__version__")?.and_then(|values| values.number());
    // The first tensors are reported before the groups are listed. Older files have nothing to
    // report at this point, and listing takes less memory before the tree exists.
    if version.is_none_or(|version| version < 0.5) {
        container.list()?;
    }
    let spec = container.spec()?;
    // The encoding of the spec identifies the family even if the version attribute is wrong.
    let current = spec.as_bytes().trim_ascii_start().starts_with(b"[");
    if current && progress.hears() {
        current::report_first(container.clone(), &spec, progress)?;
    }
    container.list()?;
    let release = known("__cstorch_version__")?.and_then(|values| values.text().cloned());
    let success = known("__SUCCESS__")?.and_then(|values| values.truth()) == Some(true);

    let mut reading = CerebrasReading::new(&files, Some(container.clone()), limits);
    reading.about_version(version, current, success);
    let mark = known(source_damage::MARK)?.and_then(|values| values.text().cloned());
    reading.findings.extend(mark.map(|text| source_damage::carried(&text.to_lossy())));
    let root = match current {
        true => current::read(&mut reading, container.clone(), spec, progress)?,
        false => legacy::read(&mut reading, container.clone(), spec, version, progress)?,
    };
    let format = format(container.browse().file(), version, current, release.as_ref());
    let mut findings = container.structure(progress)?;
    findings.extend(reading.findings());
    reading.builder.finish(root, format, files.clone(), findings)
}

/// A checkpoint file. Its structures are read on demand.
struct CerebrasFile {
    id: FileId,
    browse: RefCell<Browse>,
}

impl CerebrasFile {
    fn open(files: &FileSet, id: FileId, limits: &Limits) -> Result<Self> {
        let browse = Browse::new(Hdf5File::open(files, id, limits)?)?;
        browse.root().map_err(|error| browse.file().root_error(error))?;
        Ok(Self { id, browse: RefCell::new(browse) })
    }

    fn list(&self) -> Result<()> {
        self.browse.borrow_mut().list()
    }

    fn browse(&self) -> Ref<'_, Browse> {
        self.browse.borrow()
    }

    /// Reads the values of the root group's attribute with this name, if it exists.
    fn about(&self, name: &str) -> Result<Option<AttributeValues>> {
        let mut browse = self.browse.borrow_mut();
        let attribute = browse.root_attribute(name.as_bytes())?;
        attribute.map(|found| found.values(browse.file())).transpose()
    }

    /// Returns the encoded structure of the state dict.
    fn spec(&self) -> Result<Text> {
        let spec = self.about("__spec__")?.and_then(|values| values.text().cloned());
        spec.filter(|spec| !spec.is_empty()).ok_or_else(|| {
            Error::damaged(
                "the file does not describe its state dict: `__spec__` is missing or \
                            not text",
            )
            .advice("It may not have been written by `cstorch.save`.")
        })
    }

    /// Finds the object at a path. Fails if it does not exist or can't be read.
    fn find(&self, path: &Text) -> Result<Object> {
        let address = self.browse.borrow_mut().find(&path.to_lossy())?;
        let missing = || Error::damaged(format!("the file has no dataset {path}"));
        self.object(address.ok_or_else(missing)?)
    }

    fn object(&self, address: u64) -> Result<Object> {
        self.browse.borrow_mut().object(address)
    }

    /// Reads the values of the object's attribute with this name, if it exists.
    fn values(&self, object: &Object, name: &str) -> Result<Option<AttributeValues>> {
        object.attribute(name).map(|attribute| attribute.values(self.browse().file())).transpose()
    }

    fn text(&self, object: &Object, name: &str) -> Result<Option<Text>> {
        Ok(self.values(object, name)?.and_then(|values| values.text().cloned()))
    }

    fn truth(&self, object: &Object, name: &str) -> Result<bool> {
        Ok(self.values(object, name)?.and_then(|values| values.truth()) == Some(true))
    }

    /// Returns the attributes of an object except the known ones, for display.
    fn raw_attributes(&self, object: &Object, known: &[(Text, Text)]) -> Vec<(Text, Text)> {
        raw_attributes(self.browse().file(), None, object, known)
    }

    /// Returns findings about the container, including the parts that no value refers to.
    fn structure(&self, progress: &mut dyn Progress) -> Result<Vec<Finding>> {
        let mut browse = self.browse.borrow_mut();
        browse.rest(progress)?;
        let mut findings = about_file(browse.file(), browse.groups());
        findings.extend(about_structure(browse.groups()));
        Ok(findings)
    }
}

/// Reads the values of one family of the format.
trait LeafReader {
    /// Prefetches the structures of these leaves, in the order of the file.
    fn ahead(&mut self, flat: &[&Text]) -> Result<()>;

    /// Returns the value of a leaf, given its flat key in the file.
    fn value(
        &mut self,
        reading: &mut CerebrasReading<'_>,
        flat: &Text,
        progress: &mut dyn Progress,
    ) -> Result<ValueId>;
}

/// A node of the spec that is still to be read.
struct PendingNode {
    node: usize,
    /// The flat key in the file, if it has one.
    flat: Option<Text>,
    /// Whether the flat key in the file differs from the one that the path gives.
    renamed: bool,
}

/// A container whose children are being read, and the index of the next one.
struct OpenBranch {
    branch: PendingNode,
    next: usize,
}

/// The number of leaves whose objects are read together, in file order. Starts small so that the
/// first results appear soon.
const FIRST: usize = 128;
const MAX_AT_ONCE: usize = 4096;

/// The state shared by the readers of both families.
struct CerebrasReading<'a> {
    files: &'a FileSet,
    /// The file, unless the checkpoint is a folder of objects.
    main: Option<Rc<CerebrasFile>>,
    limits: &'a Limits,
    builder: Builder,
    findings: Vec<Finding>,
    /// Titles of the findings already reported.
    reported: HashSet<String>,
    others: HashMap<FileId, Result<Rc<CerebrasFile>>>,
    /// The tensors of referenced safetensors files.
    safetensors: HashMap<FileId, Result<HashMap<Text, Tensor>>>,
    /// Referenced files that are not in the set, with the number of values in each.
    absent: BTreeMap<String, u64>,
    /// Other checkpoints that links name and that are not opened, with the number of values in each.
    elsewhere: BTreeMap<String, u64>,
    /// Number of values that can't be read.
    unreadable: u64,
    /// Number of tensors that extend past the end of their file.
    cut: u64,
    /// Number of tensors that were saved without values.
    empty: u64,
}

/// The maximum number of findings of one kind that are reported individually.
const MAX_FINDINGS: usize = 100;

impl<'a> CerebrasReading<'a> {
    fn new(files: &'a FileSet, main: Option<Rc<CerebrasFile>>, limits: &'a Limits) -> Self {
        Self {
            files,
            main,
            limits,
            builder: Builder::new(limits),
            findings: Vec::new(),
            reported: HashSet::new(),
            others: HashMap::new(),
            safetensors: HashMap::new(),
            absent: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            unreadable: 0,
            cut: 0,
            empty: 0,
        }
    }

    fn about_version(&mut self, version: Option<f64>, current: bool, success: bool) {
        if current && !success {
            self.findings.push(
                Finding::new(Grade::Damage, "The checkpoint was not written to its end")
                    .detail("Its mark `__SUCCESS__` is missing or false, so saving it was interrupted. The Cerebras library refuses to load it.")
                    .advice("Values may be missing or wrong. Use an earlier checkpoint, or check this one carefully."),
            );
        }
        match version {
            Some(version) if version > 0.5 => self.findings.push(
                Finding::new(
                    Grade::Warning,
                    format!("The format version {} is newer than 0.5", float_repr(version)),
                )
                .detail("It was read as 0.5, as the library does."),
            ),
            None if current => self.findings.push(
                Finding::new(Grade::Warning, "The file does not give its format version")
                    .detail(
                        "It was read as 0.5, which its content follows. The Cerebras library \
                             refuses to load it without `__version__`.",
                    )
                    .refused(),
            ),
            Some(version) if (version < 0.5) == current => self.findings.push(
                Finding::new(
                    Grade::Warning,
                    format!(
                        "The format version {} does not match the content of the file",
                        float_repr(version)
                    ),
                )
                .detail("It was read by its content. The Cerebras library fails to load it."),
            ),
            _ => {}
        }
    }

    /// Returns all findings; those that summarise many values come last.
    fn findings(&mut self) -> Vec<Finding> {
        for (file, count) in std::mem::take(&mut self.absent) {
            let values = if count == 1 { "One value is" } else { &format!("{count} values are") };
            self.findings.push(
                Finding::new(
                    Grade::Damage,
                    format!("{values} in the file {file}, which was not given"),
                )
                .advice("Open both files together to see and convert them.")
                .missing(vec![file]),
            );
        }
        for (address, count) in std::mem::take(&mut self.elsewhere) {
            let values = if count == 1 { "One value is" } else { &format!("{count} values are") };
            self.findings.push(
                Finding::new(
                    Grade::Damage,
                    format!("{values} in {address}, and links to there are not followed"),
                )
                .detail("A link is an order to read another file or bucket, so it is only shown.")
                .advice("Open that checkpoint by itself to see them.")
                .missing(vec![address]),
            );
        }
        if self.cut > 0 {
            self.findings.push(
                Finding::new(
                    Grade::Damage,
                    format!("{} tensors are past the end of the file", self.cut),
                )
                .advice("The file is cut short: copy or download it again."),
            );
        }
        if self.empty > MAX_FINDINGS as u64 {
            self.findings.push(Finding::new(
                Grade::Damage,
                format!("{} tensors in all were saved without their values", self.empty),
            ));
        }
        if self.unreadable > MAX_FINDINGS as u64 {
            self.findings.push(Finding::new(
                Grade::Damage,
                format!("{} values in all can't be read", self.unreadable),
            ));
        }
        std::mem::take(&mut self.findings)
    }

    /// Finds a file of the set, given the stored path. Counts files that are missing.
    fn find(&mut self, path: &str) -> Option<FileId> {
        let found = find_file(self.files, path);
        if found.is_none() {
            *self.absent.entry(base_name(path).to_owned()).or_default() += 1;
        }
        found
    }

    /// Opens a container in another file of the set, given the stored path. Returns `None` and adds
    /// a finding if the file is not in the set.
    fn other(&mut self, path: &str) -> Result<Option<Rc<CerebrasFile>>> {
        let Some(id) = self.find(path) else { return Ok(None) };
        if let Some(main) = self.main.as_ref().filter(|main| main.id == id) {
            return Ok(Some(main.clone()));
        }
        if !self.others.contains_key(&id) {
            let opened = CerebrasFile::open(self.files, id, self.limits);
            let opened = opened.and_then(|opened| opened.list().map(|()| opened));
            let opened = opened.map_err(|error| error.in_file(self.files.name(id)));
            self.others.insert(id, opened.map(Rc::new));
        }
        self.others.get(&id).cloned().transpose()
    }

    /// Returns a tensor in a safetensors file of the set. Returns `None` and adds a finding if the
    /// file is not in the set.
    fn safetensor(
        &mut self,
        path: &str,
        key: &Text,
        progress: &mut dyn Progress,
    ) -> Result<Option<Tensor>> {
        let Some(id) = self.find(path) else { return Ok(None) };
        let (files, limits) = (self.files, self.limits);
        let tensors = self.safetensors.entry(id).or_insert_with(|| {
            let tensors = crate::safetensors::read::tensors(files, id, limits, progress);
            tensors.map_err(|error| error.in_file(files.name(id)))
        });
        let tensor = tensors.as_ref().map_err(Clone::clone)?.get(key).cloned();
        if let Some(Layout::Missing(why)) = tensor.as_ref().map(|tensor| &tensor.layout) {
            return Err(Error::damaged(why.to_lossy().into_owned()).in_file(files.name(id)));
        }
        let name = || format!("the file {} has no tensor {key}", base_name(path));
        tensor.map(Some).ok_or_else(|| Error::damaged(name()))
    }

    /// Returns a placeholder for a value that can't be read, and adds a finding with the reason.
    fn unreadable(&mut self, key: &Text, error: &Error) -> Result<ValueId> {
        self.unreadable += 1;
        if self.unreadable <= MAX_FINDINGS as u64 {
            self.findings.push(
                Finding::new(Grade::Damage, format!("The value of {key} can't be read"))
                    .detail(error.to_string())
                    .place(key.to_string()),
            );
        }
        self.builder.push(unread(error.what()))
    }

    /// Adds a finding about a constant whose value is not in the file.
    fn without_value(&mut self, key: &Text) {
        self.empty += 1;
        if self.empty <= MAX_FINDINGS as u64 {
            self.findings.push(
                Finding::new(Grade::Damage, format!("{key} was saved without its values"))
                    .detail(
                        "The file has its shape and dtype only, because its memory was never \
                             filled. It is shown as zeros.",
                    )
                    .place(key.to_string()),
            );
        }
    }

    fn tensor(&mut self, tensor: Tensor) -> Result<Value> {
        if let Layout::Span(span) = tensor.layout
            && span.offset.saturating_add(span.len) > self.files.len(span.file)
        {
            self.cut += 1;
        }
        Ok(Value::Tensor(self.builder.push_tensor(tensor)?))
    }

    fn missing_tensor(&mut self, dtype: DType, shape: Vec<u64>, why: String) -> Result<Value> {
        self.tensor(Tensor::new(dtype, shape, Layout::Missing(why.into())))
    }

    /// Returns a tensor in a raw file of little-endian numbers.
    fn raw_tensor(&mut self, path: &str, dtype: DType, shape: Vec<u64>) -> Result<Value> {
        let Some(file) = self.find(path) else {
            return self.missing_tensor(dtype, shape, missing_file_text(base_name(path)));
        };
        let empty = Layout::Inline([].into());
        let bytes = Tensor::new(dtype.clone(), shape.clone(), empty).nbytes();
        let bytes =
            bytes.ok_or_else(|| Error::damaged("a tensor has more bytes than fit 64 bits"))?;
        let layout = Layout::Span(statelens_checkpoint::Span { file, offset: 0, len: bytes });
        self.tensor(Tensor::new(dtype, shape, layout))
    }

    /// Reads the tree with a value at each leaf.
    fn walk(
        &mut self,
        spec: Spec,
        progress: &mut dyn Progress,
        leaves: &mut dyn LeafReader,
    ) -> Result<(ValueId, HashMap<Text, ValueId>)> {
        let mut first: HashMap<Text, ValueId> = HashMap::new();
        try_alloc::make_room_in_map(&mut first, spec.nodes.len())?;
        let mut ids = try_alloc::filled(ValueId(0), spec.nodes.len())?;
        let mut entering = Some(PendingNode { node: 0, flat: Some("".into()), renamed: false });
        // The open containers, the outermost first.
        let mut open = Vec::new();
        let mut pending = Vec::new();
        let (mut steps, mut at_once) = (0u64, FIRST);
        while let Some(leaf) = entering.take().or_else(|| next(&spec, &mut open)) {
            let depth = open.len() as u64;
            Limits::check("nesting of containers", depth, self.limits.depth)?;
            if spec.nodes[leaf.node].0.is_some() {
                ids[leaf.node] = self.builder.push(Value::None)?;
                open.push(OpenBranch { branch: leaf, next: 0 });
                continue;
            }
            steps += depth;
            Limits::check("steps in all keys together", steps, self.limits.key_steps)?;
            pending.push(leaf);
            if pending.len() >= at_once {
                self.leaves(&mut pending, &mut ids, &mut first, progress, leaves)?;
                at_once = (at_once * 2).min(MAX_AT_ONCE);
            }
        }
        self.leaves(&mut pending, &mut ids, &mut first, progress, leaves)?;
        for (index, node) in spec.nodes.into_iter().enumerate() {
            let children = node.children();
            let children = ids.get(children).unwrap_or_default();
            if let Some(branch) = node.0
                && let Some(place) = self.builder.value_mut(ids[index])
            {
                *place = container(*branch, children);
            }
        }
        Ok((ids[0], first))
    }

    /// Reads the values of the pending leaves. Their objects are read in file order.
    fn leaves(
        &mut self,
        pending: &mut Vec<PendingNode>,
        ids: &mut [ValueId],
        first: &mut HashMap<Text, ValueId>,
        progress: &mut dyn Progress,
        leaves: &mut dyn LeafReader,
    ) -> Result<()> {
        let flat = try_alloc::collect(pending.iter().filter_map(|leaf| leaf.flat.as_ref()))?;
        leaves.ahead(&flat)?;
        for PendingNode { node, flat, renamed } in pending.drain(..) {
            let Some(flat) = flat else {
                ids[node] = self.lost()?;
                continue;
            };
            ids[node] = self.leaf(&flat, first, progress, leaves)?;
            if let Some(Value::Tensor(tensor)) = self.builder.value(ids[node])
                && let Some(tensor) = self.builder.tensor(*tensor)
            {
                progress.found(&flat, &tensor.dtype, &tensor.shape);
            }
            if renamed {
                self.builder.set_stored_key(ids[node], flat);
            }
        }
        progress.check(first.len() as u64, 0)
    }

    fn leaf(
        &mut self,
        flat: &Text,
        first: &mut HashMap<Text, ValueId>,
        progress: &mut dyn Progress,
        leaves: &mut dyn LeafReader,
    ) -> Result<ValueId> {
        if let Some(other) = first.get(flat) {
            let title = format!("Two values share the name {flat}");
            if self.reported.len() < MAX_FINDINGS && self.reported.insert(title.clone()) {
                self.findings.push(
                    Finding::new(Grade::Warning, title)
                        .detail(
                            "The format joins keys with dots. These two became the same, and \
                                 the later one replaced the earlier one when the file was written. \
                                 The first is lost; both keys show the later value.",
                        )
                        .place(flat.to_string()),
                );
            }
            return self.builder.push(Value::Link(*other));
        }
        let id = match leaves.value(self, flat, progress) {
            Ok(id) => id,
            Err(error) => match error.kind() {
                ErrorKind::Cancelled | ErrorKind::Limit | ErrorKind::Io => return Err(error),
                _ => self.unreadable(flat, &error)?,
            },
        };
        first.insert(flat.clone(), id);
        Ok(id)
    }

    /// Sets the values of links within the file. `dangling` returns the value of a link to a key
    /// that the state dict does not have.
    fn resolve(
        &mut self,
        links: Vec<(ValueId, Text)>,
        keys: &HashMap<Text, ValueId>,
        dangling: impl Fn(&mut Self, &Text) -> Result<Value>,
    ) -> Result<()> {
        for (id, key) in links {
            let value = match keys.get(&key) {
                Some(target) if *target != id => Value::Link(*target),
                _ => match dangling(self, &key) {
                    Ok(value) => value,
                    Err(error) => {
                        self.unreadable(&key, &error)?;
                        unread(error.what())
                    }
                },
            };
            if let Some(place) = self.builder.value_mut(id) {
                *place = value;
            }
        }
        Ok(())
    }

    /// Returns a placeholder for a value of a defaultdict that the library did not write.
    fn lost(&mut self) -> Result<ValueId> {
        let title = "Values of a defaultdict were lost when the file was written".to_owned();
        if self.reported.insert(title.clone()) {
            self.findings.push(
                Finding::new(Grade::Damage, title)
                    .detail("The library writes only the first two entries of a defaultdict."),
            );
        }
        self.builder.push(unread("lost when the file was written"))
    }
}

/// Returns the next child of the innermost open container that has one.
fn next(spec: &Spec, open: &mut Vec<OpenBranch>) -> Option<PendingNode> {
    loop {
        let depth = open.len();
        let OpenBranch { branch: of, next } = open.last_mut()?;
        let branch = spec.nodes[of.node].0.as_ref()?;
        let Some((node, step)) = branch.child(*next) else {
            open.pop();
            continue;
        };
        *next += 1;
        let flat = match (&of.flat, step) {
            (Some(_), Some(step)) if depth == 1 => Some(step),
            (Some(flat), Some(step)) => Some(join(flat, &step)),
            _ => None,
        };
        return Some(PendingNode { node, flat, renamed: of.renamed || branch.is_renamed() });
    }
}

/// Returns the value of a container, given the values of its children.
fn container(branch: SpecContainer, children: &[ValueId]) -> Value {
    let items = || children.to_vec();
    match branch.shape {
        NodeKind::List(class) => Value::List(List { class, items: items() }),
        NodeKind::Tuple(class) => Value::Tuple(Tuple { class, items: items() }),
        NodeKind::Set => Value::Set(Set { frozen: false, items: items() }),
        NodeKind::NestedObject => Value::Tuple(Tuple { items: items(), ..Tuple::default() }),
        NodeKind::Dict(class) => {
            let keys = match branch.steps {
                Steps::Keys(keys) | Steps::Renamed(keys, _) => keys,
                Steps::Positions(_) => Vec::new(),
            };
            let entries = keys.into_iter().zip(children.iter().copied()).collect();
            Value::Dict(Dict { class, entries })
        }
    }
}

fn format(
    file: &Hdf5File,
    version: Option<f64>,
    current: bool,
    release: Option<&Text>,
) -> FormatInfo {
    let producer = match (release, version) {
        (Some(release), _) => format!("cerebras-pytorch {release}"),
        (None, Some(0.4)) => "cerebras-pytorch 2.0".into(),
        (None, Some(0.3)) => "Cerebras release 1.9".into(),
        (None, Some(0.2)) => "Cerebras release 1.8".into(),
        (None, _) if !current => "Cerebras release 1.7 or older".into(),
        (None, _) => String::new(),
    };
    FormatInfo {
        id: "cerebras-h5",
        name: "Cerebras HDF5",
        version: version.map_or_else(|| if current { "0.5" } else { "0.1" }.into(), float_repr),
        producer,
        facts: vec![("superblock".into(), format!("version {}", file.superblock_version()))],
        ..FormatInfo::default()
    }
}

fn join(flat: &Text, step: &Text) -> Text {
    let bytes = [flat.as_bytes(), b".", step.as_bytes()].concat();
    Text::from_surrogatepass(&bytes).unwrap_or_else(|_| "".into())
}

/// Returns a placeholder for a value that is not available. An object, which no writer mistakes for
/// a plain value.
fn unread(why: &str) -> Value {
    Value::Opaque(Box::new(Opaque::reference(
        Global::new("cerebras", "unreadable"),
        Some(format!("not available: {why}").into()),
    )))
}

/// Returns the address of another checkpoint that a path is, if it is not that of a file.
fn address_of(path: &str) -> Option<&str> {
    let (scheme, _) = path.split_once("://")?;
    let is_scheme = scheme.len() > 1 && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_scheme.then_some(path)
}

fn elsewhere_text(address: &str) -> String {
    format!("the data is in {address}, and links to there are not followed")
}

fn missing_file_text(name: &str) -> String {
    format!("the data is in the file {name}, which was not given: open both together")
}

fn base_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}
