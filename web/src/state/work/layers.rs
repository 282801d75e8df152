//! The layers of an open checkpoint: where they begin, and stepping from one to the next.

use std::collections::HashSet;

use statelens_checkpoint::order;
use statelens_describe::fold::Trie;

use crate::state::work::{OpenWork, Selection};
use crate::table::state::Table;

/// The position of a leaf among the corresponding leaves of all layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The layer, and the range of layers: `layer 3 of 0–31`.
    pub text: String,
    /// The leaf's index among them, in the order of layer numbers.
    pub at: usize,
    /// The number of leaves.
    pub count: usize,
}

impl OpenWork {
    /// Returns the layer of the selection, and the number of corresponding leaves.
    pub fn layer(&self) -> Option<Layer> {
        let row = self.row()?;
        let (member, rows) = self.alike(row)?;
        let trie = &self.trie;
        let above = trie.parent(member);
        let all = trie.label(&trie.numbered_like(above, member));
        let (name, container) = (trie.name(member), trie.name(above));
        let one = container.strip_suffix('s').filter(|name| name.len() > 2).unwrap_or(container);
        let text = if name.bytes().all(|byte| byte.is_ascii_digit()) {
            format!("{one} {name} of {all}")
        } else {
            format!("{name} of {all}")
        };
        let at = rows.iter().position(|&other| other == row)?;
        Some(Layer { text: text.trim().to_owned(), at, count: rows.len() })
    }

    /// Selects the same key in the next or previous layer by number, even if its shape is different
    /// or it is elsewhere in the file.
    pub fn step_layer(&mut self, by: isize) {
        let Some(row) = self.row() else { return };
        let Some((_, rows)) = self.alike(row) else { return };
        let Some(at) = rows.iter().position(|&other| other == row) else { return };
        let next = (at as isize + by).clamp(0, rows.len() as isize - 1) as usize;
        let before = self.table.place(row);
        self.select(Selection::Row(rows[next]));
        if self.table.place(rows[next]) != before {
            self.scroll += 1;
        }
    }

    /// Returns the node of the layer that a row is in, and the rows whose keys differ only in layer
    /// numbers, in their order. Includes only rows that are shown.
    fn alike(&self, row: u32) -> Option<(usize, Vec<u32>)> {
        let trie = &self.trie;
        let way = trie.way_to(row);
        let (mut nodes, mut member) = (vec![0u32], None);
        for (above, &step) in way.iter().zip(way.iter().skip(1)) {
            let like = trie.numbered_like(*above, step);
            let repeats = like.len() >= trie.least(step as u32);
            if repeats && member.is_none() {
                member = Some(step);
            }
            let below = |&node: &u32| match (repeats, node as usize == *above) {
                (true, true) => like.clone(),
                (true, false) => trie.numbered_like(node as usize, step),
                (false, _) => {
                    let same = trie.child(node as usize, trie.name(step), trie.place(step));
                    same.map(|at| at as u32).into_iter().collect()
                }
            };
            nodes = nodes.iter().flat_map(below).collect();
        }
        let which = trie.rows(*way.last()?).iter().position(|&other| other == row)?;
        let rows = nodes.iter().filter_map(|&node| trie.rows(node as usize).get(which).copied());
        let rows: Vec<u32> = rows
            .filter(|&other| self.filter.is_empty() || self.table.place(other).is_some())
            .collect();
        (rows.len() > 1).then_some((member?, rows))
    }
}

/// Returns the bytes at which layers begin: members of folds, and layers next to them whose shapes
/// differ.
pub(super) fn layer_starts(table: &Table, trie: &Trie, starts: &[u64]) -> Vec<u64> {
    let mut out: Vec<u64> = Vec::new();
    let mut known = HashSet::new();
    for fold in table.folds.iter().filter(|fold| !fold.leaves) {
        if known.insert(trie.parent(fold.member)) {
            let layers = trie.numbered_like(trie.parent(fold.member), fold.member);
            out.extend(layers.iter().map(|&at| starts[trie.first(at as usize) as usize]));
        }
    }
    order::natural(&mut out);
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::sample::{gpt, lexicographic, tensor, work as of};

    fn key(work: &OpenWork) -> &str {
        work.row().map_or("", |row| &work.rows[row as usize].key)
    }

    #[test]
    fn steps_through_layers_by_number() {
        let mut rows = lexicographic(32);
        let odd = rows.iter_mut().find(|row| row.key == "model.layers.3.mlp.up.weight");
        odd.expect("a row").shape = vec![2, 2];
        let mut work = of(rows);
        let first = work.find("model.layers.0.mlp.up.weight").expect("a row");
        work.select_row(first);
        for layer in 0..32 {
            assert_eq!(key(&work), format!("model.layers.{layer}.mlp.up.weight"));
            let found = work.layer().expect("a layer");
            assert_eq!(found.text, format!("layer {layer} of 0\u{2013}31"));
            assert_eq!((found.at, found.count), (layer, 32));
            work.step_layer(1);
        }
        assert_eq!(key(&work), "model.layers.31.mlp.up.weight");
        work.step_layer(-31);
        assert_eq!(key(&work), "model.layers.0.mlp.up.weight");
        assert_eq!(work.layers.len(), 32);
        // Layers hidden by the filter are skipped.
        work.set_filter(r"/layers\.1/");
        work.select_row(work.find("model.layers.1.norm.weight").expect("a row"));
        work.step_layer(1);
        assert_eq!(key(&work), "model.layers.10.norm.weight");
        work.set_filter("");
        work.select_row(work.find("model.embed.weight").expect("a row"));
        assert_eq!(work.layer(), None);
    }

    #[test]
    fn steps_through_experts_within_a_layer() {
        let mut keys: Vec<String> = (0..3)
            .flat_map(|layer| (0..12).map(move |expert| format!("h.{layer}.experts.{expert}.up")))
            .collect();
        order::natural(&mut keys);
        let mut work = of(keys.iter().map(|key| tensor(key, "float32", &[2])).collect());
        work.select_row(0);
        let mut seen = vec![key(&work).to_owned()];
        for _ in 1..36 {
            work.step_layer(1);
            seen.push(key(&work).to_owned());
        }
        assert_eq!(seen[..2], ["h.0.experts.0.up", "h.0.experts.1.up"]);
        assert_eq!(seen[12], "h.1.experts.0.up");
        assert_eq!(seen[35], "h.2.experts.11.up");
        assert_eq!(work.table.items.len(), 3, "a state, a fold, a pattern");
    }

    #[test]
    fn layer_starts_at_its_first_row() {
        let work = of(gpt(4));
        assert_eq!(work.layers.len(), 4 + 14);
        assert_eq!(work.layers[0], 1000 * 64 * 2);
    }
}
