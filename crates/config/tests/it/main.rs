//! The reader against whole files: mistakes with their places, and what valid files mean.

mod access;
mod files;
mod foreign;
mod format;
mod includes;
mod inheritance;
mod many;
mod mistakes;
mod mutants;
mod naive;
mod order;
mod repairs;
mod schema;
mod servers;
mod sites;
mod support;
mod variants;
