//! The static site as a folder and as a zip, for any static host.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

use crate::{page, project};

/// What the page's Wasm, JavaScript and CSS may weigh together after gzip.
const BUDGET: u64 = 900_000;

/// Builds the site and packs it.
pub(crate) fn run() -> Result<()> {
    page::build()?;
    let folder = project::target().join("dist").join("statelens");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the previous folder")?;
    }
    let files = files_under(&project::site())?;
    for file in &files {
        let to = folder.join(file);
        fs::create_dir_all(to.parent().unwrap_or(&folder))?;
        fs::copy(project::site().join(file), &to)
            .with_context(|| format!("writing {}", to.display()))?;
    }
    let archive = folder.with_extension("zip");
    pack(&folder, &files, &archive)?;
    println!(
        "\nFolder: {}\nZip:    {} ({} bytes)",
        folder.display(),
        archive.display(),
        fs::metadata(&archive)?.len()
    );
    let weight = weight(&folder, &files)?;
    println!("Wasm, JavaScript and CSS after gzip: {weight} bytes (budget {BUDGET})");
    Ok(())
}

/// All files in a folder, as paths from it, sorted.
pub(crate) fn files_under(top: &Path) -> Result<Vec<PathBuf>> {
    let (mut folders, mut files) = (vec![top.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?
        {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path().strip_prefix(top)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Packs files under a top folder `statelens/`. The same files give the same bytes: no clock in it.
fn pack(folder: &Path, files: &[PathBuf], archive: &Path) -> Result<()> {
    let mut zip = ZipWriter::new(File::create(archive)?);
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    for file in files {
        let name: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
        zip.start_file(format!("statelens/{}", name.join("/")), options)?;
        io::copy(&mut File::open(folder.join(file))?, &mut zip)?;
    }
    zip.finish()?;
    Ok(())
}

/// What a browser downloads to run the page, as a host that compresses sends it.
pub(crate) fn weight(folder: &Path, files: &[PathBuf]) -> Result<u64> {
    let mut total = 0;
    for file in files {
        let counts =
            file.extension().is_some_and(|kind| kind == "wasm" || kind == "js" || kind == "css");
        if counts {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
            io::copy(&mut File::open(folder.join(file))?, &mut gzip)?;
            total += u64::try_from(gzip.finish()?.len())?;
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_archive_holds_every_file_and_is_reproducible() {
        let top = std::env::temp_dir().join(format!("statelens-dist-{}", std::process::id()));
        let site = top.join("site");
        fs::create_dir_all(site.join("examples")).unwrap();
        fs::write(site.join("index.html"), "page").unwrap();
        fs::write(site.join("examples/a.pt"), "weights").unwrap();
        let files = files_under(&site).unwrap();
        pack(&site, &files, &top.join("one.zip")).unwrap();
        pack(&site, &files, &top.join("two.zip")).unwrap();
        assert_eq!(fs::read(top.join("one.zip")).unwrap(), fs::read(top.join("two.zip")).unwrap());
        let mut zip = zip::ZipArchive::new(File::open(top.join("one.zip")).unwrap()).unwrap();
        assert_eq!(zip.len(), 2);
        let mut text = String::new();
        zip.by_name("statelens/examples/a.pt").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "weights");
        fs::remove_dir_all(top).unwrap();
    }
}
