//! The environment of the Hub's own client: its variables, token and cache.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::files::PathText as _;
use statelens_checkpoint::{Error, Result};
use statelens_remote::hub::{Endpoint, HubToken};

/// Bytes of the longest token that is read from a file.
const MAX_TOKEN: u64 = 64 << 10;

/// The settings of the client `huggingface_hub`, from the same variables and files.
#[derive(Debug, Clone, Default)]
pub(super) struct HubSettings {
    pub(super) endpoint: Endpoint,
    pub(super) token: Option<HubToken>,
    /// The folder with the cache, `models--OWNER--NAME` and so on.
    pub(super) cache: Option<PathBuf>,
    /// Whether no request may be made.
    pub(super) offline: bool,
}

impl HubSettings {
    /// Reads the environment of the process.
    ///
    /// # Errors
    /// Fails if the endpoint or the token can't be used.
    pub(super) fn of_environment() -> Result<Self> {
        Self::read(&|name| std::env::var_os(name).map(|text| text.to_string_lossy().into_owned()))
    }

    /// Returns the endpoint of the environment, or that of Hugging Face if it can't be used.
    pub(super) fn endpoint() -> Endpoint {
        let named = std::env::var("HF_ENDPOINT").ok().filter(|text| !text.trim().is_empty());
        named.and_then(|text| Endpoint::parse(&text).ok()).unwrap_or_default()
    }

    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let set = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let is_on = |name: &str| {
            let text = set(name).unwrap_or_default().trim().to_ascii_lowercase();
            ["1", "true", "yes", "on"].contains(&text.as_str())
        };
        let endpoint = set("HF_ENDPOINT").map(|text| Endpoint::parse(&text)).transpose()?;
        let path = |text: String| PathBuf::from(expanded(&text, variable));
        let home = set("HF_HOME").map(path).or_else(|| {
            let cache = set("XDG_CACHE_HOME").map(path);
            let cache = cache.or_else(|| Some(user_home(variable)?.join(".cache")))?;
            Some(cache.join("huggingface"))
        });
        let token = match is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN") {
            true => None,
            false => {
                let named = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().find_map(set);
                let file = set("HF_TOKEN_PATH").map(path);
                let file = file.or_else(|| Some(home.as_ref()?.join("token")));
                match (named, file) {
                    (Some(text), _) => HubToken::new(&text)?,
                    (None, Some(file)) => token_in(&file)?,
                    (None, None) => None,
                }
            }
        };
        // A variable that is set to nothing counts.
        let cache = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"].into_iter().find_map(variable);
        let cache = cache.map(path).or_else(|| Some(home?.join("hub")));
        Ok(Self {
            endpoint: endpoint.unwrap_or_default(),
            token,
            cache: cache.filter(|folder| !folder.as_os_str().is_empty()),
            offline: is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE"),
        })
    }
}

/// Reads the token that the client saved; `None` without one.
fn token_in(file: &Path) -> Result<Option<HubToken>> {
    let failed = |why: &dyn std::fmt::Display| {
        Error::refused(format!("the token of Hugging Face can't be read: {why}"))
            .in_file(file.to_text())
            .advice("Log in again with `hf auth login`, or set `HF_TOKEN`.")
    };
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(&error)),
        Ok(about) if !about.is_file() || about.len() > MAX_TOKEN => {
            return Err(failed(&"this is not a file with a token"));
        }
        Ok(_) => {}
    }
    let text = fs::read_to_string(file).map_err(|error| failed(&error))?;
    HubToken::new(&text).map_err(|error| error.in_file(file.to_text()))
}

fn user_home(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let home = variable(if cfg!(windows) { "USERPROFILE" } else { "HOME" })?;
    (!home.is_empty()).then(|| home.into())
}

/// Replaces `~` at the start, `$NAME` and `${NAME}`, as Python's `os.path` does.
fn expanded(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let text = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with(['/', '\\']) => user_home(variable)
            .map_or(text.to_owned(), |home| format!("{}{rest}", home.to_string_lossy())),
        _ => text.to_owned(),
    };
    let (mut whole, mut rest) = (String::new(), text.as_str());
    while let Some(at) = rest.find('$') {
        whole.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, end) = match after.strip_prefix('{').and_then(|name| name.split_once('}')) {
            Some((name, _)) => (name, name.len() + 2),
            None => {
                let end = after.find(|c| !is_word(c)).unwrap_or(after.len());
                (&after[..end], end)
            }
        };
        match variable(name).filter(|_| !name.is_empty()) {
            Some(value) => whole.push_str(&value),
            None => whole.push_str(&rest[at..at + 1 + end]),
        }
        rest = &after[end..];
    }
    whole + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<HubSettings> {
        HubSettings::read(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn finds_the_token_as_the_client_does() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let header = |variables: &[(&str, &str)]| {
            let token = read(&[variables, &[("HF_HOME", home)]].concat()).unwrap().token;
            token.map_or(String::new(), |token| token.header())
        };
        assert_eq!(header(&[]), "");
        fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        fs::write(folder.path().join("stored_tokens"), "[a]\nhf_token = hf_stored\n").unwrap();
        let other = folder.path().join("other");
        fs::write(&other, " hf_other ").unwrap();
        let other = other.to_str().unwrap();
        assert_eq!(header(&[]), "Bearer hf_file");
        assert_eq!(header(&[("HF_TOKEN", " \n")]), "Bearer hf_file");
        assert_eq!(header(&[("HF_TOKEN", "hf_env\r\n")]), "Bearer hf_env");
        assert_eq!(header(&[("HUGGING_FACE_HUB_TOKEN", "hf_old")]), "Bearer hf_old");
        assert_eq!(header(&[("HF_TOKEN_PATH", other)]), "Bearer hf_other");
        let off = ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
        assert_eq!(header(&[("HF_TOKEN", "hf_env"), off]), "");
        assert!(read(&[("HF_TOKEN_PATH", home)]).is_err(), "a folder");
        let shown = format!("{:?}", read(&[("HF_TOKEN", "hf_secret")]).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn finds_the_cache_as_the_client_does() {
        let cache = |variables: &[(&str, &str)]| {
            let home = [("HOME", "/home/me"), ("USERPROFILE", "/home/me")];
            let cache = read(&[variables, &home].concat()).unwrap().cache;
            cache.map_or(String::new(), |path| path.to_string_lossy().replace('\\', "/"))
        };
        assert_eq!(cache(&[]), "/home/me/.cache/huggingface/hub");
        assert_eq!(cache(&[("XDG_CACHE_HOME", "/x")]), "/x/huggingface/hub");
        assert_eq!(cache(&[("HF_HOME", "~/hf"), ("XDG_CACHE_HOME", "/x")]), "/home/me/hf/hub");
        assert_eq!(cache(&[("HF_HOME", "$ROOT/a${B}c$"), ("ROOT", "/r")]), "/r/a${B}c$/hub");
        assert_eq!(cache(&[("HF_HUB_CACHE", "/c")]), "/c");
        assert_eq!(cache(&[("HF_HUB_CACHE", "")]), "");
        assert_eq!(cache(&[("HUGGINGFACE_HUB_CACHE", "/old")]), "/old");
    }

    #[test]
    fn reads_endpoint_and_offline() {
        let of = |variables: &[(&str, &str)]| read(variables).unwrap();
        assert_eq!(of(&[]).endpoint.host(), "huggingface.co");
        assert_eq!(of(&[("HF_ENDPOINT", "http://127.0.0.1:9/")]).endpoint.host(), "127.0.0.1:9");
        assert!(read(&[("HF_ENDPOINT", "mirror")]).is_err());
        assert!(of(&[("HF_HUB_OFFLINE", "1")]).offline && !of(&[("HF_HUB_OFFLINE", "0")]).offline);
    }
}
