//! Starts the user's browser.

use std::process::{Command, Stdio};
use std::{env, thread};

/// Opens an address; returns false if no suitable program was found.
pub(super) fn open(address: &str) -> bool {
    let chosen = env::var("BROWSER").unwrap_or_default();
    let named = chosen.split(':').filter(|program| !program.is_empty());
    named.chain(USUAL.iter().copied()).any(|line| start(line, address))
}

#[cfg(target_os = "macos")]
const USUAL: &[&str] = &["open"];
#[cfg(windows)]
const USUAL: &[&str] = &["rundll32 url.dll,FileProtocolHandler"];
#[cfg(not(any(target_os = "macos", windows)))]
const USUAL: &[&str] = &["xdg-open", "wslview"];

fn start(line: &str, address: &str) -> bool {
    let mut words = line.split_whitespace();
    let Some(program) = words.next() else { return false };
    let child = Command::new(program)
        .args(words)
        .arg(address)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    // Waits for the browser to exit, so that it does not stay a zombie.
    thread::spawn(move || child.wait());
    true
}
