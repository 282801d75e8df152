//! SARIF logs of `check`, `scan` and `verify`.

use serde_json::Value;

use crate::common::{fixture, run, text};
use crate::folders::folder;

/// Checks the structure that the schema of SARIF 2.1.0 requires, and what code scanning needs.
fn sarif(args: &[&str], code: i32) -> Vec<Value> {
    let ran = run(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {} {}", ran.out, ran.err);
    let log: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.out));
    assert_eq!(log["version"], "2.1.0");
    assert!(log["$schema"].as_str().unwrap().ends_with("sarif-schema-2.1.0.json"));
    let run = &log["runs"][0];
    assert_eq!(run["automationDetails"]["id"], format!("statelens-{}/", args[0]));
    let driver = &run["tool"]["driver"];
    assert_eq!(driver["name"], "Statelens");
    let rules = driver["rules"].as_array().unwrap();
    for rule in rules {
        assert!(rule["id"].is_string() && rule["shortDescription"]["text"].is_string(), "{rule}");
        assert!(rule["helpUri"].as_str().unwrap().starts_with("https://"), "{rule}");
        let level = rule["defaultConfiguration"]["level"].as_str().unwrap();
        assert!(["none", "note", "warning", "error"].contains(&level), "{rule}");
    }
    let results = run["results"].as_array().unwrap().clone();
    // Unread files are notifications, too: the run was not complete.
    let unread: Vec<&Value> =
        results.iter().filter(|result| result["ruleId"] == "not-read").collect();
    let invocation = &run["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], unread.is_empty(), "{invocation}");
    let notifications = invocation["toolExecutionNotifications"].as_array().unwrap();
    assert_eq!(notifications.len(), unread.len(), "{invocation}");
    for (notification, result) in notifications.iter().zip(unread) {
        assert_eq!(notification["level"], "error");
        assert_eq!(notification["message"], result["message"]);
        let file = |entry: &Value| {
            entry["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].clone()
        };
        assert_eq!(file(notification), file(result));
        let rule = notification["associatedRule"]["index"].as_u64().unwrap();
        assert_eq!(rules[usize::try_from(rule).unwrap()]["id"], "not-read");
    }
    for result in &results {
        let level = result["level"].as_str().unwrap();
        assert!(["note", "warning", "error"].contains(&level), "{result}");
        assert!(!result["message"]["text"].as_str().unwrap().is_empty(), "{result}");
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let place = &result["locations"][0]["physicalLocation"];
        let uri = place["artifactLocation"]["uri"].as_str().unwrap();
        assert!(!uri.is_empty() && !uri.contains(' ') && !uri.contains('\\'), "{uri}");
        assert_eq!(place["region"]["startLine"], 1);
        let print = result["partialFingerprints"]["statelens/v1"].as_str().unwrap();
        assert_eq!(print.len(), 64);
    }
    results
}

#[test]
fn sarif_of_check_scan_and_verify() {
    let cut = text(&folder("shard_cut"));
    let results = sarif(&["check", &cut, "--sarif"], 1);
    assert_eq!(results[0]["ruleId"], "file-cut");
    let key = &results[0]["locations"][0]["logicalLocations"][0]["fullyQualifiedName"];
    assert_eq!(key, "model.layers.2.mlp.down_proj.weight");
    let place = &results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
    assert!(place.as_str().unwrap().ends_with("/model-00002-of-00003.safetensors"), "{place}");
    assert!(sarif(&["check", &text(&folder("llama_single")), "--sarif"], 0).is_empty());

    let evil = text(&fixture("attacks4/bytesio_evil.pt"));
    let results = sarif(&["scan", &evil, "--sarif"], 1);
    assert!(
        results
            .iter()
            .any(|one| one["ruleId"] == "scan-danger" || one["ruleId"] == "scan-unknown-code")
    );
    assert!(results[0]["message"]["text"].as_str().unwrap().len() > 20);

    let shard = text(&folder("shard_cut").join("model-00002-of-00003.safetensors"));
    let results = sarif(&["verify", &shard, "--sarif"], 1);
    assert!(results.iter().any(|one| one["ruleId"] == "verify-finding"), "{results:?}");

    // A file that can't be read is a result, and does not hide those of the others.
    let missing = text(&folder("llama_single").join("no such file.pt"));
    let results = sarif(&["verify", "--sarif", &missing, &shard], 1);
    assert_eq!(results[0]["ruleId"], "not-read");
    assert!(results.len() > 1, "{results:?}");
    let whole = text(&folder("llama_single").join("model.safetensors"));
    assert_eq!(sarif(&["verify", "--sarif", &missing, &whole], 2).len(), 1);
}

/// The exit status is that of an error, but code scanning gets a log.
#[test]
fn a_path_that_cannot_be_read_is_in_the_log() {
    let whole = folder("llama_single");
    let missing = text(&whole.join("no such file.pt"));
    let good = text(&whole.join("model.safetensors"));
    for command in ["check", "scan", "verify"] {
        let results = sarif(&[command, "--sarif", &missing], 2);
        assert_eq!(results.len(), 1, "{command}: {results:?}");
        assert_eq!(results[0]["message"]["text"], "the file does not exist", "{command}");
        assert_eq!(sarif(&[command, "--sarif", &missing, &good], 2), results, "{command}");
        let ran = run([command, "--sarif", &missing]);
        assert!(ran.err.contains("no such file.pt: the file does not exist"), "{}", ran.err);
    }
    // Findings of another folder are worse than a folder that can't be read.
    let cut = text(&folder("shard_cut"));
    let results = sarif(&["check", "--sarif", &missing, &cut], 1);
    assert!(results.len() > 1, "{results:?}");
    let results = sarif(&["verify", "--sarif", "--manifest", &missing, &good], 2);
    assert_eq!(results.len(), 1, "{results:?}");
}
