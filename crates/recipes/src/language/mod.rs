//! The language of recipes: one text file for each family, described in `docs/recipes.md`.

mod creation;
mod expression;
mod line;
mod names;
mod parser;
mod pattern;
mod recipe;
mod rule;

pub use expression::{Expression, Scalar, Scope, Side};
pub use pattern::{Captures, Group, Match, Pattern};
pub use recipe::{
    Arrow, Creation, Each, Let, Maker, Operation, Ranks, Recipe, Rule, RuleBlock, Scaling, Slot,
};
