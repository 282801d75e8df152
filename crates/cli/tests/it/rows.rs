//! `statelens singular`, `stats --rank`, and `export` of several tensors.

use crate::common::{Folder, fixture, run, text, write_floats};
use serde_json::{Value, json};

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

/// Writes a safetensors file of 32-bit floats, and returns its path.
fn floats(folder: &Folder, tensors: &[(&str, &[u64], Vec<f32>)]) -> String {
    let path = folder.file("model.safetensors");
    write_floats(&path, tensors);
    path.to_str().unwrap().to_owned()
}

#[test]
fn reports_singular_values_rank_and_condition() {
    let folder = Folder::new();
    // Diagonal, so that the singular values are known: 8, 4, 2 and 0.
    let mut values = vec![0.0f32; 20];
    (values[0], values[6], values[12]) = (2.0, -8.0, 4.0);
    let stacked = [vec![0.0; 4], vec![3.0, 0.0, 0.0, 5.0]].concat();
    let path = floats(&folder, &[("w", &[4, 5], values), ("s", &[2, 2, 2], stacked)]);
    let found = run(["singular", &path, "w", "--json"]).json();
    let shown_values = numbers(&found["values"]);
    assert_eq!(shown_values.len(), 4);
    for (value, want) in shown_values.iter().zip([8.0, 4.0, 2.0, 0.0]) {
        assert!((value - want).abs() < 1e-14, "{value} {want}");
    }
    assert_eq!((&found["rank"], &found["condition"]), (&json!(3), &json!("inf")));
    assert_eq!((&found["whole"], &found["plan"]["passes"]), (&json!(true), &json!(1)));
    assert_eq!(found["plan"]["bytes"], json!(80));
    let text = run(["singular", &path, "w"]).ok();
    assert!(
        text.contains("rank             3 of 4") && text.contains("1            8 ±"),
        "{text}"
    );
    let largest = run(["singular", &path, "w", "--top", "1", "--json"]).json();
    assert!((numbers(&largest["values"])[0] - 8.0).abs() < 1e-9);
    let plan = run(["singular", &path, "w", "--dry-run"]).ok();
    assert!(plan.contains("would find all 4, read once (80 bytes)"), "{plan}");
    let slice = run(["singular", &path, "s[1]", "--json"]).json();
    assert_eq!(
        numbers(&slice["values"]).iter().map(|it| it.round()).collect::<Vec<_>>(),
        [5.0, 3.0]
    );
    let error = run(["singular", &path, "s"]).failed();
    assert!(error.contains("[0, :, :]"), "{error}");
}

#[test]
fn singular_reports_the_position_of_a_nan() {
    let folder = Folder::new();
    let mut values = vec![1.0f32; 12];
    values[7] = f32::NAN;
    let path = floats(&folder, &[("w", &[3, 4], values)]);
    let error = run(["singular", &path, "w"]).failed();
    assert!(error.contains("NaN at row 1, column 3"), "{error}");
}

#[test]
fn ranks_rows_by_norm() {
    let folder = Folder::new();
    let rows = [[3.0f32, 4.0], [0.0, 0.0], [1.0, 0.0], [6.0, 8.0], [1.0, 0.0], [0.0, 0.0]];
    let path = floats(&folder, &[("w", &[6, 2], rows.concat()), ("k", &[3, 2, 2], rows.concat())]);
    let found = run(["stats", &path, "w", "--rank", "rows", "--top", "2", "--json"]).json();
    let index = |list: &Value| -> Vec<u64> {
        list.as_array().unwrap().iter().map(|it| it["index"][0].as_u64().unwrap()).collect()
    };
    assert_eq!((index(&found["largest"]), index(&found["smallest"])), (vec![3, 0], vec![5, 1]));
    assert_eq!(
        (&found["zero"], &found["copied"], &found["count"]),
        (&json!(2), &json!(1), &json!(6))
    );
    assert_eq!(
        found["largest"][0],
        json!({"index": [3], "norm": 10.0, "abs_max": 8.0, "not_finite": 0})
    );
    let columns = run(["stats", &path, "w", "--rank", "columns", "--json"]).json();
    // 4^2 + 8^2 compared with 3^2 + 1 + 6^2 + 1.
    assert_eq!(index(&columns["largest"]), [1, 0]);
    let kernels = run(["stats", &path, "k", "--rank", "kernels", "--json"]).json();
    assert_eq!((index(&kernels["largest"]), &kernels["count"]), (vec![1, 0, 2], &json!(3)));
    let text = run(["stats", &path, "w", "--rank", "rows"]).ok();
    assert!(text.contains("2 all zero, 1 equal to an earlier one"), "{text}");
    assert!(run(["stats", &path, "w[0]", "--rank", "rows"]).failed().contains("has no rows"));
}

#[test]
fn exports_several_tensors_into_one_file() {
    let folder = Folder::new();
    let one: Vec<f32> = (0..6).map(|at| at as f32).collect();
    let path = floats(&folder, &[("a.w", &[2, 3], one), ("b", &[2], vec![7.0, 8.0])]);
    let out = |name: &str| folder.file(name).to_str().unwrap().to_owned();
    let both = out("both.safetensors");
    let printed = run(["export", &path, "a.w[1:]", "b", &both, "--as", "float64"]).ok();
    assert!(printed.contains("2 tensors"), "{printed}");
    let listed = run(["ls", "--json", &both]).json();
    let entries = listed["entries"].as_array().unwrap();
    let shown_values: Vec<_> =
        entries.iter().map(|it| (&it["key"], &it["shape"], &it["dtype"])).collect();
    assert_eq!(
        shown_values,
        [
            (&json!("a.w"), &json!([1, 3]), &json!("float64")),
            (&json!("b"), &json!([2]), &json!("float64"))
        ]
    );
    // Two slices of one key get distinct names.
    let npz = out("both.npz");
    let json = run(["export", &path, "a.w[0]", "a.w[1]", &npz, "--json"]).json();
    let names: Vec<&Value> =
        json["tensors"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, [&json!("a.w[0]"), &json!("a.w[1]")]);
    assert_eq!(run(["ls", "--json", &npz]).json()["entries"].as_array().unwrap().len(), 2);
    assert!(
        run(["export", &path, "b", "b", &out("twice.npz")]).failed().contains("selected twice")
    );
    let error = run(["export", &path, "b", "a.w", &out("both.csv")]).failed();
    assert!(error.contains(".npz or .safetensors"), "{error}");
    run(["export", &path, "b", &out("b.npy"), "--cast", "float16"]).ok();
}

/// `hist`, `rows` and `states` were commands of their own.
#[test]
fn former_commands_are_aliases() {
    let values = text(&fixture("stats/values.safetensors"));
    let model = text(&fixture("torch/zip_views.pt"));
    for (former, now) in [
        (vec!["hist", &values, "F32.normal"], vec!["stats", &values, "F32.normal", "--histogram"]),
        (
            vec!["rows", &values, "F32.normal", "--columns"],
            vec!["stats", &values, "F32.normal", "--rank", "columns"],
        ),
        (vec!["states", &model], vec!["info", &model, "--states"]),
    ] {
        let (former, now) = (run(former), run(now));
        assert_eq!((former.code, &former.out), (now.code, &now.out), "{}", now.err);
    }
    let help = run(["--help"]).ok();
    assert!(!help.contains("\n  hist") && !help.contains("\n  states"), "{help}");
}

#[test]
fn options_for_one_tensor_need_one_key() {
    let file = text(&fixture("torch/zip_views.pt"));
    let error = run(["stats", &file, "--histogram"]).failed();
    assert!(error.contains("needs one key"), "{error}");
    let error = run(["info", "--states", &file, &file]).failed();
    assert!(error.contains("Name one FILE"), "{error}");
}
