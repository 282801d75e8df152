//! Debian and Ubuntu packages, on systems that have them.

use std::path::Path;

use anyhow::{Result, bail};

use crate::shell;

/// Installs packages, as root or with a `sudo` that needs no password; otherwise fails with the
/// command to type.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let Some(mut prefix) = prefix() else {
        let line = line(packages);
        bail!("this needs administrator rights; run `sudo {line}`, then the same task again");
    };
    prefix.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]);
    let apt = |rest: &[&str]| {
        let words: Vec<&str> = prefix.iter().chain(rest).copied().collect();
        let (program, arguments) = words.split_first().unwrap_or((&"apt-get", &[]));
        shell::run(shell::command(program).args(arguments))
    };
    apt(&["update"])?;
    let mut words = vec!["install", "--no-install-recommends"];
    words.extend(packages);
    apt(&words)
}

/// Returns the command that installs packages.
pub(crate) fn line(packages: &[&str]) -> String {
    format!("apt-get install --no-install-recommends {}", packages.join(" "))
}

pub(crate) fn present() -> bool {
    Path::new("/usr/bin/apt-get").is_file()
}

/// Returns the words before `apt-get` that give it the right to install; `None` if there is no way
/// without a password.
fn prefix() -> Option<Vec<&'static str>> {
    let root = shell::output(shell::command("id").arg("-u")).as_deref() == Some("0");
    if root {
        return Some(Vec::new());
    }
    shell::output(shell::command("sudo").args(["-n", "true"])).map(|_| vec!["sudo", "-n"])
}
