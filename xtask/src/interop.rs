//! Interop: what we read and write, compared with what the real libraries read and write.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python;

/// Runs `tests/interop` with the binary `statelens`; prints counts, fails on any difference.
pub(crate) fn run(root: &Path, statelens: &Path) -> Result<(), String> {
    let python = python::set_up(root)?;
    let script = |name: &str, interpreter: &Path| {
        let mut command = Command::new(interpreter);
        command.arg(root.join(format!("tests/interop/{name}.py")));
        command.arg("--statelens").arg(statelens);
        command.arg("--work").arg(root.join("target/interop").join(name));
        command
    };
    let mut all = script("run", &python.current);
    all.arg("--cerebras").arg(&python.cerebras);
    if let Some(h5dump) = h5dump() {
        all.arg("--h5dump").arg(h5dump);
        // h5dump knows LZ4 only from the plugin that the Cerebras libraries bring along.
        all.envs(python::hdf5_plugins(&python.cerebras).map(|path| ("HDF5_PLUGIN_PATH", path)));
    }
    let mut matrix = script("matrix", &python.current);
    matrix.arg("--cerebras").arg(&python.cerebras).arg("--tensorflow").arg(&python.tensorflow);
    let mut snippets = script("snippets", &python.current);
    snippets.arg("--cerebras").arg(&python.cerebras).arg("--tensorflow").arg(&python.tensorflow);
    let mut scripts = vec![
        all,
        matrix,
        script("numpy_archives", &python.current),
        script("hdf5_damage", &python.current),
        script("safetensors_files", &python.current),
        script("torch_sets", &python.current),
        script("harmless_pickles", &python.current),
        script("models", &python.current),
        snippets,
        script("layouts", &python.current),
        script("optimizers", &python.current),
        script("bundles", &python.tensorflow),
        script("toolbox", &python.cerebras),
        script("torch_older", &python.cerebras),
        script("torch_older", &python.current),
    ];
    match &python.older {
        Ok(interpreter) => scripts.push(script("older", interpreter)),
        Err(why) => println!("Release 2.4 of cerebras-pytorch is left out: {why}"),
    }
    // All of them, so that one run tells everything that differs.
    let failed: Vec<String> =
        scripts.iter_mut().filter_map(|command| compared(command).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Runs a script that compares.
fn compared(command: &mut Command) -> Result<(), String> {
    println!("$ {}", crate::shell::shown(command));
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!(
            "what we read or write differs from the real libraries, see above: `{}`",
            crate::shell::shown(command)
        )),
    }
}

/// `h5dump`, installed where that is possible without asking anybody.
fn h5dump() -> Option<PathBuf> {
    let present = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join("h5dump")).find(|file| file.is_file())
    };
    present().or_else(|| {
        println!("Installing hdf5-tools, for h5dump (works as root on Debian)");
        let apt = |arguments: &[&str]| Command::new("apt-get").args(arguments).output();
        // Without the right or the tool this fails, and run.py says what was not checked.
        let _ = apt(&["update", "-qq"]);
        let _ = apt(&["install", "-qq", "--yes", "--no-install-recommends", "hdf5-tools"]);
        present()
    })
}
