//! The Hugging Face Hub: lists of files, and the current addresses of their bytes.
//!
//! Both are requested with the token, if one was typed, and without a range. A browser removes the
//! token from a redirect to another server (Fetch standard, "HTTP-redirect fetch"), and requests for
//! ranges carry it only if they go to the Hub.

use statelens_checkpoint::{Error, Result};
use statelens_remote::hub::{Endpoint, HubListing, HubLocation, HubRefusal, HubToken};
use wasm_bindgen_futures::JsFuture;
use web_sys::{RequestInit, Response, XmlHttpRequest};

use crate::worker::job::Job;
use crate::worker::requests::{fetched, silent};

/// Access to the files of the Hub, with or without a token.
#[derive(Debug, Clone)]
pub(crate) struct HubAccess(pub(crate) Option<HubToken>);

/// Requests the files of a repository at a revision.
pub(crate) async fn hub_listing(
    endpoint: &Endpoint,
    location: &HubLocation,
    token: Option<&HubToken>,
    job: &Job,
) -> Result<HubListing> {
    let response = fetched(&endpoint.info(location), &request("GET", token)).await;
    let response = response.map_err(|reason| silent(endpoint.host(), &reason))?;
    let refused = |response: &Response| {
        let header = |name: &str| response.headers().get(name).ok().flatten();
        let refusal = HubRefusal::new(response.status(), token.is_some(), header);
        refusal.error(endpoint, &location.with_path(""))
    };
    if !response.ok() {
        return Err(refused(&response));
    }
    let failed = || Error::io(format!("{} closed the connection too early", endpoint.host()));
    let text = response.text().map_err(|_| failed())?;
    let text = JsFuture::from(text).await.map_err(|_| failed())?;
    let text = text.as_string().unwrap_or_default();
    job.meter().count(text.len() as u64);
    HubListing::parse(text.as_bytes())
}

impl HubAccess {
    /// Requests the current address of a file's bytes; fails if the Hub refuses it. What the storage
    /// answers to `HEAD` does not matter.
    pub(crate) async fn locate(&self, url: &str) -> Result<String> {
        let endpoint = Endpoint::default();
        let response = fetched(url, &request("HEAD", self.0.as_ref())).await;
        let response = response.map_err(|reason| silent(endpoint.host(), &reason))?;
        let header = |name: &str| response.headers().get(name).ok().flatten();
        match response.ok() || !endpoint.is_at(&response.url()) {
            true => Ok(response.url()),
            false => Err(self.refused(url, response.status(), header)),
        }
    }

    /// Returns the value of `Authorization` for a request to this address, which only the Hub gets: it
    /// keeps small files itself.
    pub(crate) fn authorization(&self, url: &str) -> Option<String> {
        self.0.as_ref().filter(|_| Endpoint::default().is_at(url)).map(HubToken::header)
    }

    /// As [`HubAccess::locate`], by a synchronous request.
    pub(crate) fn locate_now(&self, url: &str) -> Result<String> {
        let endpoint = Endpoint::default();
        let failed = |_| silent(endpoint.host(), "");
        let xhr = XmlHttpRequest::new().map_err(failed)?;
        xhr.open_with_async("HEAD", url, false).map_err(failed)?;
        if let Some(token) = &self.0 {
            xhr.set_request_header("Authorization", &token.header()).map_err(failed)?;
        }
        xhr.send().map_err(failed)?;
        let (status, target) = (xhr.status().map_err(failed)?, xhr.response_url());
        if (200..300).contains(&status) || !endpoint.is_at(&target) {
            return Ok(target);
        }
        Err(self.refused(url, status, |name| xhr.get_response_header(name).ok().flatten()))
    }

    fn refused(&self, url: &str, status: u16, header: impl Fn(&str) -> Option<String>) -> Error {
        let endpoint = Endpoint::default();
        let refusal = HubRefusal::new(status, self.0.is_some(), header);
        match HubLocation::parse(url, &endpoint) {
            Some(Ok(location)) => refusal.error(&endpoint, &location),
            _ => Error::refused(format!("{} answered {status}", endpoint.host())),
        }
    }
}

fn request(method: &str, token: Option<&HubToken>) -> RequestInit {
    let init = RequestInit::new();
    init.set_method(method);
    init.set_cache(web_sys::RequestCache::NoStore);
    if let Some(token) = token {
        let headers = js_sys::Object::new();
        crate::messages::set(&headers, "Authorization", &token.header().into());
        init.set_headers(&headers);
    }
    init
}
