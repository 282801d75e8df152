//! Reading.

use std::collections::HashMap;

use statelens_checkpoint::{
    Array, Builder, Checkpoint, DType, Dict, DictKey, Error, ErrorKind, FileSet, Finding,
    FormatInfo, Global, Grade, Layout, Limits, List, Opaque, Progress, Result, Tensor, Text, Value,
    ValueId, grouped, order,
};
use statelens_hdf5::{
    AttributeValues, Class, Dataset, EndMismatch, External, Groups, Hdf5File, Link, LinkValue,
    Object, ObjectKind, ObjectTree,
};

/// Opens it.
pub fn read(files: FileSet, limits: &Limits, progress: &mut dyn Progress) -> Result<Checkpoint> {
    let file = Hdf5File::open(&files, files.main()?, limits)?;
    let tree = file.tree(progress)?;
    if let Some(Err(error)) = tree.objects.get(&tree.groups.root) {
        return Err(error.clone().context("the root group can't be read"));
    }
    let Grown { builder, root, findings, .. } = grow(
        &files,
        &file,
        &tree,
        Builder::new(limits),
        cut_short(&file, &tree.groups).into_iter().collect(),
    )?;
    builder.finish(root, format(&file), files, findings)
}

/// What a container became.
pub(crate) struct Grown {
    pub(crate) builder: Builder,
    /// The root group.
    pub(crate) root: ValueId,
    /// Where each object hangs in the tree, by its address.
    pub(crate) places: HashMap<u64, ValueId>,
    pub(crate) findings: Vec<Finding>,
}

/// Adds the tree of a container to a checkpoint that is being built.
pub(crate) fn grow(
    files: &FileSet,
    file: &Hdf5File,
    tree: &ObjectTree,
    builder: Builder,
    findings: Vec<Finding>,
) -> Result<Grown> {
    let mut reader = Hdf5Reader {
        files,
        file,
        tree,
        builder,
        places: HashMap::new(),
        open: Vec::new(),
        soft: Vec::new(),
        findings,
    };
    let root = reader.walk()?;
    let Hdf5Reader { builder, places, findings, .. } = reader;
    Ok(Grown { builder, root, places, findings })
}

/// The finding for a file that doesn't end where it says.
pub(crate) fn cut_short(file: &Hdf5File, found: &Groups) -> Option<Finding> {
    let (title, detail) = match file.end(found)? {
        EndMismatch::CutShort(missing) => (
            format!("The file is cut short: {} bytes are missing", grouped(missing)),
            "Its superblock says where it should end. What lies past its present end can't be read.",
        ),
        EndMismatch::Behind(bytes) => (
            format!(
                "{} bytes of the file's own lie behind the end that it records",
                grouped(bytes)
            ),
            "Its superblock is damaged, or the program that wrote the file was killed. libhdf5 refuses what lies behind that end.",
        ),
        EndMismatch::Elsewhere => (
            "The file records a beginning and an end that are not its own".to_owned(),
            "Its superblock is damaged. libhdf5 refuses such a file.",
        ),
    };
    let advice = "Copy or download it again; do not convert it as it is.";
    Some(Finding::new(Grade::Damage, title).detail(detail).advice(advice))
}

/// The finding for a name that a group has twice.
pub(crate) fn named_twice(group: &str, name: &Text) -> Finding {
    Finding::new(Grade::Damage, format!("The group /{group} has two links named `{name}`"))
        .detail("libhdf5 finds one of them by its name. Which one was meant is not known, and a copy under one name holds one of them.")
        .advice("Find out who wrote the file; do not convert it as it is.")
        .place(match group {
            "" => format!("/{name}"),
            group => format!("/{group}/{name}"),
        })
}

/// What is wrong with the names and attributes of a container, for readers that don't walk all of
/// it.
pub(crate) fn about_structure(groups: &Groups) -> Vec<Finding> {
    let damage =
        |title: &str, error: &Error| Finding::new(Grade::Damage, title).detail(error.to_string());
    let names = groups.troubles.values().flatten();
    let names = names.map(|error| damage("The index of a group is damaged", error));
    let twice = groups.twice.iter().flat_map(|(group, names)| {
        let path = if *group == groups.root { "" } else { "…" };
        names.iter().map(move |name| named_twice(path, name))
    });
    let attributes =
        groups.attributes.iter().map(|error| damage("An attribute can't be read", error));
    let unread = groups.unread.iter().map(|error| damage("An object can't be read", error));
    names.chain(twice).chain(attributes).chain(unread).take(MOST_FINDINGS).collect()
}

fn format(file: &Hdf5File) -> FormatInfo {
    let mut facts =
        vec![("superblock".to_owned(), format!("version {}", file.superblock_version()))];
    if file.user_block() > 0 {
        facts.push(("user block".into(), format!("{} bytes", file.user_block())));
    }
    FormatInfo { id: "hdf5", name: "HDF5", facts, ..FormatInfo::default() }
}

struct Hdf5Reader<'a> {
    files: &'a FileSet,
    file: &'a Hdf5File,
    tree: &'a ObjectTree,
    builder: Builder,
    /// Where each object hangs in the tree.
    places: HashMap<u64, ValueId>,
    /// Groups that were entered and are still to be read.
    open: Vec<(u64, ValueId, String)>,
    /// Soft links, to be resolved when everything has its place.
    soft: Vec<(ValueId, String, Text)>,
    findings: Vec<Finding>,
}

/// Elements of a dataset of strings or sequences that are shown one by one, and their bytes.
const MOST_ELEMENTS: u64 = 10_000;
const MOST_BYTES: u64 = 4 << 20;
/// Findings that are told one by one.
const MOST_FINDINGS: usize = 100;

impl Hdf5Reader<'_> {
    fn walk(&mut self) -> Result<ValueId> {
        let root = self.object(self.tree.groups.root, String::new())?;
        while let Some((address, id, path)) = self.open.pop() {
            for trouble in self.tree.groups.troubles.get(&address).into_iter().flatten() {
                self.warn(format!("The index of the group /{path} is damaged"), trouble, &path);
            }
            for name in self.tree.groups.twice.get(&address).into_iter().flatten() {
                if self.findings.len() < MOST_FINDINGS {
                    self.findings.push(named_twice(&path, name));
                }
            }
            let links = match self.tree.groups.links.get(&address) {
                Some(Ok(links)) => links.as_slice(),
                Some(Err(error)) => {
                    self.warn(format!("The group /{path} can't be listed"), error, &path);
                    &[]
                }
                None => &[],
            };
            let mut entries = Vec::with_capacity(links.len());
            for link in links {
                let name = match path.is_empty() {
                    true => link.name.to_string(),
                    false => format!("{path}/{}", link.name),
                };
                entries.push((DictKey::Str(link.name.clone()), self.link(link, name)?));
            }
            self.set(id, Value::Dict(Dict { entries, ..Dict::default() }));
        }
        for (id, from, path) in std::mem::take(&mut self.soft) {
            let start = if path.to_lossy().starts_with('/') { String::new() } else { from };
            let target = self.tree.find(&format!("{start}/{path}"));
            let value = match target.and_then(|target| self.places.get(&target)) {
                Some(target) => Value::Link(*target),
                None => opaque("SoftLink", format!("a link to {path}, which is not there")),
            };
            self.set(id, value);
        }
        Ok(root)
    }

    fn set(&mut self, id: ValueId, value: Value) {
        if let Some(place) = self.builder.value_mut(id) {
            *place = value;
        }
    }

    fn warn(&mut self, title: String, error: &Error, path: &str) {
        // What is damaged is missing; what is not understood is there for others.
        let grade = match error.kind() {
            ErrorKind::Damaged => Grade::Damage,
            _ => Grade::Warning,
        };
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(
                Finding::new(grade, title).detail(error.to_string()).place(format!("/{path}")),
            );
        }
    }

    fn link(&mut self, link: &Link, path: String) -> Result<ValueId> {
        match &link.target {
            LinkValue::Hard(address) => self.object(*address, path),
            LinkValue::Soft(target) => {
                let id = self.builder.push(Value::None)?;
                let group = path.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
                self.soft.push((id, group, target.clone()));
                Ok(id)
            }
            LinkValue::External(external) => {
                let External { file, path } = &**external;
                let text = format!("a link to {path} in the file {file}");
                self.builder.push(opaque("ExternalLink", text))
            }
        }
    }

    fn object(&mut self, address: u64, path: String) -> Result<ValueId> {
        if let Some(place) = self.places.get(&address) {
            return self.builder.push(Value::Link(*place));
        }
        let object = match self.tree.objects.get(&address) {
            Some(Ok(object)) => object,
            Some(Err(error)) => {
                self.warn(format!("The object /{path} can't be read"), error, &path);
                return self.builder.push(opaque("Dataset", error.what().to_owned()));
            }
            None => {
                return self.builder.push(opaque("Dataset", "an object that is not there".into()));
            }
        };
        let held = object.attributes.iter().filter_map(|one| one.check(self.file).err());
        for trouble in object.troubles.iter().cloned().chain(held) {
            self.warn(format!("An attribute of /{path} can't be read"), &trouble, &path);
        }
        let id = match &object.kind {
            ObjectKind::Group => {
                let id = self.builder.push(Value::Dict(Dict::default()))?;
                self.open.push((address, id, path));
                id
            }
            ObjectKind::Dataset(dataset) => match self.dataset(dataset) {
                Ok(id) => id,
                Err(error) if error.kind() == ErrorKind::Cancelled => {
                    return Err(error);
                }
                Err(error) => {
                    self.warn(format!("The dataset /{path} can't be read"), &error, &path);
                    self.builder.push(opaque("Dataset", error.what().to_owned()))?
                }
            },
            ObjectKind::Unreadable(error) => {
                self.warn(format!("The dataset /{path} can't be read"), error, &path);
                self.builder.push(opaque("Dataset", error.what().to_owned()))?
            }
            ObjectKind::Datatype(datatype) => {
                self.builder.push(opaque("Datatype", datatype.describe()))?
            }
        };
        self.places.insert(address, id);
        let attributes = raw_attributes(self.file, object, &[]);
        if !attributes.is_empty() {
            self.builder.set_raw_attributes(id, attributes);
        }
        Ok(id)
    }

    fn dataset(&mut self, dataset: &Dataset) -> Result<ValueId> {
        let Some(shape) = &dataset.shape else { return self.builder.push(Value::None) };
        let strings = matches!(dataset.datatype.class, Class::Str(_) | Class::VlenStr);
        let count = dataset.count()?;
        let bytes = count.saturating_mul(dataset.datatype.size);
        let small = count <= MOST_ELEMENTS && bytes <= MOST_BYTES;
        match &dataset.datatype.class {
            _ if strings && shape.len() <= 1 && small => self.strings(dataset, shape.is_empty()),
            Class::VlenStr if small => self.strings(dataset, false),
            Class::Vlen(_) if small => self.sequences(dataset),
            Class::VlenStr | Class::Vlen(_) => {
                let text = format!("{count} times {}", dataset.datatype.describe());
                self.builder.push(opaque("Dataset", text))
            }
            _ => {
                let tensor = self.file.tensor(dataset, self.files)?;
                self.array(tensor)
            }
        }
    }

    fn array(&mut self, tensor: Tensor) -> Result<ValueId> {
        let tensor = self.builder.push_tensor(tensor)?;
        self.builder.push(Value::Array(Array { tensor, scalar: false }))
    }

    fn strings(&mut self, dataset: &Dataset, scalar: bool) -> Result<ValueId> {
        let data = self.file.read(dataset, self.files)?;
        let AttributeValues::Text(texts) = self.file.values(&dataset.datatype, &data)? else {
            return Err(Error::damaged("strings that are none"));
        };
        if let (true, [text]) = (scalar, texts.as_slice()) {
            return self.builder.push(Value::Str(text.clone()));
        }
        let items = texts.into_iter().map(|text| self.builder.push(Value::Str(text)));
        let items = items.collect::<Result<Vec<_>>>()?;
        self.builder.push(Value::List(List { items, ..List::default() }))
    }

    fn sequences(&mut self, dataset: &Dataset) -> Result<ValueId> {
        let Class::Vlen(base) = &dataset.datatype.class else {
            return self.builder.push(Value::None);
        };
        let Some(element) = base.element().filter(|element| element.dims.is_empty()) else {
            return self.builder.push(opaque("Dataset", dataset.datatype.describe()));
        };
        let data = self.file.read(dataset, self.files)?;
        let mut items = Vec::new();
        for bytes in self.file.vlen_elements(&dataset.datatype, &data)? {
            let len = bytes.len() as u64 / element.dtype.itemsize().max(1);
            let tensor =
                Tensor::new(element.dtype.clone(), vec![len], Layout::Inline(bytes.into()));
            items.push(self.array(Tensor { byte_order: element.order, ..tensor })?);
        }
        self.builder.push(Value::List(List { items, ..List::default() }))
    }
}

/// What an object says about itself: its attributes but those that are known already, and how a
/// dataset is stored.
pub(crate) fn raw_attributes(
    file: &Hdf5File,
    object: &Object,
    known: &[(Text, Text)],
) -> Vec<(Text, Text)> {
    let mut names: Vec<&Text> = known.iter().map(|(name, _)| name).collect();
    order::natural(&mut names);
    let is_known = |name: &Text| names.binary_search(&name).is_ok();
    let attributes = object.attributes.iter().filter(|attribute| !is_known(&attribute.name));
    let mut raw: Vec<(Text, Text)> =
        attributes.map(|attribute| (attribute.name.clone(), attribute.describe(file))).collect();
    if let Some(dataset) = object.dataset() {
        raw.push((file.shared(b"(storage)"), file.shared(dataset.describe().as_bytes())));
        if matches!(dataset.element(), Some((element, _)) if matches!(element.dtype, DType::Numpy(_)))
        {
            raw.push(("(datatype)".into(), dataset.datatype.describe().into()));
        }
    }
    raw
}

fn opaque(class: &str, repr: String) -> Value {
    Value::Opaque(Box::new(Opaque::reference(Global::new("h5py", class), Some(repr.into()))))
}
