//! Results as SARIF 2.1.0, for code scanning of GitHub, GitLab and others
//! (<https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use statelens_checkpoint::{Finding, Grade, hex, percent_encode};

use crate::folder::{FolderReport, Level, RULES};
use crate::verify::{Trouble, VerificationReport};

/// Where the documentation of the rules is.
const DOCS: &str = "https://github.com/statelens/statelens/blob/main/docs";

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The rule about files that could not be read.
const NOT_READ: &str = "not-read";

/// A rule, for the list of them in the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SarifRule {
    id: String,
    title: String,
    help: String,
    uri: String,
    level: &'static str,
}

/// Results of one run of a command, as one SARIF log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SarifLog {
    rules: BTreeMap<String, SarifRule>,
    results: Vec<SarifResult>,
    unread: Vec<UnreadFile>,
}

/// A file that could not be read: the run did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UnreadFile {
    file: String,
    error: String,
}

/// A result. Its rule is in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SarifResult {
    rule: String,
    level: &'static str,
    text: String,
    file: String,
    key: String,
    offset: Option<u64>,
}

impl SarifLog {
    /// Adds the findings of `check` about a folder. `path` returns the path of a file in it.
    pub fn add_folder(&mut self, report: &FolderReport, path: impl Fn(&str) -> String) {
        for finding in &report.findings {
            let Some(level) = level_of(finding.level) else { continue };
            if let Some(rule) = RULES.iter().find(|rule| rule.id == finding.rule) {
                self.rules.entry(rule.id.to_owned()).or_insert_with(|| SarifRule {
                    id: rule.id.to_owned(),
                    title: rule.title.to_owned(),
                    help: format!("{} {}", rule.why, rule.fix),
                    uri: format!("{DOCS}/rules.md#{}", rule.id),
                    level: level_of(rule.level).unwrap_or("none"),
                });
            }
            self.results.push(SarifResult {
                rule: finding.rule.clone(),
                level,
                text: format!("{}. {}", finding.text, finding.fix),
                file: path(&finding.file),
                key: finding.key.clone(),
                offset: None,
            });
        }
    }

    /// Adds the findings of `scan` about a file.
    pub fn add_scan(&mut self, file: &str, findings: &[Finding]) {
        for finding in findings {
            let (id, title, level) = match finding.grade {
                Grade::Danger => ("scan-danger", "Loading the file would do harm", "error"),
                Grade::UnknownCode => {
                    ("scan-unknown-code", "Loading the file would call unknown code", "error")
                }
                Grade::Damage => ("scan-damage", "A part of the file can't be judged", "error"),
                Grade::Warning => ("scan-warning", "The file is unusual", "warning"),
                Grade::Note => ("scan-note", "Worth knowing", "note"),
            };
            self.rule(
                id,
                title,
                "`statelens scan` reports what loading a file would run.",
                "scan.md",
                level,
            );
            let call = finding.call.as_ref();
            let call = call.map(|call| format!(" It names {}.{}.", call.module, call.name));
            let parts = [
                finding.title.clone() + ".",
                call.unwrap_or_default(),
                finding.detail.clone(),
                finding.advice.to_string(),
            ];
            self.results.push(SarifResult {
                rule: id.to_owned(),
                level,
                text: joined(&parts),
                file: file.to_owned(),
                key: String::new(),
                offset: None,
            });
        }
    }

    /// Adds the problems that `verify` found in a file. With `finite`, values that are not finite
    /// are problems, too.
    pub fn add_verification(&mut self, file: &str, report: &VerificationReport, finite: bool) {
        for problem in &report.result.problems {
            let (id, title) = match problem.trouble {
                Trouble::Checksum => ("verify-checksum", "A checksum does not match the bytes"),
                Trouble::Damaged => ("verify-damaged", "Something can't be decoded"),
                Trouble::Overlap => ("verify-overlap", "Two tensors overlap in the file"),
                Trouble::PastEnd => {
                    ("verify-past-end", "A tensor extends past the end of the file")
                }
                Trouble::Copies => ("verify-copies", "Copies of a piece of a tensor differ"),
                Trouble::Manifest => ("verify-manifest", "The values differ from the manifest"),
                Trouble::Finding => ("verify-finding", "The file is damaged or unfinished"),
            };
            self.rule(
                id,
                title,
                "`statelens verify` reads everything and checks every checksum.",
                "rules.md",
                "error",
            );
            self.results.push(SarifResult {
                rule: id.to_owned(),
                level: "error",
                text: format!("{}.", problem.text()),
                file: file.to_owned(),
                key: problem.key.clone(),
                offset: problem.offset,
            });
        }
        for fault in &report.result.scales {
            self.rule(
                "verify-scales",
                "Scales of quantised weights have faults",
                "`statelens verify` checks them.",
                "rules.md",
                "warning",
            );
            self.results.push(SarifResult {
                rule: "verify-scales".to_owned(),
                level: if finite { "error" } else { "warning" },
                text: format!("`{}`, {}: {}.", fault.key, fault.scheme, fault.text()),
                file: file.to_owned(),
                key: fault.key.clone(),
                offset: None,
            });
        }
        let values = report.result.not_finite_values.iter().filter(|_| finite);
        for tensor in report.result.not_finite.iter().chain(values) {
            let level = if finite { "error" } else { "warning" };
            self.rule(
                "verify-not-finite",
                "Values are NaN or infinite",
                "`statelens verify` counts them.",
                "rules.md",
                "warning",
            );
            self.results.push(SarifResult {
                rule: "verify-not-finite".to_owned(),
                level,
                text: format!(
                    "`{}` has {} NaN and {} infinite values.",
                    tensor.key, tensor.nan, tensor.inf
                ),
                file: file.to_owned(),
                key: tensor.key.clone(),
                offset: None,
            });
        }
    }

    /// Adds a file that could not be read: as a notification that the run failed, and as a result,
    /// because code scanning shows nothing else.
    pub fn add_unread(&mut self, file: &str, error: &str) {
        self.unread.push(UnreadFile { file: file.to_owned(), error: error.to_owned() });
        self.rule(
            NOT_READ,
            "The file could not be read",
            "Nothing is known about it.",
            "rules.md",
            "error",
        );
        self.results.push(SarifResult {
            rule: NOT_READ.to_owned(),
            level: "error",
            text: error.to_owned(),
            file: file.to_owned(),
            key: String::new(),
            offset: None,
        });
    }

    fn rule(&mut self, id: &str, title: &str, help: &str, page: &str, level: &'static str) {
        self.rules.entry(id.to_owned()).or_insert_with(|| SarifRule {
            id: id.to_owned(),
            title: title.to_owned(),
            help: help.to_owned(),
            uri: format!("{DOCS}/{page}"),
            level,
        });
    }

    /// Returns the log of a command, such as `scan`, as JSON. `version` is that of the program.
    pub fn json(&self, command: &str, version: &str) -> String {
        let positions: BTreeMap<&str, usize> =
            self.rules.keys().enumerate().map(|(at, id)| (id.as_str(), at)).collect();
        let rules: Vec<Value> = self.rules.values().map(rule_json).collect();
        let results: Vec<Value> = self
            .results
            .iter()
            .map(|result| result_json(result, positions.get(result.rule.as_str()).copied()))
            .collect();
        let not_read = json!({ "id": NOT_READ, "index": positions.get(NOT_READ) });
        let notifications: Vec<Value> =
            self.unread.iter().map(|unread| notification_json(unread, &not_read)).collect();
        let log = json!({
            "$schema": SCHEMA,
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": {
                    "name": "Statelens",
                    "version": version,
                    "semanticVersion": version,
                    "informationUri": "https://github.com/statelens/statelens",
                    "rules": rules,
                }},
                // Code scanning replaces the results of the last run with the same id.
                "automationDetails": { "id": format!("statelens-{command}/") },
                "invocations": [{
                    "executionSuccessful": notifications.is_empty(),
                    "toolExecutionNotifications": notifications,
                }],
                "columnKind": "unicodeCodePoints",
                "results": results,
            }],
        });
        // A value without maps of other keys than strings can be written.
        serde_json::to_string_pretty(&log).unwrap_or_default()
    }
}

fn rule_json(rule: &SarifRule) -> Value {
    json!({
        "id": rule.id,
        "shortDescription": { "text": rule.title },
        "fullDescription": { "text": format!("{}. {}", rule.title, rule.help) },
        "help": { "text": rule.help },
        "helpUri": rule.uri,
        "defaultConfiguration": { "level": rule.level },
    })
}

fn notification_json(unread: &UnreadFile, rule: &Value) -> Value {
    json!({
        "level": "error",
        "message": { "text": unread.error },
        "locations": [{ "physicalLocation": { "artifactLocation": { "uri": uri(&unread.file) } } }],
        "associatedRule": rule,
    })
}

fn result_json(result: &SarifResult, index: Option<usize>) -> Value {
    // Code scanning needs a line, though files of weights have none.
    let mut region = json!({ "startLine": 1 });
    if let (Some(offset), Some(region)) = (result.offset, region.as_object_mut()) {
        region.insert("byteOffset".to_owned(), offset.into());
        region.insert("byteLength".to_owned(), 0.into());
    }
    let mut location = json!({ "physicalLocation": {
        "artifactLocation": { "uri": uri(&result.file) },
        "region": region,
    }});
    if let Some(location) = location.as_object_mut().filter(|_| !result.key.is_empty()) {
        let key = json!([{ "fullyQualifiedName": result.key, "kind": "member" }]);
        location.insert("logicalLocations".to_owned(), key);
    }
    let identity = [&result.rule, "\n", &result.file, "\n", &result.key].concat();
    let fingerprint = hex(&Sha256::digest(identity.as_bytes()));
    let mut json = json!({
        "ruleId": result.rule,
        "level": result.level,
        "message": { "text": result.text },
        "locations": [location],
        "partialFingerprints": { "statelens/v1": fingerprint },
    });
    if let (Some(index), Some(json)) = (index, json.as_object_mut()) {
        json.insert("ruleIndex".to_owned(), index.into());
    }
    json
}

/// Returns a path as a URI reference, relative unless the path is not.
fn uri(path: &str) -> String {
    let path = path.replace('\\', "/");
    let path = path.strip_prefix("./").unwrap_or(&path);
    if path.contains("://") {
        return path.to_owned();
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let encoded = percent_encode(path.as_bytes(), plain);
    match path.starts_with('/') {
        true => format!("file://{encoded}"),
        false => encoded,
    }
}

fn level_of(level: Level) -> Option<&'static str> {
    match level {
        Level::Off => None,
        Level::Note => Some("note"),
        Level::Warning => Some("warning"),
        Level::Error => Some("error"),
    }
}

fn joined(parts: &[String]) -> String {
    let parts: Vec<&str> =
        parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}
