//! Repositories on the Hugging Face Hub, imitated by two servers: the Hub, and the storage that it
//! redirects to, where no token may arrive.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

use crate::common::{Folder, Ran, fixture, run, safetensors, statelens, text};
use crate::remote::{Request, Response, TestServer, part};

const TOKEN: &str = "hf_verySecret";

/// Paths and contents.
type Files = Vec<(String, Vec<u8>)>;

/// An address of the storage.
struct SignedAddress {
    /// The range that it was requested for, and serves only.
    range: Option<(usize, usize)>,
    /// Number of requests so far.
    used: usize,
}

/// What the Hub has and how it behaves.
#[derive(Default)]
struct HubState {
    /// Files by revision.
    revisions: HashMap<&'static str, Files>,
    gated: AtomicBool,
    private: AtomicBool,
    /// Number of requests that are still refused with 429.
    limited: AtomicUsize,
    /// Seconds to wait after a 429.
    wait: AtomicUsize,
    /// Whether the storage ignores ranges.
    whole: AtomicBool,
    /// Whether the storage has other bytes than the Hub lists: the last of each file differs.
    wrong: AtomicBool,
    /// Addresses of the storage by their keys.
    signed: Mutex<HashMap<usize, SignedAddress>>,
    /// Number of requests after which an address expires; 0 for never.
    uses: AtomicUsize,
    next: AtomicUsize,
    /// Whether a token reached the storage.
    leaked: AtomicBool,
    storage: Mutex<String>,
}

struct Hub {
    hub: TestServer,
    storage: TestServer,
    state: Arc<HubState>,
    home: Folder,
}

/// Returns an id of 40 digits for a revision.
fn commit(revision: &str) -> String {
    sha256(revision.as_bytes())[..40].to_owned()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_large(path: &str) -> bool {
    [".safetensors", ".bin", ".gguf", ".pt"].iter().any(|end| path.ends_with(end))
}

impl HubState {
    fn files(&self, revision: &str) -> Option<(String, &Files)> {
        let mut all = self.revisions.iter();
        let (name, files) = all.find(|(name, _)| **name == revision || commit(name) == revision)?;
        Some((commit(name), files))
    }

    fn hub(&self, request: &Request) -> Response {
        let refused = |status, code: &str| {
            let code =
                if code.is_empty() { "".into() } else { format!("X-Error-Code: {code}\r\n") };
            (status, code, b"refused".to_vec())
        };
        let known = format!("Bearer {TOKEN}");
        if request.token.as_ref().is_some_and(|token| *token != known) {
            return refused(401, "");
        }
        if self.limited.load(Relaxed) > 0 {
            self.limited.fetch_sub(1, Relaxed);
            let wait = self.wait.load(Relaxed);
            return (429, format!("RateLimit: \"api\";r=0;t={wait}\r\n"), Vec::new());
        }
        let path = request.path.split('?').next().unwrap();
        let path = path.strip_prefix("/hub").unwrap_or_default();
        let renamed = path.replace("/org/old", "/org/tiny");
        if renamed != path {
            return (307, format!("Location: /hub{renamed}\r\n"), b"moved".to_vec());
        }
        let is_known = path.contains("org/tiny") || path.contains("datasets/org/data");
        if !is_known || self.private.load(Relaxed) && request.token.is_none() {
            return if request.token.is_some() {
                refused(404, "RepoNotFound")
            } else {
                refused(401, "")
            };
        }
        if let Some((_, revision)) = path.split_once("/revision/") {
            let Some((commit, files)) = self.files(&revision.replace("%2F", "/")) else {
                return refused(404, "RevisionNotFound");
            };
            let files = files.iter().map(|(path, bytes)| {
                let lfs = is_large(path).then(|| {
                    serde_json::json!({"sha256": sha256(bytes), "size": bytes.len()})
                });
                serde_json::json!({"rfilename": path, "size": bytes.len(), "blobId": "b", "lfs": lfs})
            });
            let files: Vec<_> = files.collect();
            let info = serde_json::json!({"id": "org/tiny", "sha": commit, "siblings": files});
            return (200, String::new(), info.to_string().into_bytes());
        }
        let Some((start, rest)) = path
            .split_once("/resolve/")
            .or_else(|| path.split_once("/api/resolve-cache/models/org/tiny/"))
        else {
            return refused(404, "");
        };
        if self.gated.load(Relaxed) {
            let status = if request.token.is_some() { 403 } else { 401 };
            return refused(status, "GatedRepo");
        }
        let (revision, file) = rest.split_once('/').unwrap();
        let (commit, files) = self.files(revision).unwrap();
        let Some((_, bytes)) = files.iter().find(|(name, _)| name == file) else {
            return refused(404, "EntryNotFound");
        };
        if start.is_empty() {
            return part(request, bytes, "\"b\"");
        }
        if !is_large(file) {
            let to = format!("/hub/api/resolve-cache/models/org/tiny/{commit}/{file}?etag=%22b%22");
            return (307, format!("Location: {to}\r\nX-Repo-Commit: {commit}\r\n"), Vec::new());
        }
        let key = self.next.fetch_add(1, Relaxed);
        self.signed.lock().unwrap().insert(key, SignedAddress { range: request.range, used: 0 });
        let storage = self.storage.lock().unwrap();
        let head = format!(
            "Location: {storage}/{}?Key={key}&Signature=very~Signed\r\nX-Repo-Commit: {commit}\r\n\
             X-Linked-Size: {}\r\nX-Linked-ETag: \"{}\"\r\n",
            sha256(bytes),
            bytes.len(),
            sha256(bytes)
        );
        (302, head, b"moved".to_vec())
    }

    fn storage(&self, request: &Request) -> Response {
        if request.token.is_some() || request.path.contains(TOKEN) {
            self.leaked.store(true, Relaxed);
            return (400, String::new(), b"a token".to_vec());
        }
        let (path, query) = request.path.split_once('?').unwrap();
        let key = query.split('&').next().and_then(|key| key.strip_prefix("Key=")).unwrap();
        let mut all = self.signed.lock().unwrap();
        let signed = all.get_mut(&key.parse().unwrap()).unwrap();
        signed.used += 1;
        let uses = self.uses.load(Relaxed);
        let is_expired = uses > 0 && signed.used > uses;
        // An address that was requested with a range serves that range only.
        if is_expired || signed.range.is_some() && signed.range != request.range {
            return (403, String::new(), b"Auth failed: invalid range".to_vec());
        }
        drop(all);
        let mut all = self.revisions.values().flatten();
        let (_, bytes) = all.find(|(_, bytes)| path == format!("/{}", sha256(bytes))).unwrap();
        let whole = self.whole.load(Relaxed);
        let request = Request { range: request.range.filter(|_| !whole), ..request.clone() };
        let mut bytes = bytes.clone();
        if self.wrong.load(Relaxed) {
            *bytes.last_mut().unwrap() ^= 1;
        }
        part(&request, &bytes, "\"an-etag-that-is-no-checksum\"")
    }
}

impl Hub {
    fn start(revisions: Vec<(&'static str, Files)>) -> Self {
        let state = HubState { revisions: revisions.into_iter().collect(), ..HubState::default() };
        let state = Arc::new(state);
        let (at_hub, at_storage) = (state.clone(), state.clone());
        let storage = TestServer::start(move |request, _| at_storage.storage(request));
        *state.storage.lock().unwrap() = storage.at("");
        let hub = TestServer::start(move |request, _| at_hub.hub(request));
        Self { hub, storage, state, home: Folder::new() }
    }

    /// Returns the command in an environment in which only this Hub is known.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = statelens();
        for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE"] {
            command.env_remove(name);
        }
        command.env("HF_ENDPOINT", self.hub.at("/hub/")).env("HF_HOME", self.home.path());
        command.args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.with(args, &[])
    }

    fn with(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = self.command(args);
        command.envs(variables.iter().copied());
        let ran = Ran::from(command.output().unwrap());
        assert!(!self.state.leaked.load(Relaxed), "a token reached the storage");
        for shown in [&ran.out, &ran.err] {
            assert!(!shown.contains(TOKEN) && !shown.contains("very~Signed"), "{shown}");
        }
        ran
    }

    /// Requests of the Hub since the last call.
    fn requests(&self) -> Vec<String> {
        let all = self.hub.requests().into_iter();
        all.map(|request| format!("{} {}", request.method, request.path)).collect()
    }
}

/// The files of a folder of fixtures.
fn files(folder: &str) -> Files {
    let entries = fs::read_dir(fixture(folder)).unwrap().map(Result::unwrap);
    let file = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    let mut files: Vec<_> = entries.map(file).collect();
    files.push(("README.md".into(), b"# A model".to_vec()));
    files.push(("config.json".into(), br#"{"model_type": "llama"}"#.to_vec()));
    files
}

fn sharded() -> Files {
    files("hf_sharded_safetensors")
}

fn single(value: u8) -> Files {
    let file = safetensors(&[("w", "U8", &[4], &[value; 4])]);
    vec![
        ("model.safetensors".into(), file.clone()),
        ("sub/other.safetensors".into(), file),
        ("config.json".into(), b"{}".to_vec()),
    ]
}

#[test]
fn opens_a_repository_as_one_checkpoint() {
    let hub = Hub::start(vec![("main", sharded())]);
    let index = fixture("hf_sharded_safetensors/model.safetensors.index.json");
    let expected = run(["manifest", &text(&index)]).ok();
    for url in [
        "hf://org/tiny",
        "hf://org/tiny@main/model-00002-of-00003.safetensors",
        &hub.hub.at("/hub/org/tiny"),
        "https://huggingface.co/org/tiny/tree/main",
        "hf.co/org/tiny/blob/main/model.safetensors.index.json",
        "hf://org/old",
    ] {
        assert_eq!(hub.with(&["manifest", url], &[("HF_TOKEN", TOKEN)]).ok(), expected, "{url}");
    }
    let info = hub.run(&["info", "hf://org/tiny", "--json"]).json();
    let facts = &info["format"]["facts"];
    assert_eq!(facts["Repository"], "org/tiny");
    assert_eq!(facts["Revision"], "main");
    assert_eq!(facts["Commit"], commit("main"));
    let shown = hub.run(&["info", "hf://org/tiny"]).ok();
    assert!(shown.contains(&commit("main")), "{shown}");
    // The config of the repository describes the model.
    assert!(info["model"].to_string().contains("config.json"), "{info}");
    // Files that are not weights are not read, and every range goes to an address without one.
    let requests = hub.requests();
    assert!(!requests.iter().any(|request| request.contains("README")), "{requests:?}");
    for request in hub.hub.requests() {
        assert!(request.range.is_none() || request.path.contains("resolve-cache"), "{request:?}");
    }
    let asked = hub.storage.requests();
    assert!(!asked.is_empty() && asked.iter().all(|request| request.range.is_some()));
    let out = text(&hub.home.file("out.pt"));
    hub.run(&["convert", "hf://org/tiny", &out]).ok();
    assert_eq!(hub.run(&["diff", &out, "hf://org/tiny"]).code, Some(0));
}

#[test]
fn a_revision_is_pinned_to_its_commit() {
    let hub = Hub::start(vec![("main", single(1)), ("v1", single(2)), ("refs/pr/1", single(3))]);
    let first = |url: &str| {
        let shown = hub.run(&["show", url, "w"]).ok();
        shown.split_whitespace().last().unwrap_or_default().to_owned()
    };
    assert_eq!(first("hf://org/tiny/model.safetensors"), "1");
    assert_eq!(first("hf://org/tiny@v1/sub"), "2");
    assert_eq!(first("hf://org/tiny@refs/pr/1/sub/other.safetensors"), "3");
    assert_eq!(first(&format!("hf://org/tiny@{}/model.safetensors", commit("v1"))), "2");
    // Weights are requested at the commit, never at the branch.
    for request in hub.requests() {
        let is_pinned = ["main", "v1", "refs"]
            .iter()
            .all(|name| !request.contains(&format!("/resolve/{name}")));
        assert!(is_pinned, "{request}");
    }
}

#[test]
fn the_token_comes_from_the_environment_or_the_file_and_goes_to_the_hub_only() {
    let hub = Hub::start(vec![("main", single(1))]);
    hub.state.private.store(true, Relaxed);
    let path = "hf://org/tiny/model.safetensors";
    let error = hub.run(&["ls", path]).failed();
    assert!(
        error.contains("no public repository org/tiny") && error.contains("HF_TOKEN"),
        "{error}"
    );
    hub.with(&["ls", path], &[("HF_TOKEN", TOKEN)]).ok();
    hub.home.with("token", format!("{TOKEN}\n").as_bytes());
    hub.run(&["ls", path]).ok();
    hub.with(&["ls", path], &[("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]).failed();
    let error = hub.with(&["ls", path], &[("HF_TOKEN", "hf_wrong")]).failed();
    assert!(error.contains("does not accept the token") && !error.contains("hf_wrong"), "{error}");
    let error = hub.with(&["ls", path], &[("HF_TOKEN", "hf_a\u{e9}b")]).failed();
    assert!(error.contains("characters that no token has") && !error.contains("hf_a"), "{error}");
    assert!(hub.storage.requests().iter().all(|request| request.token.is_none()));
    // Neither does a link to share hold it.
    let link = ["summary", path, "--link", "https://example.org/"];
    hub.run(&link).ok();
}

#[test]
fn each_refusal_is_one_clear_sentence() {
    let hub = Hub::start(vec![("main", single(1))]);
    let fails = |url: &str, variables: &[(&str, &str)], words: &[&str]| {
        let error = hub.with(&["ls", url], variables).failed();
        assert!(words.iter().all(|word| error.contains(word)), "{url}: {error}");
    };
    let file = "hf://org/tiny/model.safetensors";
    let token: &[(&str, &str)] = &[("HF_TOKEN", TOKEN)];
    fails("hf://org/none", &[], &["has no public repository org/none"]);
    fails("hf://org/none", token, &["no repository org/none, or the account"]);
    fails("hf://org/tiny@v9", &[], &["no branch, tag or commit `v9`"]);
    fails("hf://org/tiny/none.pt", &[], &["no file `none.pt`", "Look for it at"]);
    fails("hf://tiny", &[], &["hf://OWNER/NAME"]);
    fails("https://huggingface.co/org/tiny/discussions/7", &[], &["refs/pr/7"]);
    fails("hf://org/tiny@v9", &[("HF_ENDPOINT", "nowhere")], &["HF_ENDPOINT"]);
    hub.state.gated.store(true, Relaxed);
    fails(file, &[], &["is gated", "Ask for access at", "HF_TOKEN"]);
    fails(file, token, &["is gated, and the account of the token has no access"]);
    hub.state.gated.store(false, Relaxed);
    // A short wait is waited for, a long one is reported.
    hub.state.limited.store(2, Relaxed);
    hub.state.wait.store(0, Relaxed);
    hub.run(&["ls", file]).ok();
    hub.state.limited.store(1, Relaxed);
    hub.state.wait.store(290, Relaxed);
    fails(file, &[], &["too many requests", "in 290 s", "HF_TOKEN"]);
}

#[test]
fn an_address_that_expired_is_renewed() {
    let header = br#"{"w":{"dtype":"U8","shape":[20000000],"data_offsets":[0,20000000]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.resize(file.len() + 20_000_000, 7);
    let hub = Hub::start(vec![("main", vec![("m.safetensors".into(), file.clone())])]);
    let path = hub.home.with("m.safetensors", &file);
    let expected = run(["manifest", &text(&path)]).ok();
    // Addresses end after a few requests.
    hub.state.uses.store(2, Relaxed);
    let found = hub.run(&["manifest", "hf://org/tiny"]).ok();
    let renewed = hub.requests().iter().filter(|request| request.starts_with("HEAD")).count();
    assert!(renewed > 1, "{renewed}");
    assert_eq!(found, expected);
    // A storage that ignores ranges is read from the start.
    let small = Hub::start(vec![("main", single(1))]);
    small.state.whole.store(true, Relaxed);
    small.run(&["show", "hf://org/tiny/model.safetensors", "w"]).ok();
}

/// Makes the cache of the Hub's client, as it would have downloaded these files.
#[cfg(unix)]
fn cache(home: &Path, revision: &str, files: &[(String, Vec<u8>)]) {
    let top = home.join("hub/models--org--tiny");
    let write = |path: &Path, bytes: &[u8]| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    write(&top.join("refs").join(revision), commit(revision).as_bytes());
    for (name, bytes) in files {
        let hash = if is_large(name) { sha256(bytes) } else { git_hash(bytes) };
        write(&top.join("blobs").join(&hash), bytes);
        let link = top.join("snapshots").join(commit(revision)).join(name);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let up = "../".repeat(name.split('/').count() + 1);
        std::os::unix::fs::symlink(format!("{up}blobs/{hash}"), link).unwrap();
    }
}

/// Returns the name of the blob of a small file. Only that of the config is known here.
#[cfg(unix)]
fn git_hash(bytes: &[u8]) -> String {
    // `git hash-object` of `{}` without a line end.
    assert_eq!(bytes, b"{}");
    "9e26dfeeb6e641a33dae4961196235bdb965b21b".to_owned()
}

#[cfg(unix)]
#[test]
fn files_in_the_cache_are_read_from_there() {
    let hub = Hub::start(vec![("main", single(1))]);
    cache(hub.home.path(), "main", &single(1));
    let before = tree(hub.home.path());
    let path = "hf://org/tiny/model.safetensors";
    let expected = hub.run(&["manifest", path]).ok();
    // One request finds the commit, and none reads the file.
    let requests = hub.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    let offline: &[(&str, &str)] = &[("HF_HUB_OFFLINE", "1")];
    assert_eq!(hub.with(&["manifest", path], offline).ok(), expected);
    assert_eq!(
        hub.with(&["manifest", path], &[("HF_ENDPOINT", "http://127.0.0.1:1")]).ok(),
        expected
    );
    assert_eq!(hub.requests().len(), 1);
    let info = hub.with(&["info", path, "--json"], offline).json();
    assert_eq!(info["format"]["facts"]["Commit"], commit("main"));
    let why = info["format"]["facts"]["Local cache"].as_str().unwrap();
    assert!(why.contains("HF_HUB_OFFLINE"), "{why}");
    let error = hub.with(&["ls", "hf://org/tiny/none.pt"], offline).failed();
    assert!(error.contains("not in the local cache"), "{error}");
    let error = hub.with(&["ls", "hf://org/tiny@v9"], offline).failed();
    assert!(error.contains("switched off by `HF_HUB_OFFLINE`"), "{error}");
    // A blob that is missing is fetched, into memory only.
    let snapshot = hub.home.path().join("hub/models--org--tiny/snapshots").join(commit("main"));
    let error = hub.run(&["convert", path, "--in-place", "--cast", "float32"]).failed();
    assert!(error.contains("only a file on disk can be replaced"), "{error}");
    let link = text(&snapshot.join("model.safetensors"));
    let error = hub.run(&["convert", &link, "--in-place", "--cast", "float32"]).failed();
    assert!(error.contains("the Hugging Face cache"), "{error}");
    assert_eq!(tree(hub.home.path()), before);
}

#[cfg(unix)]
#[test]
fn verify_compares_blobs_with_their_names() {
    let hub = Hub::start(vec![("main", single(1))]);
    cache(hub.home.path(), "main", &single(1));
    let path = "hf://org/tiny/model.safetensors";
    let report = hub.run(&["verify", path, "--json"]).json();
    assert_eq!(report["checksums"]["SHA-256 of whole files"], 1);
    assert_eq!((&report["sound"], &report["unchecked_tensors"]), (&true.into(), &0.into()));
    let blob = hub.home.path().join("hub/models--org--tiny/blobs").join(sha256(&single(1)[0].1));
    let mut bytes = fs::read(&blob).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&blob, bytes).unwrap();
    let snapshot = hub.home.path().join("hub/models--org--tiny/snapshots").join(commit("main"));
    for path in [path, &text(&snapshot.join("model.safetensors")), &text(&blob)] {
        let ran = hub.run(&["verify", path, "--json"]);
        assert_eq!(ran.code, Some(1), "{path}: {}{}", ran.out, ran.err);
        assert!(ran.out.contains("named after") && ran.out.contains("\"checksum\""), "{}", ran.out);
    }
}

/// Files that are not in the cache are compared with the SHA-256 that the Hub lists, in the same pass.
#[test]
fn verify_compares_fetched_files_with_the_hashes_of_the_hub() {
    let files = sharded();
    let hub = Hub::start(vec![("main", files.clone())]);
    let report = hub.run(&["verify", "hf://org/tiny", "--json"]).json();
    assert_eq!(report["checksums"]["SHA-256 of whole files"], 3, "{report}");
    assert_eq!(report["sound"], true, "{report}");
    assert_eq!(report["problems"].as_array().unwrap().len(), 0, "{report}");
    // No hash is known here for the index, which is not in LFS.
    let shown = hub.run(&["verify", "hf://org/tiny/model-00001-of-00003.safetensors"]);
    assert!(shown.out.contains("SHA-256 of whole files"), "{}{}", shown.out, shown.err);
    // The bytes of a file are fetched once, but for the header.
    let first = files.iter().find(|(name, _)| name.starts_with("model-00001")).unwrap();
    let single = vec![("one.safetensors".to_owned(), first.1.clone())];
    let other = Hub::start(vec![("main", single)]);
    let report = other.run(&["verify", "hf://org/tiny", "--json"]).json();
    assert_eq!(report["unchecked_tensors"], 0, "{report}");
    let ranges = other.storage.requests().into_iter().filter_map(|request| request.range);
    let fetched: usize = ranges.map(|(from, to)| to.min(first.1.len()) - from).sum();
    assert!(fetched <= 2 * first.1.len(), "{fetched} of {}", first.1.len());
    other.state.wrong.store(true, Relaxed);
    let ran = other.run(&["verify", "hf://org/tiny", "--json"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let problem = &report["problems"][0];
    assert_eq!(
        (&problem["what"], &problem["file"]),
        (&"checksum".into(), &"one.safetensors".into())
    );
    assert_eq!(problem["expected"], sha256(&first.1));
}

/// Files of a set that are in the cache are compared with their names, although others are fetched.
#[cfg(unix)]
#[test]
fn verify_compares_blobs_of_a_set_that_is_partly_cached() {
    let files = sharded();
    let hub = Hub::start(vec![("main", files.clone())]);
    let shard = files.iter().find(|(name, _)| name.starts_with("model-00001")).unwrap().clone();
    cache(hub.home.path(), "main", std::slice::from_ref(&shard));
    let report = hub.run(&["verify", "hf://org/tiny", "--json"]).json();
    assert_eq!(report["checksums"]["SHA-256 of whole files"], 3, "{report}");
    assert_eq!(report["sound"], true);
    let blob = hub.home.path().join("hub/models--org--tiny/blobs").join(sha256(&shard.1));
    let mut bytes = shard.1.clone();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&blob, bytes).unwrap();
    let ran = hub.run(&["verify", "hf://org/tiny", "--json"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("named after"), "{}", ran.out);
}

/// Returns the paths, contents and times of all files below a folder.
#[cfg(unix)]
fn tree(folder: &Path) -> Files {
    let (mut open, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((text(&path), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn checks_and_scans_repositories() {
    let mut broken = sharded();
    broken.retain(|(name, _)| name != "model-00003-of-00003.safetensors");
    let hub = Hub::start(vec![("main", sharded()), ("broken", broken)]);
    let report = hub.run(&["check", "hf://org/tiny@broken", "--json"]);
    assert_eq!(report.code, Some(1), "{}{}", report.out, report.err);
    assert!(report.out.contains("shard-missing"), "{}", report.out);
    let report = hub.run(&["check", "hf://org/tiny", "--json"]);
    assert!(!report.out.contains("shard-missing"), "{}", report.out);
    let scan = hub.run(&["scan", "hf://org/tiny"]);
    assert_eq!(scan.code, Some(0), "{}{}", scan.out, scan.err);
    assert!(scan.out.contains("hf://org/tiny/model-00001-of-00003.safetensors"), "{}", scan.out);
}

#[test]
fn jobs_read_one_commit() {
    let hub = Hub::start(vec![("main", sharded())]);
    let (job, out) = (text(&hub.home.file("job")), text(&hub.home.file("out.safetensors")));
    hub.run(&["job", "plan", "hf://org/tiny", &out, "-o", &job]).ok();
    let plan = fs::read_dir(&job).unwrap().map(|entry| entry.unwrap().path());
    let texts: String = plan
        .filter(|path| path.is_file())
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect();
    assert!(texts.contains(&format!("hf://org/tiny@{}", commit("main"))), "{texts}");
    hub.run(&["job", "run", &job, "0"]).ok();
    hub.run(&["job", "commit", &job]).ok();
    let index = fixture("hf_sharded_safetensors/model.safetensors.index.json");
    assert_eq!(hub.run(&["diff", &out, &text(&index)]).code, Some(0));
}
