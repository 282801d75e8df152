//! The singular values of a tensor.

use serde::Serialize;
use statelens_checkpoint::{Error, FileSet, Progress, Result, Tensor, shape_text};
use statelens_tensor::{BUFFER, Buffer, drive};
use statelens_values::Matrix;
use statelens_values::singular::{Singular, SingularPlan, Spectrum, Which};

/// Memory limit in bytes.
const MEMORY: u64 = 1 << 30;

/// The singular values of a matrix, or what finding them costs.
#[derive(Debug, Clone, Serialize)]
pub struct SingularReport {
    /// The name of the tensor, with the slice if there is one.
    #[serde(rename = "key")]
    pub title: String,
    /// The name of its dtype.
    pub dtype: String,
    /// Its shape: two dimensions.
    pub shape: Vec<u64>,
    /// What finding them costs.
    pub plan: SingularPlan,
    /// The values; `None` until they are read.
    #[serde(flatten)]
    pub found: Option<Spectrum>,
    #[serde(skip)]
    matrix: Matrix,
}

impl SingularReport {
    /// Plans to find the singular values of a tensor of numbers. Fails if it is not a matrix, or if
    /// that needs too much memory.
    pub fn plan(tensor: &Tensor, title: &str, which: Which) -> Result<Self> {
        let shape = &tensor.shape;
        if shape.len() != 2 {
            let rest = vec!["0, "; shape.len().saturating_sub(2)].concat();
            let error = Error::refused(format!("`{title}` has the shape {}", shape_text(shape)))
                .expected("a matrix: only matrices have singular values");
            return Err(match shape.len() {
                3.. => {
                    error.advice(format!("Choose one with a slice after the key: [{rest}:, :]."))
                }
                _ => error,
            });
        }
        let matrix = Matrix::of(shape, &[])
            .ok_or_else(|| Error::refused(format!("`{title}` has no values")))?;
        Ok(Self {
            title: title.to_owned(),
            dtype: tensor.dtype.name().to_owned(),
            shape: shape.clone(),
            plan: SingularPlan::new(&tensor.dtype, matrix, which, MEMORY)?,
            found: None,
            matrix,
        })
    }

    /// Reads the tensor that was planned for, as often as the plan says, and finds the values.
    pub fn read(
        &mut self,
        files: &FileSet,
        tensor: &Tensor,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut machine = Singular::new(files, tensor, self.matrix, self.plan)?;
        drive(&mut machine, &mut Buffer::new(BUFFER), progress)?;
        self.found = machine.found().cloned();
        Ok(())
    }
}
