//! TorchScript: reads the parts of a `torch.jit.save` archive other than the module tree.

use statelens_checkpoint::{
    Builder, ByteOrder, Dict, DictKey, Finding, Grade, Limits, Result, Value, ValueId,
};

use statelens_pickle::ScanOptions;

use super::records::Records;
use crate::archive::Archive;

/// The name of the constants in the module's code.
const NAME: &str = "CONSTANTS";

/// Adds the constants of the code to the module `root` as `CONSTANTS.c0` etc., the names used in
/// the code. A frozen model keeps its weights there. Their storages are numbered from `first`.
pub(super) fn constants(
    archive: &Archive,
    byte_order: ByteOrder,
    first: u32,
    root: ValueId,
    builder: &mut Builder,
) -> Result<Vec<Finding>> {
    let Some(record) = archive.find("constants.pkl") else { return Ok(Vec::new()) };
    let limits: Limits = builder.limits().clone();
    let (bytes, intact) = archive.read(record, &limits)?;
    let pickle = statelens_pickle::read(&bytes, archive.start(record)?, &limits)
        .map_err(crate::pickle::read::describe)
        .map_err(|error| error.context(format!("{}constants.pkl", archive.root())))?;
    let mut findings = pickle.scan(&ScanOptions::default());
    if !intact {
        findings.push(Finding::new(Grade::Damage, "The checksum of constants.pkl is wrong"));
    }
    let mut records = Records::new(archive, "constants", byte_order)?.numbered_from(first);
    let lowered = pickle.lower(builder, &mut records)?;
    findings.extend(lowered.findings);
    // Replaces the tuple by a dict with the names.
    let slot = builder.value_mut(lowered.root);
    let items = match slot.map(|slot| std::mem::replace(slot, Value::None)) {
        Some(Value::Tuple(tuple)) => tuple.items,
        _ => {
            findings
                .push(Finding::new(Grade::Warning, "The constants of the code are not a tuple"));
            return Ok(findings);
        }
    };
    if items.is_empty() {
        return Ok(findings);
    }
    let named = (0..)
        .zip(items)
        .map(|(index, id): (u64, _)| (DictKey::from(format!("c{index}").as_str()), id));
    let dict = Dict { entries: named.collect(), ..Dict::default() };
    let dict = builder.push(Value::Dict(dict))?;
    match builder.value_mut(root) {
        Some(Value::Dict(module)) => module.entries.push((DictKey::from(NAME), dict)),
        _ => findings.push(
            Finding::new(Grade::Warning, "The constants of the code are not shown")
                .detail("The archive holds no module that they could belong to."),
        ),
    }
    Ok(findings)
}
