//! How a link packs leaves: runs that differ in their numbers only, like layers, are told once. What
//! people are shown folds by [`crate::fold`]; this keeps the order, so that nothing is lost.
//!
//! A leaf is a pattern (its key, dtype, shape, … with holes where numbers stand) and the numbers.
//! Leaves of equal patterns that follow each other with the same period and whose numbers grow by
//! the same steps are a run; runs fold again. Nothing is lost, neither names nor order.

use std::collections::HashMap;

use statelens_checkpoint::{DType, Error, Result};

use super::LeafSummary;
use super::bytes::{Unpacker, put, put_bytes, put_signed};
use super::entry::is_tensor;

/// Where a number stood in a text: a byte that UTF-8 has no use for.
const HOLE: u8 = 0xff;
/// The longest periods that are looked for, one time after the other: short ones first, so that
/// the experts of a layer are a run before the layers are; and how often one must be repeated.
const PASSES: [(usize, u64); 5] = [(4, 6), (16, 6), (64, 3), (1_024, 3), (1_024, 3)];
/// How many periods are tried at a place.
const TRIES: usize = 6;
/// Runs in runs in runs: experts in layers in towers. More is none of ours.
const DEPTH: usize = 6;
/// Leaves that a folded outline may unfold to.
const MOST_LEAVES: u64 = 200_000;
/// Bytes of text that it may unfold to.
const MOST_TEXT: usize = 32 << 20;

/// What a leaf is beside its numbers.
#[derive(Debug, Clone, PartialEq)]
struct LeafPattern {
    key: Vec<u8>,
    kind: &'static str,
    dtype: String,
    shape: Vec<u64>,
    /// Values and bytes, where dtype and shape do not tell.
    sizes: Option<(u64, u64)>,
    value: Vec<u8>,
    link: Option<Vec<u8>>,
    /// How many numbers its texts have holes for.
    holes: usize,
}

/// Kinds by number. Only ever added to: links hold the numbers.
const KINDS: [&str; 16] = [
    "tensor", "ndarray", "sparse", "int", "float", "bool", "str", "none", "complex", "bytes",
    "object", "dict", "list", "tuple", "set", "link",
];

/// Entries, folded.
#[derive(Debug, Default)]
pub(super) struct FoldedLeaves {
    patterns: Vec<LeafPattern>,
    nodes: Vec<FoldedNode>,
    /// The numbers of the first member of everything, in order.
    numbers: Vec<u64>,
}

#[derive(Debug, PartialEq)]
enum FoldedNode {
    Leaf(usize),
    Run { count: u64, body: Vec<FoldedNode>, steps: Vec<i64> },
}

impl FoldedLeaves {
    pub(super) fn new(entries: &[LeafSummary]) -> Self {
        let mut ids = HashMap::new();
        let mut patterns = Vec::new();
        let mut nodes = Vec::with_capacity(entries.len());
        for entry in entries {
            let (pattern, numbers) = LeafPattern::of(entry);
            let mut code = Vec::new();
            pattern.write(&mut code);
            let next = patterns.len();
            let id = *ids.entry(code).or_insert(next);
            if id == next {
                patterns.push(pattern);
            }
            let mut code = Vec::new();
            put(&mut code, (id as u64) << 1);
            nodes.push(Coded { code, numbers });
        }
        for (period, least) in PASSES {
            nodes = fold(nodes, period, least);
        }
        let mut folded = Self { patterns, ..Self::default() };
        for node in nodes {
            // What was just written can be read.
            if let Ok(parsed) = folded.node(&mut Unpacker::new(&node.code), DEPTH) {
                folded.nodes.push(parsed);
                folded.numbers.extend(node.numbers);
            }
        }
        folded
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put(out, self.patterns.len() as u64);
        self.patterns.iter().for_each(|pattern| pattern.write(out));
        put(out, self.nodes.len() as u64);
        self.nodes.iter().for_each(|node| node.write(out));
        self.numbers.iter().for_each(|number| put(out, *number));
    }

    pub(super) fn read(from: &mut Unpacker<'_>) -> Result<Self> {
        let mut folded = Self::default();
        for _ in 0..from.count()? {
            folded.patterns.push(LeafPattern::read(from)?);
        }
        for _ in 0..from.count()? {
            let node = folded.node(from, DEPTH)?;
            folded.nodes.push(node);
        }
        let arity = folded.nodes.iter().fold(0usize, |sum, node| sum + folded.arity(node));
        for _ in 0..arity {
            folded.numbers.push(from.number()?);
        }
        Ok(folded)
    }

    /// The leaves again.
    pub(super) fn entries(&self) -> Result<Vec<LeafSummary>> {
        let mut made = FoldedList::default();
        let mut rest = self.numbers.as_slice();
        for node in &self.nodes {
            let (numbers, tail) = rest.split_at_checked(self.arity(node)).ok_or_else(damaged)?;
            rest = tail;
            self.unfold(node, numbers, &mut made)?;
        }
        Ok(made.entries)
    }

    fn unfold(&self, node: &FoldedNode, numbers: &[u64], list: &mut FoldedList) -> Result<()> {
        match node {
            FoldedNode::Leaf(pattern) => {
                let pattern = self.patterns.get(*pattern).ok_or_else(damaged)?;
                list.push(pattern.entry(numbers.iter().map(u64::to_string)))
            }
            FoldedNode::Run { count, body, steps } => {
                let mut numbers = numbers.to_vec();
                for at in 0..*count {
                    if at > 0 {
                        for (number, step) in numbers.iter_mut().zip(steps) {
                            *number = number.checked_add_signed(*step).ok_or_else(damaged)?;
                        }
                    }
                    let mut rest = numbers.as_slice();
                    for node in body {
                        let (own, tail) =
                            rest.split_at_checked(self.arity(node)).ok_or_else(damaged)?;
                        rest = tail;
                        self.unfold(node, own, list)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// How many numbers a node takes.
    fn arity(&self, node: &FoldedNode) -> usize {
        match node {
            FoldedNode::Leaf(pattern) => {
                self.patterns.get(*pattern).map_or(0, |pattern| pattern.holes)
            }
            FoldedNode::Run { steps, .. } => steps.len(),
        }
    }

    fn node(&self, from: &mut Unpacker<'_>, depth: usize) -> Result<FoldedNode> {
        let head = from.number()?;
        if head & 1 == 0 {
            let pattern = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            if pattern >= self.patterns.len() {
                return Err(damaged());
            }
            return Ok(FoldedNode::Leaf(pattern));
        }
        let below = depth.checked_sub(1).ok_or_else(damaged)?;
        let (count, length) = (head >> 1, from.count()?);
        // A run of nothing would take no room and all the time.
        if length == 0 || count == 0 {
            return Err(damaged());
        }
        let mut body = Vec::new();
        for _ in 0..length {
            body.push(self.node(from, below)?);
        }
        let arity = body.iter().fold(0usize, |sum, node| sum + self.arity(node));
        let mut steps = Vec::new();
        for _ in 0..arity {
            steps.push(from.signed()?);
        }
        Ok(FoldedNode::Run { count, body, steps })
    }
}

impl FoldedNode {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Leaf(pattern) => put(out, (*pattern as u64) << 1),
            Self::Run { count, body, steps } => {
                put(out, count << 1 | 1);
                put(out, body.len() as u64);
                body.iter().for_each(|node| node.write(out));
                steps.iter().for_each(|step| put_signed(out, *step));
            }
        }
    }
}

/// What a folded list has come to so far.
#[derive(Default)]
struct FoldedList {
    entries: Vec<LeafSummary>,
    text: usize,
}

impl FoldedList {
    fn push(&mut self, entry: LeafSummary) -> Result<()> {
        self.text += entry.key.len()
            + entry.dtype.len()
            + entry.shape.len() * 8
            + entry.value.len()
            + entry.link.as_ref().map_or(0, String::len);
        if self.entries.len() as u64 >= MOST_LEAVES || self.text > MOST_TEXT {
            return Err(Error::limit(format!(
                "this summary unfolds to more than {MOST_LEAVES} keys, or {MOST_TEXT} bytes of text"
            )));
        }
        self.entries.push(entry);
        Ok(())
    }
}

impl LeafPattern {
    /// The pattern of an entry, and its numbers.
    fn of(entry: &LeafSummary) -> (Self, Vec<u64>) {
        let mut numbers = Vec::new();
        let key = punch(&entry.key, &mut numbers);
        let value = match entry.kind {
            "int" => punch(&entry.value, &mut numbers),
            _ => entry.value.as_bytes().to_vec(),
        };
        let link = entry.link.as_ref().map(|link| punch(link, &mut numbers));
        let sizes = (entry.params, entry.bytes);
        let told = natural_sizes(entry.kind, &entry.dtype, &entry.shape);
        let pattern = Self {
            key,
            kind: entry.kind,
            dtype: entry.dtype.clone(),
            shape: entry.shape.clone(),
            sizes: (told != Some(sizes)).then_some(sizes),
            value,
            link,
            holes: numbers.len(),
        };
        (pattern, numbers)
    }

    fn entry(&self, mut numbers: impl Iterator<Item = String>) -> LeafSummary {
        let mut fill = |text: &[u8]| {
            let mut out = Vec::with_capacity(text.len());
            for byte in text {
                match *byte {
                    HOLE => out.extend(numbers.next().unwrap_or_default().into_bytes()),
                    byte => out.push(byte),
                }
            }
            String::from_utf8(out).unwrap_or_default()
        };
        let (key, value) = (fill(&self.key), fill(&self.value));
        let link = self.link.as_ref().map(|link| fill(link));
        let (params, bytes) = self
            .sizes
            .or_else(|| natural_sizes(self.kind, &self.dtype, &self.shape))
            .unwrap_or_default();
        LeafSummary {
            key,
            kind: self.kind,
            dtype: self.dtype.clone(),
            shape: self.shape.clone(),
            params,
            bytes,
            value,
            link,
            statistics: None,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let kind = KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0) as u8;
        let flags = u8::from(self.sizes.is_some())
            | u8::from(!self.value.is_empty()) << 1
            | u8::from(self.link.is_some()) << 2;
        out.push(kind | flags << 4);
        put_bytes(out, &self.key);
        if is_tensor(self.kind) {
            put_bytes(out, self.dtype.as_bytes());
            put(out, self.shape.len() as u64);
            self.shape.iter().for_each(|dim| put(out, *dim));
        }
        if let Some((params, bytes)) = self.sizes {
            put(out, params);
            put(out, bytes);
        }
        if !self.value.is_empty() {
            put_bytes(out, &self.value);
        }
        if let Some(link) = &self.link {
            put_bytes(out, link);
        }
    }

    fn read(from: &mut Unpacker<'_>) -> Result<Self> {
        let head = from.byte()?;
        let kind = *KINDS.get(usize::from(head & 15)).ok_or_else(damaged)?;
        let has = |flag: u8| head >> 4 & flag != 0;
        let key = template(from)?;
        let (mut dtype, mut shape) = (String::new(), Vec::new());
        if is_tensor(kind) {
            dtype = from.text()?;
            for _ in 0..from.count()? {
                shape.push(from.number()?);
            }
        }
        let sizes = if has(1) { Some((from.number()?, from.number()?)) } else { None };
        let value = if has(2) { template(from)? } else { Vec::new() };
        let link = if has(4) { Some(template(from)?) } else { None };
        let texts = [&key, &value].into_iter().chain(link.as_ref());
        let holes = texts.flatten().filter(|byte| **byte == HOLE).count();
        Ok(Self { key, kind, dtype, shape, sizes, value, link, holes })
    }
}

/// A text with holes, which is UTF-8 between them.
fn template(from: &mut Unpacker<'_>) -> Result<Vec<u8>> {
    let bytes = from.bytes()?;
    let proper = bytes.split(|byte| *byte == HOLE).all(|piece| std::str::from_utf8(piece).is_ok());
    if proper { Ok(bytes.to_vec()) } else { Err(damaged()) }
}

/// The text with holes for its numbers: runs of digits that a number prints as again.
fn punch(text: &str, numbers: &mut Vec<u64>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        out.extend_from_slice(before.as_bytes());
        match digits.parse() {
            Ok(number) if digits.len() <= 15 && (digits == "0" || !digits.starts_with('0')) => {
                numbers.push(number);
                out.push(HOLE);
            }
            _ => out.extend_from_slice(digits.as_bytes()),
        }
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Values and bytes, where dtype and shape tell them.
fn natural_sizes(kind: &str, dtype: &str, shape: &[u64]) -> Option<(u64, u64)> {
    if !is_tensor(kind) {
        return Some((0, 0));
    }
    let dtype = DType::from_torch_name(dtype)?;
    let params = shape.iter().try_fold(1u64, |product, dim| product.checked_mul(*dim))?;
    Some((params, dtype.bytes_of(params)?))
}

/// A node while it is folded: what it is as bytes, and its numbers.
struct Coded {
    code: Vec<u8>,
    numbers: Vec<u64>,
}

/// Folds what repeats `least` times with a period of at most `longest`.
fn fold(nodes: Vec<Coded>, longest: usize, least: u64) -> Vec<Coded> {
    let mut names = HashMap::new();
    let ids: Vec<usize> = nodes
        .iter()
        .map(|node| {
            let next = names.len();
            *names.entry(node.code.clone()).or_insert(next)
        })
        .collect();
    // Where the same comes next.
    let mut last = vec![usize::MAX; names.len()];
    let mut next = vec![usize::MAX; nodes.len()];
    for (at, id) in ids.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut last[*id], at);
    }
    let runs = |at: usize| -> Option<(usize, u64)> {
        let mut best: Option<(usize, u64)> = None;
        let mut then = next[at];
        for _ in 0..TRIES {
            let Some(period) = then.checked_sub(at).filter(|_| then < nodes.len()) else { break };
            if period > longest {
                break;
            }
            let count = repeats(&nodes, &ids, at, period);
            let saved = |(period, count): (usize, u64)| period as u64 * (count - 1);
            // A run has costs of its own.
            if (count >= least || count == 2 && least == 3 && period > 3)
                && best.is_none_or(|best| saved((period, count)) > saved(best))
            {
                best = Some((period, count));
            }
            then = next[then];
        }
        best
    };
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < nodes.len() {
        let (period, count) = runs(at).unwrap_or((1, 1));
        ranges.push((at, period, count));
        at += period * count as usize;
    }
    let folded = ranges.into_iter().map(|(at, period, count)| {
        let body = &nodes[at..at + period];
        let numbers: Vec<u64> = body.iter().flat_map(|node| node.numbers.clone()).collect();
        if count == 1 {
            return Coded { code: nodes[at].code.clone(), numbers };
        }
        let mut code = Vec::new();
        put(&mut code, count << 1 | 1);
        put(&mut code, period as u64);
        body.iter().for_each(|node| code.extend_from_slice(&node.code));
        let second = nodes[at + period..at + 2 * period].iter().flat_map(|node| &node.numbers);
        for (first, second) in numbers.iter().zip(second) {
            put_signed(&mut code, (*second as i64).wrapping_sub(*first as i64));
        }
        Coded { code, numbers }
    });
    folded.collect()
}

/// How many times the `period` nodes from `at` on follow each other, each time with their numbers
/// the same steps on.
fn repeats(nodes: &[Coded], ids: &[usize], at: usize, period: usize) -> u64 {
    let same = |block: usize| {
        (at..at + period).all(|node| {
            let other = node + block * period;
            other < nodes.len() && ids[node] == ids[other]
        })
    };
    let steps = |from: usize| {
        (from..from + period).flat_map(move |node| {
            // Numbers have at most 15 digits.
            nodes[node + period]
                .numbers
                .iter()
                .zip(&nodes[node].numbers)
                .map(|(b, a)| b.wrapping_sub(*a))
        })
    };
    let mut count = 1;
    while same(count) && (count == 1 || steps(at).eq(steps(at + (count - 1) * period))) {
        count += 1;
    }
    count as u64
}

/// What a folded list that was not made by us is.
fn damaged() -> Error {
    Error::damaged("the summary contradicts itself")
}
