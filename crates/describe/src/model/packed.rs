//! Detects quantised layouts by names, dtypes and shapes: which tensor a packed one represents, and
//! the scales that belong to it.
//!
//! The layouts are those of AutoGPTQ and GPTQModel, AutoAWQ, bitsandbytes 0.45, compressed-tensors
//! 0.10, the fp8 of DeepSeek and transformers, the MXFP4 of gpt-oss, MLX 0.25, torchao 0.18,
//! optimum-quanto 0.2, and GGUF's block types.

mod dtypes;
mod fields;

use std::borrow::Cow;

use foldhash::HashMap;
use statelens_checkpoint::order;

use self::dtypes::DTypeFacts;
use super::config::Config;
use super::key::{Parsed, lower};
use super::leaf::ModelLeaf;

/// Weights that are quantised in the same way.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Quantised {
    /// The layout: `GPTQ`, `Q4_K`.
    pub layout: String,
    /// Number of bits per value; `None` if names and shapes do not determine it.
    pub bits: Option<u64>,
    /// The values that share a scale: `32 in a row`, `128 \u{d7} 128`; empty if not known.
    pub block: String,
    /// Number of weights with this layout.
    pub tensors: u64,
    /// Number of values that they represent.
    pub params: u64,
    /// Number of bytes in the file, including scales.
    pub bytes: u64,
}

impl Quantised {
    /// Returns the bits in the file per value, including scales.
    pub fn bits_per_weight(&self) -> Option<f64> {
        (self.params > 0 && self.bits.is_some())
            .then(|| self.bytes as f64 * 8.0 / self.params as f64)
    }
}

pub(super) struct StoredTensor<'a> {
    pub(super) leaf: &'a ModelLeaf<'a>,
    /// The key within the model.
    pub(super) key: &'a str,
    /// The key of the tensor that it is tied to.
    pub(super) tied: Option<&'a str>,
}

/// A tensor with its shape when unpacked.
pub(super) struct Unpacked<'a> {
    pub(super) leaf: &'a ModelLeaf<'a>,
    /// The key within the model.
    pub(super) key: &'a str,
    /// The key of the tensor that it is tied to.
    pub(super) tied: Option<&'a str>,
    pub(super) shape: Cow<'a, [u64]>,
    pub(super) params: u64,
    /// False for integers, which are not parameters.
    pub(super) trained: bool,
    /// Whether it is auxiliary data of another tensor: scales, zero points.
    pub(super) helper: bool,
    /// Whether it has packed values, whose name is not that of the weight.
    renamed: bool,
}

impl<'a> Unpacked<'a> {
    /// Returns a tensor that is not packed.
    fn plain(stored: StoredTensor<'a>, trained: bool) -> Self {
        let StoredTensor { leaf, key, tied } = stored;
        let (shape, params) = (leaf.shape.into(), leaf.params);
        Self { leaf, key, tied, shape, params, trained, helper: false, renamed: false }
    }

    /// Parses the key, with the name of the weight that it represents.
    pub(super) fn parsed(&self) -> Parsed<'a> {
        let mut parsed = Parsed::new(self.key);
        if self.renamed && !parsed.leaf.is_empty() {
            parsed.leaf = "weight".into();
        }
        parsed
    }
}

/// The layout of a packed tensor.
struct PackedTensor<'a> {
    name: String,
    bits: Option<u64>,
    block: String,
    /// The tensor that holds the values.
    values: &'a ModelLeaf<'a>,
    /// The unpacked shape; `None` if not known.
    shape: Option<Vec<u64>>,
}

/// A packed tensor whose layout is known. There may be hundreds of thousands.
struct PackedValues<'a> {
    /// The place of its layout in the list of all.
    sum: usize,
    /// The tensor that holds the values.
    values: &'a ModelLeaf<'a>,
    /// The unpacked shape; `None` if not known.
    shape: Option<Vec<u64>>,
}

/// Between the key of a weight and the fields of its state in bitsandbytes.
const STATE: &str = ".quant_state.";

/// The name of packed values in compressed-tensors.
const PACKED: &str = "weight_packed";

/// The names of auxiliary tensors of packed values.
const HELPERS: [&str; 20] = [
    "qzeros",
    "scales",
    "biases",
    "g_idx",
    "scb",
    "weight_scale",
    "weight_scale_inv",
    "weight_shape",
    "weight_zero_point",
    "weight_global_scale",
    "weight_g_idx",
    "weight_format",
    "input_scale",
    "input_global_scale",
    "k_scale",
    "v_scale",
    "absmax",
    "quant_map",
    "nested_absmax",
    "nested_quant_map",
];

/// Calls `each` for every tensor with its unpacked shape, and whether it is a helper. Returns the
/// layouts.
pub(super) fn unpack<'a>(
    all: Vec<StoredTensor<'a>>,
    config: Option<&Config>,
    mut each: impl FnMut(Unpacked<'a>),
) -> Vec<Quantised> {
    // Every layout has at least one of these names; most models have none.
    let packed = all.iter().any(|stored| {
        let name = lower(split(&stored.leaf.key).1);
        is_helper(&name)
            || name == PACKED
            || name.ends_with("_scales")
            || fields::CODES.contains(&&*name)
    });
    let modules = if packed { Modules::of(&all) } else { Modules::default() };
    let mut sums: Vec<Quantised> = Vec::new();
    let mut layouts: Vec<PackedValues<'a>> = Vec::new();
    // The index of the layout of each tensor, or `NONE`.
    let mut places = vec![NONE; if packed { all.len() } else { 0 }];
    for (name, module) in &modules.all {
        for layout in module.layouts(name, &modules, config) {
            for part in &module.parts {
                let is_of = layout.values.key == *name;
                let is_helper = is_helper(&part.name) || fields::is_field(&part.name);
                if is_of || is_helper || part.name.ends_with("_scales") {
                    let place = &mut places[part.at];
                    *place = if *place == NONE { layouts.len() as u32 } else { *place };
                }
            }
            // Mostly in the same module; looking up a name takes longer.
            let is_it = |part: &&ModulePart<'_>| std::ptr::eq(part.leaf, layout.values);
            let own = module.parts.iter().find(is_it).map(|part| part.at);
            if let Some(at) = own.or_else(|| modules.at(&layout.values.key)) {
                places[at] = layouts.len() as u32;
            }
            layouts.push(layout.counted_in(&mut sums));
        }
    }
    for (at, stored) in all.iter().enumerate().filter(|_| packed) {
        let key = &*stored.leaf.key;
        // `contains` is much faster than `split_once`, and few keys have it.
        let of_state = key.contains(STATE).then(|| key.split_once(STATE)).flatten();
        let weight = match of_state {
            Some((weight, _)) => modules.at(weight),
            None => fields::codes_of_layer(key, &modules),
        };
        if let Some(layout) = weight.map(|at| places[at]).filter(|layout| *layout != NONE) {
            places[at] = layout;
        }
    }
    drop(modules);
    let mut last = DTypeFacts::of("");
    for (at, stored) in all.into_iter().enumerate() {
        let leaf = stored.leaf;
        if last.dtype != leaf.dtype {
            last = DTypeFacts::of(leaf.dtype);
        }
        let layout = places.get(at).and_then(|at| layouts.get(*at as usize));
        let blocks = if layout.is_none() { last.blocks(leaf) } else { None };
        let blocks = blocks.map(|blocks| blocks.counted_in(&mut sums));
        each(match layout.or(blocks.as_ref()) {
            Some(layout) => {
                let unpacked = layout.unpacked(stored);
                if let Some(sum) = sums.get_mut(layout.sum) {
                    sum.tensors += u64::from(!unpacked.helper);
                    sum.params = sum.params.saturating_add(unpacked.params);
                    sum.bytes = sum.bytes.saturating_add(leaf.bytes);
                }
                unpacked
            }
            None => Unpacked {
                params: leaf.params.saturating_mul(last.each),
                ..Unpacked::plain(stored, last.trained)
            },
        });
    }
    sums.retain(|sum| sum.tensors > 0 || sum.bytes > 0);
    order::by(&mut sums, |a, b| b.params.cmp(&a.params).then(a.layout.cmp(&b.layout)));
    sums
}

impl<'a> PackedTensor<'a> {
    /// Returns it with the place of its layout among `sums`, which is added if it is new.
    fn counted_in(self, sums: &mut Vec<Quantised>) -> PackedValues<'a> {
        let Self { name, bits, block, values, shape } = self;
        let is_same =
            |sum: &Quantised| sum.layout == name && sum.bits == bits && sum.block == block;
        let sum = sums.iter().position(is_same).unwrap_or_else(|| {
            let (tensors, params, bytes) = (0, 0, 0);
            sums.push(Quantised { layout: name, bits, block, tensors, params, bytes });
            sums.len() - 1
        });
        PackedValues { sum, values, shape }
    }
}

impl PackedValues<'_> {
    /// Returns the tensor with its unpacked shape if it holds the values; marks it as a helper
    /// otherwise.
    fn unpacked<'a>(&self, stored: StoredTensor<'a>) -> Unpacked<'a> {
        let leaf = stored.leaf;
        let plain = Unpacked::plain(stored, true);
        if leaf.key != self.values.key {
            return Unpacked { params: 0, helper: true, ..plain };
        }
        let shape = self.shape.as_ref();
        let params =
            shape.map(|shape| shape.iter().fold(1u64, |all, dim| all.saturating_mul(*dim)));
        Unpacked {
            shape: shape.map_or(leaf.shape.into(), |shape| shape.clone().into()),
            params: params.unwrap_or(leaf.params),
            renamed: true,
            key: fields::key_of_weight(plain.key),
            ..plain
        }
    }
}

/// No layout.
const NONE: u32 = u32::MAX;

/// The tensors of all modules.
#[derive(Default)]
struct Modules<'a> {
    /// The modules with their names, in the order of their first tensors.
    all: Vec<(&'a str, Module<'a>)>,
    by_name: HashMap<&'a str, usize>,
}

impl<'a> Modules<'a> {
    fn of(all: &[StoredTensor<'a>]) -> Self {
        let mut modules = Self::default();
        // The tensors of a module mostly follow each other.
        let mut last = 0;
        for (at, stored) in all.iter().enumerate() {
            let (name, part) = split(&stored.leaf.key);
            if modules.all.get(last).is_none_or(|(known, _)| *known != name) {
                last = *modules.by_name.entry(name).or_insert(modules.all.len());
                if last == modules.all.len() {
                    modules.all.push((name, Module::default()));
                }
            }
            let part = ModulePart { name: lower(part), at, leaf: stored.leaf };
            modules.all[last].1.parts.push(part);
        }
        for (_, module) in &mut modules.all {
            // Stable: the last of several tensors with one name is used.
            if !module.parts.is_sorted_by_key(|part| &part.name) {
                order::by(&mut module.parts, |one, other| one.name.cmp(&other.name));
            }
        }
        modules
    }

    fn get(&self, name: &str) -> Option<&Module<'a>> {
        Some(&self.all.get(*self.by_name.get(name)?)?.1)
    }

    /// Returns the position of the tensor with this key among all.
    fn at(&self, key: &str) -> Option<usize> {
        let (module, name) = split(key);
        self.get(module)?.part(&lower(name)).filter(|part| part.leaf.key == key).map(|part| part.at)
    }
}

/// The tensors of a module, sorted by name.
#[derive(Default)]
struct Module<'a> {
    parts: Vec<ModulePart<'a>>,
}

/// A tensor of a module.
struct ModulePart<'a> {
    /// The name within the module, in lower case.
    name: Cow<'a, str>,
    /// The position of the tensor among all.
    at: usize,
    leaf: &'a ModelLeaf<'a>,
}

impl<'a> Module<'a> {
    fn part(&self, name: &str) -> Option<&ModulePart<'a>> {
        let end = self.parts.partition_point(|part| *part.name <= *name);
        self.parts.get(end.checked_sub(1)?).filter(|part| part.name == name)
    }

    fn get(&self, name: &str) -> Option<&'a ModelLeaf<'a>> {
        self.part(name).map(|part| part.leaf)
    }

    fn layouts(
        &self,
        name: &str,
        modules: &Modules<'a>,
        config: Option<&Config>,
    ) -> Vec<PackedTensor<'a>> {
        let one = self
            .gptq(config)
            .or_else(|| self.bitsandbytes(name, modules))
            .or_else(|| self.compressed(config))
            .or_else(|| self.mlx(name, config))
            .or_else(|| self.scaled(config))
            .or_else(|| self.quanto(name, modules))
            .or_else(|| self.torchao());
        one.into_iter().chain(self.blocks()).collect()
    }

    /// Detects `gate_up_proj_blocks` with `gate_up_proj_scales`, the layout of gpt-oss experts.
    fn blocks(&self) -> Vec<PackedTensor<'a>> {
        let named = self.parts.iter().filter_map(|ModulePart { name, leaf: values, .. }| {
            let scales = self.get(&format!("{}_scales", name.strip_suffix("_blocks")?))?;
            let [outer @ .., runs, bytes] = values.shape else { return None };
            let block = bytes.checked_mul(2)?;
            (scales.params.checked_mul(*bytes)? == values.params).then_some(())?;
            let inputs = runs.checked_mul(block)?;
            Some(PackedTensor {
                name: "MXFP4".into(),
                bits: Some(4),
                block: in_a_row(block, inputs),
                values,
                shape: Some(outer.iter().copied().chain([inputs]).collect()),
            })
        });
        named.collect()
    }

    /// Detects `qweight` and `scales`: GPTQ packs along the inputs, AWQ along the outputs.
    fn gptq(&self, config: Option<&Config>) -> Option<PackedTensor<'a>> {
        let (values, scales) = (self.get("qweight")?, self.get("scales")?);
        let ([rows, columns], [groups, outputs]) = (two(values.shape)?, two(scales.shape)?);
        if columns == outputs {
            let listed = self.get("g_idx").and_then(|index| index.shape.first().copied());
            let zeros = self.get("qzeros").and_then(|zeros| two(zeros.shape));
            let by_index = listed.and_then(|inputs| quotient(rows.checked_mul(32)?, inputs));
            let by_zeros = zeros.and_then(|[_, packed]| quotient(packed.checked_mul(32)?, columns));
            let stated = config.and_then(|config| config.exact("quantization_config.bits"));
            let bits = by_index.or(by_zeros).or(stated).filter(|bits| (1..=16).contains(bits))?;
            let inputs = quotient(rows.checked_mul(32)?, bits)?;
            return Some(PackedTensor {
                name: "GPTQ".into(),
                bits: Some(bits),
                block: in_a_row(inputs.div_ceil(groups.max(1)), inputs),
                values,
                shape: Some(vec![outputs, inputs]),
            });
        }
        let bits =
            quotient(columns.checked_mul(32)?, outputs).filter(|bits| (1..=16).contains(bits))?;
        Some(PackedTensor {
            name: "AWQ".into(),
            bits: Some(bits),
            block: in_a_row(rows.div_ceil(groups.max(1)), rows),
            values,
            shape: Some(vec![outputs, rows]),
        })
    }

    fn bitsandbytes(&self, name: &str, modules: &Modules<'a>) -> Option<PackedTensor<'a>> {
        if let (Some(values), Some(_)) = (self.get("weight"), self.get("scb")) {
            return Some(PackedTensor {
                name: "bitsandbytes int8".into(),
                bits: Some(8),
                block: "a row".into(),
                values,
                shape: Some(values.shape.to_vec()),
            });
        }
        let absmax = self.get("absmax")?;
        let (outer, own) = split(name);
        let values = modules.get(outer)?.get(&own.to_lowercase())?;
        let state = modules.get(&format!("{name}.quant_state"));
        let mut parts = state.iter().flat_map(|state| &state.parts);
        let kind = parts.find_map(|part| part.name.split_once("bitsandbytes__"));
        let numbers = values.params.checked_mul(2)?;
        let nested = if self.get("nested_absmax").is_some() { ", scales in 8 bits" } else { "" };
        let block = numbers.checked_div(absmax.params)?.checked_next_power_of_two()?;
        Some(PackedTensor {
            name: format!("bitsandbytes {}{nested}", kind.map_or("4-bit", |(_, kind)| kind)),
            bits: Some(4),
            block: format!("{block} in a run"),
            values,
            // The real shape is in the quantisation state, which is not read.
            shape: Some(vec![numbers]),
        })
    }

    /// Detects `weight_packed` of compressed-tensors.
    fn compressed(&self, config: Option<&Config>) -> Option<PackedTensor<'a>> {
        let values = self.get(PACKED)?;
        let scales = self.get("weight_scale");
        let (last, rest) = values.shape.split_last()?;
        let grown = |inputs: u64| rest.iter().copied().chain([inputs]).collect::<Vec<u64>>();
        let groups = scales.and_then(|scales| scales.shape.last().copied()).unwrap_or(1).max(1);
        let weights = "quantization_config.config_groups.group_0.weights.";
        if values.dtype == "uint8" {
            let inputs = last.checked_mul(2)?;
            let nv = self.get("weight_global_scale").is_some();
            return Some(PackedTensor {
                name: if nv { "NVFP4" } else { "MXFP4" }.into(),
                bits: Some(4),
                block: in_a_row(inputs / groups, inputs),
                values,
                shape: Some(grown(inputs)),
            });
        }
        let stated = config.and_then(|config| config.exact(&format!("{weights}num_bits")));
        let zeros = self.get("weight_zero_point").filter(|zeros| zeros.dtype == "int32");
        let by_zeros =
            zeros.and_then(|zeros| quotient(zeros.shape.first()?.checked_mul(32)?, *rest.last()?));
        let bits = stated.or(by_zeros).filter(|bits| (1..=16).contains(bits));
        // For some widths, the last word is only partly used.
        let group = config.and_then(|config| config.exact(&format!("{weights}group_size")));
        let inputs = bits.and_then(|bits| {
            let most = last.checked_mul(32)? / bits;
            group
                .map_or(Some(most), |group| group.checked_mul(groups))
                .map(|inputs| inputs.min(most))
        });
        Some(PackedTensor {
            name: "compressed-tensors, packed".into(),
            bits,
            block: inputs.map(|inputs| in_a_row(inputs / groups, inputs)).unwrap_or_default(),
            values,
            shape: inputs.map(grown),
        })
    }

    /// Detects an integer `weight` with `scales`.
    fn mlx(&self, name: &str, config: Option<&Config>) -> Option<PackedTensor<'a>> {
        let (values, scales) = (self.get("weight")?, self.get("scales")?);
        if values.dtype != "uint32" {
            return None;
        }
        let (last, rest) = values.shape.split_last()?;
        let groups = *scales.shape.last()?;
        // The bits of a value, multiplied by the values in a group.
        let together = quotient(last.checked_mul(32)?, groups)?;
        let (mode, bits) = match (scales.dtype == "uint8", together) {
            (true, 128) => ("mxfp4", Some(4)),
            (true, 256) => ("mxfp8", Some(8)),
            (true, 64) => ("nvfp4", Some(4)),
            _ => {
                let stated = config.and_then(|config| {
                    let own = config.exact(&format!("quantization.{name}.bits"));
                    own.or_else(|| config.exact("quantization.bits"))
                });
                ("affine", stated.filter(|bits| (1..=16).contains(bits)))
            }
        };
        let group = bits.and_then(|bits| quotient(together, bits));
        let inputs = group.and_then(|group| group.checked_mul(groups));
        Some(PackedTensor {
            name: format!("MLX {mode}"),
            bits,
            block: group.map(|group| format!("{group} in a row")).unwrap_or_default(),
            values,
            shape: inputs.map(|inputs| rest.iter().copied().chain([inputs]).collect()),
        })
    }

    /// Detects an 8-bit `weight` with its scales.
    fn scaled(&self, config: Option<&Config>) -> Option<PackedTensor<'a>> {
        let values = self.get("weight").filter(|values| is_narrow(values.dtype))?;
        let scales = ["weight_scale_inv", "weight_scale"].iter().find_map(|name| self.get(name))?;
        let stated = |at: usize| {
            let key = format!("quantization_config.weight_block_size.{at}");
            config.and_then(|config| config.exact(&key))
        };
        let block = match (two(values.shape), two(scales.shape)) {
            (Some([rows, columns]), Some([down, across])) => {
                let [height, width] =
                    [(rows, down, 0), (columns, across, 1)].map(|(size, blocks, at)| {
                        stated(at).filter(|_| blocks > 1).or_else(|| block_size(size, blocks))
                    });
                match (height, width) {
                    (Some(1), Some(width)) if width == columns => "a row".to_owned(),
                    (Some(height), Some(width)) => format!("{height} \u{d7} {width}"),
                    _ => String::new(),
                }
            }
            _ if scales.params == 1 => "a tensor".to_owned(),
            _ => String::new(),
        };
        let eight = if values.dtype == "int8" { "int8" } else { "fp8" };
        Some(PackedTensor {
            name: format!("{eight} with scales"),
            bits: Some(8),
            block,
            values,
            shape: Some(values.shape.to_vec()),
        })
    }
}

fn is_helper(name: &str) -> bool {
    HELPERS.contains(&name)
}

fn is_narrow(dtype: &str) -> bool {
    dtype == "int8" || dtype.starts_with("float8")
}

/// Splits a key into module and name.
fn split(key: &str) -> (&str, &str) {
    key.rsplit_once('.').unwrap_or(("", key))
}

fn two(shape: &[u64]) -> Option<[u64; 2]> {
    shape.try_into().ok()
}

/// Returns the quotient if the division is exact.
fn quotient(all: u64, each: u64) -> Option<u64> {
    (each > 0 && all.is_multiple_of(each)).then(|| all / each)
}

fn in_a_row(group: u64, all: u64) -> String {
    if group == all { "a row".to_owned() } else { format!("{group} in a row") }
}

/// Returns the block size, a power of two, with which `blocks` blocks cover `size`.
fn block_size(size: u64, blocks: u64) -> Option<u64> {
    if blocks == 1 {
        return Some(size);
    }
    let least = size.checked_div(blocks)?.max(1);
    let power = least.checked_next_power_of_two()?;
    (size.div_ceil(power) == blocks).then_some(power)
}
