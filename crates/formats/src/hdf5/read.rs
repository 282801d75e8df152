use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::matlab::{self, Matlab};
use statelens_checkpoint::{
    Array, Builder, Checkpoint, DType, Dict, DictKey, Error, ErrorKind, FileSet, Finding,
    FormatInfo, Global, Grade, Layout, Limits, List, Opaque, Progress, Result, Tensor, Text,
    Unwatched, Value, ValueId, grouped, order,
};
use statelens_hdf5::{
    AttributeValues, Class, Dataset, Datatype, ElementType, EndMismatch, External, Followed,
    Groups, Hdf5File, Link, LinkValue, Object, ObjectKind, ObjectTree, find_file,
};

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let file = Hdf5File::open(&files, files.main()?, limits)?;
    let tree = file.tree(progress)?;
    if let Some(Err(error)) = tree.objects.get(&tree.groups.root) {
        return Err(error.clone().context("the root group can't be read"));
    }
    let findings = about_file(&file, &tree.groups);
    let Grown { builder, root, findings, .. } =
        grow(&files, &file, &tree, Builder::new(limits), findings)?;
    builder.finish(root, format(&file), files, findings)
}

pub(crate) struct Grown {
    pub(crate) builder: Builder,
    pub(crate) root: ValueId,
    /// The value of each object in the container itself, by address.
    pub(crate) places: HashMap<u64, ValueId>,
    pub(crate) findings: Vec<Finding>,
}

/// Adds the tree of a container to a checkpoint that is being built. Follows external links to the
/// other files of the set.
pub(crate) fn grow(
    files: &FileSet,
    file: &Hdf5File,
    tree: &ObjectTree,
    builder: Builder,
    findings: Vec<Finding>,
) -> Result<Grown> {
    let mut reader = Hdf5Reader {
        files,
        containers: vec![Container::Main(file, tree)],
        builder,
        places: HashMap::new(),
        open: Vec::new(),
        links: VecDeque::new(),
        findings,
        text_left: MAX_RENDERED,
    };
    let root = reader.walk()?;
    let Hdf5Reader { builder, places, findings, .. } = reader;
    let own = places.into_iter().filter(|((container, _), _)| *container == 0);
    let places = own.map(|((_, address), value)| (address, value)).collect();
    Ok(Grown { builder, root, places, findings })
}

pub(crate) fn about_file(file: &Hdf5File, found: &Groups) -> Vec<Finding> {
    let writing = file.is_open_for_writing().then(|| {
        Finding::new(Grade::Warning, "The file is marked as open for writing")
            .detail("The program that wrote it was killed, or is still writing. libhdf5 (h5py) refuses to open the file.")
            .advice("If no program is writing, `h5clear -s FILE` removes the mark.")
            .refused()
    });
    cut_short(file, found).into_iter().chain(writing).collect()
}

/// Returns the finding for a file that does not end at the offset in its superblock.
fn cut_short(file: &Hdf5File, found: &Groups) -> Option<Finding> {
    let (title, detail) = match file.end(found)? {
        EndMismatch::CutShort(missing) => (
            format!("The file is cut short: {} bytes are missing", grouped(missing)),
            "Its superblock says where it should end. The part past its present end can't be read.",
        ),
        EndMismatch::Behind(bytes) => (
            format!("{} bytes of the file are past the end that it records", grouped(bytes)),
            "Its superblock is damaged, or the program that wrote the file was killed. libhdf5 refuses to read past that end.",
        ),
        EndMismatch::Elsewhere => (
            "The file records a wrong beginning and end".to_owned(),
            "Its superblock is damaged. libhdf5 refuses such a file.",
        ),
    };
    let advice = "Copy or download it again; do not convert it as it is.";
    Some(Finding::new(Grade::Damage, title).detail(detail).advice(advice))
}

/// Returns the finding for a group with two links of the same name.
pub(crate) fn named_twice(group: &str, name: &Text) -> Finding {
    Finding::new(Grade::Damage, format!("The group /{group} has two links named `{name}`"))
        .detail(
            "libhdf5 finds one of them by its name. It is not known which one was meant. A \
                 copy holds only one of them.",
        )
        .advice("Find out who wrote the file; do not convert it as it is.")
        .place(match group {
            "" => format!("/{name}"),
            group => format!("/{group}/{name}"),
        })
}

/// Returns findings about damaged names and attributes, for readers that do not visit the whole
/// container.
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
    names.chain(twice).chain(attributes).chain(unread).take(MAX_FINDINGS).collect()
}

fn format(file: &Hdf5File) -> FormatInfo {
    let mut facts =
        vec![("superblock".to_owned(), format!("version {}", file.superblock_version()))];
    if file.user_block() > 0 {
        facts.push(("user block".into(), format!("{} bytes", file.user_block())));
    }
    FormatInfo { id: "hdf5", name: "HDF5", facts, ..FormatInfo::default() }
}

/// A container and its objects.
#[derive(Clone)]
enum Container<'a> {
    Main(&'a Hdf5File, &'a ObjectTree),
    /// A file that external links refer to.
    Linked(Rc<(Hdf5File, ObjectTree)>),
}

impl Container<'_> {
    fn file(&self) -> &Hdf5File {
        match self {
            Self::Main(file, _) => file,
            Self::Linked(linked) => &linked.0,
        }
    }

    fn tree(&self) -> &ObjectTree {
        match self {
            Self::Main(_, tree) => tree,
            Self::Linked(linked) => &linked.1,
        }
    }
}

/// The location of an object: the index of its container, and its address there.
type Place = (usize, u64);

/// A soft or external link, to be followed once everything reachable by hard links has a value.
struct PendingLink {
    id: ValueId,
    /// The path of the link itself.
    from: String,
    group: Place,
    target: LinkValue,
}

struct Hdf5Reader<'a> {
    files: &'a FileSet,
    containers: Vec<Container<'a>>,
    builder: Builder,
    /// The value of each object.
    places: HashMap<Place, ValueId>,
    /// Groups that have a value but are still to be read.
    open: Vec<(Place, ValueId, String)>,
    links: VecDeque<PendingLink>,
    findings: Vec<Finding>,
    /// The bytes of text that may still be made of datasets, of [`MAX_RENDERED`].
    text_left: u64,
}

/// The maximum length of a chain of external links.
const MAX_FILES_IN_CHAIN: usize = 16;
/// Limits in elements and bytes for datasets of strings or sequences that are listed by element.
const MAX_ELEMENTS: u64 = 10_000;
const MAX_BYTES: u64 = 4 << 20;
/// Limit in bytes of the texts of all datasets whose values become one text each: records with
/// strings or sequences, and sequences of these.
const MAX_RENDERED: u64 = 8 << 20;
/// The maximum number of findings that are reported individually.
const MAX_FINDINGS: usize = 100;

impl Hdf5Reader<'_> {
    fn walk(&mut self) -> Result<ValueId> {
        let root = self.containers[0].tree().groups.root;
        let root = self.object((0, root), String::new())?;
        self.groups()?;
        while let Some(link) = self.links.pop_front() {
            self.follow(link)?;
            self.groups()?;
        }
        Ok(root)
    }

    fn groups(&mut self) -> Result<()> {
        while let Some((group, id, path)) = self.open.pop() {
            let container = self.containers[group.0].clone();
            let groups = &container.tree().groups;
            for trouble in groups.troubles.get(&group.1).into_iter().flatten() {
                self.warn(format!("The index of the group /{path} is damaged"), trouble, &path);
            }
            for name in groups.twice.get(&group.1).into_iter().flatten() {
                if self.findings.len() < MAX_FINDINGS {
                    self.findings.push(named_twice(&path, name));
                }
            }
            let links = match groups.links.get(&group.1) {
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
                entries.push((DictKey::Str(link.name.clone()), self.link(group, link, name)?));
            }
            self.set(id, Value::Dict(Dict { entries, ..Dict::default() }));
        }
        Ok(())
    }

    fn link(&mut self, group: Place, link: &Link, path: String) -> Result<ValueId> {
        if let LinkValue::Hard(address) = link.target {
            return self.object((group.0, address), path);
        }
        let id = self.builder.push(Value::None)?;
        self.links.push_back(PendingLink { id, from: path, group, target: link.target.clone() });
        Ok(id)
    }

    /// Sets the value of a soft or external link: a link to the object's value, or that value
    /// itself if the object appears nowhere else in the tree.
    fn follow(&mut self, link: PendingLink) -> Result<()> {
        let PendingLink { id, from, group, target } = link;
        match self.object_at_the_end(group, &target)? {
            Ok(place) => match self.places.get(&place) {
                Some(value) => self.set(id, Value::Link(*value)),
                None => self.fill(id, place, from)?,
            },
            Err(text) => {
                let class = match target {
                    LinkValue::External(_) => "ExternalLink",
                    _ => "SoftLink",
                };
                self.set(id, opaque(class, text));
            }
        }
        Ok(())
    }

    /// Follows a chain of external links. If it does not lead to an object, the inner error says
    /// where it leads.
    fn object_at_the_end(
        &mut self,
        group: Place,
        target: &LinkValue,
    ) -> Result<std::result::Result<Place, String>> {
        let mut there = match target {
            LinkValue::Hard(address) => return Ok(Ok((group.0, *address))),
            LinkValue::Soft(path) => {
                let container = self.containers[group.0].clone();
                match container.tree().follow(group.1, path) {
                    Followed::Object(address) => return Ok(Ok((group.0, address))),
                    Followed::External(external) => external,
                    Followed::Missing => {
                        return Ok(Err(format!("a link to {path}, which does not exist")));
                    }
                    Followed::Circular => return Ok(Err(circular(path))),
                }
            }
            LinkValue::External(external) => external.clone(),
        };
        for _ in 0..MAX_FILES_IN_CHAIN {
            let External { file, path } = &*there;
            let text = format!("a link to {path} in the file {file}");
            let at = match self.container(file) {
                Ok(Some(at)) => at,
                Ok(None) => return Ok(Err(format!("{text}, which is not in this folder"))),
                Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
                Err(error) => return Ok(Err(format!("{text}, which can't be read: {error}"))),
            };
            let container = self.containers[at].clone();
            there = match container.tree().follow(container.tree().groups.root, path) {
                Followed::Object(address) => return Ok(Ok((at, address))),
                Followed::External(external) => external,
                Followed::Missing => return Ok(Err(format!("{text}, which does not exist"))),
                Followed::Circular => return Ok(Err(circular(path))),
            };
        }
        Ok(Err(circular(&there.path)))
    }

    /// Returns the index of the container with this name, and opens it if necessary. Returns `None`
    /// if the set of files does not have it.
    fn container(&mut self, name: &Text) -> Result<Option<usize>> {
        let Some(id) = find_file(self.files, &name.to_lossy()) else { return Ok(None) };
        if let Some(at) = self.containers.iter().position(|one| one.file().id() == id) {
            return Ok(Some(at));
        }
        let file = Hdf5File::open(self.files, id, self.builder.limits())?;
        let tree = file.tree(&mut Unwatched)?;
        self.findings.extend(about_file(&file, &tree.groups));
        self.containers.push(Container::Linked(Rc::new((file, tree))));
        Ok(Some(self.containers.len() - 1))
    }

    fn set(&mut self, id: ValueId, value: Value) {
        if let Some(place) = self.builder.value_mut(id) {
            *place = value;
        }
    }

    /// Adds a finding for a part that can't be read. The grade is damage even if the part is merely
    /// unsupported, since it is missing from the checkpoint, which must not pass for complete.
    fn warn(&mut self, title: String, error: &Error, path: &str) {
        if self.findings.len() < MAX_FINDINGS {
            let finding = Finding::new(Grade::Damage, title);
            self.findings.push(finding.detail(error.to_string()).place(format!("/{path}")));
        }
    }

    fn object(&mut self, place: Place, path: String) -> Result<ValueId> {
        if let Some(value) = self.places.get(&place) {
            return self.builder.push(Value::Link(*value));
        }
        let id = self.builder.push(Value::None)?;
        self.fill(id, place, path)?;
        Ok(id)
    }

    /// Sets the value `id` to that of the object at a place.
    fn fill(&mut self, id: ValueId, place: Place, path: String) -> Result<()> {
        let container = self.containers[place.0].clone();
        let object = match container.tree().objects.get(&place.1) {
            Some(Ok(object)) => object,
            Some(Err(error)) => {
                self.warn(format!("The object /{path} can't be read"), error, &path);
                self.set(id, opaque("Dataset", error.what().to_owned()));
                return Ok(());
            }
            None => {
                self.set(id, opaque("Dataset", "an object that does not exist".into()));
                return Ok(());
            }
        };
        let held = object.attributes.iter().filter_map(|one| one.check(container.file()).err());
        for trouble in object.troubles.iter().cloned().chain(held) {
            self.warn(format!("An attribute of /{path} can't be read"), &trouble, &path);
        }
        let value = match &object.kind {
            ObjectKind::Group => {
                self.open.push((place, id, path));
                Value::Dict(Dict::default())
            }
            ObjectKind::Dataset(dataset) => match self.dataset(&container, object, dataset) {
                Ok(value) => value,
                Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
                Err(error) => {
                    self.warn(format!("The dataset /{path} can't be read"), &error, &path);
                    opaque("Dataset", error.what().to_owned())
                }
            },
            ObjectKind::Unreadable(error) => {
                self.warn(format!("The dataset /{path} can't be read"), error, &path);
                opaque("Dataset", error.what().to_owned())
            }
            ObjectKind::Datatype(datatype) => opaque("Datatype", datatype.describe()),
        };
        self.set(id, value);
        self.places.insert(place, id);
        let attributes = raw_attributes(container.file(), Some(container.tree()), object, &[]);
        if !attributes.is_empty() {
            self.builder.set_raw_attributes(id, attributes);
        }
        Ok(())
    }

    fn dataset(
        &mut self,
        container: &Container<'_>,
        object: &Object,
        dataset: &Dataset,
    ) -> Result<Value> {
        let file = container.file();
        match matlab::read(file, container.tree(), self.files, object, dataset)? {
            Some(Matlab::Texts(texts)) => return self.texts(&texts, texts.len() == 1),
            Some(Matlab::Cells(cells)) => {
                let items = cells.into_iter().map(|cell| self.builder.push(cell));
                let items = items.collect::<Result<Vec<_>>>()?;
                return Ok(Value::List(List { items, ..List::default() }));
            }
            Some(Matlab::Array(tensor)) => return self.array(tensor),
            None => {}
        }
        let Some(shape) = &dataset.shape else { return Ok(Value::None) };
        let strings = matches!(dataset.datatype.class, Class::Str(_) | Class::VlenStr);
        let count = dataset.count()?;
        let bytes = count.saturating_mul(dataset.datatype.size);
        let small = count <= MAX_ELEMENTS && bytes <= MAX_BYTES;
        match &dataset.datatype.class {
            _ if strings && shape.len() <= 1 && small => {
                self.strings(file, dataset, shape.is_empty())
            }
            Class::VlenStr if small => self.strings(file, dataset, false),
            Class::Vlen(base) if small => {
                let is_plain = |element: &ElementType| element.dims.is_empty() && !needs_heap(base);
                if let Some(element) = base.element().filter(is_plain) {
                    return self.sequences(file, dataset, &element);
                }
                let value = self.rendered(container, dataset)?;
                Ok(value.unwrap_or_else(|| opaque("Dataset", dataset.datatype.describe())))
            }
            Class::VlenStr | Class::Vlen(_) => {
                let text = format!("{count} times {}", dataset.datatype.describe());
                Ok(opaque("Dataset", text))
            }
            _ if small && needs_heap(&dataset.datatype) => {
                match self.rendered(container, dataset)? {
                    Some(value) => Ok(value),
                    None => self.array(file.tensor(dataset, self.files)?),
                }
            }
            _ => self.array(file.tensor(dataset, self.files)?),
        }
    }

    fn array(&mut self, tensor: Tensor) -> Result<Value> {
        let tensor = self.builder.push_tensor(tensor)?;
        Ok(Value::Array(Array { tensor, scalar: false }))
    }

    fn strings(&mut self, file: &Hdf5File, dataset: &Dataset, scalar: bool) -> Result<Value> {
        let data = file.read(dataset, self.files)?;
        let AttributeValues::Text(texts) = file.values(&dataset.datatype, &data)? else {
            return Err(Error::damaged("strings that are not valid strings"));
        };
        self.texts(&texts, scalar)
    }

    /// Returns strings as a list, or as a single string if `scalar`.
    fn texts(&mut self, texts: &[Text], scalar: bool) -> Result<Value> {
        if let (true, [text]) = (scalar, texts) {
            return Ok(text_or_bytes(text));
        }
        let items = texts.iter().map(|text| self.builder.push(text_or_bytes(text)));
        let items = items.collect::<Result<Vec<_>>>()?;
        Ok(Value::List(List { items, ..List::default() }))
    }

    /// Returns the values of a dataset as one text. The bytes of its elements are addresses in a
    /// heap, which may be equal for values that differ. `None` if the texts of the file would
    /// exceed [`MAX_RENDERED`]; the rest of the file is then not tried.
    fn rendered(&mut self, container: &Container<'_>, dataset: &Dataset) -> Result<Option<Value>> {
        let file = container.file();
        let data = file.read(dataset, self.files)?;
        match file.render(Some(container.tree()), &dataset.datatype, &data, self.text_left) {
            Ok(text) => {
                self.text_left -= text.len() as u64;
                Ok(Some(opaque("Dataset", text)))
            }
            Err(error) if error.kind() == ErrorKind::Limit => {
                self.text_left = 0;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn sequences(
        &mut self,
        file: &Hdf5File,
        dataset: &Dataset,
        element: &ElementType,
    ) -> Result<Value> {
        let data = file.read(dataset, self.files)?;
        let mut items = Vec::new();
        for bytes in file.vlen_elements(&dataset.datatype, &data)? {
            let len = bytes.len() as u64 / element.dtype.itemsize().max(1);
            let tensor =
                Tensor::new(element.dtype.clone(), vec![len], Layout::Inline(bytes.into()));
            let value = self.array(Tensor { byte_order: element.order, ..tensor })?;
            items.push(self.builder.push(value)?);
        }
        Ok(Value::List(List { items, ..List::default() }))
    }
}

/// Returns whether elements hold strings or sequences of variable length within records or arrays.
/// The parser limits the nesting of datatypes, so recursion is bounded.
fn needs_heap(datatype: &Datatype) -> bool {
    match &datatype.class {
        Class::VlenStr | Class::Vlen(_) => true,
        Class::Compound(members) => members.iter().any(|member| needs_heap(&member.datatype)),
        Class::Array { base, .. } => needs_heap(base),
        _ => false,
    }
}

/// Returns a string, or bytes if it is not UTF-8, as in h5py.
fn text_or_bytes(text: &Text) -> Value {
    match text.has_escapes() {
        false => Value::Str(text.clone()),
        true => Value::Bytes { data: text.encode().into(), mutable: false },
    }
}

fn circular(path: &Text) -> String {
    format!("a link to {path}, which is part of a cycle")
}

/// Returns the attributes of an object except the known ones, and the storage of a dataset, for
/// display.
pub(crate) fn raw_attributes(
    file: &Hdf5File,
    tree: Option<&ObjectTree>,
    object: &Object,
    known: &[(Text, Text)],
) -> Vec<(Text, Text)> {
    let mut names: Vec<&Text> = known.iter().map(|(name, _)| name).collect();
    order::natural(&mut names);
    let is_known = |name: &Text| names.binary_search(&name).is_ok();
    let attributes = object.attributes.iter().filter(|attribute| !is_known(&attribute.name));
    let mut raw: Vec<(Text, Text)> =
        attributes.map(|one| (one.name.clone(), one.describe(file, tree))).collect();
    if let Some(dataset) = object.dataset() {
        raw.push((file.shared(b"(storage)"), file.shared(dataset.describe().as_bytes())));
        let named =
            matches!(dataset.datatype.class, Class::Enum { .. }) && !dataset.datatype.is_bool();
        if named
            || matches!(dataset.element(), Some((element, _)) if matches!(element.dtype, DType::Numpy(_)))
        {
            raw.push(("(datatype)".into(), dataset.datatype.describe().into()));
        }
    }
    raw
}

fn opaque(class: &str, repr: String) -> Value {
    Value::Opaque(Box::new(Opaque::reference(Global::new("h5py", class), Some(repr.into()))))
}
