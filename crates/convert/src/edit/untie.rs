//! A copy for each name.

use std::collections::HashSet;

use statelens_checkpoint::{
    Array, Builder, Checkpoint, Quantizer, Result, Tensor, TensorId, Value, ValueId,
};

/// The checkpoint with a tensor of its own for each name of one, which shares its memory with no
/// other. Containers that hang in two places stay links, for they hold no bytes.
pub(super) fn untie(source: &Checkpoint) -> Result<Checkpoint> {
    let mut untying = Untying { source, builder: source.edit(), met: HashSet::new() };
    for leaf in source.leaves() {
        match source.value(leaf.target) {
            Value::Sparse(sparse) if leaf.target != leaf.id => {
                let mut own = (**sparse).clone();
                for (_, part) in &mut own.parts {
                    *part = untying.copy_of(*part)?;
                }
                untying.put(leaf.id, Value::Sparse(own.into()));
            }
            Value::Tensor(_) | Value::Array(_) => {
                let again = untying.is_again(leaf.target);
                if leaf.target != leaf.id || again {
                    let own = untying.own(leaf.target)?;
                    untying.put(leaf.id, own);
                }
            }
            _ => {}
        }
    }
    let mut builder = untying.builder;
    for index in 0..source.tensors().len() {
        if let Some(tensor) = builder.tensor_mut(TensorId(index as u32)) {
            tensor.storage = None;
        }
    }
    builder.rebuild(source)
}

struct Untying<'a> {
    source: &'a Checkpoint,
    builder: Builder,
    /// Tensors that have a name that keeps them.
    met: HashSet<TensorId>,
}

impl Untying<'_> {
    /// Whether another value is that tensor, too, and keeps it.
    fn is_again(&mut self, id: ValueId) -> bool {
        match self.source.tensor_of(id) {
            Some((tensor, _)) => !self.met.insert(tensor),
            None => false,
        }
    }

    fn put(&mut self, id: ValueId, value: Value) {
        if let Some(place) = self.builder.value_mut(id) {
            *place = value;
        }
    }

    /// A value of its own that is what `id` is.
    fn copy_of(&mut self, id: ValueId) -> Result<ValueId> {
        let value = self.own(self.source.resolve(id))?;
        self.builder.push(value)
    }

    /// What a tensor or array is, with a tensor of its own.
    fn own(&mut self, id: ValueId) -> Result<Value> {
        let value = self.source.value(id).clone();
        let Some((_, tensor)) = self.source.tensor_of(id) else { return Ok(value) };
        let mut tensor = Tensor { storage: None, ..tensor.clone() };
        if let Some(Quantizer::PerChannel { scales, zero_points, .. }) = &mut tensor.quantizer {
            for part in [scales, zero_points] {
                // Plain tensors: they have no quantizer themselves.
                let own = self.source.tensor_of(*part).map(|(_, part)| part.clone());
                if let Some(own) = own.filter(|own| own.quantizer.is_none()) {
                    let own = self.builder.push_tensor(Tensor { storage: None, ..own })?;
                    *part = self.builder.push(Value::Tensor(own))?;
                }
            }
        }
        let tensor = self.builder.push_tensor(tensor)?;
        Ok(match value {
            Value::Array(array) => Value::Array(Array { tensor, ..array }),
            _ => Value::Tensor(tensor),
        })
    }
}
