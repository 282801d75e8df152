use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::digests::{self, is_indirect};
use super::matlab::{self, Matlab};
use crate::unreadable_parts;
use statelens_checkpoint::{
    Array, Builder, Checkpoint, DType, Dict, DictKey, Error, ErrorKind, FileSet, Finding,
    FormatInfo, Global, Grade, Layout, Limits, List, Opaque, Progress, Result, STORED_TYPE, Tensor,
    Text, Unwatched, Value, ValueId, grouped, numel, order, shape_text,
};
use statelens_hdf5::{
    AttributeValues, Class, Dataset, ElementType, EndMismatch, External, Followed, Groups,
    Hdf5File, Link, LinkValue, Object, ObjectKind, ObjectTree, find_file,
};

pub(crate) fn read(
    files: FileSet,
    limits: &Limits,
    progress: &mut dyn Progress,
) -> Result<Checkpoint> {
    let file = Hdf5File::open(&files, files.main()?, limits)?;
    let tree = file.tree(progress)?;
    if let Some(Err(error)) = tree.objects.get(&tree.groups.root) {
        return Err(file.root_error(error.clone()));
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
    let names = groups.troubles.values().flatten();
    let names =
        names.map(|error| unreadable_parts::finding("The index of a group is damaged", error));
    let twice = groups.twice.iter().flat_map(|(group, names)| {
        let path = if *group == groups.root { "" } else { "…" };
        names.iter().map(move |name| named_twice(path, name))
    });
    let attributes = groups
        .attributes
        .iter()
        .map(|error| unreadable_parts::finding("An attribute can't be read", error));
    let objects = groups
        .unread
        .iter()
        .map(|error| unreadable_parts::finding("An object can't be read", error));
    names.chain(twice).chain(attributes).chain(objects).take(MAX_FINDINGS).collect()
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
    /// The remaining bytes of [`MAX_RENDERED`] for texts of datasets.
    text_left: u64,
}

/// The maximum length of a chain of external links.
const MAX_FILES_IN_CHAIN: usize = 16;
/// Limits in elements and bytes for datasets of strings or sequences that are listed by element.
const MAX_ELEMENTS: u64 = 10_000;
const MAX_BYTES: u64 = 4 << 20;
/// Limit in bytes of the texts of all datasets whose values become one text each: references, and
/// records with strings or sequences.
const MAX_RENDERED: u64 = 8 << 20;
/// Limits of the text of a dataset that is larger: its first elements, and bytes.
const FIRST: u64 = 100;
const MAX_BEGINNING: u64 = 16 << 10;
/// The maximum number of chunks of which an index is read for the first elements.
const MAX_CHUNKS: u64 = 100_000;
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
                    let value =
                        self.compared_by("Group", error.what().to_owned(), placeholder(error))?;
                    self.set(id, value);
                    continue;
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

    /// Adds a finding for a part that can't be read.
    fn warn(&mut self, title: String, error: &Error, path: &str) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(unreadable_parts::finding(title, error).place(format!("/{path}")));
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
                let value = self.unread(error)?;
                self.set(id, value);
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
                    self.unread(&error)?
                }
            },
            ObjectKind::Unreadable(error) => {
                self.warn(format!("The dataset /{path} can't be read"), error, &path);
                self.unread(error)?
            }
            ObjectKind::Datatype(datatype) => opaque("Datatype", datatype.describe()),
        };
        let is_empty = matches!(&value, Value::None)
            || matches!(&value, Value::List(list) if list.items.is_empty());
        self.set(id, value);
        self.places.insert(place, id);
        let mut attributes = raw_attributes(container.file(), Some(container.tree()), object, &[]);
        if let Some(dataset) = object.dataset().filter(|_| is_empty) {
            attributes.push((STORED_TYPE.into(), dataset.datatype.describe().into()));
        }
        if !attributes.is_empty() {
            self.builder.set_raw_attributes(id, attributes);
            let file = container.file();
            let types = object.attributes.iter().map(|attribute| {
                (attribute.name.clone(), file.shared(attribute.describe_type().as_bytes()))
            });
            self.builder.set_attribute_types(id, types.collect());
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
            Some(Matlab::Texts(texts)) => {
                let rows = [texts.len() as u64];
                return self.texts(&texts, if rows == [1] { &[] } else { &rows[..] });
            }
            Some(Matlab::Cells(cells)) => {
                let items = cells.into_iter().map(|cell| self.builder.push(cell));
                let items = items.collect::<Result<Vec<_>>>()?;
                return self.list(items, &[]);
            }
            Some(Matlab::Array(tensor)) => return self.array(tensor),
            None => {}
        }
        let Some(shape) = &dataset.shape else { return Ok(Value::None) };
        let count = dataset.count()?;
        let bytes = count.saturating_mul(dataset.datatype.size);
        let is_small = count <= MAX_ELEMENTS && bytes <= MAX_BYTES;
        // An empty list would not have a shape of several dimensions.
        let is_list = is_small && (shape.len() <= 1 || count > 0);
        match &dataset.datatype.class {
            Class::Str(_) if shape.len() <= 1 && is_small => self.strings(file, dataset, shape),
            Class::VlenStr if is_list => self.strings(file, dataset, shape),
            Class::Vlen(base) if is_list && !is_indirect(base) => {
                match base.element().filter(|element| element.dims.is_empty()) {
                    Some(element) => self.sequences(file, dataset, shape, &element),
                    None => self.indirect(container, dataset, shape, is_small),
                }
            }
            _ if is_indirect(&dataset.datatype) => {
                self.indirect(container, dataset, shape, is_small)
            }
            _ => self.array(file.tensor(dataset, self.files)?),
        }
    }

    fn array(&mut self, tensor: Tensor) -> Result<Value> {
        let tensor = self.builder.push_tensor(tensor)?;
        Ok(Value::Array(Array { tensor, scalar: false }))
    }

    fn strings(&mut self, file: &Hdf5File, dataset: &Dataset, shape: &[u64]) -> Result<Value> {
        let data = file.read(dataset, self.files)?;
        let AttributeValues::Text(texts) = file.values(&dataset.datatype, &data)? else {
            return Err(Error::damaged("strings that are not valid strings"));
        };
        self.texts(&texts, shape)
    }

    /// Returns strings as a list, or as a single string if there are no dimensions.
    fn texts(&mut self, texts: &[Text], shape: &[u64]) -> Result<Value> {
        if let ([], [text]) = (shape, texts) {
            return Ok(text_or_bytes(text));
        }
        let items = texts.iter().map(|text| self.builder.push(text_or_bytes(text)));
        let items = items.collect::<Result<Vec<_>>>()?;
        self.list(items, shape)
    }

    /// Returns items as a list, with a list for each row of the later dimensions.
    fn list(&mut self, mut items: Vec<ValueId>, shape: &[u64]) -> Result<Value> {
        let value = |items| Value::List(List { items, ..List::default() });
        for dim in shape.iter().skip(1).rev() {
            let rows = items.chunks(usize::try_from(*dim).unwrap_or(usize::MAX).max(1));
            let rows = rows.map(|row| self.builder.push(value(row.to_vec())));
            items = rows.collect::<Result<_>>()?;
        }
        Ok(value(items))
    }

    /// Returns the values of a dataset as one text, with digests to compare them by. The bytes of
    /// the elements are addresses. The text of a large dataset is that of the first elements; the
    /// texts of a file do not exceed [`MAX_RENDERED`].
    fn indirect(
        &mut self,
        container: &Container<'_>,
        dataset: &Dataset,
        shape: &[u64],
        is_small: bool,
    ) -> Result<Value> {
        let (file, tree, datatype) = (container.file(), container.tree(), &dataset.datatype);
        let stored = file.opaque(dataset, self.files)?;
        if let Layout::Missing(why) = &stored.layout {
            return Err(Error::unsupported(why.to_lossy()));
        }
        let count = dataset.count()?;
        if count == 0 && shape.len() > 1 {
            return Ok(opaque("Dataset", format!("{} {}", datatype.describe(), shape_text(shape))));
        }
        let room = if is_small { self.text_left } else { self.text_left.min(MAX_BEGINNING) };
        let (mut text, mut is_whole) = (String::new(), is_small);
        let mut is_full = false;
        let mut add = |piece: &str| {
            is_full |= (text.len() + piece.len()) as u64 > room;
            text.push_str(if is_full { "" } else { piece });
        };
        let contents = if is_small {
            let data = file.read(dataset, self.files)?;
            let digest = digests::digest(file, Some(tree), datatype, shape, &data, &mut add);
            digest.map(|digest| {
                digests::of_digests(datatype, Vec::new(), Layout::Inline(digest.as_slice().into()))
            })
        } else {
            let chunks = match &stored.layout {
                Layout::Chunked(chunked) => count / numel(&chunked.shape).unwrap_or(1).max(1),
                _ => 0,
            };
            let first = if chunks > MAX_CHUNKS { 0 } else { count.min(FIRST) };
            statelens_tensor::elements(self.files, &stored, 0..first)
                .and_then(|data| {
                    digests::digest(file, Some(tree), datatype, &[first], &data, &mut add)
                })
                .and_then(|_| digests::tensor(file, tree, datatype, stored, self.builder.limits()))
        };
        let contents = match contents {
            Err(error) if matches!(error.kind(), ErrorKind::Limit | ErrorKind::Unsupported) => {
                is_whole = false;
                placeholder(&error)
            }
            contents => contents?,
        };
        self.text_left = self.text_left.saturating_sub(text.len() as u64);
        if !is_whole || is_full {
            let head = match text.strip_suffix(']') {
                Some("[") => "…".to_owned(),
                Some(head) => format!("{head}, …"),
                None => format!("{text}…"),
            };
            text = format!("{count} times {}: {head}", datatype.describe());
        }
        self.compared_by("Dataset", text, contents)
    }

    /// Returns a placeholder for an object that can't be read: it is not equal to any other.
    fn unread(&mut self, error: &Error) -> Result<Value> {
        self.compared_by("Dataset", error.what().to_owned(), placeholder(error))
    }

    /// Returns a placeholder that is compared by a tensor instead of its text.
    fn compared_by(&mut self, class: &str, repr: String, contents: Tensor) -> Result<Value> {
        let contents = Some(self.builder.push_tensor(contents)?);
        let reference = Opaque::reference(Global::new("h5py", class), Some(repr.into()));
        Ok(Value::Opaque(Box::new(Opaque { contents, ..reference })))
    }

    fn sequences(
        &mut self,
        file: &Hdf5File,
        dataset: &Dataset,
        shape: &[u64],
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
        self.list(items, shape)
    }
}

/// Returns a string, or bytes if it is not UTF-8, as in h5py.
fn text_or_bytes(text: &Text) -> Value {
    match text.has_escapes() {
        false => Value::Str(text.clone()),
        true => Value::Bytes { data: text.encode().into(), mutable: false },
    }
}

/// Returns a tensor that has the reason why there is nothing to compare.
fn placeholder(error: &Error) -> Tensor {
    Tensor::new(DType::U8, vec![0], Layout::Missing(error.to_string().as_str().into()))
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
