//! Builds the site of the page without Trunk: cargo compiles the program, wasm-bindgen makes its
//! JavaScript, and the other files are copied as `index.html` describes.
//!
//! `cargo xtask` builds the page without Trunk (`xtask/src/site`): cargo compiles `web/app` for
//! wasm32, `xtask/bindgen` runs wasm-bindgen's library on it, and the files listed in `index.html`
//! are copied. `index.html` and `Trunk.toml` stay valid for Trunk; `cargo xtask test-page
//! --other-builds` builds the page with it.
//!
//! | build | for | cargo profile |
//! |---|---|---|
//! | fast | `serve`, the tests | `page`: incremental, no LTO, hot crates optimised |
//! | small | `dist`, `build`, `statelens.html` | `page-small`: fat LTO, optimised for size except hot crates; split in two; then wasm-opt, which also puts functions with similar names side by side: 4 % less after gzip |
//!
//! The small program is split (`xtask/bindgen/src/split.rs`): what plans and writes outputs,
//! compares, verifies, and reads rare formats is in a second Wasm file, which the worker loads when it first calls such
//! a function (`globalThis.loadRest` in `web/boot.js`). The service worker stores both files.
//!
//! Both use SIMD (`.cargo/config.toml`); a browser without it shows a message (`web/simd.js`).
//! `web/app` is a few lines compiled at `opt-level = 3`: with fat LTO, loops are vectorised only if
//! the last crate to be linked is optimised for speed. `cargo xtask test --all` counts the vector
//! instructions and checks the page's size (`xtask/src/dist.rs`: at most 2,400,000 bytes after
//! gzip).

mod description;
mod offline;

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest, Sha256};

pub(crate) use description::{Asset, Description};

use crate::built::{files_under, hex};
use crate::setup::{self, wasm};
use crate::{project, shell};

/// The purpose of a build of the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Quick to build and fast to run: for this machine.
    Fast,
    /// Small: for hosts on the Internet, and for the command that is shipped.
    Small,
}

impl Goal {
    /// Returns the folder of the built site. It is emptied by each build, so it must not be one of
    /// cargo's: those have the names of profiles.
    pub(crate) fn folder(self) -> PathBuf {
        match self {
            Self::Fast => project::site(),
            Self::Small => project::target().join("site-small"),
        }
    }

    fn stamp(self) -> PathBuf {
        project::target().join(match self {
            Self::Fast => "site.stamp",
            Self::Small => "site-small.stamp",
        })
    }
}

/// Builds the site unless it is up to date, and returns its folder.
pub(crate) fn build(goal: Goal) -> Result<PathBuf> {
    let (root, folder) = (project::root(), goal.folder());
    let description = Description::read(root)?;
    let program = compile(goal, &description)?;
    let inputs = fingerprint(&program, &description)?;
    let current = |folder: &Path| -> Result<String> {
        let built = fs::metadata(folder.join("index.html"))?.modified()?;
        Ok(format!("{inputs:x} {built:?}"))
    };
    let stamp = fs::read_to_string(goal.stamp()).ok();
    if stamp.is_some() && stamp == current(&folder).ok() {
        println!("The page in {} is up to date.", folder.display());
        return Ok(folder);
    }
    let bound = bind(goal, &program, &description)?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    assemble(&description, root, &bound, &folder)?;
    offline::list(&folder)?;
    fs::write(goal.stamp(), current(&folder)?).context("writing the stamp of the page")?;
    Ok(folder)
}

/// Builds the small site with Trunk from the same description, and returns its folder.
pub(crate) fn build_with_trunk() -> Result<PathBuf> {
    wasm::target()?;
    let tools = setup::tools::trunk()?;
    let old = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(tools.into_iter().chain(env::split_paths(&old)))
        .context("a folder of the tools has a name that PATH can't hold")?;
    // Trunk can work offline because all its tools are found; it would download missing ones.
    shell::run(shell::command("cargo").args(["fetch", "--locked", "--target", wasm::TARGET]))?;
    let folder = project::target().join("site-trunk");
    let mut trunk = shell::command(setup::tools::program("trunk"));
    trunk.env("PATH", path);
    // Trunk reads this variable as an option that requires `true` or `false`.
    trunk.env_remove("NO_COLOR");
    trunk.args(["build", "--release", "--offline", "--skip-version-check", "--dist"]);
    shell::run(trunk.arg(&folder))?;
    Ok(folder)
}

/// Compiles the program with cargo, which does nothing if it is up to date, and returns the Wasm
/// file.
fn compile(goal: Goal, description: &Description) -> Result<PathBuf> {
    let program = description.program()?;
    let profile = match goal {
        Goal::Fast => &program.fast,
        Goal::Small => &program.small,
    };
    wasm::target()?;
    let mut cargo = shell::command("cargo");
    cargo.args(["build", "--locked", "--target", wasm::TARGET, "--profile", profile]);
    shell::run(cargo.args(["--manifest-path", &program.manifest]))?;
    let folder = project::target().join(wasm::TARGET).join(profile);
    Ok(folder.join(format!("{}.wasm", name_of(&program.manifest)?)))
}

/// Modules whose functions the small page loads when it first calls one of them: what converts,
/// compares and verifies, and readers of rare formats. None is needed in the window.
const REST: [&str; 47] = [
    "postcard::",
    "statelens_compare::diff::Comparison",
    "statelens_compare::diff::attributes::",
    "statelens_compare::diff::common_type::",
    "statelens_compare::diff::document::",
    "statelens_compare::diff::lockstep::",
    "statelens_compare::diff::pairs::",
    "statelens_compare::diff::renames::",
    "statelens_compare::diff::structure::",
    "statelens_compare::folder::",
    "statelens_compare::verify::Verification::",
    "statelens_compare::verify::manifest::",
    "statelens_formats::archive::write::",
    "statelens_formats::cerebras::s3::",
    "statelens_formats::cerebras::write::",
    "statelens_formats::dcp::read::",
    "statelens_formats::deepspeed::read::",
    "statelens_formats::deepspeed::zero::",
    "statelens_formats::flax::read::",
    "statelens_formats::fsdp::read::",
    "statelens_formats::keras::read::",
    "statelens_formats::numpy::write::",
    "statelens_formats::safetensors::write::",
    "statelens_formats::tensorflow::read::",
    "statelens_formats::tensorflow::write::",
    "statelens_formats::torch::write::",
    "statelens_hdf5::write::",
    "statelens_recipes::config::convert::",
    "statelens_recipes::config::family::",
    "statelens_recipes::config::nested::",
    "statelens_recipes::config::operation::",
    "statelens_recipes::config::plan::",
    "statelens_recipes::config::releases::",
    "statelens_recipes::config::statement::",
    "statelens_recipes::conversion::",
    "statelens_recipes::engine::rules::",
    "statelens_recipes::expression::",
    "statelens_recipes::language::",
    "statelens_web::assist::",
    "statelens_web::compare::worker::",
    "statelens_web::convert::worker::",
    "statelens_web::export::worker::",
    "statelens_web::family::worker::plan::",
    "statelens_web::family::worker::rows::",
    "statelens_web::plan::worker::preview::",
    "statelens_web::plan::worker::summary::",
    "statelens_web::verify::worker::",
];

/// Returns the name of the package with that manifest.
fn name_of(manifest: &str) -> Result<String> {
    let text = fs::read_to_string(project::root().join(manifest))
        .with_context(|| format!("reading {manifest}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    line.map(str::to_owned).with_context(|| format!("{manifest} names no package"))
}

struct Bound {
    name: String,
    script: Vec<u8>,
    wasm: Vec<u8>,
    /// The part of the program that is loaded when needed, if it is split.
    rest: Option<Vec<u8>>,
}

/// Runs wasm-bindgen, and wasm-opt for the small site.
fn bind(goal: Goal, program: &Path, description: &Description) -> Result<Bound> {
    let folder = project::target().join("bindgen");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the previous output of wasm-bindgen")?;
    }
    let mut bindgen = shell::command(setup::tools::wasm_bindgen()?);
    bindgen.arg(program).arg(format!("--out-dir={}", folder.display()));
    shell::run(bindgen.args(["--target=web", "--no-typescript"]))?;
    let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (script, wasm) = (format!("{name}.js"), folder.join(format!("{name}_bg.wasm")));
    for file in files_under(&folder)? {
        let known = file == Path::new(&script) || wasm.ends_with(&file);
        ensure!(known, "wasm-bindgen wrote {}, which the site has no place for", file.display());
    }
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let text = String::from_utf8(read(&folder.join(&script))?).context("reading the script")?;
    if goal == Goal::Fast {
        return Ok(Bound { script: text.into(), wasm: read(&wasm)?, rest: None, name });
    }
    let parts = [folder.join("main.wasm"), folder.join("rest.wasm")];
    let mut split = shell::command(setup::tools::wasm_bindgen()?);
    shell::run(split.arg("split").arg(&wasm).args(&parts).args(REST))?;
    let mut optimized = Vec::new();
    for part in parts {
        let to = part.with_extension("optimized.wasm");
        let mut wasm_opt = shell::command(setup::tools::wasm_opt()?);
        wasm_opt.args(&description.program()?.wasm_opt);
        shell::run(wasm_opt.arg(&part).arg("-o").arg(&to))?;
        optimized.push(read(&to)?);
    }
    let rest = optimized.pop();
    let main = optimized.pop().context("the program was not split")?;
    Ok(Bound { script: with_rest(&text)?.into(), wasm: main, rest, name })
}

/// Adds the function that loads the rest of the program to what its script passes to the Wasm.
fn with_rest(script: &str) -> Result<String> {
    let (before, after) = (
        "= __wbg_get_imports();",
        "= { ...__wbg_get_imports(), rest: { load: () => globalThis.loadRest(wasm) } };",
    );
    ensure!(script.contains(before), "the script of wasm-bindgen has no {before}");
    Ok(script.replace(before, after))
}

/// Writes the site into `folder`, with files from `root`.
fn assemble(description: &Description, root: &Path, bound: &Bound, folder: &Path) -> Result<()> {
    let base = &description.public_url;
    let put = |name: &str, bytes: &[u8]| -> Result<()> {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))
    };
    let read = |file: &str| fs::read(root.join(file)).with_context(|| format!("reading {file}"));
    let page = description.page(|asset| {
        Ok(match asset {
            Asset::Base => format!("<base href=\"{base}\">"),
            Asset::Linked { rel, kind, file } => {
                let bytes = read(file)?;
                let path = Path::new(file);
                let [stem, end] = [path.file_stem(), path.extension()]
                    .map(|part| part.unwrap_or_default().to_string_lossy());
                let name = hashed(&stem, &bytes, &format!(".{end}"));
                put(&name, &bytes)?;
                let kind = kind.iter().map(|kind| format!(" type=\"{kind}\"")).collect::<String>();
                format!("<link rel=\"{rel}\"{kind} href=\"{base}{name}\">")
            }
            Asset::File { file, folder } => {
                put(&Path::new(folder).join(last(file)?).to_string_lossy(), &read(file)?)?;
                String::new()
            }
            Asset::Folder(from) => {
                for file in files_under(&root.join(from))? {
                    let bytes = fs::read(root.join(from).join(&file))?;
                    put(&Path::new(last(from)?).join(&file).to_string_lossy(), &bytes)?;
                }
                String::new()
            }
            Asset::Program(_) => {
                let js = hashed(&bound.name, &bound.script, ".js");
                let wasm = hashed(&bound.name, &bound.wasm, "_bg.wasm");
                put(&js, &bound.script)?;
                put(&wasm, &bound.wasm)?;
                let script = description.script.replace("{base}", base);
                let mut script = script.replace("{js}", &js).replace("{wasm}", &wasm);
                if let Some(rest) = &bound.rest {
                    let name = hashed(&bound.name, rest, REST_END);
                    put(&name, rest)?;
                    script = script.replace(" data-js=", &format!(" data-rest=\"{base}{name}\" data-js="));
                }
                format!(
                    "<link rel=\"modulepreload\" href=\"{base}{js}\">\n    \
                     <link rel=\"preload\" href=\"{base}{wasm}\" as=\"fetch\" type=\"application/wasm\" crossorigin>\n    \
                     {script}"
                )
            }
        })
    })?;
    put("index.html", page.as_bytes())
}

/// The end of the name of the Wasm that is loaded when needed.
pub(crate) const REST_END: &str = "_rest.wasm";

/// Returns a file name that changes with the content: `STEM-HASH` and an ending.
fn hashed(stem: &str, bytes: &[u8], end: &str) -> String {
    format!("{stem}-{}{end}", hex(&Sha256::digest(bytes)[..8]))
}

fn last(path: &str) -> Result<&str> {
    match path.rsplit('/').next() {
        Some(name) if !name.is_empty() => Ok(name),
        _ => bail!("index.html: {path} has no file name"),
    }
}

/// Returns a number that changes with any input of a site: the compiled program, the description,
/// the copied files, and this program.
fn fingerprint(program: &Path, description: &Description) -> Result<u64> {
    let root = project::root();
    let mut files = vec![program.to_owned(), root.join("index.html"), root.join("Trunk.toml")];
    files.push(env::current_exe().context("finding the running program")?);
    for asset in description.assets() {
        match asset {
            Asset::Linked { file, .. } | Asset::File { file, .. } => files.push(root.join(file)),
            Asset::Folder(folder) => {
                let folder = root.join(folder);
                files.extend(files_under(&folder)?.into_iter().map(|file| folder.join(file)));
            }
            Asset::Base | Asset::Program(_) => {}
        }
    }
    let mut hasher = DefaultHasher::new();
    for path in files {
        let about = fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?;
        (&path, about.len(), about.modified()?).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build would delete what cargo compiled into such a folder.
    #[test]
    fn sites_are_not_in_folders_of_cargo() {
        let manifest = fs::read_to_string(project::root().join("Cargo.toml")).unwrap();
        let profiles: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("[profile.")?.strip_suffix(']'))
            .collect();
        assert!(profiles.contains(&"page-small"));
        for goal in [Goal::Fast, Goal::Small] {
            let folder = goal.folder();
            assert!(profiles.iter().all(|name| folder != project::target().join(name)));
        }
    }

    #[test]
    fn site_contains_every_file_of_the_page() {
        let folder = env::temp_dir().join(format!("statelens-site-{}", std::process::id()));
        let description = Description::read(project::root()).unwrap();
        let bound = Bound {
            name: "program".into(),
            script: b"js".to_vec(),
            wasm: b"wasm".to_vec(),
            rest: Some(b"rest".to_vec()),
        };
        assemble(&description, project::root(), &bound, &folder).unwrap();
        offline::list(&folder).unwrap();
        let page = fs::read_to_string(folder.join("index.html")).unwrap();
        assert!(!page.contains("data-trunk") && !page.contains('{'), "{page}");
        let mut named = 0;
        for attribute in ["href=\"", "src=\"", "data-js=\"", "data-wasm=\"", "data-rest=\""] {
            for rest in page.split(attribute).skip(1) {
                let name = rest.split('"').next().unwrap();
                assert!(folder.join(name).exists(), "{name}");
                named += 1;
            }
        }
        assert!(named > 15, "{named} files are named");
        assert_eq!(fs::read(folder.join(hashed("program", b"wasm", "_bg.wasm"))).unwrap(), b"wasm");
        assert_eq!(fs::read(folder.join(hashed("program", b"rest", REST_END))).unwrap(), b"rest");
        for file in ["examples/gpt_small.mdl", "install/icon-192.png", "sw.js"] {
            assert!(folder.join(file).is_file(), "{file}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
