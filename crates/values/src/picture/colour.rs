//! Colours of numbers: blue for negative, orange for positive, a pair that can be distinguished
//! with any kind of colour vision. Magnitudes go from pale to dark, so they are visible without
//! colour.

use statelens_checkpoint::order;

use super::{BlockMap, INFINITE, NAN};

/// Red, green and blue.
pub type Rgb = [u8; 3];

/// The colour of blocks that contain NaN or infinities.
pub const ODD: Rgb = [201, 22, 140];

/// The figure of a block that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Show {
    /// The value of largest magnitude, with its sign.
    #[default]
    Value,
    /// The largest magnitude.
    Magnitude,
    /// The mean magnitude.
    Mean,
}

/// The scaling of numbers to colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColourScaling {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic, over three powers of ten.
    Log,
    /// By rank, so that each colour has the same number of blocks.
    Quantile,
}

/// The mapping of a map's numbers to colours.
#[derive(Debug, Clone, PartialEq)]
pub struct Colours {
    show: Show,
    scaling: ColourScaling,
    limit: f64,
    /// The magnitude with the palest colour: 0 if signs have colours, else the smallest magnitude.
    low: f64,
    /// The sorted magnitudes, for ranks.
    sorted: Vec<f64>,
    dark: bool,
}

const NEGATIVE: [Rgb; 3] = [[247, 249, 248], [112, 160, 214], [14, 58, 121]];
const POSITIVE: [Rgb; 3] = [[247, 249, 248], [226, 160, 92], [122, 58, 4]];
const GREY: [Rgb; 3] = [[240, 243, 241], [139, 150, 145], [8, 22, 17]];
const NEGATIVE_DARK: [Rgb; 3] = [[24, 31, 28], [43, 92, 160], [150, 198, 255]];
const POSITIVE_DARK: [Rgb; 3] = [[24, 31, 28], [158, 90, 26], [255, 196, 128]];
const GREY_DARK: [Rgb; 3] = [[24, 31, 28], [104, 120, 112], [242, 248, 245]];

impl Colours {
    /// Creates the mapping for a map, on a dark or light background.
    pub fn new(map: &BlockMap, show: Show, scaling: ColourScaling, dark: bool) -> Self {
        let of = if show == Show::Mean { &map.mean } else { &map.largest };
        let mut sorted: Vec<f64> =
            of.iter().map(|value| value.abs()).filter(|value| value.is_finite()).collect();
        order::by(&mut sorted, f64::total_cmp);
        let limit = sorted.last().copied().unwrap_or(0.0);
        let least = sorted.first().copied().filter(|least| show != Show::Value && *least < limit);
        if scaling != ColourScaling::Quantile {
            sorted.clear();
        }
        Self { show, scaling, limit, low: least.unwrap_or(0.0), sorted, dark }
    }

    /// Returns the magnitude with the strongest colour.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Returns whether negative and positive numbers have different colours.
    pub fn is_signed(&self) -> bool {
        self.show == Show::Value
    }

    /// Returns the colour of a block; `None` if it does not have a value.
    pub fn block(&self, map: &BlockMap, at: usize) -> Option<Rgb> {
        if map.marks.get(at).is_some_and(|marks| marks & (NAN | INFINITE) != 0) {
            return Some(ODD);
        }
        let of = if self.show == Show::Mean { &map.mean } else { &map.largest };
        of.get(at).filter(|value| !value.is_nan()).map(|value| self.colour(*value))
    }

    /// Returns the colour of a number.
    pub fn colour(&self, value: f64) -> Rgb {
        if !value.is_finite() {
            return ODD;
        }
        let part = self.part(value.abs());
        self.at(if value < 0.0 { -part } else { part })
    }

    /// Returns the colour at a position of the scale, from -1 to 1.
    pub fn at(&self, part: f64) -> Rgb {
        let of = match (self.is_signed(), part < 0.0, self.dark) {
            (false, _, false) => GREY,
            (false, _, true) => GREY_DARK,
            (true, true, false) => NEGATIVE,
            (true, true, true) => NEGATIVE_DARK,
            (true, false, false) => POSITIVE,
            (true, false, true) => POSITIVE_DARK,
        };
        let part = part.abs().clamp(0.0, 1.0) * 2.0;
        let (from, to) = if part < 1.0 { (of[0], of[1]) } else { (of[1], of[2]) };
        let part = if part < 1.0 { part } else { part - 1.0 };
        let mix = |from: u8, to: u8| {
            (f64::from(from) + (f64::from(to) - f64::from(from)) * part).round() as u8
        };
        [mix(from[0], to[0]), mix(from[1], to[1]), mix(from[2], to[2])]
    }

    /// Returns the magnitude at a position of the scale, for the legend.
    pub fn magnitude(&self, part: f64) -> f64 {
        let part = part.clamp(0.0, 1.0);
        match self.scaling {
            ColourScaling::Linear => self.low + part * (self.limit - self.low),
            ColourScaling::Log => {
                let part = (part * DECADES.ln_1p()).exp_m1() / DECADES;
                self.low + part * (self.limit - self.low)
            }
            ColourScaling::Quantile => {
                let last = self.sorted.len().saturating_sub(1);
                let at = (part * last as f64).round() as usize;
                self.sorted.get(at).copied().unwrap_or(0.0)
            }
        }
    }

    fn part(&self, magnitude: f64) -> f64 {
        if self.limit == 0.0 {
            return 0.0;
        }
        let even = ((magnitude - self.low) / (self.limit - self.low)).max(0.0);
        match self.scaling {
            ColourScaling::Linear => even,
            ColourScaling::Log => (even * DECADES).ln_1p() / DECADES.ln_1p(),
            ColourScaling::Quantile => {
                let below = self.sorted.partition_point(|it| *it < magnitude);
                below as f64 / self.sorted.len().saturating_sub(1).max(1) as f64
            }
        }
    }
}

/// Values smaller than the largest by this factor have nearly the same colour as zero.
const DECADES: f64 = 1000.0;

/// Returns the colour of a value between -`limit` and `limit`, on a dark or light background.
pub fn of_value(value: f64, limit: f64, scaling: ColourScaling, dark: bool) -> Rgb {
    let scaling = if scaling == ColourScaling::Quantile { ColourScaling::Linear } else { scaling };
    Colours { show: Show::Value, scaling, limit, low: 0.0, sorted: Vec::new(), dark }.colour(value)
}

#[cfg(test)]
mod tests {
    use super::super::tests::map;
    use super::*;

    #[test]
    fn larger_magnitudes_have_darker_colours() {
        let light = |[red, green, blue]: Rgb| {
            0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue)
        };
        for show in [Show::Value, Show::Magnitude] {
            for dark in [false, true] {
                let colours = Colours::new(&map(), show, ColourScaling::Linear, dark);
                for sign in [-1.0, 1.0] {
                    let steps = (0..=20).map(|at| light(colours.at(sign * f64::from(at) / 20.0)));
                    let steps: Vec<f64> = steps.collect();
                    let on =
                        |pair: &[f64]| if dark { pair[0] < pair[1] } else { pair[0] > pair[1] };
                    assert!(steps.windows(2).all(on), "{show:?} {dark} {sign}: {steps:?}");
                }
            }
        }
    }

    #[test]
    fn scales_range_from_zero_to_the_largest() {
        let map = map();
        for scaling in [ColourScaling::Linear, ColourScaling::Log, ColourScaling::Quantile] {
            let colours = Colours::new(&map, Show::Value, scaling, false);
            assert_eq!(colours.limit(), 8.0);
            assert_eq!(colours.colour(-8.0), NEGATIVE[2], "{scaling:?}");
            assert_eq!(colours.colour(0.0), POSITIVE[0]);
            assert!((colours.magnitude(1.0) - 8.0).abs() < 1e-9);
            assert_eq!(colours.block(&map, 1), Some(ODD));
            assert_eq!(colours.block(&map, 99), None);
        }
    }
}
