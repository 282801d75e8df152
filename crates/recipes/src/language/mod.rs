//! The language of recipes: one text file per family, described in `docs/recipes.md`.

mod creation;
pub(crate) mod line;
mod names;
mod parser;
mod pattern;
mod recipe;
mod rule;

pub use crate::expression::{Expression, Scope};
pub use crate::side::Side;
pub use parser::RECIPE_CODE;
pub use pattern::{Captures, KeyGroup, KeyPattern, Match};
pub use recipe::{
    Arrow, Creation, HoleRange, Let, Maker, Operation, Ranks, Recipe, Rule, RuleBlock, Slot,
    TensorScaling,
};
