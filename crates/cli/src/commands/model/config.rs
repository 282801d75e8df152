//! `statelens convert-config`.

use std::fs;
use std::path::Path;

use serde::Serialize;
use statelens::PathText as _;
use statelens::parts::checkpoint::visible;
use statelens::parts::values::fields;
use statelens::{Error, ErrorKind, Result};
use statelens_recipes::Implementation;
use statelens_recipes::config::{Converted, Families, Language, StepConfig, Value, parse};

use super::files::{TextFile, read_config, read_text};
use super::siblings::name_text;
use crate::args::ConvertConfig;
use crate::print::{CommandResult, Printer, counted, warn};

pub(crate) fn run(args: &ConvertConfig) -> CommandResult {
    let families = Families::known()?;
    let conversion = ConfigConversion::of(args, families)?;
    let config = conversion.config(families, &args.config)?;
    let shown = args.config.to_text();
    let converted =
        families.convert(&conversion.model, conversion.source, conversion.target, &config);
    let mut converted = match converted.map_err(|error| error.in_file(shown)) {
        Ok(converted) => converted,
        // A config that can't be converted is a regular result; any other error is a failure.
        Err(error) if error.kind() == ErrorKind::Refused => {
            warn(&error.to_string());
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    let files = files(args, &conversion, &mut converted)?;
    write(&files, args)?;
    for note in &converted.notes {
        warn(note);
    }
    let mut printer = Printer::new();
    if args.json {
        printer.report(&fields(&conversion, &converted, &files))?;
    } else {
        if conversion.recognised {
            printer.line(&format!(
                "this is a config of {}, format {}",
                conversion.model, conversion.source
            ))?;
        }
        super::files::list(&files, &mut printer)?;
        report_dropped(&converted.dropped, args.debug, &mut printer)?;
    }
    printer.success()
}

/// A requested conversion.
struct ConfigConversion {
    model: String,
    source: Implementation,
    target: Implementation,
    recognised: bool,
}

impl ConfigConversion {
    fn of(args: &ConvertConfig, families: &Families) -> Result<Self> {
        let target: Implementation = args.tgt_fmt.parse()?;
        // `cs-auto` means the same as no name.
        let named = args.src_fmt.as_deref().filter(|text| *text != "cs-auto");
        let named = named.map(str::parse::<Implementation>).transpose()?;
        if let (Some(model), Some(source)) = (&args.model, named) {
            return Ok(Self { model: model.clone(), source, target, recognised: false });
        }
        let unknown = |why: &str| {
            Error::refused(format!(
                "the model and format of this config could not be \
                                    recognised{why}"
            ))
            .in_file(args.config.to_text())
            .advice(
                "Specify them with --model and --src-fmt; `statelens list-converters` has the \
                     names.",
            )
        };
        if args.config.is_dir() {
            return Err(unknown(": it is a folder of parts"));
        }
        let guesses = families.recognise(&read(&args.config, named)?);
        let fits = guesses.into_iter().find(|guess| {
            args.model.as_ref().is_none_or(|model| *model == guess.model)
                && named.is_none_or(|source| source == guess.format)
        });
        // If the user names a model, it is trusted; only its format is detected.
        let guess = match (fits, &args.model) {
            (Some(guess), _) => guess,
            (None, Some(model)) => {
                let hf = Language::of_name(&args.config.to_text()) == Some(Language::Json);
                if !hf {
                    return Err(unknown(""));
                }
                return Ok(Self {
                    model: model.clone(),
                    source: Implementation::HuggingFace,
                    target,
                    recognised: true,
                });
            }
            (None, None) => return Err(unknown("")),
        };
        Ok(Self { model: guess.model, source: guess.format, target, recognised: true })
    }

    fn config(&self, families: &Families, path: &Path) -> Result<Value> {
        let parts = if self.source.is_hf() {
            families.parts(&self.model).unwrap_or_default()
        } else {
            Vec::new()
        };
        match parts.is_empty() {
            true => read(path, Some(self.source)),
            false => read_config(path, &parts),
        }
    }
}

/// Reads a config in the language of its extension, or else that of its format.
fn read(path: &Path, format: Option<Implementation>) -> Result<Value> {
    let name = path.to_text();
    let text = read_text(path)?;
    let usual =
        if format == Some(Implementation::HuggingFace) { Language::Json } else { Language::Yaml };
    let language = Language::of_name(&name).unwrap_or(usual);
    parse(&text, language).map_err(|error| error.in_file(name))
}

/// Returns the files to write, with the names that the original tool gives them.
fn files(
    args: &ConvertConfig,
    requested: &ConfigConversion,
    converted: &mut Converted,
) -> Result<Vec<TextFile>> {
    let folder = match &args.output_dir {
        Some(folder) => folder.clone(),
        None => args.config.parent().map(Path::to_owned).unwrap_or_default(),
    };
    converted.locate(&folder.to_text());
    let name = match converted.parts.is_empty() {
        true => format!("{}.{}", name(&args.config, requested)?, converted.language.extension()),
        // Unused: each part has a folder.
        false => String::new(),
    };
    Ok(super::files::of(converted, &folder, &name))
}

/// Returns `NAME_to_FORMAT`; a folder of parts becomes `config_to_FORMAT`.
fn name(config: &Path, requested: &ConfigConversion) -> Result<String> {
    let stem = if config.is_dir() { config.file_name() } else { config.file_stem() };
    let name = format!("{}_to_{}", name_text(stem, config)?, requested.target);
    if !config.is_dir() {
        return Ok(name);
    }
    // `config` replaces everything before the first underscore.
    Ok(name.split_once('_').map_or(name.clone(), |(_, rest)| format!("config_{rest}")))
}

fn write(files: &[TextFile], args: &ConvertConfig) -> Result<()> {
    let sources = fs::canonicalize(&args.config).ok();
    for (path, _) in files {
        if sources.is_some() && fs::canonicalize(path).ok() == sources {
            return Err(Error::refused("this is the config being read")
                .in_file(path.to_text())
                .advice("Name another folder with --output-dir."));
        }
    }
    super::files::write(files, args.replacing)
}

fn report_dropped(
    dropped: &[String],
    all: bool,
    printer: &mut Printer,
) -> Result<(), crate::print::Failure> {
    if dropped.is_empty() {
        return Ok(());
    }
    let keys = counted(dropped.len() as u64, "key");
    let have = if dropped.len() == 1 { "has" } else { "have" };
    if !all {
        return printer.line(&format!("{keys} {have} no place in the target (--debug lists them)"));
    }
    printer.line(&format!("{keys} {have} no place in the target:"))?;
    dropped.iter().try_for_each(|key| printer.line(&format!("  {}", visible(key))))
}

/// Returns the conversion as in JSON.
fn fields(
    requested: &ConfigConversion,
    converted: &Converted,
    files: &[TextFile],
) -> impl Serialize {
    let step = |step: &StepConfig| {
        let (from, to) = (step.step.source.to_string(), step.step.target.to_string());
        fields! { from: from, to: to, table: step.table.clone() }
    };
    fields! {
        model: &requested.model,
        from: requested.source.to_string(),
        to: requested.target.to_string(),
        recognised: requested.recognised,
        steps: converted.steps.iter().map(step).collect::<Vec<_>>(),
        files: files.iter().map(|(path, _)| path.to_string_lossy()).collect::<Vec<_>>(),
        dropped: &converted.dropped,
        notes: &converted.notes,
    }
}
