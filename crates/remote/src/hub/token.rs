//! The token of an account.

use std::fmt;
use std::sync::Arc;

use statelens_checkpoint::{Error, Result};

/// A token, which no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct HubToken(Arc<str>);

impl HubToken {
    /// Takes a token as it was set or typed; `None` if it is blank.
    ///
    /// # Errors
    /// Fails if it can't be sent: it has blanks or characters that are not ASCII.
    pub fn new(text: &str) -> Result<Option<Self>> {
        let text = text.trim();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::refused(
                "the token of Hugging Face has blanks or characters that no token has",
            )
            .advice("Copy it again from https://huggingface.co/settings/tokens."));
        }
        Ok((!text.is_empty()).then(|| Self(text.into())))
    }

    /// Returns the value of the header `Authorization`.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for HubToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HubToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_not_shown() {
        let token = HubToken::new(" hf_secret\r\n").unwrap().unwrap();
        assert_eq!(token.header(), "Bearer hf_secret");
        assert!(!format!("{token:?}").contains("secret"));
        assert_eq!(HubToken::new(" \n"), Ok(None));
        let error = HubToken::new("hf_sec\nret").unwrap_err();
        assert!(!error.to_string().contains("sec\n"), "{error}");
    }
}
