//! The addresses of repositories and files on the Hub.

use super::{Endpoint, HubLocation};
use crate::address::encode;

impl Endpoint {
    /// Returns the address of the description of a repository at a revision, with its files.
    pub fn info(&self, location: &HubLocation) -> String {
        let revision = encode(location.revision(), "~");
        let (kind, id) = (location.kind.plural(), &location.id);
        format!("{}/api/{kind}/{id}/revision/{revision}?blobs=true", self.base)
    }

    /// Returns the address of a file of a repository at a commit.
    pub fn resolve(&self, location: &HubLocation, commit: &str, path: &str) -> String {
        let (prefix, id) = (location.kind.prefix(), &location.id);
        format!("{}/{prefix}{id}/resolve/{commit}/{}", self.base, encode(path, "/~"))
    }

    /// Returns the page of a repository.
    pub fn page(&self, location: &HubLocation) -> String {
        format!("{}/{}{}", self.base, location.kind.prefix(), location.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_escape_names() {
        let hub = Endpoint::parse("http://h/p/").unwrap();
        let of = |text: &str| HubLocation::parse(text, &hub).unwrap().unwrap();
        let data = of("hf://datasets/a/b@refs/pr/1/x");
        assert_eq!(
            hub.info(&data),
            "http://h/p/api/datasets/a/b/revision/refs%2Fpr%2F1?blobs=true"
        );
        assert_eq!(
            hub.resolve(&of("hf://a/b"), "c0", "x/a #?%é.pt"),
            "http://h/p/a/b/resolve/c0/x/a%20%23%3F%25%C3%A9.pt"
        );
        assert_eq!(hub.page(&data), "http://h/p/datasets/a/b");
    }
}
