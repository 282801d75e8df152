//! The parts of the convert sheet about the files to write.

use statelens_formats::{Choice, Writing};
use yew::prelude::*;

use crate::convert::page::edits::Lines;
use crate::convert::state::Conversion;
use crate::page::controls::{change, radios};
use crate::page::marks::check;
use crate::page::model::actor::Actor;

/// Id and name of the choice to distribute tensors by their names.
const BY_NAME: &str = "by name";
/// The choices of shards.
const SHARDS: [Choice; 5] = [
    Choice { id: "", name: "one file" },
    Choice { id: "2GB", name: "2 GB" },
    Choice { id: "5GB", name: "5 GB" },
    Choice { id: "10GB", name: "10 GB" },
    Choice { id: BY_NAME, name: BY_NAME },
];

/// Renders the choice of shards: a single file, files of a maximum size, or files by tensor names.
pub fn shards(actor: &Actor, convert: &Conversion, target: &Writing) -> Html {
    if !target.shards {
        return html! {};
    }
    let rules = &convert.options.shard;
    let chosen = match rules {
        Some(_) => Some(BY_NAME),
        None => convert.options.shard_size.as_deref(),
    };
    let onchange = actor.on(move |actor, rules: Vec<String>| {
        change(actor, move |convert| convert.options.shard = Some(rules));
    });
    html! {
        <div class="fs"><span class="lab">{ "Shards" }</span><div class="fields">
            { radios(actor, "Shards: files with at most this many bytes of tensors, or by names, and an index", &SHARDS, chosen,
                |convert, id| {
                    let named = id.as_deref() == Some(BY_NAME);
                    convert.options.shard = named.then(Vec::new);
                    convert.options.shard_size = id.filter(|_| !named);
                }) }
            if let Some(rules) = rules {
                <Lines label="Files" value={rules.clone()} {onchange}
                    placeholder="*.embed*=embeddings, one per line; the first that matches wins" />
                <p class="dim">{ "Tensors whose new keys match go into the file of that name; all others go into the file named below." }</p>
            }
        </div></div>
    }
}

/// Renders the options that only TensorFlow has: the object graph, and the state file that names
/// the latest checkpoint.
pub fn objects(actor: &Actor, convert: &Conversion, target: &Writing) -> Html {
    if !target.graphs {
        return html! {};
    }
    let line = |id: &'static str, on: bool, text: &'static str, turn: fn(&mut Conversion)| {
        check(id, on, text, actor.on(move |actor, _: Event| change(actor, turn)))
    };
    let options = &convert.options;
    html! {
        <div class="fs"><span class="lab">{ "Restoring" }</span><div>
            { line("object-graph", options.object_graph, "Object graph: names by object, as `tf.train.Checkpoint` restores them",
                |convert| convert.options.object_graph = !convert.options.object_graph) }
            { line("state-file", options.state_file, "State file: also writes `checkpoint`, which names the latest checkpoint of the folder",
                |convert| convert.options.state_file = !convert.options.state_file) }
        </div></div>
    }
}
