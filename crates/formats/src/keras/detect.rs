use statelens_checkpoint::{Limits, Result};
use statelens_hdf5::{Hdf5File, LinkValue};

use crate::archive::{first_name, is_zip};
use crate::{Probe, Score};

/// Scores an HDF5 file with the attributes or groups that Keras writes, a zip archive that begins
/// with the members that Keras writes, or the index of sharded weights.
pub(crate) fn score(probe: &Probe<'_>) -> Score {
    let head = probe.head();
    let name = probe.name().to_ascii_lowercase();
    let is = |yes: bool| if yes { Score::Inside } else { Score::No };
    if is_zip(head) {
        let first = first_name(head).unwrap_or_default();
        return is(MEMBERS.contains(&first) || name.ends_with(".keras"));
    }
    if Hdf5File::is_likely(head) {
        return is(is_hdf5(probe, &name).unwrap_or(false));
    }
    is(is_index(head))
}

/// Possible first members of a `.keras` file.
const MEMBERS: &[&[u8]] =
    &[b"metadata.json", b"config.json", b"model.weights.h5", b"model.weights.npz"];

/// Returns whether the first bytes are those of an index of sharded weights.
pub(super) fn is_index(head: &[u8]) -> bool {
    let holds = |word: &[u8]| head.windows(word.len()).any(|bytes| bytes == word);
    // Other files are not searched: every file that is opened is scored.
    head.trim_ascii_start().starts_with(b"{") && holds(b"\"weight_map\"") && holds(b".weights.h5\"")
}

fn is_hdf5(probe: &Probe<'_>, name: &str) -> Result<bool> {
    let files = probe.files();
    let file = Hdf5File::open(files, files.main()?, &Limits::default())?;
    // Excludes Cerebras files early: their root has an attribute for each key, and all would be
    // read.
    if file.root_has("__spec__")? {
        return Ok(false);
    }
    let root = file.object(file.root()?)?;
    let legacy = ["layer_names", "layer_names0", "keras_version", "model_config"];
    // Keras before 0.3 numbers its layers.
    let numbered = || {
        root.attribute("nb_layers").is_some()
            && file.links(&root).is_ok_and(|links| links.iter().any(|link| link.name == "layer_0"))
    };
    if legacy.iter().any(|name| root.attribute(name).is_some()) || numbered() {
        return Ok(true);
    }
    // Keras 3 writes nothing that identifies it. A model has variables of its own, an optimizer
    // too, and a shard may have only one of these groups, or layers.
    let links = file.links(&root)?;
    let group = |name: &str| {
        let link = links.iter().find(|link| link.name == name)?;
        let LinkValue::Hard(address) = link.target else { return None };
        file.object(address).ok().filter(|object| object.dataset().is_none())
    };
    if group("vars").is_some() {
        return Ok(group("layers").is_some() || name.ends_with(".weights.h5"));
    }
    let below = |group| file.links(&group).unwrap_or_default();
    let optimizer = group("optimizer").map(below).unwrap_or_default();
    Ok(optimizer.iter().any(|link| link.name == "vars")
        || name.ends_with(".weights.h5") && group("layers").is_some())
}
