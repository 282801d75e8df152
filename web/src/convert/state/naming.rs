//! Default names of written files.

use std::path::Path;

use statelens_formats::cerebras::rewrite::with_suffix;
use statelens_recipes::inference::stem;

use crate::convert::message::ConvertOptions;
use crate::convert::state::{extension, target};
use crate::open::message::OpenedCheckpoint;
use crate::repair::message::Rewrite;

/// Maximum number of states listed in a file name.
const MAX_NAMED: usize = 2;

/// Returns the default name of the output, which is never that of the source. For other tasks than
/// converting, it is the name that the corresponding command uses. For a subset of the states, it
/// is `{states}_{name}`, as trainers name such files.
pub fn default_name(opened: &OpenedCheckpoint, options: &ConvertOptions) -> String {
    let base = opened.name.rsplit('/').next().unwrap_or(&opened.name);
    let end = match &options.rewrite {
        Some(Rewrite::Upgrade { to }) => format!("_{to}"),
        Some(Rewrite::Fix { .. }) => "_fixed".to_owned(),
        Some(Rewrite::Dataloader { .. }) => "_dataloader".to_owned(),
        None if options.family.target.is_some() => return converted_model(base, options),
        None => {
            let extension = target(&options.to).map_or("", extension);
            return converted_name(base, extension, &options.states);
        }
    };
    with_suffix(Path::new(base), &end).to_string_lossy().into_owned()
}

/// Returns the name that the command uses for a model converted to another implementation.
fn converted_model(base: &str, options: &ConvertOptions) -> String {
    let target = options.family.target.as_deref().unwrap_or_default();
    match &*options.to {
        _ if !options.family.is_folder() => format!("{}_to_{target}.mdl", stem(base)),
        "safetensors" => "model.safetensors".to_owned(),
        _ => "pytorch_model.bin".to_owned(),
    }
}

fn converted_name(base: &str, extension: &str, states: &[String]) -> String {
    let stem = match base.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => base,
    };
    let name = format!("{stem}.{extension}");
    // As trainers name such files; a long list of states would not be useful in a name.
    match states {
        [] => {}
        few if few.len() <= MAX_NAMED => return format!("{}_{name}", few.join("_")),
        many => return format!("{stem}_{}_states.{extension}", many.len()),
    }
    if name == base { format!("{stem}-converted.{extension}") } else { name }
}

/// Returns the name of a file for several keys of a checkpoint.
pub fn keys_name(name: &str, count: usize, extension: &str) -> String {
    let base = name.rsplit('/').next().unwrap_or(name);
    let stem = base.rsplit_once('.').map_or(base, |(stem, _)| stem);
    format!("{stem}_{count}_keys.{extension}")
}

/// Returns the name of a file for one key.
pub fn key_name(key: &str, extension: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_alphanumeric() || matches!(c, '.' | '-' | '_') => c,
        _ => '_',
    };
    let name: String = key.chars().take(120).map(plain).collect();
    let name = name.trim_matches('.');
    format!("{}.{extension}", if name.is_empty() { "tensor" } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_from_keys_are_portable() {
        assert_eq!(key_name("model.h.0/w:1", "npy"), "model.h.0_w_1.npy");
        assert_eq!(key_name("..", "npy"), "tensor.npy");
    }

    #[test]
    fn states_precede_the_file_name() {
        let states = ["model".to_owned(), "optimizer".to_owned()];
        assert_eq!(converted_name("a_1.mdl", "mdl", &states[..1]), "model_a_1.mdl");
        assert_eq!(converted_name("a_1.mdl", "pt", &states), "model_optimizer_a_1.pt");
        let many = ["model", "optimizer", "args"].map(str::to_owned);
        assert_eq!(converted_name("a_1.mdl", "pt", &many), "a_1_3_states.pt");
        assert_eq!(converted_name("a_1.mdl", "pt", &[]), "a_1.pt");
        assert_eq!(converted_name("a_1.mdl", "mdl", &[]), "a_1-converted.mdl");
        assert_eq!(converted_name(".mdl", "pt", &[]), ".mdl.pt");
    }
}
