//! A summary as JSON; its schema is in `docs/summary.md`.

use statelens_values::Json;

use super::{FoldedLine, Outline, lines, structure_fingerprint};
use crate::Count;

/// The version of the schema, incremented when a field is removed or changes its meaning.
const VERSION: u64 = 1;

/// Returns the summary as JSON, with one key per line.
pub fn write_json(outline: &Outline) -> String {
    let totals = outline.totals();
    let mut json = Json::new();
    json.open('{');
    json.name("statelens_summary").number(VERSION);
    json.name("name").str(&outline.name);
    json.name("format").object(|json| {
        json.name("name").str(&outline.format_id);
        json.name("title").str(&outline.format);
        json.name("version").str(&outline.version);
        json.name("producer").str(&outline.producer);
    });
    json.name("size").number(outline.size);
    json.name("fingerprints").object(|json| {
        json.name("structure").value(&structure_fingerprint(&outline.entries));
        json.name("content").value(&outline.content);
    });
    json.name("totals").object(|json| {
        json.name("leaves").number(totals.leaves);
        json.name("links").number(totals.links);
        count(json, &totals.all);
        json.name("model_parameters").number(outline.parameters().model);
    });
    json.name("dtypes").objects(&totals.by_dtype, |json, (name, tensors)| {
        json.name("dtype").str(name);
        count(json, tensors);
    });
    json.name("states").objects(&totals.by_state, |json, (name, state)| {
        json.name("state").str(name);
        json.name("leaves").number(state.leaves);
        count(json, &state.tensors);
    });
    json.name("findings").value(&outline.findings);
    json.name("keys").open('[');
    for entry in &outline.entries {
        json.line();
        json.object(|json| {
            json.name("key").str(&entry.key);
            json.name("kind").str(entry.kind);
            if entry.is_tensor() {
                json.name("dtype").str(&entry.dtype);
                json.name("shape").numbers(&entry.shape);
                json.name("elements").number(entry.params);
                json.name("bytes").number(entry.bytes);
            }
            if !entry.value.is_empty() {
                json.name("value").str(&entry.value);
            }
            if let Some(target) = &entry.link {
                json.name("link").str(target);
            }
            if let Some(statistics) = &entry.statistics {
                json.name("statistics").value(statistics);
            }
        });
    }
    json.newline();
    json.close(']');
    json.name("folded").open('[');
    lines(outline).iter().for_each(|line| folded(&mut json, line));
    json.newline();
    json.close(']');
    json.close('}');
    json.newline();
    json.take()
}

/// Writes the folded keys of repeated layers once.
fn folded(json: &mut Json, line: &FoldedLine) {
    let entry = &line.entry;
    json.line();
    json.object(|json| {
        json.name("key").str(&entry.key);
        json.name("times").number(line.times);
        json.name("kind").str(entry.kind);
        if entry.is_tensor() {
            json.name("dtype").str(&entry.dtype);
            json.name("shape");
            match line.one_shape {
                true => json.numbers(&entry.shape),
                false => json.null(),
            }
            json.name("bytes").number(line.bytes);
        }
    });
}

fn count(json: &mut Json, count: &Count) {
    json.name("tensors").number(count.tensors);
    json.name("elements").number(count.elements);
    json.name("bytes").number(count.bytes);
}
