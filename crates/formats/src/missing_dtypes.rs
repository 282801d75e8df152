//! Arrays with elements of one or two bytes and no dtype; NumPy stores the floats of ml_dtypes in
//! this way.

use statelens_checkpoint::{
    Checkpoint, DType, Finding, FindingKind, Grade, Setting, advice, counted,
};

/// Returns whether a dtype is that of one or two untyped bytes: `V1`, `V2`.
pub fn is_untyped(dtype: &DType) -> bool {
    let DType::Numpy(numpy) = dtype else { return false };
    numpy.fields.is_empty()
        && numpy.words.is_empty()
        && numpy.name.starts_with("void")
        && matches!(numpy.itemsize, 1 | 2)
}

/// Returns a finding that suggests dtypes for untyped arrays.
pub fn untyped(checkpoint: &Checkpoint) -> Option<Finding> {
    let of = |size: u64| {
        let tensors = checkpoint.tensors().iter();
        tensors.filter(|it| is_untyped(&it.dtype) && it.dtype.itemsize() == size).count() as u64
    };
    let (ones, twos) = (of(1), of(2));
    if ones + twos == 0 {
        return None;
    }
    let first = checkpoint.each_leaf().find(|leaf| {
        checkpoint.tensor_of(leaf.target).is_some_and(|(_, tensor)| is_untyped(&tensor.dtype))
    });
    let likely = match (ones, twos) {
        (0, _) => "`bfloat16`",
        (_, 0) => "`float8_e4m3fn` or `float8_e5m2`",
        _ => "`bfloat16`, and `float8_e4m3fn` or `float8_e5m2`",
    };
    Some(
        Finding::new(
            Grade::Note,
            format!("No dtype is stored for {}", counted(ones + twos, "array")),
        )
        .kind(FindingKind::Untyped)
        .detail(
            "NumPy stores the floats of ml_dtypes (JAX, Keras) as bytes, without their \
                     type.",
        )
        .place(first.map(|leaf| leaf.flat.to_lossy().into_owned()).unwrap_or_default())
        .advice(advice![
            format!("They may be {likely}. Name the dtype with "),
            Setting::ReadAs,
            "."
        ]),
    )
}

/// Replaces the finding of [`untyped`] with one for the remaining untyped arrays.
pub fn update_untyped(checkpoint: &mut Checkpoint) {
    checkpoint.findings.retain(|finding| finding.kind != FindingKind::Untyped);
    let left = untyped(checkpoint);
    checkpoint.findings.extend(left);
}

#[cfg(test)]
mod tests {
    use statelens_checkpoint::{
        Array, Builder, Dict, FileSet, FormatInfo, Layout, Limits, Tensor, Value,
    };

    use super::*;

    /// The page, summaries and Python show the text as well, and have no options.
    #[test]
    fn front_ends_word_the_advice() {
        let mut builder = Builder::new(&Limits::default());
        let dtype = DType::from_numpy_code("V2").unwrap();
        let tensor = Tensor::new(dtype, vec![1], Layout::Inline([0, 0].into()));
        let tensor = builder.push_tensor(tensor).unwrap();
        let id = builder.push(Value::Array(Array { tensor, scalar: false })).unwrap();
        let dict = Dict { entries: vec![("w".into(), id)], ..Dict::default() };
        let root = builder.push(Value::Dict(dict)).unwrap();
        let (format, files) = (FormatInfo::default(), FileSet::default());
        let checkpoint = builder.finish(root, format, files, Vec::new()).unwrap();
        let mut finding = untyped(&checkpoint).unwrap();
        assert!(finding.advice.to_string().ends_with(" with --read-as PATTERN=DTYPE."));
        finding.word(|_| "`read_as`");
        let expected = "They may be `bfloat16`. Name the dtype with `read_as`.";
        assert_eq!(finding.advice.to_string(), expected);
    }
}
