//! The static site as a folder and as a zip, for any static host.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

use crate::built::{files_under, gzip};
use crate::{pack, page, project, single};

/// What a browser may have to download until the page answers, each file after gzip.
const BUDGET: u64 = 1_500_000;

/// What the page in one file may weigh: its Wasm is packed by gzip, which a browser unpacks itself, and
/// all is written in base64, so that it is about twice what the page and what it fetches later weigh.
const SINGLE_BUDGET: u64 = 3_700_000;

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
    let single = single::build(&page::whole())?;
    println!("File:   {}", single.display());
    weigh(&folder)?;
    Ok(())
}

/// Fails if the built page weighs more than it may.
pub(crate) fn budget() -> Result<()> {
    let page = weigh(&project::site())?;
    let single = fs::metadata(single::build(&page::whole())?)?.len();
    println!("{single:>9} bytes: statelens.html (budget {SINGLE_BUDGET})");
    ensure!(page <= BUDGET, "the page weighs {page} bytes after gzip; {BUDGET} are allowed");
    ensure!(
        single <= SINGLE_BUDGET,
        "statelens.html has {single} bytes; {SINGLE_BUDGET} are allowed"
    );
    Ok(())
}

/// Folders of the site that a browser doesn't download to run the page: the examples, which are
/// fetched when they are opened, the families of models, each when it is needed, the icons of the
/// installed page, and what a browser without vectors downloads in place of the rest.
const APART: [&str; 5] = ["examples", "families", "configs", "install", pack::PLAIN];

/// Prints what a browser downloads to run the page, file by file, and gives the sum of what it takes until
/// the page answers.
pub(crate) fn weigh(site: &Path) -> Result<u64> {
    let (mut total, mut later) = (0, 0);
    for file in files_under(site)? {
        if !APART.iter().any(|folder| file.starts_with(folder)) {
            let bytes = fs::read(site.join(&file))?;
            let weight = gzip(&bytes)?.len() as u64;
            println!("{weight:>9} bytes after gzip ({}): {}", bytes.len(), file.display());
            match file.to_string_lossy().ends_with(pack::LATER) {
                true => later += weight,
                false => total += weight,
            }
        }
    }
    println!("{total:>9} bytes after gzip until the page answers (budget {BUDGET})");
    println!("{later:>9} bytes after gzip that come later");
    Ok(total)
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
