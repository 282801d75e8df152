//! Interop: what we read and write, compared with what the real libraries read and write.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python;

/// Runs `tests/interop` with the binary `statelens`; prints counts, fails on any difference.
pub(crate) fn run(root: &Path, statelens: &Path) -> Result<(), String> {
    let python = python::set_up(root)?;
    let mut command = Command::new(&python.current);
    command
        .arg(root.join("tests/interop/run.py"))
        .arg("--statelens")
        .arg(statelens)
        .arg("--cerebras")
        .arg(&python.cerebras)
        .arg("--work")
        .arg(root.join("target/interop"));
    if let Some(h5dump) = h5dump() {
        command.arg("--h5dump").arg(h5dump);
        // h5dump knows LZ4 only from the plugin that the Cerebras libraries bring along.
        command.envs(python::hdf5_plugins(&python.cerebras).map(|path| ("HDF5_PLUGIN_PATH", path)));
    }
    compared(&mut command)?;
    let mut command = Command::new(&python.current);
    command
        .arg(root.join("tests/interop/numpy_archives.py"))
        .arg("--statelens")
        .arg(statelens)
        .arg("--work")
        .arg(root.join("target/interop-numpy"));
    compared(&mut command)?;
    let mut command = Command::new(&python.current);
    command
        .arg(root.join("tests/interop/safetensors_files.py"))
        .arg("--statelens")
        .arg(statelens)
        .arg("--work")
        .arg(root.join("target/interop-safetensors"));
    compared(&mut command)?;
    let mut command = Command::new(&python.current);
    command
        .arg(root.join("tests/interop/torch_sets.py"))
        .arg("--statelens")
        .arg(statelens)
        .arg("--work")
        .arg(root.join("target/interop-torch"));
    compared(&mut command)?;
    let mut command = Command::new(&python.tensorflow);
    command
        .arg(root.join("tests/interop/bundles.py"))
        .arg("--statelens")
        .arg(statelens)
        .arg("--work")
        .arg(root.join("target/interop-tensorflow"));
    compared(&mut command)?;
    let mut command = Command::new(&python.cerebras);
    command
        .arg(root.join("tests/interop/toolbox.py"))
        .arg("--statelens")
        .arg(statelens)
        .arg("--work")
        .arg(root.join("target/interop-toolbox"));
    compared(&mut command)
}

/// Runs a script that compares.
fn compared(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err("what we read or write differs from the real libraries, see above".to_owned()),
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
