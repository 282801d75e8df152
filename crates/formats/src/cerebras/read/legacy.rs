//! Format 0.4 and older: a pickled spec, and a dataset for each value.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

use statelens_checkpoint::{
    DType, Error, FileId, Finding, FindingKind, Grade, Layout, LoaderCall, Progress, Result,
    Tensor, Text, Value, ValueId, order, try_alloc,
};
use statelens_hdf5::{AttributeValues, Groups, Link, LinkValue, Object};
use statelens_pickle::ScanOptions;

use super::elements::{Constant, constant};
use super::spec::Spec;
use super::{CerebrasFile, CerebrasReading, LeafReader, base_name, missing_file_text, unread};

pub(super) fn read(
    reading: &mut CerebrasReading<'_>,
    main: Rc<CerebrasFile>,
    spec: Text,
    version: Option<f64>,
    progress: &mut dyn Progress,
) -> Result<ValueId> {
    let bytes = unhex(spec.as_bytes())
        .ok_or_else(|| Error::damaged("`__spec__` is neither JSON nor hexadecimal digits"))?;
    // Each of these is as long as all keys together, so each is dropped once the next exists.
    drop(spec);
    let pickle = statelens_pickle::read(&bytes, 0, reading.limits)
        .map_err(|broken| broken.error.context("the pickle in `__spec__`"))?;
    drop(bytes);
    let mut findings = pickle.scan(&ScanOptions::default());
    // The loader treats its own former class as a dict, and so does the repair script.
    let old = pickle.globals().iter().find(|used| {
        used.global.is("cerebras_pytorch.utils.tensor_scalar_dict", "TensorScalarDict")
    });
    findings.extend(old.map(|used| {
        let global = &used.global;
        let mut finding = Finding::new(Grade::Note, format!("`{global}` is read as a dict"))
            .detail("Releases since 2.1 of the Cerebras library do the same.");
        let (module, name) = (global.module.to_string(), global.name.to_string());
        finding.call = Some(LoaderCall { module, name, arguments: String::new() });
        finding
    }));
    for finding in &mut findings {
        finding.place = "`__spec__`".into();
    }
    reading.findings.extend(findings);
    let spec = Spec::from_pickle(&pickle, reading.limits)?;
    drop(pickle);
    let mut legacy = Legacy {
        names: QuotedNames::of(&main)?,
        main: main.clone(),
        others: HashMap::new(),
        shared: shared(&main)?,
        links: Vec::new(),
        missing: Vec::new(),
        // Up to release 1.9, numpy arrays have the codec of tensors.
        arrays_are_tensors: version.is_none_or(|version| version <= 0.3),
    };
    let (top, keys) = reading.walk(spec, progress, &mut legacy)?;
    reading.resolve(legacy.links, &keys, |reading, key| dangling(reading, &main, key))?;
    if !legacy.missing.is_empty() {
        let count = legacy.missing.len();
        let shown: Vec<_> = legacy.missing.iter().take(10).map(Text::to_string).collect();
        reading.findings.push(
            Finding::new(
                Grade::Damage,
                match count {
                    1 => "1 value is missing from the file".to_owned(),
                    _ => format!("{count} values are missing from the file"),
                },
            )
            .kind(FindingKind::MissingValues)
            .detail(format!(
                "The spec lists them, but the file does not have them: {}{}. The \
                                 Cerebras library warns and loads them as None.",
                shown.join(", "),
                if count > 10 { ", …" } else { "" }
            )),
        );
    }
    Ok(top)
}

struct Legacy {
    main: Rc<CerebrasFile>,
    names: QuotedNames,
    /// The same for other files that contain values.
    others: HashMap<FileId, QuotedNames>,
    /// Datasets with several names, and their values once read. Any further name becomes a link.
    shared: HashMap<u64, Option<ValueId>>,
    links: Vec<(ValueId, Text)>,
    missing: Vec<Text>,
    arrays_are_tensors: bool,
}

impl LeafReader for Legacy {
    fn ahead(&mut self, flat: &[&Text]) -> Result<()> {
        let addresses = flat.iter().filter_map(|flat| self.names.find(&self.main, flat));
        let addresses = try_alloc::collect(addresses)?;
        self.main.browse.borrow_mut().ahead(addresses)
    }

    fn value(
        &mut self,
        reading: &mut CerebrasReading<'_>,
        flat: &Text,
        _progress: &mut dyn Progress,
    ) -> Result<ValueId> {
        let Some(address) = self.names.find(&self.main, flat) else {
            self.missing.push(flat.clone());
            return reading.builder.push(Value::None);
        };
        if let Some(Some(first)) = self.shared.get(&address) {
            return reading.builder.push(Value::Link(*first));
        }
        let main = self.main.clone();
        let object = main.object(address)?;
        let class = main.text(&object, "__H5_TYPE__")?;
        let id = match class.as_ref().map(Text::to_lossy).as_deref() {
            Some(class) => self.typed(reading, &main, &object, flat, class)?,
            None => untyped(reading, &main, &object, flat)?,
        };
        if let Some(first) = self.shared.get_mut(&address) {
            *first = Some(id);
        }
        reading.builder.set_raw_attributes(id, main.raw_attributes(&object, &[]));
        Ok(id)
    }
}

impl Legacy {
    fn typed(
        &mut self,
        reading: &mut CerebrasReading<'_>,
        main: &Rc<CerebrasFile>,
        object: &Object,
        key: &Text,
        class: &str,
    ) -> Result<ValueId> {
        let value = match class {
            "TorchTensorH5Type" => tensor(reading, main, object, key)?,
            "NumpyArrayH5Type" if self.arrays_are_tensors => tensor(reading, main, object, key)?,
            "NumpyArrayH5Type" => {
                let dataset = reading.dataset(object, key)?;
                let is_bfloat16 = main.truth(object, "is_bfloat16")?;
                // numpy scalars are stored like arrays without dimensions.
                reading.dataset_array(main, dataset, is_bfloat16, false)?
            }
            "ScalarH5Type" => scalar(reading, main, object, key)?,
            "StringH5Type" => Value::Str(need_text(main, object, "string_value")?),
            "NoneH5Type" => Value::None,
            "ObjectH5Type" | "ApplianceInfoH5Type" => {
                return reading.pickled(&pickled_bytes(main, object)?, key);
            }
            "DeferredFullTensor" | "FullTensorH5Type" => full(reading, main, object, key)?,
            "DeferredFileTensor" | "StoredApplianceTensorH5Type" => {
                raw_file(reading, main, object)?
            }
            "DeferredH5Tensor" | "StoredTensorH5Type" => {
                return self.elsewhere(reading, main, object);
            }
            "DeferredGraphTensor" => {
                let why = "it is computed by a TorchScript graph, which is never run";
                let dtype = if main.truth(object, "is_bfloat16")? {
                    Some(DType::BF16)
                } else {
                    reading.dataset(object, key)?.datatype.element().map(|element| element.dtype)
                };
                match dtype {
                    Some(dtype) => {
                        reading.missing_tensor(dtype, shape(main, object)?, why.into())?
                    }
                    None => unread(why),
                }
            }
            _ => {
                return Err(Error::unsupported(format!(
                    "values of class {class} are not supported"
                )));
            }
        };
        reading.builder.push(value)
    }

    /// Reads a tensor stored as another dataset, in this or another file.
    fn elsewhere(
        &mut self,
        reading: &mut CerebrasReading<'_>,
        main: &Rc<CerebrasFile>,
        object: &Object,
    ) -> Result<ValueId> {
        let key = unquote(&need_text(main, object, "key")?);
        if main.truth(object, "link_to_self")? {
            let id = reading.builder.push(Value::None)?;
            self.links.push((id, key));
            return Ok(id);
        }
        let path = need_text(main, object, "filepath")?.to_lossy().into_owned();
        let Some(other) = reading.other(&path)? else {
            // The file has only the location of the tensor, not its dtype and shape.
            let value = unread(&missing_file_text(base_name(&path)));
            return reading.builder.push(value);
        };
        let names = match self.others.entry(other.id) {
            Entry::Occupied(names) => names.into_mut(),
            Entry::Vacant(place) => place.insert(QuotedNames::of(&other)?),
        };
        let found = names.find(&other, &key).and_then(|address| other.object(address).ok());
        let found = &found
            .ok_or_else(|| Error::damaged(format!("the file {} has no {key}", base_name(&path))))?;
        let value = match other.text(found, "__H5_TYPE__")?.as_ref().map(Text::to_lossy).as_deref()
        {
            Some("DeferredFullTensor" | "FullTensorH5Type") => full(reading, &other, found, &key)?,
            Some("DeferredFileTensor" | "StoredApplianceTensorH5Type") => {
                raw_file(reading, &other, found)?
            }
            _ => tensor(reading, &other, found, &key)?,
        };
        reading.builder.push(value)
    }
}

pub(super) fn pickled_bytes(container: &CerebrasFile, object: &Object) -> Result<Vec<u8>> {
    let hex = need_text(container, object, "object_value")?;
    unhex(hex.as_bytes())
        .ok_or_else(|| Error::damaged("its pickled bytes are not hexadecimal digits"))
}

/// Reads a value of release 1.8 or older, whose kind follows only from its attributes.
fn untyped(
    reading: &mut CerebrasReading<'_>,
    main: &CerebrasFile,
    object: &Object,
    key: &Text,
) -> Result<ValueId> {
    let value = if object.attribute("filepath").is_some() {
        raw_file(reading, main, object)?
    } else if main.truth(object, "is_constructible")? {
        full(reading, main, object, key)?
    } else if main.truth(object, "is_none")? {
        Value::None
    } else if main.truth(object, "is_string")? {
        Value::Str(need_text(main, object, "string_val")?)
    } else if main.truth(object, "is_scalar")? {
        scalar(reading, main, object, key)?
    } else if reading.dataset(object, key)?.shape.is_none() {
        return Err(Error::damaged(
            "its dataset is empty and has no type: saving it failed halfway",
        ));
    } else {
        tensor(reading, main, object, key)?
    };
    reading.builder.push(value)
}

/// Reads the tensor that a link within this file refers to, if it is not a value of the state dict.
fn dangling(
    reading: &mut CerebrasReading<'_>,
    main: &Rc<CerebrasFile>,
    key: &Text,
) -> Result<Value> {
    let address = QuotedNames::of(main)?.find(main, key);
    let object = address.and_then(|address| main.object(address).ok());
    let object = &object
        .ok_or_else(|| Error::damaged(format!("it is a link to {key}, which does not exist")))?;
    match main.text(object, "__H5_TYPE__")?.as_ref().map(Text::to_lossy).as_deref() {
        Some("DeferredH5Tensor" | "StoredTensorH5Type") => {
            Err(Error::damaged(format!("it is a link to {key}, which is itself a link")))
        }
        _ => tensor(reading, main, object, key),
    }
}

fn tensor(
    reading: &mut CerebrasReading<'_>,
    container: &CerebrasFile,
    object: &Object,
    key: &Text,
) -> Result<Value> {
    let is_bfloat16 = container.truth(object, "is_bfloat16")?;
    let dataset = reading.dataset(object, key)?;
    reading.dataset_tensor(container, dataset, is_bfloat16.then_some(DType::BF16))
}

fn scalar(
    reading: &CerebrasReading<'_>,
    container: &CerebrasFile,
    object: &Object,
    key: &Text,
) -> Result<Value> {
    let dataset = reading.dataset(object, key)?;
    let data = container.browse().file().read(dataset, reading.files)?;
    Ok(match container.browse().file().values(&dataset.datatype, &data)? {
        AttributeValues::Bool(values) if values.len() == 1 => Value::Bool(values[0]),
        AttributeValues::Int(values) if values.len() == 1 => Value::Int(values[0].clone()),
        AttributeValues::Float(values) if values.len() == 1 => Value::Float(values[0]),
        _ => return Err(Error::damaged(format!("{key} should be one number and is not"))),
    })
}

/// Returns a tensor with all elements equal. Its dataset only has the dtype.
fn full(
    reading: &mut CerebrasReading<'_>,
    container: &CerebrasFile,
    object: &Object,
    key: &Text,
) -> Result<Value> {
    let dataset = reading.dataset(object, key)?;
    let dtype = if container.truth(object, "is_bfloat16")? {
        DType::BF16
    } else {
        let element = dataset.datatype.element();
        element.ok_or_else(|| Error::damaged("a constant tensor of no element type"))?.dtype
    };
    let value = match container.values(object, "fill_value")? {
        Some(AttributeValues::Int(values)) if values.len() == 1 => Constant::Int(values[0].clone()),
        Some(AttributeValues::Float(values)) if values.len() == 1 => Constant::Float(values[0]),
        Some(AttributeValues::Bool(values)) if values.len() == 1 => {
            Constant::Int(i64::from(values[0]).into())
        }
        None => {
            reading.without_value(key);
            Constant::Int(0i64.into())
        }
        Some(_) => return Err(Error::damaged("a fill value that is not a number")),
    };
    let bytes = constant(&dtype, &value)
        .ok_or_else(|| Error::damaged(format!("a fill value that {dtype} can't hold")))?;
    let shape = shape(container, object)?;
    reading.tensor(Tensor::new(dtype, shape, Layout::Fill(bytes.into())))
}

fn raw_file(
    reading: &mut CerebrasReading<'_>,
    container: &CerebrasFile,
    object: &Object,
) -> Result<Value> {
    let path = need_text(container, object, "filepath")?;
    let hex = need_text(container, object, "dtype")?;
    let bytes = unhex(hex.as_bytes()).ok_or_else(|| Error::damaged("its dtype is not a pickle"))?;
    let pickle = statelens_pickle::read(&bytes, 0, reading.limits)
        .map_err(|broken| broken.error.context("the pickle of its dtype"))?;
    let dtype = pickle
        .global(pickle.root())
        .filter(|global| &*global.module == "torch")
        .and_then(|global| DType::from_torch_name(&global.name))
        .ok_or_else(|| Error::damaged("its dtype is not a dtype of torch"))?;
    let shape = shape(container, object)?;
    reading.raw_tensor(&path.to_lossy(), dtype, shape)
}

/// Reads the attribute `shape`. An empty shape is stored as floats.
fn shape(container: &CerebrasFile, object: &Object) -> Result<Vec<u64>> {
    match container.values(object, "shape")? {
        Some(AttributeValues::Int(dims)) => {
            let dims: Option<Vec<u64>> =
                dims.iter().map(statelens_checkpoint::Int::to_u64).collect();
            dims.ok_or_else(|| Error::damaged("a shape with a negative length"))
        }
        Some(AttributeValues::Float(dims)) if dims.is_empty() => Ok(Vec::new()),
        _ => Err(Error::damaged("its shape is missing")),
    }
}

fn need_text(container: &CerebrasFile, object: &Object, name: &str) -> Result<Text> {
    let text = container.text(object, name)?;
    text.ok_or_else(|| Error::damaged(format!("its attribute `{name}` is missing")))
}

/// Finds datasets in the root group by key. Their names are percent-encoded keys.
struct QuotedNames {
    /// Position and address of the datasets whose names differ from their keys; of all datasets if
    /// names repeat.
    odd: HashMap<Text, (usize, u64)>,
    all_odd: bool,
}

impl QuotedNames {
    fn of(container: &CerebrasFile) -> Result<Self> {
        let browse = container.browse();
        let all_odd = browse.groups().twice.contains_key(&browse.groups().root);
        let mut odd = HashMap::new();
        for (position, link) in links(browse.groups()).iter().enumerate() {
            if let LinkValue::Hard(address) = link.target
                && (all_odd || !is_plain(&link.name))
            {
                try_alloc::insert(&mut odd, unquote(&link.name), (position, address))?;
            }
        }
        Ok(Self { odd, all_odd })
    }

    /// Returns the address of the dataset with this key; if several names decode to it, of the
    /// last.
    fn find(&self, container: &CerebrasFile, key: &Text) -> Option<u64> {
        let odd = self.odd.get(key).copied();
        if self.all_odd || !is_plain(key) {
            return odd.map(|(_, address)| address);
        }
        let browse = container.browse();
        let groups = browse.groups();
        let position = groups.position(groups.root, key.as_bytes());
        let plain = position.and_then(|position| match links(groups).get(position)?.target {
            LinkValue::Hard(address) => Some((position, address)),
            _ => None,
        });
        plain.max(odd).map(|(_, address)| address)
    }
}

/// Returns whether a name equals its key because nothing in it is encoded.
fn is_plain(name: &Text) -> bool {
    name.as_str().is_some_and(|name| !name.contains('%'))
}

fn links(groups: &Groups) -> &[Link] {
    match groups.links.get(&groups.root) {
        Some(Ok(links)) => links,
        _ => &[],
    }
}

/// Returns the objects that have several names in the root group.
fn shared(container: &CerebrasFile) -> Result<HashMap<u64, Option<ValueId>>> {
    let browse = container.browse();
    let hard = links(browse.groups()).iter().filter_map(|link| match link.target {
        LinkValue::Hard(address) => Some(address),
        _ => None,
    });
    let mut addresses = try_alloc::collect(hard)?;
    order::natural(&mut addresses);
    let mut shared = HashMap::new();
    for pair in addresses.windows(2).filter(|pair| pair[0] == pair[1]) {
        try_alloc::insert(&mut shared, pair[0], None)?;
    }
    Ok(shared)
}

fn unquote(name: &Text) -> Text {
    Text::decode(&statelens_checkpoint::percent_decode(name.as_bytes()))
}

fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquotes_names_as_urllib_does() {
        for (quoted, plain) in [
            ("a.b", "a.b"),
            ("a%2Fb%20c%25", "a/b c%"),
            ("%C3%A9", "é"),
            ("100%", "100%"),
            ("%zz", "%zz"),
        ] {
            assert_eq!(unquote(&quoted.into()), plain);
        }
        assert_eq!(unhex(b"80049g"), None);
        assert_eq!(unhex(b"8"), None);
        assert_eq!(unhex(b"80fF"), Some(vec![0x80, 0xff]));
    }
}
