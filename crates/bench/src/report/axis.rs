//! Scales of axes, and ticks at round values.

use crate::number;

/// Maps values to positions of a drawing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    /// The positions of `low` and `high`.
    places: (f64, f64),
}

/// A round value of an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// Below this ratio of its ends, a logarithmic axis has the ticks of a linear one.
const NARROW: f64 = 6.0;
/// Above so many times the wanted steps, a logarithmic axis has ticks at powers of ten only.
const CROWDED: f64 = 2.4;

impl Scale {
    /// From zero to a round value that is not below `max`, in about `steps` steps.
    pub(crate) fn linear(max: f64, steps: f64, places: (f64, f64)) -> Scale {
        let max = if max > 0.0 && max.is_finite() {
            max
        } else {
            1.0
        };
        let step = round_step(max / steps);
        Scale {
            low: 0.0,
            high: ((max / step) - 1e-9).ceil() * step,
            is_logarithmic: false,
            places,
        }
    }

    /// From `min` to `max` exactly.
    pub(crate) fn exact(min: f64, max: f64, places: (f64, f64)) -> Scale {
        Scale {
            low: min,
            high: if max > min { max } else { min + 1.0 },
            is_logarithmic: false,
            places,
        }
    }

    /// From a round value that is not above `min` to one that is not below `max`. Both are positive.
    pub(crate) fn logarithmic(min: f64, max: f64, places: (f64, f64)) -> Scale {
        let min = if min > 0.0 && min.is_finite() {
            min
        } else {
            1.0
        };
        let max = if max > min && max.is_finite() {
            max
        } else {
            min * 2.0
        };
        let (low, high) = match max / min < NARROW {
            true => {
                let step = round_step((max - min) / 4.0);
                let low = (min / step + 1e-9).floor() * step;
                let low = if low > 0.0 { low } else { min };
                (low, ((max / step) - 1e-9).ceil() * step)
            }
            false => (round_down(min), round_up(max)),
        };
        Scale {
            low,
            high,
            is_logarithmic: true,
            places,
        }
    }

    /// The position of a value.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let share = match self.is_logarithmic {
            true => (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        let (from, to) = self.places;
        from + share.clamp(0.0, 1.0) * (to - from)
    }

    /// Round values, about `steps` apart; with labels made by [`number::tick`].
    pub(crate) fn ticks(&self, steps: f64) -> Vec<Tick> {
        let is_narrow = self.high / self.low < NARROW;
        if !self.is_logarithmic || is_narrow {
            return self.even_ticks(steps);
        }
        // Three ticks for each power of ten.
        let digits: &[f64] = match (self.high / self.low).log10() * 3.0 > steps * CROWDED {
            true => &[1.0],
            false => &[1.0, 2.0, 5.0],
        };
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        decades
            .flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)))
            .filter(|value| (self.low * 0.999..=self.high * 1.001).contains(value))
            .map(|value| {
                let label = number::tick(value, value);
                Tick { value, label }
            })
            .collect()
    }

    fn even_ticks(&self, steps: f64) -> Vec<Tick> {
        let step = round_step((self.high - self.low) / steps);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        let values = (first..=last).map(|index| index as f64 * step);
        let ticks = values.map(|value| Tick {
            value,
            label: number::tick(value, step),
        });
        ticks.collect()
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    round_up(if step > 0.0 && step.is_finite() {
        step
    } else {
        1.0
    })
}

fn round_up(value: f64) -> f64 {
    let power = 10f64.powf((value.log10() + 1e-12).floor());
    let digits = value / power;
    let round = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|round| digits <= round + 1e-9);
    round.unwrap_or(10.0) * power
}

fn round_down(value: f64) -> f64 {
    let power = 10f64.powf((value.log10() + 1e-12).floor());
    let digits = value / power;
    let round = [5.0, 2.0].into_iter().find(|round| digits >= round - 1e-9);
    round.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale
            .ticks(5.0)
            .into_iter()
            .map(|tick| tick.label)
            .collect()
    }

    #[test]
    fn ticks_are_round_and_hold_all_values() {
        let linear = Scale::linear(168_449.0, 5.0, (0.0, 100.0));
        assert_eq!(
            labels(&linear),
            ["0", "50,000", "100,000", "150,000", "200,000"]
        );
        assert_eq!(
            [0.0, 100_000.0, 1e9].map(|v| linear.place(v)),
            [0.0, 50.0, 100.0]
        );
        let logarithmic = Scale::logarithmic(0.3, 40.0, (100.0, 0.0));
        assert_eq!(
            labels(&logarithmic),
            ["0.2", "0.5", "1", "2", "5", "10", "20", "50"]
        );
        assert_eq!(logarithmic.place(0.2), 100.0);
        assert!(logarithmic.place(50.0) < 1e-9);
        assert_eq!(
            labels(&Scale::logarithmic(1.0, 100_000.0, (0.0, 1.0))),
            ["1", "10", "100", "1,000", "10,000", "100,000"]
        );
    }

    #[test]
    fn a_narrow_logarithmic_axis_has_even_ticks() {
        let ratios = Scale::logarithmic(0.72, 1.31, (0.0, 1.0));
        assert_eq!(labels(&ratios), ["0.6", "0.8", "1.0", "1.2", "1.4"]);
    }

    #[test]
    fn values_without_range_have_an_axis() {
        for scale in [
            Scale::linear(0.0, 5.0, (0.0, 1.0)),
            Scale::linear(f64::NAN, 5.0, (0.0, 1.0)),
            Scale::logarithmic(0.0, 0.0, (0.0, 1.0)),
            Scale::exact(3.0, 3.0, (0.0, 1.0)),
        ] {
            assert!(labels(&scale).len() > 1, "{scale:?}");
            assert!(scale.place(0.0).is_finite());
        }
    }
}
