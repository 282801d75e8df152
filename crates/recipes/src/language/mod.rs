//! The language of recipes: one text file for each family, described in `docs/recipes.md`.

mod expression;
mod line;
mod pattern;
mod recipe;

pub use expression::{Expression, Scalar, Scope, Side};
pub use pattern::{Captures, Group, Match, Pattern};
pub use recipe::{
    Arrow, Block, Creation, Each, Let, Maker, Operation, Recipe, Rule, Scaling, Slot,
};
