//! Median and quartiles.

use serde::Serialize;

/// Lower quartile, median and upper quartile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quartiles {
    /// A quarter of the values is at most this.
    pub lower: f64,
    /// Half of the values are at most this.
    pub median: f64,
    /// Three quarters of the values are at most this.
    pub upper: f64,
}

impl Quartiles {
    /// Interpolates linearly between the two nearest values; `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Quartiles> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = last as f64 * share;
            let (below, above) = (
                sorted[place.floor() as usize],
                sorted[place.ceil() as usize],
            );
            below + (above - below) * place.fract()
        };
        Some(Quartiles {
            lower: at(0.25),
            median: at(0.5),
            upper: at(0.75),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated_between_neighbours() {
        let odd = Quartiles::of([3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!(
            odd,
            Quartiles {
                lower: 2.0,
                median: 3.0,
                upper: 4.0
            }
        );
        let even = Quartiles::of([1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(
            even,
            Quartiles {
                lower: 1.75,
                median: 2.5,
                upper: 3.25
            }
        );
        assert_eq!(Quartiles::of([7.0]).unwrap().upper, 7.0);
        assert_eq!(Quartiles::of([]), None);
    }
}
