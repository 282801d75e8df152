//! Reads values stored as datasets or as pickled bytes, for both families.

use statelens_checkpoint::{Array, DType, Error, Finding, Grade, Result, Text, Value, ValueId};
use statelens_hdf5::{Dataset, Object};
use statelens_pickle::{NoStorages, ScanOptions};

use super::{CerebrasFile, CerebrasReading, MAX_FINDINGS};
use crate::cerebras::read::elements::retype;

impl CerebrasReading<'_> {
    /// Reads a tensor from a dataset. `dtype` overrides the type of the dataset.
    pub(super) fn dataset_tensor(
        &mut self,
        container: &CerebrasFile,
        dataset: &Dataset,
        dtype: Option<DType>,
    ) -> Result<Value> {
        let mut tensor = container.browse().file().tensor(dataset, self.files)?;
        if let Some(dtype) = dtype {
            retype(&mut tensor, dtype);
        }
        self.tensor(tensor)
    }

    pub(super) fn dataset_array(
        &mut self,
        container: &CerebrasFile,
        dataset: &Dataset,
        is_bfloat16: bool,
        scalar: bool,
    ) -> Result<Value> {
        let value = self.dataset_tensor(container, dataset, is_bfloat16.then_some(DType::BF16))?;
        Ok(match value {
            Value::Tensor(tensor) => Value::Array(Array { tensor, scalar }),
            other => other,
        })
    }

    /// Describes a pickled object, without constructing it.
    pub(super) fn pickled(&mut self, bytes: &[u8], key: &Text) -> Result<ValueId> {
        let pickle = match statelens_pickle::read(bytes, 0, self.limits) {
            Ok(pickle) => pickle,
            Err(broken) => {
                self.pickle_findings(broken.scan(&ScanOptions::default()), key);
                return Err(broken.error.context("its pickled object"));
            }
        };
        self.pickle_findings(pickle.scan(&ScanOptions::default()), key);
        let lowered = pickle.lower(&mut self.builder, &mut NoStorages::default())?;
        self.pickle_findings(lowered.findings, key);
        Ok(lowered.root)
    }

    /// Adds the findings about a pickled value. Findings that are the same for many values are
    /// added once.
    fn pickle_findings(&mut self, findings: Vec<Finding>, key: &Text) {
        for mut finding in findings {
            if self.reported.len() < MAX_FINDINGS && self.reported.insert(finding.title.clone()) {
                let inside = if finding.place.is_empty() {
                    String::new()
                } else {
                    format!(", {}", finding.place)
                };
                finding.place = format!("{key}{inside}");
                self.findings.push(finding);
            } else if finding.grade >= Grade::Damage && !self.reported.contains(&finding.title) {
                self.findings.push(finding);
            }
        }
    }

    /// Returns the dataset of an object. Fails if it is not a dataset.
    pub(super) fn dataset<'o>(&self, object: &'o Object, key: &Text) -> Result<&'o Dataset> {
        match &object.kind {
            statelens_hdf5::ObjectKind::Dataset(dataset) => Ok(dataset),
            statelens_hdf5::ObjectKind::Unreadable(error) => Err(error.clone()),
            _ => Err(Error::damaged(format!("{key} is not a dataset"))),
        }
    }
}
