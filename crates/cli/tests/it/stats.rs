//! `statelens stats`, compared with numpy.

use std::fs;

use crate::common::{Folder, Ran, fixture, heeding, run, write_floats};
use serde_json::{Value, json};

const VALUES: &str = "stats/values.safetensors";

fn values() -> String {
    fixture(VALUES).to_string_lossy().into_owned()
}

#[test]
fn statistics_match_numpy() {
    let found = run(["stats", "--json", &values()]).json();
    let expected = fs::read(fixture("stats/values.expected.json")).unwrap();
    let expected: Value = serde_json::from_slice(&expected).unwrap();
    let tensors = found["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), expected.as_object().unwrap().len());
    for tensor in tensors {
        let key = tensor["key"].as_str().unwrap();
        let expected = &expected[key];
        // The format lacks this dtype; these are pairs.
        if key.starts_with("C128.") {
            continue;
        }
        for name in ["count", "nan", "pos_inf", "neg_inf", "zeros", "subnormal"] {
            assert_eq!(tensor[name], expected[name], "{name} of {key}");
        }
        for name in ["min", "max", "mean", "std", "l1", "l2", "abs_mean", "abs_max"] {
            match expected[name].as_str().map(|text| text.parse::<f64>().unwrap()) {
                // Larger than any double, or undefined.
                None => assert!(tensor[name].is_null() || tensor[name] == "inf", "{name} of {key}"),
                Some(wanted) => {
                    let found = tensor[name].as_f64().unwrap();
                    assert!(
                        (found - wanted).abs() <= 4e-16 * wanted.abs(),
                        "{name} of {key}: {found} {wanted}"
                    );
                }
            }
        }
        let counts = tensor["histogram"]["counts"].as_array().unwrap();
        let all: u64 = counts.iter().map(|count| count.as_u64().unwrap()).sum();
        let odd = ["nan", "pos_inf", "neg_inf"].map(|name| tensor[name].as_u64().unwrap());
        assert_eq!(all + odd.iter().sum::<u64>(), tensor["count"].as_u64().unwrap(), "{key}");
        let edges = tensor["histogram"]["edges"].as_array().unwrap();
        assert!(counts.is_empty() || edges.len() == counts.len() + 1, "{key}");
        assert_eq!(tensor["quantiles"]["0.5"].is_null(), expected.get("mean").is_none(), "{key}");
    }
    let special = tensors.iter().find(|tensor| tensor["key"] == "F32.special").unwrap();
    assert_eq!((&special["first_nan"], &special["first_inf"]), (&json!([50]), &json!([7])));
    let ends = tensors.iter().find(|tensor| tensor["key"] == "I64.ends").unwrap();
    assert_eq!(ends["min_exact"], "-9223372036854775808");
    assert_eq!(found["groups"][0]["group"], "all");
    let documented = include_str!("../../../../docs/json.md");
    for field in special.as_object().unwrap().keys() {
        assert!(documented.contains(&format!("`{field}`")), "{field} is not documented");
    }
}

#[test]
fn stats_sorts_and_filters_with_worst_first() {
    let table = run(["stats", &values()]).ok();
    let first = table.lines().nth(1).unwrap();
    assert!(
        first.starts_with("F64.special")
            || first.starts_with("F16.special")
            || first.starts_with("F8"),
        "{table}"
    );
    let keys = |args: &[&str]| -> Vec<String> {
        let json = run([&["stats", "--json", &values()], args].concat()).json();
        let of = |tensor: &Value| tensor["key"].as_str().unwrap().to_owned();
        json["tensors"].as_array().unwrap().iter().map(of).collect()
    };
    assert_eq!(keys(&["F32.*", "--where", "nan>0"]), ["F32.special", "F32.allnan"]);
    assert_eq!(keys(&["F32.*", "--where", "nan>50%"]), ["F32.allnan"]);
    assert_eq!(keys(&["I8.*", "--sort", "std"]), ["I8.ends", "I8.range", "I8.near"]);
    assert_eq!(keys(&["I8.*", "--sort", "key", "--reverse"]), ["I8.range", "I8.near", "I8.ends"]);
    assert_eq!(run(["stats", &values(), "nothing*"]).ok(), "no tensor of numbers matches\n");
    let error = run(["stats", &values(), "--where", "nun>0"]);
    assert!(
        error.code == Some(2) && error.err.contains("unknown statistic `nun`"),
        "{}",
        error.err
    );
}

#[test]
fn fail_on_sets_the_exit_status() {
    for patterns in [&["nothing*"][..], &["F32.*", "nothing*"]] {
        let ran = run([&["stats", &values()], patterns, &["--fail-on", "nan"]].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.out);
        assert!(ran.err.contains("no key matches nothing*"), "{}", ran.err);
    }
    let fails = |args: &[&str]| run([&["stats", &values()], args].concat()).code;
    assert_eq!(fails(&["F32.normal", "--fail-on", "nan,inf,zero"]), Some(0));
    assert_eq!(fails(&["F32.allinf", "--fail-on", "nan"]), Some(0));
    assert_eq!(fails(&["F32.allinf", "--fail-on", "nan,inf"]), Some(1));
    assert_eq!(fails(&["*.zeros", "--fail-on", "zero"]), Some(1));
    assert_eq!(fails(&["F32.const", "--fail-on", "zero"]), Some(0));
    assert_eq!(fails(&["F32.const", "--fail-on", "constant"]), Some(1));
    // `--fail-on` applies to tensors that are not listed, too.
    assert_eq!(fails(&["*", "--where", "nan=0", "--fail-on", "nan"]), Some(1));
}

#[test]
fn shows_row_statistics_on_request_and_findings_last() {
    let folder = Folder::new();
    let path = folder.file("model.safetensors");
    // Sixty-four rows of 3, 4, 0, 0 times a number. The last four are zero, and row 50 equals row
    // 49.
    let row = |at: usize| [3.0, 4.0, 0.0, 0.0].map(|it| it * (at + 1) as f32);
    let embed: Vec<f32> = (0..64)
        .flat_map(|at| match at {
            60.. => [0.0; 4],
            50 => row(49),
            at => row(at),
        })
        .collect();
    let up = |at: usize, dead: bool| -> Vec<f32> {
        let value = |it: usize| ((it * 37 + at * 11) % 19) as f32 - 9.5;
        (0..32).map(|it| if dead && it / 4 == 5 { 0.0 } else { value(it) }).collect()
    };
    write_floats(
        &path,
        &[
            ("embed.weight", &[64, 4], embed),
            ("h.0.up", &[8, 4], up(0, false)),
            ("h.1.up", &[8, 4], up(1, true)),
            ("h.2.up", &[8, 4], up(0, false)),
        ],
    );
    let path = path.to_str().unwrap();
    let json = run(["stats", "--json", "--rows", path]).json();
    let of = |key: &str| json["tensors"].as_array().unwrap().iter().find(|it| it["key"] == key);
    let embed = of("embed.weight").unwrap();
    assert_eq!((&embed["zero_rows"], &embed["copied_rows"]), (&json!(4), &json!(1)));
    let norms: Vec<f64> = serde_json::from_value(embed["rows"]["norm"].clone()).unwrap();
    assert_eq!((norms.len(), norms[1], norms[50], norms[63]), (64, 10.0, 250.0, 0.0));
    assert_eq!(embed["rows"]["abs_max"][2], json!(12.0));
    assert_eq!(embed["columns"]["abs_max"], json!([180.0, 240.0, 0.0, 0.0]));
    assert_eq!(of("h.1.up").unwrap()["zero_rows"], json!(1));
    let found = |title: &str| {
        let all = json["findings"].as_array().unwrap();
        let one = all.iter().find(|it| it["title"].as_str().unwrap().contains(title));
        one.unwrap_or_else(|| panic!("{title} in {all:?}")).clone()
    };
    assert_eq!(
        found("4 of 64 rows of `embed.weight` are all zeros")["place"],
        "embed.weight[60, 0]"
    );
    let copy = found("Row 50 of `embed.weight` is equal, bit for bit, to row 49");
    assert_eq!(copy["grade"], "note");
    let dead = found("1 of 8 rows of `h.1.up` is all zeros");
    assert_eq!((&dead["grade"], &dead["place"]), (&json!("warning"), &json!("h.1.up[5, 0]")));
    found("`h.0.up` and `h.2.up` are equal bit for bit");

    // By default the findings are listed, but not each row.
    let json = run(["stats", "--json", path]).json();
    assert_eq!(json["tensors"][0]["rows"], Value::Null);
    let text = run(["stats", path, "--rows"]).ok();
    assert!(text.contains("embed.weight: 64 rows, norms 0 to 300 (row 59), |x| max 240"), "{text}");
    assert!(text.contains("warning       1 of 8 rows of `h.1.up` is all zeros"), "{text}");
    let text = run(["stats", path, "h.0.*"]).ok();
    assert!(text.contains("nothing found; looked for NaN and infinite values, "), "{text}");
}

#[test]
fn groups_statistics_by_layer() {
    let folder = Folder::new();
    let path = folder.file("model.safetensors");
    let tensors = [
        ("h.0.w", &[2, 1][..], vec![1.0, 3.0]),
        ("h.0.b", &[1][..], vec![-4.0]),
        ("h.1.w", &[2, 1][..], vec![f32::NAN, 0.0]),
        ("norm.weight", &[1][..], vec![2.0]),
    ];
    write_floats(&path, &tensors);
    let path = path.to_str().unwrap();
    let json = run(["stats", "--json", path, "--by", "layer"]).json();
    let groups: Vec<_> = json["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| {
            (
                group["group"].as_str().unwrap(),
                group["tensors"].as_u64().unwrap(),
                group["mean"].as_f64(),
                group["nan"].as_u64().unwrap(),
            )
        })
        .collect();
    // safetensors files are sorted by key when they are written; this one is not.
    let mut sorted = groups.clone();
    sorted.sort_by_key(|group| group.0.to_owned());
    let wanted = [
        ("all", 4, Some(0.4), 1),
        ("h.0", 2, Some(0.0), 0),
        ("h.1", 1, Some(0.0), 1),
        ("norm", 1, Some(2.0), 0),
    ];
    assert_eq!(sorted, wanted);
    let table = run(["stats", path, "--by", "layer"]).ok();
    assert!(table.lines().next().unwrap().starts_with("group  tensors"), "{table}");
    let text = run(["stats", path]).ok();
    assert!(text.contains("h.1.w: 1 NaN, the first at [0, 0]"), "{text}");
}

#[test]
fn large_tensors_are_split_among_workers() {
    let folder = Folder::new();
    let path = folder.file("large.safetensors");
    // Large enough to be read in several parts.
    let count = (80 << 20) / 4;
    let mut values: Vec<f32> =
        (0..count).map(|at| ((at * 2_654_435_761_usize) % 1_000_003) as f32 / 1e3).collect();
    values[count - 5] = f32::NAN;
    values[count - 7] = 2e6;
    write_floats(
        &path,
        &[("w", &[count as u64 / 1024, 1024], values.clone()), ("b", &[2], vec![0.5, 0.25])],
    );
    let json = run(["stats", "--json", path.to_str().unwrap()]).json();
    let large = json["tensors"].as_array().unwrap().iter().find(|it| it["key"] == "w").unwrap();
    assert_eq!(large["first_nan"], json!([count / 1024 - 1, 1019]));
    assert_eq!(large["abs_max_at"], json!([count / 1024 - 1, 1017]));
    let sum: f64 =
        values.iter().filter(|value| value.is_finite()).map(|value| f64::from(*value)).sum();
    let mean = large["mean"].as_f64().unwrap();
    assert!((mean * (count - 1) as f64 / sum - 1.0).abs() < 1e-12, "{mean} {sum}");
}

#[test]
fn computes_statistics_of_quantised_and_torch_tensors() {
    let gguf = run(["stats", "--json", fixture("gguf/quants.gguf").to_str().unwrap()]);
    let gguf: Value = serde_json::from_str(&gguf.out).unwrap();
    let tensors = gguf["tensors"].as_array().unwrap();
    let blocks = tensors.iter().find(|tensor| tensor["dtype"] == "Q8_0").unwrap();
    let values = blocks["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap());
    assert_eq!(blocks["count"], values.product::<u64>());
    assert!(blocks["std"].as_f64().unwrap() > 0.0, "{blocks}");
    let torch = run(["stats", "--json", fixture("torch/zip_views.pt").to_str().unwrap()]).json();
    assert!(torch["tensors"].as_array().unwrap().iter().all(|tensor| tensor["count"].is_u64()));
}

#[test]
fn draws_a_histogram() {
    let text = run(["stats", "--histogram", &values(), "F32.normal", "--bins", "4"]).ok();
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.ends_with("std 0.01949\n") || text.contains("900 values"), "{text}");
    let json = run([
        "stats",
        "--histogram",
        "--json",
        &values(),
        "F32.normal",
        "--bins",
        "9",
        "--scale",
        "log",
    ])
    .json();
    assert_eq!(json["histogram"]["counts"].as_array().unwrap().len(), 9);
    let error = run(["stats", "--histogram", &values(), "F32.norml"]).failed();
    assert!(
        error.contains("there is no key `F32.norml`") && error.contains("`F32.normal`"),
        "{error}"
    );
    let none = run(["stats", "--histogram", &values(), "F32.empty"]).ok();
    assert_eq!(none, "0 values\n");
}

#[test]
fn damaged_tensor_does_not_hide_the_others() {
    let folder = Folder::new();
    let path = folder.file("cut.safetensors");
    write_floats(&path, &[("a", &[4], vec![1.0; 4]), ("b", &[4], vec![2.0; 4])]);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 8]).unwrap();
    let Ran { code, out, err } = run(["stats", "--json", path.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{out}{err}");
    assert!(err.contains("`b` can't be read: the file ends at byte"), "{err}");
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&found["tensors"][0]["key"], &found["failed"][0]["key"]),
        (&json!("a"), &json!("b"))
    );
}

#[test]
#[cfg(target_os = "linux")]
fn stats_can_be_interrupted() {
    let folder = Folder::new();
    let path = folder.file("sparse.safetensors");
    let head = br#"{"w":{"dtype":"F32","shape":[4000000000],"data_offsets":[0,16000000000]}}"#;
    fs::write(&path, [&(head.len() as u64).to_le_bytes()[..], head].concat()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8 + head.len() as u64 + 16_000_000_000).unwrap();
    let mut child = heeding()
        .args(["stats", path.to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // A command that has read far more than a header is reading values. Reading all 16 GB would
    // take minutes.
    let read = |child: &std::process::Child| -> u64 {
        let counts = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
        counts.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok()).unwrap_or(0)
    };
    while read(&child) < 100_000_000 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was stopped");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success() && child.try_wait().unwrap().is_none());
    let ran = Ran::from(child.wait_with_output().unwrap());
    ran.interrupted();
}

/// Reads the array of a `.npy` file of version 1: its header and its bytes.
fn npy(path: &std::path::Path) -> (String, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    (String::from_utf8(bytes[10..10 + len].to_vec()).unwrap(), bytes[10 + len..].to_vec())
}

#[test]
fn exports_tensors_and_slices() {
    let folder = Folder::new();
    let path = folder.file("model.safetensors");
    let values: Vec<f32> = (0..12).map(|at| at as f32).collect();
    write_floats(&path, &[("w", &[3, 4], values.clone())]);
    let path = path.to_str().unwrap();
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it)).collect()
    };
    let export = |key: &str, name: &str, more: &[&str]| {
        let out = folder.file(name);
        run([&["export", path, key, out.to_str().unwrap()], more].concat()).ok();
        out
    };
    let (header, data) = npy(&export("w", "w.npy", &[]));
    assert!(header.contains("'<f4'") && header.contains("(3, 4)"), "{header}");
    assert_eq!(floats(&data), values);
    let (header, data) = npy(&export("w[::-1, 1:3]", "slice.npy", &[]));
    assert!(header.contains("(3, 2)"), "{header}");
    assert_eq!(floats(&data), [9.0, 10.0, 5.0, 6.0, 1.0, 2.0]);
    let (header, data) = npy(&export("w[-1]", "double.npy", &["--as", "float64"]));
    assert!(header.contains("'<f8'") && header.contains("(4,)"), "{header}");
    assert_eq!(data[..8], 8f64.to_le_bytes());
    assert_eq!(
        fs::read_to_string(export("w[:2]", "w.csv", &[])).unwrap(),
        "0.0,1.0,2.0,3.0\n4.0,5.0,6.0,7.0\n"
    );
    assert_eq!(floats(&fs::read(export("w[:, 0]", "w.raw", &[])).unwrap()), [0.0, 4.0, 8.0]);
    let out = export("w[1:2]", "part.safetensors", &[]);
    let ls = run(["ls", "--json", out.to_str().unwrap()]).json();
    assert_eq!(
        (&ls["entries"][0]["key"], &ls["entries"][0]["shape"]),
        (&json!("w"), &json!([1, 4]))
    );
    // It is not replaced by default, and a failure leaves nothing.
    let out = out.to_str().unwrap();
    assert!(run(["export", path, "w", out]).failed().contains("--force"));
    run(["export", path, "w", out, "--force"]).ok();
    let odd = folder.file("w.jpeg");
    assert!(run(["export", path, "w", odd.to_str().unwrap()]).failed().contains(".npy"));
    assert!(run(["export", path, "v", out]).failed().contains("there is no key `v`"));
    assert!(run(["export", path, "w[9]", out]).failed().contains("is not a slice"));
}

/// Returns the width and the pixels of a PNG, three bytes each.
fn png(path: &std::path::Path) -> (usize, Vec<u8>) {
    let file = std::io::BufReader::new(fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut dots = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut dots).unwrap();
    assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
    (info.width as usize, dots)
}

#[test]
fn pictures_show_the_maximum_of_each_block() {
    let folder = Folder::new();
    let path = folder.file("model.safetensors");
    // With numpy: a = ((np.arange(70 * 90) * 7919) % 1009 - 504).astype("f4").reshape(70, 90);
    // a[33, 41] = 9000; a[3, 88] = -4000; a[69, 0] = nan; b = np.pad(a, ((0, 2), (0,
    // 0))).reshape(9, 8, 9, 10); np.nanmax(abs(b), axis=(1, 3))
    let mut values: Vec<f32> = (0..70 * 90).map(|at| ((at * 7919) % 1009 - 504) as f32).collect();
    (values[33 * 90 + 41], values[3 * 90 + 88], values[69 * 90]) = (9000.0, -4000.0, f32::NAN);
    write_floats(&path, &[("w", &[70, 90], values), ("t", &[2, 3, 4], vec![1.0; 24])]);
    let path = path.to_str().unwrap();
    let out = folder.file("w.png");
    let args = ["export", path, "w", out.to_str().unwrap(), "--width", "9", "--height", "9"];
    let printed = run(args).ok();
    assert!(printed.contains("w.png: w, float32 [70, 90]"), "{printed}");
    let (width, dots) = png(&out);
    // A block has 8 rows and 10 columns and is one pixel; the map is offset by the axes.
    let (left, top) = (5 * 8 + 14, 3 * 14);
    let dot = |row: usize, column: usize| {
        let at = ((top + row) * width + left + column) * 3;
        [dots[at], dots[at + 1], dots[at + 2]]
    };
    assert_eq!(dot(4, 4), [122, 58, 4], "9000 has the strongest orange");
    assert_eq!(dot(8, 0), [201, 22, 140], "NaN");
    // -4000 of 9000 is between pale and blue; 504 of 9000 is nearly white.
    assert_eq!(dot(0, 8), [127, 170, 218]);
    assert!(dot(2, 2).iter().all(|it| *it > 225), "{:?}", dot(2, 2));

    let out = folder.file("w.svg");
    let args = ["export", path, "w", out.to_str().unwrap(), "--width", "36", "--height", "36"];
    run(args).ok();
    let svg = fs::read_to_string(&out).unwrap();
    assert!(svg.contains("<path fill=\"#7a3a04\" d=\"M4 4h1v1h-1z\"/>"), "{svg}");
    assert!(
        svg.contains("the value of largest magnitude is 9000, in rows 32 to 39, columns 40 to 49"),
        "{svg}"
    );

    let error = run(["export", path, "t", folder.file("t.png").to_str().unwrap()]).failed();
    assert!(error.contains("3 dimensions") && error.contains("[0, :, :]"), "{error}");
    run(["export", path, "t[1]", folder.file("t.png").to_str().unwrap()]).ok();
    run(["export", path, "t[1, 2]", folder.file("row.svg").to_str().unwrap()]).ok();
    let large = ["--width", "16000", "--height", "16000", "--force"];
    let args = [&["export", path, "w", out.to_str().unwrap()], &large[..]].concat();
    assert!(run(args).failed().contains("lower --width"));
}

#[test]
fn suggests_float32_for_dtypes_that_numpy_lacks() {
    let folder = Folder::new();
    let out = folder.file("out.npy");
    let out = out.to_str().unwrap();
    for key in ["BF16.normal", "F8_E4M3.normal"] {
        let error = run(["export", &values(), key, out]).failed();
        assert!(error.contains("numpy has no") && error.contains("--as float32"), "{error}");
        run(["export", &values(), key, out, "--as", "float32", "--force"]).ok();
        let json = run(["stats", "--json", out]).json();
        let same = run(["stats", "--json", &values(), key]).json();
        assert_eq!(json["tensors"][0]["std"], same["tensors"][0]["std"]);
    }
}

#[test]
fn dry_run_with_scan_counts_losses_of_casts() {
    let folder = Folder::new();
    let (path, out) = (folder.file("model.safetensors"), folder.file("out.safetensors"));
    let values = vec![1.0, 1e9, 1e-12, 0.1, 0.0, -2.0];
    write_floats(&path, &[("w", &[6], values), ("b", &[2], vec![1.0, 2.0])]);
    let (path, out) = (path.to_str().unwrap(), out.to_str().unwrap());
    let args = ["convert", path, out, "--cast", "w=float16", "--dry-run", "--scan"];
    let ran = run(args);
    // Fails as the conversion itself would.
    assert_eq!(ran.code, Some(2), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("6 numbers, 3 of them rounded"), "{}", ran.out);
    assert!(ran.err.contains("casting loses numbers: `w`"), "{}", ran.err);
    let json = run([&args[..], &["--json", "--lossy"]].concat()).json();
    let cast = &json["cast"];
    let counts =
        ["elements", "changed", "overflowed", "flushed"].map(|name| cast[name].as_u64().unwrap());
    assert_eq!((counts, &json["dry_run"]), ([6, 3, 1, 1], &json!(true)));
    assert!(!std::path::Path::new(out).exists());
    assert!(run(["convert", path, out, "--scan"]).code == Some(2));
}
