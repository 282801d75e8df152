//! The settings of a quantisation: `config.json` as dotted keys and plain values.

use std::collections::HashMap;

use statelens_checkpoint::json::{Document, JsonNode};
use statelens_checkpoint::{FileSet, Limits, Result};

/// The files with settings, in this order. The last one is that of AutoGPTQ.
const FILES: [&str; 2] = ["config.json", "quantize_config.json"];

/// The sections that have the settings of a quantisation.
const SECTIONS: [&str; 4] = ["quantization_config.", "compression_config.", "quantization.", ""];

/// Largest file with settings that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The maximum nesting of settings.
const MAX_DEPTH: usize = 64;

/// The settings of a quantisation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings(HashMap<String, String>);

impl Settings {
    /// Reads the settings from the files next to a checkpoint. Without such files, or if they can't
    /// be parsed, there are no settings.
    pub fn of(files: &FileSet) -> Self {
        let main = files.main().map(|main| files.name(main).to_owned()).unwrap_or_default();
        let folder = main.rsplit_once('/').map_or("", |(folder, _)| folder);
        let mut settings = Self::default();
        for name in FILES {
            let name = if folder.is_empty() { name.into() } else { format!("{folder}/{name}") };
            let Some(file) = files.find(&name) else { continue };
            let len = files.len(file);
            if len > MAX_FILE {
                continue;
            }
            let text = files.read_vec(file, 0, len);
            if let Ok(more) = text.and_then(|text| Self::parse(&text)) {
                for (key, value) in more.0 {
                    settings.0.entry(key).or_insert(value);
                }
            }
        }
        settings
    }

    /// Parses the text of a `config.json`.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let document = Document::parse(text)?;
        let mut all = HashMap::new();
        let mut open = vec![(String::new(), document.root(), 0)];
        while let Some((key, id, depth)) = open.pop() {
            Limits::check("nested settings", depth, MAX_DEPTH as u64)?;
            let joined = |name: &str| match key.is_empty() {
                true => name.to_owned(),
                false => format!("{key}.{name}"),
            };
            let text = match document.node(id) {
                JsonNode::Object(entries) => {
                    let entries = entries.iter();
                    open.extend(
                        entries.map(|(name, id)| (joined(&name.to_lossy()), *id, depth + 1)),
                    );
                    continue;
                }
                JsonNode::Array(items) => {
                    let items = items.iter().enumerate();
                    open.extend(items.map(|(at, id)| (joined(&at.to_string()), *id, depth + 1)));
                    continue;
                }
                JsonNode::Int(number) => number.to_string(),
                JsonNode::Bool(value) => value.to_string(),
                JsonNode::Str(text) => text.to_lossy().into_owned(),
                JsonNode::Float(_) | JsonNode::Null => continue,
            };
            all.insert(key, text);
        }
        Ok(Self(all))
    }

    /// Returns a setting of the quantisation.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = SECTIONS.iter().find_map(|section| self.0.get(&format!("{section}{name}")));
        found.map(String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Returns a setting of the weights in compressed-tensors: that of the first group which has it.
    pub(crate) fn of_groups(&self, name: &str) -> Option<&str> {
        (0..16).find_map(|group| self.text(&format!("config_groups.group_{group}.weights.{name}")))
    }

    /// Returns the sizes of groups in compressed-tensors, for all kinds of weights.
    fn group_sizes(&self) -> impl Iterator<Item = u64> {
        let of = |group| self.text(&format!("config_groups.group_{group}.weights.group_size"));
        let size = move |group| of(group)?.parse().ok().filter(|size| *size > 0);
        (0..16).filter_map(size)
    }

    /// Returns the size of groups that compressed-tensors states for a row of `columns` with `count`
    /// groups. If none fits, it is one that contradicts the count; a row with one group needs none.
    pub(crate) fn group_size(&self, columns: u64, count: u64) -> Option<u64> {
        let fits = |size: &u64| columns.div_ceil(*size) == count;
        let any = || self.group_sizes().next().filter(|_| count > 1);
        self.group_sizes().find(fits).or_else(any)
    }

    /// Returns whether compressed-tensors lists the group of each column, for all weights: with the
    /// activation ordering `group`, which releases before 0.20 also wrote as `dynamic` and `true`.
    pub(crate) fn lists_groups(&self) -> bool {
        let of =
            |group: u32, name| self.text(&format!("config_groups.group_{group}.weights.{name}"));
        let mut all = (0..16).filter(|group| of(*group, "num_bits").is_some()).peekable();
        all.peek().is_some()
            && all.all(|group| matches!(of(group, "actorder"), Some("group" | "dynamic" | "true")))
    }

    /// Returns whether some modules have settings of their own: `dynamic` of GPTQModel, or
    /// `extra_config` of AutoRound.
    pub(crate) fn differs_by_module(&self) -> bool {
        let own = |section: &str| ["dynamic", "extra_config"].map(|of| format!("{section}{of}."));
        let starts: Vec<String> = SECTIONS.iter().flat_map(|section| own(section)).collect();
        self.0.keys().any(|key| starts.iter().any(|start| key.starts_with(start)))
    }

    /// Returns whether compressed-tensors stores zero points for all weights.
    pub(crate) fn asymmetric(&self) -> bool {
        let of = |group| self.text(&format!("config_groups.group_{group}.weights.symmetric"));
        let mut stated = (0..16).filter_map(of).peekable();
        stated.peek().is_some() && stated.all(|symmetric| symmetric == "false")
    }

    /// Returns whether codes of one byte must have scales: those of these methods never lack them.
    pub(crate) fn scales_bytes(&self) -> bool {
        let method = self.text("quant_method");
        let eight = || self.text("load_in_8bit") == Some("true");
        matches!(method, Some("fp8" | "fbgemm_fp8" | "compressed-tensors"))
            || method == Some("bitsandbytes") && eight()
    }

    /// Returns whether there are any settings of a quantisation.
    pub(crate) fn is_known(&self) -> bool {
        let sections = SECTIONS.iter().filter(|section| !section.is_empty());
        sections.clone().any(|section| self.0.keys().any(|key| key.starts_with(section)))
            || self.0.contains_key("bits")
    }
}
