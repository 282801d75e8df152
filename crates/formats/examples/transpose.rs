//! Writes the first matrix of a checkpoint transposed, as raw bytes: `transpose IN OUT`. `cargo
//! xtask bench` uses it to measure the cost of views over a span, over chunks and over a deflated
//! stream.

use std::env;
use std::error::Error as StdError;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use statelens_checkpoint::{
    Area, Concat, Error, FileSet, Layout, Limits, Part, ReadAt, Result, Scratch, Strided, Tensor,
    Unwatched,
};

fn main() -> std::result::Result<(), Box<dyn StdError>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [input, output] = arguments.as_slice() else { return Err("transpose IN OUT".into()) };
    let name = Path::new(input).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = Path::new(output).parent().unwrap_or(Path::new(".")).to_owned();
    let source = OnDisk::new(File::open(input)?)?;
    let files = FileSet::single(name, source).with_scratch(Arc::new(ScratchFolder(folder)));
    let checkpoint = statelens_formats::open(files, &Limits::default(), &mut Unwatched)?;
    let tensor = checkpoint.tensors().iter().find(|tensor| tensor.shape.len() == 2);
    let tensor = transposed(tensor.ok_or("no matrix in there")?);
    let mut out = File::create(output)?;
    let mut write =
        |bytes: &[u8]| out.write_all(bytes).map_err(|error| Error::io(error.to_string()));
    let buffer = statelens_tensor::BUFFER;
    statelens_tensor::drain(&checkpoint.files, &tensor, buffer, &mut Unwatched, &mut write)?;
    Ok(())
}

/// Returns the transpose of a matrix.
fn transposed(tensor: &Tensor) -> Tensor {
    let [rows, columns] = [tensor.shape[0], tensor.shape[1]];
    let storage = match &tensor.layout {
        layout @ (Layout::Span(_) | Layout::Packed(_)) => layout.clone(),
        layout => {
            let part = Part { shape: tensor.shape.clone(), layout: layout.clone() };
            Layout::Concat(Concat { axis: 0, parts: vec![part] })
        }
    };
    let layout = Layout::Strided(Strided {
        storage: Arc::new(storage),
        storage_len: tensor.nbytes().unwrap_or(0),
        offset: 0,
        strides: vec![1, columns as i64],
    });
    Tensor { shape: vec![columns, rows], layout, ..tensor.clone() }
}

/// A file with one reader at a time.
#[derive(Debug)]
struct OnDisk(Mutex<File>, u64);

impl OnDisk {
    fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self(Mutex::new(file), len))
    }

    fn at(&self, offset: u64, act: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let done = file.seek(SeekFrom::Start(offset)).and_then(|_| act(&mut file));
        done.map_err(|error| Error::io(error.to_string()))
    }
}

impl ReadAt for OnDisk {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.at(offset, |file| file.read_exact(buffer))
    }
}

impl Area for OnDisk {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.at(offset, |file| file.write_all(bytes))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        ReadAt::read_at(self, offset, buffer)
    }
}

/// Unlimited scratch space in a folder.
#[derive(Debug)]
struct ScratchFolder(PathBuf);

impl Scratch for ScratchFolder {
    fn area(&self, _: u64) -> Result<Arc<dyn Area>> {
        let made = tempfile::tempfile_in(&self.0).and_then(OnDisk::new);
        Ok(Arc::new(made.map_err(|error| Error::io(error.to_string()))?))
    }
}
