//! Debian and Ubuntu packages, where there are any.

use std::path::Path;

use anyhow::{Result, bail};

use crate::shell;

/// Installs packages, as root or through a `sudo` that asks nothing; otherwise fails with the
/// line to type.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let line = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    let Some(mut prefix) = prefix() else {
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

/// Whether this machine has apt at all.
pub(crate) fn present() -> bool {
    Path::new("/usr/bin/apt-get").is_file()
}

/// The words before `apt-get` that give it the right to install; `None` where nothing does.
fn prefix() -> Option<Vec<&'static str>> {
    let root = shell::output(shell::command("id").arg("-u")).as_deref() == Some("0");
    if root {
        return Some(Vec::new());
    }
    shell::output(shell::command("sudo").args(["-n", "true"])).map(|_| vec!["sudo", "-n"])
}
