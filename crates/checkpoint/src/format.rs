//! What a checkpoint says about its format.

/// Description of the format of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FormatInfo {
    /// The format's short name, stable, lower case: `cerebras-h5`, `torch-zip`, `pickle`, `hdf5`.
    /// It is for output: code outside the formats decides by [`FormatInfo::traits`].
    pub id: &'static str,
    /// Name to display: `Cerebras HDF5`, `PyTorch zip`.
    pub name: &'static str,
    /// Version of the format as stored in the file; may be empty.
    pub version: String,
    /// The program that wrote it, e.g. `cerebras-pytorch 2.10.0`; may be empty.
    pub producer: String,
    /// Further facts worth showing, as name and text.
    pub facts: Vec<(String, String)>,
    /// Facts of the format by which other code decides. Opening a checkpoint sets those of its
    /// format.
    pub traits: FormatTraits,
}

impl FormatInfo {
    /// Returns whether the raw attributes of values are the user's, not those of the format.
    pub fn has_user_attributes(&self) -> bool {
        self.traits.user_attributes.contains(&self.id)
    }
}

/// Facts of a format by which comparisons, conversions and descriptions decide. The default is a
/// format with string keys joined by dots, without attributes and Python types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatTraits {
    /// The ids of the format whose files have attributes of the user, which are compared.
    pub user_attributes: &'static [&'static str],
    /// Which values keep Python's types.
    pub python_types: PythonTypes,
    /// Whether a written file has every type and tie of its source, unless a loss says otherwise.
    pub exact_read_back: bool,
    /// Whether a written file may have its leaves under other names, as in an object graph.
    pub renames_keys: bool,
    /// Whether the segments of keys are separated by slashes, if the keys have any.
    pub slash_keys: bool,
    /// The key of the object graph, which names other keys and has the same key in all files.
    pub graph_key: Option<&'static str>,
    /// The name of the metadata of the file, which are the raw attributes of the root, and which
    /// other formats have no place for.
    pub file_metadata: Option<&'static str>,
    /// The key of the file's own description in the state dict. Arrays in it are not tensors of the
    /// model.
    pub description_key: Option<&'static str>,
    /// Whether values outside of the state dict are further states of a run, such as that of the
    /// optimizer, rather than attributes of modules. They are written if they are selected.
    pub further_states: bool,
    /// Whether each file has parts of tensors, so that only all files together are a model.
    pub joins_ranks: bool,
    /// The beginnings of keys of tensors that may hold a layer in each row: `decoder.layers.`.
    pub layer_stacks: &'static [&'static str],
}

impl FormatTraits {
    /// The default, as a constant.
    pub const DEFAULT: Self = Self {
        user_attributes: &[],
        python_types: PythonTypes::None,
        exact_read_back: false,
        renames_keys: false,
        slash_keys: false,
        graph_key: None,
        file_metadata: None,
        description_key: None,
        further_states: false,
        joins_ranks: false,
        layer_stacks: &[],
    };
}

impl Default for FormatTraits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The values of a format that keep Python's types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PythonTypes {
    /// No values.
    None,
    /// Keys and values.
    All,
    /// Keys and values inside an entry of the root, whose own key is always a string.
    InsideEntries,
}
