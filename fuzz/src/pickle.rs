use statelens_checkpoint::{Builder, Error, FileSet, FormatInfo, Limits, Unwatched, ValueId};
use statelens_pickle::{Lowered, NoStorages, Pickle};

/// The pickle machine accepts any input; opened as a file, the bytes must look like a pickle first.
pub(crate) fn run(bytes: &[u8]) {
    if let Ok(pickle) = statelens_pickle::read(bytes, 0, &Limits::default()) {
        lower(pickle);
    }
    crate::examine("x.pkl", bytes);
}

/// Checks that a pickle becomes the same tree whether or not its objects are freed on the way.
fn lower(mut pickle: Pickle) {
    let mut limits = Limits::default();
    limits.values = 100_000;
    let tree = |builder: Builder, Lowered { root, findings }: Lowered| {
        let it = builder.finish(root, FormatInfo::default(), FileSet::default(), findings)?;
        let ids = (0..it.values().len() as u32).map(ValueId);
        let attributes: Vec<_> = ids.map(|id| it.attributes(id)).collect();
        Ok::<_, Error>(format!("{:?}", (it.values(), it.tensors(), attributes, &it.findings)))
    };
    let mut builder = Builder::new(&limits);
    let lowered = pickle.lower(&mut builder, &mut NoStorages::default());
    let whole = lowered.and_then(|lowered| tree(builder, lowered));
    let mut builder = Builder::new(&limits);
    let lowered = pickle.lower_all(&mut builder, &mut NoStorages::default(), &mut Unwatched);
    assert_eq!(lowered.and_then(|lowered| tree(builder, lowered)).ok(), whole.ok());
}
