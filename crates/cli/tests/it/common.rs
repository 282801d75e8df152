//! Runs the command as a user does.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns the command, with empty standard input.
pub(crate) fn statelens() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statelens"));
    command.stdin(Stdio::null());
    command
}

/// Returns the command with the default action for Ctrl-C, even if the tests were started with it
/// ignored (`nohup … &`), which children inherit. Needs GNU `env`.
pub(crate) fn heeding() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(env!("CARGO_BIN_EXE_statelens")).stdin(Stdio::null());
    command
}

/// Runs the command.
pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    Ran::from(statelens().args(args).output().expect("the command starts"))
}

/// Runs the command with at most `mebibytes` MiB of address space and one minute of processor time.
#[cfg(target_os = "linux")]
pub(crate) fn within(mebibytes: u64, args: &[&str]) -> Ran {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("ulimit -v {}; ulimit -t 60; exec \"$0\" \"$@\"", mebibytes << 10)]);
    // Under such a limit, glibc would try in vain to map an arena at each allocation of a thread.
    command.env("MALLOC_ARENA_MAX", "1");
    command.arg(env!("CARGO_BIN_EXE_statelens")).args(args).stdin(Stdio::null());
    Ran::from(command.output().expect("the command starts"))
}

/// Reports that the rest of a test is skipped. cargo shows this even for tests that pass, because
/// it captures only the output of `println!` and similar macros.
pub(crate) fn skipped(why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}

/// The output and exit status of a run.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("what is printed is UTF-8"),
            err: String::from_utf8(output.stderr).expect("what is printed is UTF-8"),
        }
    }
}

impl Ran {
    /// Returns the output; panics unless the run succeeded with nothing on standard error.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// Returns the single line on standard error; panics unless the run failed.
    #[track_caller]
    pub(crate) fn failed(self) -> String {
        assert_eq!(self.code, Some(2), "{}{}", self.out, self.err);
        assert!(self.err.starts_with("statelens: "), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert_eq!(self.out, "");
        self.err
    }

    /// Returns standard error; panics unless the run was stopped by Ctrl-C.
    #[track_caller]
    pub(crate) fn interrupted(self) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(130), ""), "{}", self.err);
        self.err
    }

    /// Returns standard error, with one loss per line; panics unless the run refused losses.
    #[track_caller]
    pub(crate) fn failed_after_losses(self) -> String {
        assert_eq!((self.code, self.out.as_str()), (Some(2), ""), "{}", self.err);
        self.err
    }

    /// Parses the output as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("it prints JSON")
    }
}

/// Returns the path of a fixture.
pub(crate) fn fixture(path: &str) -> PathBuf {
    statelens_fixtures::path(path)
}

/// Returns a path as an argument of the command.
pub(crate) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Returns a zip file whose members are stored uncompressed.
pub(crate) fn stored_zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = Vec::new();
    let mut directory = Vec::new();
    for (name, bytes) in members {
        let mut header = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        header.extend(crc32fast::hash(bytes).to_le_bytes());
        header.extend((bytes.len() as u32).to_le_bytes());
        header.extend((bytes.len() as u32).to_le_bytes());
        header.extend((name.len() as u16).to_le_bytes());
        header.extend([0, 0]);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&header);
        directory.extend([0; 10]);
        directory.extend((zip.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        zip.extend(b"PK\x03\x04");
        zip.extend(&header);
        zip.extend(name.as_bytes());
        zip.extend(*bytes);
    }
    let start = zip.len() as u32;
    zip.extend(&directory);
    zip.extend(b"PK\x05\x06\0\0\0\0");
    zip.extend((members.len() as u16).to_le_bytes());
    zip.extend((members.len() as u16).to_le_bytes());
    zip.extend((directory.len() as u32).to_le_bytes());
    zip.extend(start.to_le_bytes());
    zip.extend([0, 0]);
    zip
}

/// A folder for one test, removed at the end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("the folder can be made");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in the folder.
    pub(crate) fn with(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, bytes).expect("the file can be written");
        path
    }

    /// Returns the sorted names of the entries in the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("the folder can be read");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder left behind in the target folder does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a list that refers to one text of 4 kB `count` times.
pub(crate) fn texts(path: &Path, count: usize) {
    let mut pickle = b"\x80\x02](X".to_vec();
    pickle.extend(4096u32.to_le_bytes());
    pickle.extend([b'x'; 4096]);
    pickle.extend(b"q\0");
    pickle.extend(b"h\0".repeat(count - 1));
    pickle.extend(b"e.");
    let members: [(&str, &[u8]); 2] = [("a/data.pkl", &pickle), ("a/version", b"3\n")];
    std::fs::write(path, stored_zip(&members)).expect("it is written");
}

/// Returns a safetensors file with tensors of these names, dtypes, shapes and bytes.
pub(crate) fn safetensors(tensors: &[(&str, &str, &[u64], &[u8])]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for (name, dtype, shape, bytes) in tensors {
        let entry = serde_json::json!({
            "dtype": dtype, "shape": shape, "data_offsets": [at, at + bytes.len()],
        });
        header.insert((*name).to_owned(), entry);
        at += bytes.len();
    }
    let header = serde_json::Value::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    tensors.iter().for_each(|(.., bytes)| file.extend_from_slice(bytes));
    file
}

/// Writes a safetensors file with tensors of 32-bit floats.
pub(crate) fn write_floats<V: AsRef<[f32]>>(path: &Path, tensors: &[(&str, &[u64], V)]) {
    let bytes = tensors.iter().map(|(.., values)| {
        values.as_ref().iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
    });
    let bytes: Vec<Vec<u8>> = bytes.collect();
    let tensors = tensors.iter().zip(&bytes);
    let tensors: Vec<_> =
        tensors.map(|((key, shape, _), bytes)| (*key, "F32", *shape, &bytes[..])).collect();
    std::fs::write(path, safetensors(&tensors)).expect("it is written");
}
