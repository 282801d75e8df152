//! Slices of tensors, as in Rust.

/// Builds a [`Slice`](crate::Slice) like the one in Python's brackets: `s![0..2, ..4, -1, ..]`.
#[macro_export]
macro_rules! s {
    ($($axis:expr),* $(,)?) => {
        $crate::Slice::new([$($crate::Axis::from($axis)),*])
    };
}

#[cfg(test)]
mod tests {
    use crate::Axis;

    #[test]
    fn slice_macro_matches_python_notation() {
        for (ours, python) in [
            (s![0..2, ..4], "0:2, :4"),
            (s![-1], "-1"),
            (s![.., 3], ":, 3"),
            (s![1.., Axis::Rest, -2..], "1:, ..., -2:"),
            (s![2..=3], "2:4"),
            (s![-3..=-1], "-3:"),
            (s![], ""),
        ] {
            assert_eq!(ours, python.parse().unwrap());
        }
    }
}
