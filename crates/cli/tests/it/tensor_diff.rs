//! `statelens diff --closer`, `--by-layer`, `--renames`, and `runs --values`.

use std::fs;

use crate::common::{Folder, Ran, run, write_floats};
use serde_json::{Value, json};

fn diff(folder: &Folder, more: &[&str]) -> Ran {
    let paths = ["a.safetensors", "b.safetensors"].map(|name| folder.file(name));
    let paths = paths.map(|path| path.to_string_lossy().into_owned());
    let mut args = vec!["diff", &paths[0], &paths[1]];
    args.extend(more);
    run(args)
}

fn json_of(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

const A: [f32; 6] = [1.0, 2.0, 3.0, -4.0, 0.0, 6.0];
const B: [f32; 6] = [1.0, 2.5, 2.0, -4.0, -8.0, f32::NAN];

#[test]
fn tensor_diff_matches_numpy() {
    let folder = Folder::new();
    write_floats::<&[f32]>(
        &folder.file("a.safetensors"),
        &[("w", &[2, 3], &A), ("same", &[1], &[1.0])],
    );
    write_floats::<&[f32]>(
        &folder.file("b.safetensors"),
        &[("w", &[2, 3], &B), ("same", &[1], &[1.0])],
    );
    let ran = diff(&folder, &["--closer", "w", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    let json = json_of(&ran);
    let w = &json["tensors"][0];
    // numpy: b - a = [0, 0.5, -1, 0, -8, nan]; the mean of the finite values is -1.7.
    assert_eq!((&w["differing"], &w["nan_right_only"]), (&json!(4), &json!(1)));
    assert_eq!((&w["difference"]["mean"], &w["difference"]["min"]), (&json!(-1.7), &json!(-8.0)));
    assert_eq!(w["difference"]["abs_max_at"], json!([1, 1]));
    assert_eq!(w["difference"]["first_nan"], json!([1, 2]));
    assert_eq!((&w["left"]["max"], &w["right"]["max"]), (&json!(6.0), &json!(2.5)));
    let edges = w["distributions"]["edges"].as_array().unwrap();
    assert_eq!((edges.len(), &edges[0], &edges[24]), (25, &json!(-8.0), &json!(6.0)));
    assert_eq!(w["map"]["largest"], json!([0.0, 0.5, 1.0, 0.0, 8.0, null]));
    let text = diff(&folder, &["--closer", "w"]).out;
    for wanted in [
        "w  float32 [2, 3] / float32 [2, 3]",
        "4 of 6 differ",
        "the largest |RIGHT - LEFT| is 8 at [1, 1]",
        "NaN on both sides 0, in LEFT only 0, in RIGHT only 1",
        "from -8 to 6",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert_eq!(diff(&folder, &["--closer", "same"]).code, Some(0));
    let error = diff(&folder, &["--closer", "v"]).failed();
    assert!(error.contains("there is no key `v`"), "{error}");
    let documented = include_str!("../../../../docs/json.md");
    for field in w.as_object().unwrap().keys() {
        assert!(documented.contains(&format!("`{field}`")), "{field} is not documented");
    }
}

#[test]
fn saves_a_picture_of_the_differences() {
    let folder = Folder::new();
    write_floats::<&[f32]>(&folder.file("a.safetensors"), &[("w", &[2, 3], &A)]);
    write_floats::<&[f32]>(&folder.file("b.safetensors"), &[("w", &[2, 3], &B)]);
    for (name, start) in [("where.svg", &b"<svg"[..]), ("where.png", b"\x89PNG")] {
        let path = folder.file(name).to_string_lossy().into_owned();
        diff(&folder, &["--closer", "w", "--picture", &path]);
        let written = fs::read(&path).unwrap();
        assert!(written.starts_with(start), "{name}");
        let again = diff(&folder, &["--closer", "w", "--picture", &path]).failed();
        assert!(again.contains("exists") && again.contains("--force"), "{again}");
        assert_eq!(diff(&folder, &["--closer", "w", "--picture", &path, "--force"]).code, Some(1));
    }
    let svg = fs::read_to_string(folder.file("where.svg")).unwrap();
    assert!(svg.contains("<title>|RIGHT - LEFT| of w</title>"), "{svg}");
    let error = diff(&folder, &["--closer", "w", "--picture", "x.gif"]).failed();
    assert!(error.contains(".png or .svg"), "{error}");
}

#[test]
fn lists_norms_and_changes_by_layer() {
    let folder = Folder::new();
    let (three, four) = ([3.0, 4.0], [3.0, 0.0]);
    write_floats::<&[f32]>(
        &folder.file("a.safetensors"),
        &[("h.0.w", &[2], &three), ("h.10.w", &[2], &three), ("n", &[1], &[1.0])],
    );
    write_floats::<&[f32]>(
        &folder.file("b.safetensors"),
        &[("h.0.w", &[2], &three), ("h.10.w", &[2], &four), ("n", &[1], &[1.0])],
    );
    let json = json_of(&diff(&folder, &["--by-layer", "--json"]));
    let roles = json["roles"].as_array().unwrap();
    assert_eq!((roles.len(), &roles[0]["role"]), (1, &json!("h.*.w")));
    let last = &roles[0]["layers"][1];
    assert_eq!((&last["layer"], &last["key"]), (&json!(10), &json!("h.10.w")));
    assert_eq!((&last["left_norm"], &last["right_norm"]), (&json!(5.0), &json!(3.0)));
    assert_eq!((&last["left_std"], &last["right_std"]), (&json!(0.5), &json!(1.5)));
    assert_eq!(last["change"], json!(4.0 / 3.0));
    let text = diff(&folder, &["--by-layer"]).out;
    assert!(text.contains("h.*.w, 2 layers"), "{text}");
    assert!(diff(&folder, &[]).out.find("h.*.w").is_none());
}

#[test]
fn rename_list_can_be_used_by_convert() {
    let folder = Folder::new();
    let (a, b) = (folder.file("a.safetensors"), folder.file("b.safetensors"));
    write_floats::<&[f32]>(
        &a,
        &[("old.w", &[2], &[1.0, 2.0]), ("old.g", &[1], &[3.0]), ("both", &[1], &[0.0])],
    );
    write_floats::<&[f32]>(
        &b,
        &[("both", &[1], &[0.0]), ("new.g", &[1], &[3.5]), ("new.w", &[2], &[1.0, 2.0])],
    );
    let ran = diff(&folder, &["--renames"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let list = "# same bytes\nold.w\tnew.w\n# same shape, in order: a guess\nold.g\tnew.g\n";
    assert_eq!(ran.out, list);
    assert!(ran.err.contains("1 key: same bytes"), "{}", ran.err);
    let json = json_of(&diff(&folder, &["--renames", "--json"]));
    assert_eq!(json["renames"][0], json!({"left": "old.g", "right": "new.g", "basis": "order"}));
    // convert and diff accept the list.
    let names = folder.file("names.txt").to_string_lossy().into_owned();
    fs::write(&names, &ran.out).unwrap();
    let out = folder.file("c.safetensors").to_string_lossy().into_owned();
    run(["convert", &a.to_string_lossy(), &out, "--rename-map", &names]).ok();
    let listed = run(["ls", &out]).ok();
    assert!(listed.contains("new.w") && listed.contains("new.g"), "{listed}");
    let ran = diff(&folder, &["--rename-map", &names]);
    assert!(ran.out.contains("1 difference: 3 keys on both sides"), "{}", ran.out);
    // No key is on one side only.
    fs::copy(&a, &b).unwrap();
    assert_eq!(diff(&folder, &["--renames"]).code, Some(1));
}

#[test]
fn run_statistics_are_read_once() {
    let folder = Folder::new();
    for (step, values) in [(10, [3.0f32, 4.0]), (20, [6.0, 8.0]), (30, [f32::NAN, 1.0])] {
        let path = folder.file(&format!("checkpoint_{step}.safetensors"));
        write_floats::<&[f32]>(
            &path,
            &[("model.h.0.w", &[2], &values), ("model.h.1.w", &[1], &[0.0])],
        );
    }
    fs::write(folder.file("checkpoint_40.safetensors"), b"cut").unwrap();
    let path = folder.path().to_string_lossy().into_owned();
    let keep = folder.file("kept.json").to_string_lossy().into_owned();
    let values = |more: &[&str]| {
        let mut args = vec!["runs", &path, "--name", "checkpoint_{step}.safetensors", "--values"];
        args.extend(more);
        run(args)
    };
    let json = json_of(&values(&["--json", "--keep", &keep]));
    let steps = json["checkpoints"].as_array().unwrap();
    assert_eq!(steps.len(), 4);
    // numpy: the norm of [3, 4, 0] is 5, the mean 7 / 3, the deviation 1.699673171197595.
    let first = &steps[0]["groups"][0];
    assert_eq!((&first["tensors"], &first["norm"]), (&json!(2), &json!(5.0)));
    assert!((first["std"].as_f64().unwrap() - 1.699_673_171_197_595).abs() < 1e-14);
    assert_eq!(
        (&steps[1]["groups"][0]["norm"], &steps[2]["groups"][0]["nan"]),
        (&json!(10.0), &json!(1))
    );
    assert!(steps[3]["wrong"].as_str().is_some_and(|why| !why.is_empty()));
    assert_eq!(steps[3]["groups"], json!([]));
    // Kept values are used without a check: the file now has other numbers.
    let kept = fs::read_to_string(&keep).unwrap();
    fs::write(&keep, kept.replace("\"norm\":5.0", "\"norm\":7.5")).unwrap();
    let again = json_of(&values(&["--json", "--keep", &keep]));
    assert_eq!(again["checkpoints"][0]["groups"][0]["norm"], 7.5);
    // A changed file is read again.
    let changed = folder.file("checkpoint_10.safetensors");
    write_floats::<&[f32]>(
        &changed,
        &[("model.h.0.w", &[2], &[1.0, 0.0]), ("model.h.1.w", &[2], &[0.0, 0.0])],
    );
    let again = json_of(&values(&["--json", "--keep", &keep]));
    assert_eq!(again["checkpoints"][0]["groups"][0]["norm"], 1.0);
    let roles = json_of(&values(&["--json", "--by", "role"]));
    assert_eq!(roles["checkpoints"][1]["groups"][0]["group"], "model.h.*.w");
    let text = values(&[]).out;
    assert!(text.lines().next().unwrap().contains("norm"), "{text}");
    let svg = folder.file("run.svg").to_string_lossy().into_owned();
    values(&["--picture", &svg]).ok();
    assert!(fs::read_to_string(&svg).unwrap().contains("NaN or infinite"));
    // A file of another kind is not replaced.
    fs::write(&keep, "{}").unwrap();
    let error = values(&["--keep", &keep]).failed();
    assert!(error.contains("not a file of kept values"), "{error}");
    assert_eq!(fs::read_to_string(&keep).unwrap(), "{}");
}

#[test]
fn run_picture_omits_the_loss_scale_by_default() {
    let folder = Folder::new();
    for step in [10, 20] {
        let path = folder.file(&format!("checkpoint_{step}.safetensors"));
        write_floats::<&[f32]>(
            &path,
            &[("model.w", &[2], &[3.0, 4.0]), ("grad_scaler.scale", &[1], &[65_536.0])],
        );
    }
    let path = folder.path().to_string_lossy().into_owned();
    let svg = folder.file("run.svg").to_string_lossy().into_owned();
    let picture = |more: &[&str]| {
        let name = "checkpoint_{step}.safetensors";
        let args = ["runs", &path, "--name", name, "--values", "--picture", &svg, "--force"];
        let ran = run([&args[..], more].concat());
        (ran.err.contains("leaves out"), fs::read_to_string(&svg).unwrap().contains("grad_scaler"))
    };
    assert_eq!(picture(&[]), (true, false));
    assert_eq!(picture(&["--group", "*"]), (false, true));
}

#[test]
fn run_statistics_are_cached_in_the_folder() {
    let folder = Folder::new();
    for (step, values) in [(10, [3.0f32, 4.0]), (20, [6.0, 8.0])] {
        let path = folder.file(&format!("checkpoint_{step}.safetensors"));
        write_floats::<&[f32]>(&path, &[("model.h.0.w", &[2], &values)]);
    }
    let path = folder.path().to_string_lossy().into_owned();
    let values = |more: &[&str]| {
        let name = "checkpoint_{step}.safetensors";
        run([&["runs", &path, "--name", name, "--values", "--json"], more].concat())
    };
    let norms = |ran: &Ran| {
        let steps = json_of(ran)["checkpoints"].as_array().unwrap().clone();
        steps.iter().map(|step| step["groups"][0]["norm"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let kept = folder.file("statelens-values.json");
    values(&[]).ok();
    assert!(!kept.exists());
    values(&["--keep"]).ok();
    let text = fs::read_to_string(&kept).unwrap();
    let other = text.replace("\"norm\":5.0", "\"norm\":7.5");
    fs::write(&kept, &other).unwrap();
    for by in ["state", "role"] {
        let ran = values(&["--by", by]);
        assert_eq!(norms(&ran), [7.5, 10.0], "{by}");
        assert!(ran.err.contains("the values of 2 checkpoints are from"), "{}", ran.err);
    }
    // No values of single tensors are kept, so they are read.
    let ran = values(&["--by", "tensor"]);
    assert_eq!((norms(&ran), ran.err.as_str()), (vec![5.0, 10.0], ""));
    // A changed checkpoint is read again and reported.
    write_floats::<&[f32]>(
        &folder.file("checkpoint_20.safetensors"),
        &[("model.h.0.w", &[3], &[1.0, 2.0, 2.0])],
    );
    let ran = values(&[]);
    assert_eq!(norms(&ran), [7.5, 3.0]);
    assert!(ran.err.contains("the values of 1 checkpoint are from"), "{}", ran.err);
    assert!(ran.err.contains("1 checkpoint was changed since its values were kept"), "{}", ran.err);
    // Values are kept only on request.
    assert_eq!(fs::read_to_string(&kept).unwrap(), other);
    values(&["--keep"]);
    assert_eq!(norms(&values(&[])), [7.5, 3.0]);
    assert!(!values(&[]).err.contains("changed"));
    // A damaged file is ignored, and replaced on request.
    fs::write(&kept, &text[..text.len() / 2]).unwrap();
    let ran = values(&[]);
    assert_eq!(norms(&ran), [5.0, 3.0]);
    assert!(ran.err.contains("not a file of kept values: it is not used"), "{}", ran.err);
    let ran = values(&["--keep"]);
    assert!(ran.err.contains("it is replaced"), "{}", ran.err);
    assert_eq!(norms(&values(&[])), [5.0, 3.0]);
    assert!(values(&[]).err.contains("the values of 2 checkpoints are from"));
}
