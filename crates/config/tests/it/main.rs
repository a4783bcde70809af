//! The reader against whole files: mistakes with their places, and what valid files mean.

mod mistakes;
mod mutants;
mod sites;
mod support;
