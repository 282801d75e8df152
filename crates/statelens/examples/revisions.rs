//! Compares two revisions of a model on a server, fetching only the bytes that this needs: `cargo
//! run --example revisions -- https://huggingface.co/o/m/resolve/{}/model.safetensors main v2`.
#![allow(clippy::print_stdout, reason = "a program prints")]

use statelens::{Opener, diff};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, old, new] = &args[..] else {
        return Err("name an address with {} for the revision, and two revisions".into());
    };
    let open = |revision: &str| {
        Opener::new().fetch_at_most(20_000_000_000).open_url(&address.replace("{}", revision))
    };
    let (old, new) = (open(old)?, open(new)?);
    let diff = diff(&old, &new)?;
    for difference in &diff.differences {
        println!("{}: {}", difference.key.to_lossy(), difference.text());
    }
    println!("{} of {} keys differ", diff.differences.len(), diff.keys);
    Ok(())
}
