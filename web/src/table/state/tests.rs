//! Tests of the rows of the table: folds, sorting and totals.

use statelens_describe::fold::values_text;

use super::*;
use crate::state::sample::{all, gpt, tensor, value};

fn folded() -> TableView {
    TableView { fold: true, ..TableView::default() }
}

fn table(rows: &[Row], view: &TableView) -> Table {
    Table::new(rows, &Trie::new(rows, view.dot), &all(rows), view, None)
}

fn lines(rows: &[Row], view: &TableView) -> Vec<String> {
    let table = table(rows, view);
    table
        .items
        .iter()
        .map(|&item| match item {
            TableLine::State(at) => format!("# {}", table.states[at].0),
            TableLine::Row(id) => rows[id as usize].key.clone(),
            TableLine::Fold(at) => {
                format!("{} x{}", table.folds[at].name, table.folds[at].times)
            }
            TableLine::Pattern(at, kid) => format!("  {}", table.folds[at].patterns[kid].label),
            TableLine::Member(_, id) => format!("  {}", rows[id as usize].key),
        })
        .collect()
}

#[test]
fn state_sums_cover_all_leaves() {
    let rows = gpt(4);
    // Folds of layers and of items, leaves outside folds, and the same with a filter.
    let some: Vec<u32> = all(&rows).into_iter().filter(|id| id % 3 != 1).collect();
    for chosen in [all(&rows), some] {
        let whole = Trie::new(&rows, '.');
        let table = Table::new(&rows, &whole, &chosen, &folded(), None);
        assert!(!table.folds.is_empty() && table.states.len() > 1);
        for (state, sums) in &table.states {
            let mut of_state = Sums::default();
            let below = |id: &&u32| rows[**id as usize].key.starts_with(&format!("{state}."));
            chosen.iter().filter(below).for_each(|&id| of_state.add_row(&rows[id as usize]));
            assert_eq!(*sums, of_state, "{state}");
        }
    }
}

#[test]
fn seed_has_five_rows() {
    let rows: Vec<Row> = ["a.b", "a.c", "d.0", "d.1", "d.2"].map(|key| value(key, "0.1")).into();
    assert_eq!(lines(&rows, &folded()), ["# a", "a.b", "a.c", "# d", "d.0", "d.1", "d.2"]);
    assert_eq!(lines(&rows, &TableView::default()), lines(&rows, &folded()));
}

#[test]
fn a_training_state_folds() {
    let rows = gpt(4);
    assert_eq!(
        lines(&rows, &folded()),
        [
            "# model",
            "model.model.wte.weight",
            "model.model.blocks.0\u{2013}3 x4",
            "  ln.weight",
            "  fc.weight",
            "  fc.bias",
            "model.model.lm_head.weight",
            "# optimizer",
            "optimizer.state.0\u{2013}13 x14",
            "  step",
            "  exp_avg",
            "optimizer.param_groups.0.lr",
            "optimizer.param_groups.0.params.0\u{2013}13 x14",
            "global_step",
        ]
    );
    let table = table(&rows, &folded());
    let kid = &table.folds[0].patterns[1];
    assert_eq!((kid.sums.params, kid.one_shape), (4 * 256 * 64, true));
    assert!(!table.folds[1].patterns[1].one_shape);
    assert_eq!(values_text(&rows, &table.folds[2].patterns[0].rows), "0 \u{2026} 13");
}

#[test]
fn folds_layers_once_in_any_order() {
    use crate::state::sample::lexicographic;
    let mut rows = lexicographic(32);
    let patterns = ["  attn.q.weight", "  mlp.up.weight", "  norm.weight"];
    let shown = lines(&rows, &folded());
    assert_eq!(shown[..3], ["# model", "model.embed.weight", "model.layers.0\u{2013}31 x32"]);
    assert_eq!(shown[3..], patterns);
    let odd = rows.iter_mut().find(|row| row.key == "model.layers.3.mlp.up.weight");
    odd.expect("a row").shape = vec![2, 2];
    let shown = lines(&rows, &folded());
    assert_eq!(shown[2], "model.layers.0\u{2013}2,4\u{2013}31 x31");
    let own = ["attn.q", "mlp.up", "norm"].map(|name| format!("model.layers.3.{name}.weight"));
    assert_eq!(shown[6..], own);
}

#[test]
fn toggling_inverts_folds() {
    let rows = gpt(4);
    let mut view = folded();
    view.toggled.insert("model.model.blocks.0\u{2013}3".into());
    view.toggled.insert("optimizer.param_groups.0.params.0\u{2013}13".into());
    let lines = lines(&rows, &view);
    assert!(!lines.contains(&"  ln.weight".to_owned()));
    assert!(lines.contains(&"  optimizer.param_groups.0.params.13".to_owned()));
}

#[test]
fn every_leaf_has_a_line() {
    let rows = gpt(4);
    let mut shut = folded();
    shut.toggled.insert("model.model.blocks.0\u{2013}3".into());
    for view in [
        TableView::default(),
        folded(),
        shut,
        TableView { sort: Some((Column::Bytes, true)), ..folded() },
    ] {
        let table = table(&rows, &view);
        for id in all(&rows) {
            let at = table.place(id).expect("a place");
            let item = table.items[at];
            assert!(
                matches!(item, TableLine::Row(row) | TableLine::Member(_, row) if row == id)
                    || matches!(item, TableLine::Fold(_))
                    || table.rows_of(item).contains(&id)
            );
        }
    }
}

#[test]
fn states_of_one_leaf_have_no_rows_of_their_own() {
    let heads = |rows: &[Row], fold: bool| {
        let view = TableView { fold, ..TableView::default() };
        let lines = table(rows, &view).items;
        lines.iter().filter(|line| matches!(line, TableLine::State(_))).count()
    };
    let flat: Vec<Row> =
        (0..100).map(|at| tensor(&format!("x{at:06}_{at}.weight"), "float32", &[at + 1])).collect();
    assert_eq!(heads(&flat, false), 0);
    let few: Vec<Row> = flat[..5].to_vec();
    assert_eq!(heads(&few, false), 5, "few states are shown");
    let pairs: Vec<Row> =
        (0..60).map(|at| tensor(&format!("x{}.{at}", at / 2), "float32", &[at + 1])).collect();
    assert_eq!(heads(&pairs, false), 30);
}

#[test]
fn sorts_by_each_column() {
    let rows = gpt(12);
    let view = TableView { sort: Some((Column::Bytes, true)), ..folded() };
    let table = table(&rows, &view);
    let sizes: Vec<u64> =
        table.items.iter().map(|&item| table.item_sums(&rows, item).bytes).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    assert!(table.items.iter().all(|item| !matches!(item, TableLine::State(_))));
    let view = TableView { sort: Some((Column::Key, false)), ..TableView::default() };
    let keys = lines(&rows, &view);
    let at = |key: &str| keys.iter().position(|line| line == key).expect("a line");
    assert!(at("optimizer.state.9.step") < at("optimizer.state.10.step"));
}

#[test]
fn filtered_rows_keep_the_sort_order() {
    let rows: Vec<Row> = (0..200)
        .map(|at| tensor(&format!("w_{}.{}", at % 13, at * 7 % 50), "float32", &[at % 5 + 1]))
        .collect();
    let chosen: Vec<u32> = all(&rows).into_iter().filter(|id| id % 3 != 1).collect();
    let trie = Trie::new(&rows, '.');
    for by in [(Column::Key, false), (Column::Bytes, true), (Column::Shape, true)] {
        let view = TableView { sort: Some(by), ..TableView::default() };
        let sorted = finish(SortedRows::new(&rows, by, &view.weights));
        let with = Table::new(&rows, &trie, &chosen, &view, Some(&sorted));
        let without = Table::new(&rows, &trie, &chosen, &view, None);
        assert_eq!(with.items, without.items, "{by:?}");
        assert_eq!(with.items.len(), chosen.len());
    }
}

#[test]
fn unread_rows_sort_last() {
    use statelens_values::SummaryStatistics;
    let rows = gpt(3);
    let mut view = folded();
    let of = |row: u32| {
        let std = Some(f64::from(row % 7));
        (row, SummaryStatistics { std, ..SummaryStatistics::default() })
    };
    view.weights.take((0..8).map(of).collect());
    for down in [true, false] {
        view.sort = Some((Column::Measure(StatisticsField::Std), down));
        let table = table(&rows, &view);
        let known: Vec<Option<f64>> =
            table.items.iter().map(|&item| view.weights.sum(table.all_rows_of(item)).std).collect();
        let read = known.iter().flatten().count();
        assert!(read > 2 && known[..read].iter().all(Option::is_some), "{known:?}");
        assert!(known[..read].is_sorted_by(|a, b| if down { a >= b } else { a <= b }), "{known:?}");
    }
}

#[test]
fn nested_runs_are_one_pattern() {
    let rows: Vec<Row> = (0..3)
        .flat_map(|layer| {
            (0..8).map(move |expert| {
                tensor(&format!("m.layers.{layer}.experts.{expert}.up"), "bfloat16", &[2, 2])
            })
        })
        .collect();
    let table = table(&rows, &folded());
    assert_eq!(table.folds.len(), 1);
    assert_eq!(table.folds[0].patterns.len(), 1);
    assert_eq!(table.folds[0].patterns[0].label, "experts.0\u{2013}7.up");
    assert_eq!(table.folds[0].patterns[0].rows, all(&rows));
}
