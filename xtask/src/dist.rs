//! Makes the static site as a folder, as a zip and as one file, for any static host.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use zip::{CompressionMethod, DateTime, ZipWriter, write::SimpleFileOptions};

use crate::built::{built, files_under, gzip};
use crate::site::{self, Goal, REST_END};
use crate::{project, setup, shell, single};

/// Maximum number of bytes that a browser downloads to show the page and open a checkpoint, with each
/// file compressed by gzip.
const BUDGET: u64 = 2_400_000;

/// Maximum size of the page in one file. Its Wasm is compressed by gzip, which browsers can
/// decompress, and encoded in base64.
const SINGLE_BUDGET: u64 = 4_800_000;

/// Minimum number of vector additions and multiplications in the page's Wasm, which has 62. None are
/// left if the crate that is linked last is not optimised for speed (`xtask/src/site/mod.rs`).
const VECTOR_SUMS: usize = 50;

/// Builds the small site and packs it.
pub(crate) fn run() -> Result<()> {
    let site = site::build(Goal::Small)?;
    let folder = project::target().join("dist").join("statelens");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the previous folder")?;
    }
    let files = files_under(&site)?;
    for file in &files {
        let to = folder.join(file);
        fs::create_dir_all(to.parent().unwrap_or(&folder))?;
        fs::copy(site.join(file), &to).with_context(|| format!("writing {}", to.display()))?;
    }
    let archive = folder.with_extension("zip");
    pack(&folder, &files, &archive)?;
    precompress(&folder, &files)?;
    println!(
        "\nFolder: {}, with .gz and .br files for hosts that serve them\nZip:    {} ({} bytes), without those",
        folder.display(),
        archive.display(),
        fs::metadata(&archive)?.len()
    );
    let single = single::build(&site)?;
    println!("File:   {}", single.display());
    weigh(&folder).map(drop)
}

/// Fails if the small page is over its budget, or has lost its vector instructions.
pub(crate) fn budget() -> Result<()> {
    let site = site::build(Goal::Small)?;
    let page = weigh(&site)?;
    let single = fs::metadata(single::build(&site)?)?.len();
    println!("{single:>9} bytes: statelens.html (budget {SINGLE_BUDGET})");
    let wasm = built(&site, "statelens-app", "_bg.wasm")?;
    let sums = vector_sums(&fs::read(&wasm).context("reading the Wasm")?);
    println!("{sums:>9} sums and products of two floats at once (at least {VECTOR_SUMS})");
    ensure!(page <= BUDGET, "the page weighs {page} bytes after gzip; {BUDGET} are allowed");
    ensure!(
        single <= SINGLE_BUDGET,
        "statelens.html has {single} bytes; {SINGLE_BUDGET} are allowed"
    );
    ensure!(sums >= VECTOR_SUMS, "the loops over weights are no longer compiled to vectors");
    Ok(())
}

/// Writes `FILE.gz` and `FILE.br` next to each file that they make smaller. The encoder is that of
/// Node.js, which testing and wasm-opt need anyway.
fn precompress(folder: &Path, files: &[PathBuf]) -> Result<()> {
    setup::tools::needs_node()?;
    let mut node = shell::command("node");
    node.arg(project::root().join("xtask/src/precompress.mjs")).arg(folder);
    shell::run(node.args(files))
}

/// Folders of the site that a browser does not download to run the page: examples, fetched when
/// opened; model families, each fetched when needed; and icons of the installed page.
const APART: [&str; 4] = ["examples", "families", "configs", "install"];

/// Prints what a browser downloads to run the page, file by file, and returns the sum in bytes. The
/// part of the program that is loaded when first needed is printed, but not in the sum.
pub(crate) fn weigh(site: &Path) -> Result<u64> {
    let mut total = 0;
    for file in files_under(site)? {
        let packed = file.extension().is_some_and(|end| end == "gz" || end == "br");
        if !packed && !APART.iter().any(|folder| file.starts_with(folder)) {
            let bytes = fs::read(site.join(&file))?;
            let weight = gzip(&bytes)?.len() as u64;
            let later = file.to_string_lossy().ends_with(REST_END);
            let note = if later { ", loaded when needed" } else { "" };
            println!("{weight:>9} bytes after gzip ({}): {}{note}", bytes.len(), file.display());
            if !later {
                total += weight;
            }
        }
    }
    println!("{total:>9} bytes after gzip (budget {BUDGET})");
    Ok(total)
}

/// Counts the instructions `f64x2.add` and `f64x2.mul` by their bytes. Other occurrences of these
/// bytes are rare: about one in eight million.
fn vector_sums(wasm: &[u8]) -> usize {
    wasm.windows(3).filter(|bytes| matches!(bytes, [0xfd, 0xf0 | 0xf2, 0x01])).count()
}

/// Packs files under a top folder `statelens/`. The output is reproducible: it contains no
/// timestamps.
pub(crate) fn pack(folder: &Path, files: &[PathBuf], archive: &Path) -> Result<()> {
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
    fn counts_vector_instructions() {
        // f64x2.mul, f64x2.add, f64x2.sub.
        assert_eq!(vector_sums(&[0xfd, 0xf2, 0x01, 0xfd, 0xf0, 0x01, 0xfd, 0xf1, 0x01]), 2);
    }

    #[test]
    fn archive_is_complete_and_reproducible() {
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
