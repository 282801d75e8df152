//! Gives each name of a tensor a copy of its own.

use std::collections::HashSet;

use statelens_checkpoint::{
    Array, Builder, Checkpoint, Leaf, Limits, Quantizer, Result, Tensor, TensorId, Value, ValueId,
};

/// Returns the checkpoint with a separate tensor for each name, sharing memory with no other. A
/// container with two places becomes two; inside a container that contains itself, the link
/// remains.
pub(super) fn untie(source: &Checkpoint) -> Result<Checkpoint> {
    let parted = part_containers(source)?;
    let source = parted.as_ref().unwrap_or(source);
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
                let again = untying.is_duplicate(leaf.target);
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

/// Maximum number of values that copies of containers may create.
const MAX_COPIES: u64 = 1 << 22;

/// Returns the checkpoint with a copy of the container in place of each link to a container with
/// tensors; `None` if it has no such links.
fn part_containers(source: &Checkpoint) -> Result<Option<Checkpoint>> {
    let is_shared = |leaf: &Leaf| {
        let target = source.value(leaf.target);
        leaf.target != leaf.id && target.is_container() && source.holds_tensor(leaf.target)
    };
    let shared: Vec<Leaf> = source.each_leaf().filter(is_shared).collect();
    if shared.is_empty() {
        return Ok(None);
    }
    let parents = super::parents(source);
    let mut builder = source.edit();
    let mut copies = 0;
    for leaf in shared {
        // The containers around a link can't be copied into it.
        let mut around = HashSet::new();
        let mut at = parents.get(leaf.id.0 as usize).copied().flatten();
        while let Some(id) = at {
            around.insert(id);
            at = parents.get(id.0 as usize).copied().flatten();
        }
        if around.contains(&leaf.target) {
            continue;
        }
        let mut tasks = vec![Copying::Enter { from: leaf.target, to: leaf.id }];
        while let Some(task) = tasks.pop() {
            let (from, to) = match task {
                Copying::Enter { from, to } => (from, to),
                Copying::Leave(id) => {
                    around.remove(&id);
                    continue;
                }
            };
            let mut value = source.value(from).clone();
            if value.is_container() && around.insert(from) {
                if let Some(attributes) = source.attributes(from) {
                    let shared = builder.push(Value::Link(source.resolve(attributes)))?;
                    builder.set_attributes(to, shared);
                }
                tasks.push(Copying::Leave(from));
                let mut result = Ok(());
                value.each_child_mut(|child| {
                    if result.is_ok() {
                        result = builder.push(Value::None).map(|id| {
                            builder.set_outside_state(id, source.is_outside_state(*child));
                            tasks.push(Copying::Enter { from: source.resolve(*child), to: id });
                            *child = id;
                            copies += 1;
                        });
                    }
                });
                result?;
                Limits::check("values in copies of tied containers", copies, MAX_COPIES)?;
            } else if !value.children().is_empty() || source.tensor_of(from).is_some() {
                value = Value::Link(from);
            }
            if let Some(place) = builder.value_mut(to) {
                *place = value;
            }
        }
    }
    builder.rebuild(source).map(Some)
}

/// A step of copying a container without recursion.
enum Copying {
    /// Puts a copy of a value in the place of another.
    Enter { from: ValueId, to: ValueId },
    /// Ends a container whose items have all been copied.
    Leave(ValueId),
}

struct Untying<'a> {
    source: &'a Checkpoint,
    builder: Builder,
    /// Tensors that already belong to a name.
    met: HashSet<TensorId>,
}

impl Untying<'_> {
    /// Returns whether another value already owns the tensor.
    fn is_duplicate(&mut self, id: ValueId) -> bool {
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

    /// Returns a separate copy of the value behind `id`.
    fn copy_of(&mut self, id: ValueId) -> Result<ValueId> {
        let value = self.own(self.source.resolve(id))?;
        self.builder.push(value)
    }

    /// Returns a copy of a tensor or array value with a tensor of its own.
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
