//! Reading the values of tensors: of one or of all.

pub mod worker;
