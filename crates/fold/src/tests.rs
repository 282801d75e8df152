use statelens_checkpoint::separator;

use super::*;

#[derive(Debug, Clone, Default)]
struct TestLeaf {
    key: String,
    kind: &'static str,
    dtype: String,
    shape: Vec<u64>,
    params: u64,
    bytes: u64,
    value: String,
    link: Option<String>,
}

impl Foldable for TestLeaf {
    fn properties(&self) -> LeafProperties<'_> {
        LeafProperties {
            key: &self.key,
            kind: self.kind,
            is_tensor: self.kind == "tensor",
            dtype: &self.dtype,
            shape: &self.shape,
            link: self.link.as_deref(),
            params: self.params,
            bytes: self.bytes,
            value: &self.value,
        }
    }
}

fn tensor(key: &str, dtype: &str, shape: &[u64]) -> TestLeaf {
    let params: u64 = shape.iter().product();
    let bytes = params * if dtype.contains("16") { 2 } else { 4 };
    TestLeaf {
        key: key.into(),
        kind: "tensor",
        dtype: dtype.into(),
        shape: shape.to_vec(),
        params,
        bytes,
        ..TestLeaf::default()
    }
}

fn value(key: &str, text: &str) -> TestLeaf {
    TestLeaf { key: key.into(), kind: "float", value: text.into(), ..TestLeaf::default() }
}

/// The layers of a model, sorted by their keys as text: 0, 1, 10, 11, …, 2, 20, ….
fn lexicographic(layers: u64) -> Vec<TestLeaf> {
    let mut rows = vec![tensor("model.embed.weight", "bfloat16", &[1000, 64])];
    for layer in 0..layers {
        for (name, shape) in [("attn.q", &[64, 64][..]), ("mlp.up", &[256, 64]), ("norm", &[64])] {
            rows.push(tensor(&format!("model.layers.{layer}.{name}.weight"), "bfloat16", shape));
        }
    }
    rows.push(tensor("model.norm.weight", "bfloat16", &[64]));
    rows.sort_by(|one, other| one.key.cmp(&other.key));
    rows
}

/// Returns the labels of the runs below a path, their lengths, and whether their shapes differ.
fn labels(trie: &Trie, path: &[&str]) -> Vec<(String, usize, bool)> {
    let mut at = 0;
    for name in path {
        at = trie.child(at, name, 0).expect("a node");
    }
    trie.runs(at).into_iter().map(|run| (trie.run_label(at, run), run.len, run.loose)).collect()
}

fn folded_lines(rows: &[TestLeaf]) -> Vec<String> {
    let line = |line: FoldedKey| format!("{} x{}", line.key, line.rows.len());
    lines(rows, '.').into_iter().map(line).collect()
}

fn all(text: &str, len: usize) -> Vec<(String, usize, bool)> {
    vec![(text.to_owned(), len, false)]
}

#[test]
fn folds_layers_in_lexicographic_order() {
    let rows = lexicographic(32);
    assert!(rows[4].key.contains("layers.1.") && rows[7].key.contains("layers.10."));
    let trie = Trie::new(&rows, '.');
    assert_eq!(labels(&trie, &["model", "layers"]), all("0\u{2013}31", 32));
    assert_eq!(
        folded_lines(&rows),
        [
            "model.embed.weight x1",
            "model.layers.0\u{2013}31.attn.q.weight x32",
            "model.layers.0\u{2013}31.mlp.up.weight x32",
            "model.layers.0\u{2013}31.norm.weight x32",
            "model.norm.weight x1",
        ]
    );
    let second = &lines(&rows, '.')[1];
    let keys: Vec<&str> = second.rows.iter().map(|&row| &*rows[row as usize].key).collect();
    let by_number: Vec<String> =
        (0..32).map(|layer| format!("model.layers.{layer}.attn.q.weight")).collect();
    assert_eq!(keys, by_number);
    assert_eq!(*trie.sums(0), sums(&rows));
}

#[test]
fn layers_of_another_shape_form_their_own_fold() {
    let mut rows = lexicographic(32);
    let mut odd = |layer: u64| {
        let key = format!("model.layers.{layer}.mlp.up.weight");
        rows.iter_mut().find(|row| row.key == key).expect("a row").shape = vec![128, 64];
    };
    odd(3);
    let child_labels = |rows: &[TestLeaf]| labels(&Trie::new(rows, '.'), &["model", "layers"]);
    odd(3);
    odd(20);
    assert_eq!(
        child_labels(&rows),
        [
            ("0\u{2013}2,4\u{2013}19,21\u{2013}31".to_owned(), 30, false),
            ("3,20".to_owned(), 2, false)
        ]
    );
    // This also holds for few layers.
    let mut rows = lexicographic(4);
    rows.retain(|row| !row.key.contains("layers.2.norm"));
    assert_eq!(
        child_labels(&rows),
        [("0\u{2013}1,3".to_owned(), 3, false), ("2".to_owned(), 1, false)]
    );
}

#[test]
fn folds_alternating_layers() {
    let shape = |layer: u64| [[8, 8], [8, 16]][layer as usize % 2];
    let rows: Vec<TestLeaf> =
        (0..12).map(|layer| tensor(&format!("h.{layer}.w"), "float32", &shape(layer))).collect();
    let trie = Trie::new(&rows, '.');
    let expected =
        ["0,2,4,\u{2026},10", "1,3,5,\u{2026},11"].map(|text| (text.to_owned(), 6, false));
    assert_eq!(labels(&trie, &["h"]), expected);
}

#[test]
fn folds_experts_inside_layers_in_any_order() {
    let mut rows: Vec<TestLeaf> = (0..12)
        .flat_map(|layer| (0..16).map(move |expert| (layer, expert)))
        .flat_map(|(layer, expert)| {
            ["w1", "w2", "w3"].map(|name| {
                let key = format!("layers.{layer}.experts.{expert}.{name}.weight");
                tensor(&key, "bfloat16", &[8, 8])
            })
        })
        .collect();
    let expected = ["w1", "w2", "w3"]
        .map(|name| format!("layers.0\u{2013}11.experts.0\u{2013}15.{name}.weight x192"));
    assert_eq!(folded_lines(&rows), expected);
    rows.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(folded_lines(&rows), expected);
    // As in the index of a distributed checkpoint: by name first, with the layers in no order.
    rows.sort_by_key(|row| {
        let parts: Vec<&str> = row.key.split('.').collect();
        let number = |at: usize| parts[at].parse::<u64>().expect("a number") * 7 % 17;
        (parts[4].to_owned(), number(3), number(1))
    });
    let mut any = folded_lines(&rows);
    any.sort();
    assert_eq!(any, expected);
    let row = |line: &FoldedKey, at: usize| rows[line.rows[at] as usize].key.clone();
    let folded = lines(&rows, '.');
    let line = folded.iter().find(|line| line.key.contains("w2")).expect("a line");
    assert_eq!(row(line, 0), "layers.0.experts.0.w2.weight");
    assert_eq!(row(line, 17), "layers.1.experts.1.w2.weight");
    assert_eq!(row(line, 191), "layers.11.experts.15.w2.weight");
}

#[test]
fn the_order_of_keys_within_a_layer_does_not_matter() {
    let names = [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]];
    let rows: Vec<TestLeaf> = (0..9)
        .flat_map(|layer| names[layer % 3].map(|name| (layer, name)))
        .map(|(layer, name)| {
            tensor(&format!("h.{layer}.{name}"), "float32", &[name.as_bytes()[0].into()])
        })
        .collect();
    assert_eq!(folded_lines(&rows), ["a", "b", "c"].map(|name| format!("h.0\u{2013}8.{name} x9")));
    for line in lines(&rows, '.') {
        let name = line.key.rsplit('.').next().expect("a name");
        assert!(line.rows.iter().all(|&row| rows[row as usize].key.ends_with(name)));
    }
}

#[test]
fn optimizer_state_folds_by_keys_alone() {
    let rows: Vec<TestLeaf> = (0..12)
        .flat_map(|at| {
            ["step", "exp_avg"].map(|name| {
                tensor(&format!("optimizer.state.{at}.{name}"), "float32", &[at % 5 + 1])
            })
        })
        .collect();
    let trie = Trie::new(&rows, '.');
    assert_eq!(labels(&trie, &["optimizer", "state"]), [("0\u{2013}11".into(), 12, true)]);
}

#[test]
fn short_lists_of_values_do_not_fold() {
    let rows: Vec<TestLeaf> = (0..3).map(|at| value(&format!("d.{at}"), "0.1")).collect();
    let trie = Trie::new(&rows, '.');
    assert_eq!(labels(&trie, &["d"]).len(), 3);
    let rows: Vec<TestLeaf> = (0..4).map(|at| value(&format!("d.{at}"), "0.1")).collect();
    let trie = Trie::new(&rows, '.');
    assert_eq!(labels(&trie, &["d"]), all("0\u{2013}3", 4));
    assert_eq!(values_text(&rows, &[0, 3]), "0.1");
}

#[test]
fn numbered_names_fold_from_four() {
    let rows = |names: &[&str]| -> Vec<TestLeaf> {
        names.iter().map(|name| tensor(&format!("m.{name}.w"), "float32", &[1])).collect()
    };
    let few = rows(&["ln_1", "attn", "ln_2", "w1", "w2", "w3"]);
    assert_eq!(labels(&Trie::new(&few, '.'), &["m"]).len(), 6);
    let many = rows(&["layer_00", "layer_10", "layer_08", "layer_09"]);
    assert_eq!(labels(&Trie::new(&many, '.'), &["m"]), all("layer_00,08\u{2013}10", 4));
    // With flat names, each tensor is a line of its own.
    let flat: Vec<TestLeaf> =
        (0..9).map(|at| tensor(&format!("arr_{at}"), "float32", &[1])).collect();
    assert_eq!(lines(&flat, '.').len(), 9);
}

#[test]
fn unfolded_keys_keep_the_order_of_the_file() {
    let rows: Vec<TestLeaf> = ["h.9.a", "h.x.a", "h.2.b", "h.1.a", "h.0.c", "h.10.d"]
        .map(|key| tensor(key, "float32", &[1]))
        .into();
    assert_eq!(
        folded_lines(&rows),
        ["h.1,9.a x2", "h.x.a x1", "h.2.b x1", "h.0.c x1", "h.10.d x1"]
    );
}

#[test]
fn links_do_not_fold_with_their_targets() {
    let mut rows: Vec<TestLeaf> =
        (0..4).map(|at| tensor(&format!("h.{at}.w"), "float32", &[10, 10])).collect();
    rows[1..].iter_mut().for_each(|row| row.link = Some("h.0.w".into()));
    assert_eq!(folded_lines(&rows), ["h.0.w x1", "h.1\u{2013}3.w x3"]);
    assert_eq!(sums(&rows), Sums { tensors: 4, values: 0, params: 100, bytes: 400 });
}

#[test]
fn colliding_keys_keep_both_rows() {
    let rows = vec![value("a.b", "1"), value("a.b", "2")];
    let trie = Trie::new(&rows, '.');
    assert_eq!(trie.rows(trie.count() - 1), [0, 1]);
    assert_eq!(folded_lines(&rows), ["a.b x1", "a.b x1"]);
}

#[test]
fn deep_keys_end_in_one_segment() {
    let key = vec!["x"; 10_000].join(".");
    let rows = vec![value(&key, "1")];
    let trie = Trie::new(&rows, '.');
    assert!(trie.count() < 100);
    assert_eq!(trie.path(trie.count() - 1), key);
    assert_eq!(folded_lines(&rows), [format!("{key} x1")]);
}

#[test]
fn subset_tree_ignores_other_keys() {
    let rows = lexicographic(24);
    let trie = Trie::new(&rows, '.');
    let chosen: Vec<u32> =
        (0..rows.len() as u32).filter(|&id| !rows[id as usize].key.contains("mlp")).collect();
    let some: Vec<TestLeaf> = chosen.iter().map(|&id| rows[id as usize].clone()).collect();
    let (part, alone) = (trie.of(&chosen), Trie::new(&some, '.'));
    let folded_lines = |trie: &Trie, row: &dyn Fn(u32) -> String| -> Vec<_> {
        let nodes = 0..trie.count();
        nodes
            .map(|at| {
                let rows: Vec<String> = trie.rows(at).iter().map(|&id| row(id)).collect();
                (trie.path(at), trie.runs(at), rows, *trie.sums(at), row(trie.first(at)))
            })
            .collect()
    };
    assert_eq!(
        folded_lines(&part, &|id| rows[id as usize].key.clone()),
        folded_lines(&alone, &|id| some[id as usize].key.clone())
    );
    let way = trie.way_to(chosen[7]);
    assert_eq!(trie.path(*way.last().expect("a node")), rows[chosen[7] as usize].key);
}

#[test]
fn splits_variable_names_at_slashes() {
    let named = |names: &[&str]| -> Vec<TestLeaf> {
        names.iter().map(|name| tensor(name, "float32", &[2])).collect()
    };
    let rows = named(&["net/dense_1.5/kernel", "net/dense_1.5/bias", "step"]);
    assert_eq!(separator(true, &mut rows.iter().map(|row| &*row.key)), '/');
    let trie = Trie::new(&rows, '/');
    assert_eq!(labels(&trie, &["net"]), all("dense_1.5", 1));
    let rows = named(&["m/lst/0/.ATTRIBUTES/VARIABLE_VALUE", "m/w/.ATTRIBUTES/VARIABLE_VALUE"]);
    let trie = Trie::new(&rows, '/');
    let is_value = |path: &[&str]| {
        trie.is_value(path.iter().fold(0, |at, name| trie.child(at, name, 0).expect("a node")))
    };
    let paths: [&[&str]; 4] = [&["m"], &["m", "lst"], &["m", "lst", "0"], &["m", "w"]];
    assert_eq!(paths.map(is_value), [false, false, true, true]);
}
