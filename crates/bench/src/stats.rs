//! Statistics that tolerate the outliers of a noisy machine.

mod quartiles;

pub(crate) use quartiles::Quartiles;
