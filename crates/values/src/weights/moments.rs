//! Optimizer moments of a parameter.

/// Names that optimizers of torch, cstorch and others use for state with the shape of the
/// parameter, and whether it is a mean of squares, which is never negative.
const MOMENTS: [(&str, bool); 12] = [
    ("exp_avg", false),
    ("exp_avg_sq", true),
    ("max_exp_avg_sq", true),
    ("momentum_buffer", false),
    ("square_avg", true),
    ("exp_inf", true),
    ("grad_avg", false),
    ("acc_delta", true),
    ("exp_avg_slow", false),
    ("exp_avg_diff", false),
    ("neg_pre_grad", false),
    ("vhat", true),
];

/// Parses the key of a moment: the key of its owner, its name, and whether it is a mean of squares.
pub(super) fn of(key: &str, dot: char) -> Option<(&str, &'static str, bool)> {
    let (owner, name) = key.rsplit_once(dot)?;
    let (name, squares) = MOMENTS.into_iter().find(|(moment, _)| *moment == name)?;
    Some((owner, name, squares))
}

/// Returns whether this is the name of a moment.
pub fn is_moment(name: &str) -> bool {
    MOMENTS.iter().any(|(moment, _)| *moment == name)
}
