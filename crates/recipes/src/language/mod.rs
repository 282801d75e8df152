//! The language of recipes: one text file per family, described in `docs/recipes.md`.

mod creation;
mod expression;
mod line;
mod names;
mod parser;
mod pattern;
mod recipe;
mod rule;

pub use expression::{ConfigSide, Expression, Scalar, Scope};
pub use parser::RECIPE_CODE;
pub use pattern::{Captures, KeyGroup, KeyPattern, Match};
pub use recipe::{
    Arrow, Creation, HoleRange, Let, Maker, Operation, Ranks, Recipe, Rule, RuleBlock, Slot,
    TensorScaling,
};
