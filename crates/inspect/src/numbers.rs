//! Numbers as text.

/// Bytes in decimal units: `1.23 MB`; small numbers exactly.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1_000 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64;
    let mut unit = "";
    for name in UNITS {
        value /= 1_000.0;
        unit = name;
        if value < 999.5 {
            break;
        }
    }
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(size_text(999), "999 bytes");
        assert_eq!(size_text(1_234), "1.23 kB");
        assert_eq!(size_text(12_345_678), "12.3 MB");
        assert_eq!(size_text(999_600_000), "1.00 GB");
        assert_eq!(size_text(u64::MAX), "18.4 EB");
    }
}
