//! Explains responses of the Hub that are not files.

use statelens_checkpoint::{Error, Setting, advice};

use super::{Endpoint, HubLocation};

/// An answer of the Hub that is not a success.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HubRefusal {
    /// The HTTP status.
    pub status: u16,
    /// `X-Error-Code`.
    pub code: String,
    /// `X-Error-Message`.
    pub message: String,
    /// Seconds to wait before the next request.
    pub wait: Option<u64>,
    /// Whether a token was sent.
    pub with_token: bool,
}

impl HubRefusal {
    /// Reads the relevant headers of an answer; `header` is called with names in lower case.
    pub fn new(status: u16, with_token: bool, header: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            status,
            code: header("x-error-code").unwrap_or_default(),
            message: header("x-error-message").unwrap_or_default(),
            wait: rate_limit(&header),
            with_token,
        }
    }

    /// Returns whether another try may help.
    pub fn is_temporary(&self) -> bool {
        matches!(self.status, 408 | 425 | 429 | 500..=599)
    }

    /// Returns the error: one sentence, and what to do.
    pub fn error(&self, endpoint: &Endpoint, location: &HubLocation) -> Error {
        let (id, host) = (&location.id, endpoint.host());
        let page = endpoint.page(location);
        let is_gated = self.code == "GatedRepo";
        let error = match (self.status, self.code.as_str(), self.with_token) {
            (401 | 403, _, false) if is_gated => {
                Error::refused(format!("{id} is gated: its files need an account with access"))
                    .coded("hub-gated")
                    .advice(advice![
                        format!("Ask for access at {page}, then set "),
                        Setting::HubToken,
                        "."
                    ])
            }
            (401 | 403, _, true) if is_gated => {
                Error::refused(format!("{id} is gated, and the account of the token has no access"))
                    .coded("hub-gated")
                    .advice(format!("Ask for access at {page}, and try again when it is granted."))
            }
            (401, _, true) => Error::refused(format!("{host} does not accept the token"))
                .coded("hub-token")
                .advice(advice![
                    "It is wrong or has expired. Set ",
                    Setting::HubToken,
                    " to a new one, or to none for public repositories."
                ]),
            (401, ..) => Error::refused(format!("{host} has no public repository {id}"))
                .coded("hub-not-found")
                .advice(advice!["Check its name. If it is private, set ", Setting::HubToken, "."]),
            (404, "RevisionNotFound", _) => Error::refused(format!(
                "{id} has no branch, tag or commit `{}`",
                location.revision()
            ))
            .coded("hub-not-found")
            .advice(format!("Look for it at {page}/tree/main.")),
            (404, "EntryNotFound", _) => {
                Error::refused(format!("{id} has no file `{}`", location.path))
                    .coded("hub-not-found")
                    .advice(format!("Look for it at {page}/tree/main."))
            }
            (404 | 410, _, true) => Error::refused(format!(
                "{host} has no repository {id}, or the account of the token has no access to it"
            ))
            .coded("hub-not-found")
            .advice("Check its name, and the permissions of the token."),
            (404 | 410, _, false) => {
                Error::refused(format!("{host} has no public repository {id}"))
                    .coded("hub-not-found")
                    .advice("Check its name.")
            }
            (403, ..) if self.message.contains("disabled") => {
                Error::refused(format!("the Hub has disabled access to {id}"))
                    .coded("hub-disabled")
                    .advice(format!("Its page may say why: {page}."))
            }
            (403, ..) => Error::refused(format!("{host} denies access to {id}"))
                .coded("hub-denied")
                .advice("Check the permissions of the token."),
            (429, ..) => {
                let wait = self.wait.map_or("a few minutes".to_owned(), |wait| format!("{wait} s"));
                let error = Error::refused(format!("{host} received too many requests from you"))
                    .coded("hub-rate-limit");
                match self.with_token {
                    true => error.advice(format!("Try again in {wait}.")),
                    false => error.advice(advice![
                        format!("Try again in {wait}, or set "),
                        Setting::HubToken,
                        ": an account may send more."
                    ]),
                }
            }
            (500..=599, ..) => Error::io(format!("{host} had an error ({})", self.status))
                .advice("Try again later."),
            (status, ..) => Error::refused(format!("{host} answered {status}"))
                .advice(format!("Open {page} in a browser to see what it says.")),
        };
        error.in_file(location.to_string())
    }
}

/// Returns the seconds to wait after an answer: `t` of `RateLimit` if no request is left, or
/// `Retry-After`.
pub fn rate_limit(header: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let of_limit = header("ratelimit").and_then(|text| {
        let value = |name: &str| {
            let fields = text.split(';').map(str::trim);
            fields.filter_map(|field| field.strip_prefix(name)).find_map(|value| value.parse().ok())
        };
        (value("r=") == Some(0u64)).then(|| value("t=")).flatten()
    });
    of_limit.or_else(|| header("retry-after")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, code: &str, with_token: bool) -> Error {
        let endpoint = Endpoint::default();
        let location = HubLocation::parse("hf://org/tiny@v9/a.pt", &endpoint).unwrap().unwrap();
        let header = |name: &str| match name {
            "x-error-code" => Some(code.to_owned()),
            "ratelimit" => Some("\"resolvers\";r=0;t=55".to_owned()),
            _ => None,
        };
        HubRefusal::new(status, with_token, header).error(&endpoint, &location)
    }

    #[test]
    fn each_refusal_has_a_sentence_and_what_to_do() {
        for (status, code, with_token, what, to_do) in [
            (401, "", false, "no public repository org/tiny", "HF_TOKEN"),
            (401, "", true, "does not accept the token", "HF_TOKEN"),
            (401, "GatedRepo", false, "org/tiny is gated", "huggingface.co/org/tiny, then set"),
            (403, "GatedRepo", true, "account of the token has no access", "Ask for access"),
            (404, "RepoNotFound", true, "no repository org/tiny", "permissions"),
            (404, "RevisionNotFound", false, "commit `v9`", "huggingface.co/org/tiny/tree"),
            (404, "EntryNotFound", false, "no file `a.pt`", "huggingface.co/org/tiny/tree"),
            (429, "", false, "too many requests", "in 55 s, or set"),
            (429, "", true, "too many requests", "in 55 s."),
            (503, "", false, "had an error (503)", "later"),
            (418, "", false, "answered 418", "browser"),
        ] {
            let error = error(status, code, with_token);
            let text = error.to_string();
            assert!(text.contains(what) && text.contains(to_do), "{text}");
            assert_eq!(error.file(), Some("hf://org/tiny@v9/a.pt"));
        }
    }

    #[test]
    fn waits_only_if_no_request_is_left() {
        let of = |limit: &'static str, after: &'static str| {
            rate_limit(move |name| {
                let value = if name == "ratelimit" { limit } else { after };
                (!value.is_empty()).then(|| value.to_owned())
            })
        };
        assert_eq!(of("\"api\";r=0;t=7", "3"), Some(7));
        assert_eq!(of("\"api\";r=9;t=7", "3"), Some(3));
        assert_eq!((of("", ""), of("x", "soon")), (None, None));
    }
}
