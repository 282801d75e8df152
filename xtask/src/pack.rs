//! The page's Wasm, divided in two and packed by xz.
//!
//! A host's gzip looks for what was there before in the last 32 kB only, and many a host packs nothing at
//! all. So the site holds its Wasm packed: a fifth smaller than by gzip, on every host. The page unpacks
//! it while it arrives (web/boot.js) with npm's `xz-decompress`, which lies beside it.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use lzma_rust2::{CheckType, XzOptions, XzWriter};
use sha2::{Digest, Sha384};

use crate::built::{base64, built};
use crate::project;
use crate::setup::tools;
use crate::split::{FunctionNames, split, vector_sums};

/// What Trunk's name of the Wasm ends in.
pub(crate) const END: &str = "_bg.wasm";

/// The folder of the program without vectors.
pub(crate) const PLAIN: &str = "plain";

/// What the name of the part ends in that is fetched when the page has started.
pub(crate) const LATER: &str = "_later.wasm.xz";

/// So many sums and products of vectors the page's Wasm has at least. It has 156; none are left when the program that is
/// linked is not optimised for speed (ARCHITECTURE.md, "With vectors").
const VECTOR_SUMS: usize = 100;

/// The script that unpacks it, as npm's package calls it and as the site does.
const UNPACKER: &str = "xz-decompress.min.js";

/// Divides and packs the Wasm of the site that Trunk built, and has its page unpack it.
pub(crate) fn run(site: &Path) -> Result<()> {
    let plain = built(site, "statelens-app", END)?;
    let bytes = fs::read(&plain).with_context(|| format!("reading {}", plain.display()))?;
    // index.html has wasm-opt write it.
    let names = project::root().join("target").join("page.names");
    let names = fs::read_to_string(&names).context("reading the names of the Wasm's functions")?;
    let sums = vector_sums(&bytes)?;
    println!("{sums:>9} sums and products of two floats at once (at least {VECTOR_SUMS})");
    ensure!(sums >= VECTOR_SUMS, "the loops over weights are no longer compiled to vectors");
    let parts = split(&bytes, &FunctionNames::parse(&names)?)?;
    let packed = xz(&parts.first)?;
    let name = name(&plain);
    let later = format!("{}{LATER}", name.trim_end_matches(END));
    fs::write(site.join(&later), xz(&parts.later)?).with_context(|| format!("writing {later}"))?;
    let unpacker = tools::xz_decompress()?;
    let index = site.join("index.html");
    let page = fs::read_to_string(&index).context("reading index.html")?;
    let page = rewritten(&page, &name, &later, &bytes, &packed)?;
    let to = plain.with_extension("wasm.xz");
    fs::write(&to, &packed).with_context(|| format!("writing {}", to.display()))?;
    fs::copy(&unpacker, site.join(UNPACKER)).context("copying the script that unpacks")?;
    fs::write(&index, page).context("writing index.html")?;
    fs::remove_file(&plain).context("removing the Wasm that is not packed")
}

/// Puts the program without vectors that Trunk built into another site, `plain`, beside that of a packed site, whole and
/// packed, for browsers that have none (web/boot.js).
pub(crate) fn add_plain(site: &Path, plain: &Path) -> Result<()> {
    let folder = site.join(PLAIN);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let script = built(plain, "statelens-app", ".js")?;
    fs::copy(&script, folder.join(name(&script))).context("copying the script without vectors")?;
    let wasm = built(plain, "statelens-app", END)?;
    let packed = format!("{}.xz", name(&wasm));
    let bytes = fs::read(&wasm).with_context(|| format!("reading {}", wasm.display()))?;
    fs::write(folder.join(&packed), xz(&bytes)?).with_context(|| format!("writing {packed}"))?;
    let index = site.join("index.html");
    let page = fs::read_to_string(&index).context("reading index.html")?;
    let tag = "<script data-later=";
    ensure!(page.matches(tag).count() == 1, "the packed page has not one tag {tag}");
    let script = name(&script);
    let with = format!(
        "<script data-plain-js=./{PLAIN}/{script} data-plain-wasm=./{PLAIN}/{packed} data-later="
    );
    fs::write(&index, page.replace(tag, &with)).context("writing index.html")
}

/// The page with the packed Wasm in place of the other, what is fetched later, and the script that unpacks both.
fn rewritten(page: &str, name: &str, later: &str, bytes: &[u8], packed: &[u8]) -> Result<String> {
    let tag = "<script data-js=";
    let preloaded = " type=application/wasm";
    for part in [tag, preloaded, &integrity(bytes)] {
        let found = page.matches(part).count();
        ensure!(found == 1, "the page that Trunk built has {found} times: {part}");
    }
    Ok(page
        .replace(name, &format!("{name}.xz"))
        .replace(&integrity(bytes), &integrity(packed))
        .replace(preloaded, "")
        .replace(
            tag,
            &format!("<script defer src={UNPACKER}></script><script data-later=./{later} data-js="),
        ))
}

/// Packs at the highest level. The parameters are for Wasm: its bytes have no alignment, and each
/// says much about the next.
fn xz(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut options = XzOptions::with_preset(9);
    options.set_check_sum_type(CheckType::Crc32);
    options.lzma_options.dict_size = 8 << 20;
    options.lzma_options.lc = 4;
    options.lzma_options.pb = 0;
    options.lzma_options.nice_len = 273;
    options.lzma_options.depth_limit = 1000;
    let mut writer = XzWriter::new(Vec::new(), options)?;
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

/// The hash of a file as Trunk writes it into the page.
fn integrity(bytes: &[u8]) -> String {
    format!("integrity=sha384-{}", base64(&Sha384::digest(bytes)))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use lzma_rust2::XzReader;

    use std::io::Read;

    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let bytes: Vec<u8> =
            (0..100_000_u32).map(|at| (((at % 911) * (at % 911)) >> 7) as u8).collect();
        let packed = xz(&bytes).unwrap();
        assert!(packed.len() < bytes.len());
        let mut back = Vec::new();
        XzReader::new(packed.as_slice(), false).read_to_end(&mut back).unwrap();
        assert_eq!(back, bytes);
    }

    #[test]
    fn the_page_names_the_packed_file_and_its_hash() {
        let page = format!(
            "<script data-js=./a.js data-wasm=./a_bg.wasm src=./boot.js></script>\
             <link href=./a_bg.wasm {} rel=preload type=application/wasm>",
            integrity(b"plain")
        );
        let made = rewritten(&page, "a_bg.wasm", "a_later.wasm.xz", b"plain", b"packed").unwrap();
        assert_eq!(made.matches("a_bg.wasm.xz").count(), 2);
        assert!(made.contains(&integrity(b"packed")) && !made.contains("type=application/wasm"));
        assert!(
            made.starts_with("<script defer src=xz-decompress.min.js></script><script data-later=./a_later.wasm.xz data-js=./a.js ")
        );
        assert!(rewritten(&made, "a_bg.wasm", "a_later.wasm.xz", b"plain", b"packed").is_err());
    }
}
