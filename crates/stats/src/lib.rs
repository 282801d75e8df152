//! Statistics of tensors in one pass: mergeable, and the same to the last bit however the bytes
//! are cut.
