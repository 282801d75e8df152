//! Which functions can come later, by their names.

use std::collections::HashMap;

use anyhow::{Context as _, Result};

/// Where a worker hands on what takes the second part: what the page asks, and what a worker asks of its
/// helper.
const DOORS: [&str; 2] =
    ["statelens_web::worker::later::answer", "statelens_web::worker::helper::hear"];

/// What is only used behind those doors. A name has one of these in it, be it that of a type that a
/// function is made for.
const LATER: [&str; 32] = [
    "statelens_web::worker::later::",
    "statelens_web::worker::casts::",
    "statelens_web::worker::check::",
    "statelens_web::worker::command_line::",
    "statelens_web::worker::compare::",
    "statelens_web::worker::crew::",
    "statelens_web::worker::family::",
    "statelens_web::worker::helper::",
    "statelens_web::worker::looked::",
    "statelens_web::worker::looking::",
    "statelens_web::worker::planned::",
    "statelens_web::worker::planning::",
    "statelens_web::worker::preview::",
    "statelens_web::worker::ranked::",
    "statelens_web::worker::repair::",
    "statelens_web::worker::running::",
    "statelens_web::worker::singular::",
    "statelens_web::worker::sink::",
    "statelens_web::worker::taking::",
    "statelens_web::worker::verify::",
    "statelens_convert::",
    "statelens_recipes::",
    "statelens_inspect::check::",
    "statelens_inspect::compare::",
    "statelens_inspect::manifest::",
    "statelens_inspect::picture::",
    "statelens_inspect::verify::",
    "statelens_formats::plan::",
    "statelens_formats::shards::",
    "statelens_stats::singular::",
    "statelens_hdf5::write::",
    "saphyr_parser::",
];

/// What goes away when something else is opened, at any time.
const DROPS: &str = "core::ptr::drop_";

/// What is in the table and has fewer bytes than that stays: two that are alike are one function, which has the
/// name of either.
const SMALL: usize = 250;

/// The names of functions, by their numbers.
pub(crate) struct FunctionNames(HashMap<u32, String>);

impl FunctionNames {
    /// Reads what `wasm-opt --symbolmap` wrote: a line `NUMBER:NAME` for each function.
    pub(crate) fn parse(map: &str) -> Result<Self> {
        let line = |line: &str| {
            let (number, name) = line.split_once(':').context("a line of the names has no name")?;
            let number = number.parse().with_context(|| format!("names: {number}"))?;
            Ok((number, plain(name)))
        };
        Ok(Self(map.lines().map(line).collect::<Result<_>>()?))
    }

    /// Whether a function can be called before the second part is there: who does sees to it that it is.
    pub(super) fn is_door(&self, function: u32) -> bool {
        // Older names end in a hash; what is made in it is another function.
        let name = self.get(function);
        let mut rests = DOORS.iter().filter_map(|door| name.strip_prefix(door));
        rests.any(|rest| rest.is_empty() || rest.starts_with("::h"))
    }

    /// Whether a function of so many bytes that is in the table is of no use in the first part.
    pub(super) fn is_later(&self, function: u32, bytes: usize) -> bool {
        let name = self.get(function);
        let writes = name.contains("statelens_formats::") && name.contains("::write::");
        let is_later = writes || LATER.iter().any(|part| name.contains(part));
        bytes >= SMALL && !name.starts_with(DROPS) && is_later
    }

    fn get(&self, function: u32) -> &str {
        self.0.get(&function).map_or("", String::as_str)
    }
}

/// A name without its escapes (`\20`) and without what tells crates of one name apart (`[1f2e…]`).
fn plain(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(['\\', '[']) {
        out.push_str(&rest[..at]);
        let (sign, tail) = rest[at..].split_at(1);
        let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        rest = tail;
        if sign == "\\" {
            let byte = tail.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            match byte {
                Some(byte) => {
                    out.push(byte as char);
                    rest = &tail[2..];
                }
                None => out.push('\\'),
            }
        } else {
            match tail.split_once(']') {
                Some((hash, after)) if hash.len() > 8 && is_hex(hash) => rest = after,
                _ => out.push('['),
            }
        }
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_without_escapes_and_hashes() {
        let map = "0:<a[0f0f0f0f0f0f]::B\\20as\\20c::D>::e\n7:core::slice::<impl [u8; 4]>::f\n";
        let names = FunctionNames::parse(map).unwrap();
        assert_eq!(names.get(0), "<a::B as c::D>::e");
        assert_eq!(names.get(7), "core::slice::<impl [u8; 4]>::f");
        assert_eq!(names.get(1), "");
        assert!(FunctionNames::parse("a:b").is_err() && FunctionNames::parse("nothing").is_err());
    }

    #[test]
    fn brackets_may_come_escaped() {
        assert_eq!(plain("a\\5b0f0f0f0f0f0f\\5d::b"), "a[0f0f0f0f0f0f]::b");
    }

    #[test]
    fn only_what_is_large_and_of_no_use_before_comes_later() {
        let [door, other] = DOORS;
        let map = format!(
            "0:{door}\n1:{door}::{{closure#0}}\n2:core::ptr::drop_in_place::<statelens_convert::A>\n3:std::b\n4:{other}::h0123"
        );
        let names = FunctionNames::parse(&map).unwrap();
        let doors: Vec<u32> = (0..5).filter(|at| names.is_door(*at)).collect();
        assert_eq!(doors, [0, 4]);
        let later: Vec<u32> = (0..5).filter(|at| names.is_later(*at, SMALL)).collect();
        assert_eq!(later, [0, 1, 4]);
        assert!(!names.is_later(1, SMALL - 1));
    }
}
