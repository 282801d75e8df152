//! Runs other programs.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Returns a command that runs at the top of the repository.
///
/// `cargo run` sets variables that describe this program and would mislead another cargo (and,
/// through the library path, another toolchain's compiler), so they are removed.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(crate::project::root());
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let from_cargo = text == "CARGO"
            || text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_MANIFEST_")
            || text == "LD_LIBRARY_PATH"
            || text == "DYLD_FALLBACK_LIBRARY_PATH";
        if from_cargo {
            command.env_remove(&name);
        }
    }
    command
}

/// Formats the command as a person would type it, without its environment.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", shown(command));
    let status =
        command.status().with_context(|| format!("could not start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs a command whose output the user sees, and kills it after `limit`.
pub(crate) fn run_for(command: &mut Command, limit: Duration) -> Result<()> {
    println!("$ {}", shown(command));
    let mut child =
        command.spawn().with_context(|| format!("could not start `{}`", shown(command)))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!("`{}` failed ({status})", shown(command));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("`{}` did not finish in {} s", shown(command), limit.as_secs());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the output of a command, or `None` if it can't be run or fails.
pub(crate) fn output(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the full path of a program on `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_the_command() {
        let error = run(command("sh").args(["-c", "exit 3"])).unwrap_err().to_string();
        assert!(error.contains("sh -c exit 3") && error.contains('3'), "{error}");
    }

    #[test]
    fn gives_up_on_a_command_that_hangs() {
        let error = run_for(command("sleep").arg("600"), Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("did not finish"), "{error}");
    }

    #[test]
    fn returns_output_of_successful_commands_only() {
        assert_eq!(output(command("sh").args(["-c", "echo yes"])).as_deref(), Some("yes"));
        assert_eq!(output(command("sh").args(["-c", "echo no; exit 1"])), None);
        assert_eq!(output(&mut command("there-is-no-such-program")), None);
    }
}
