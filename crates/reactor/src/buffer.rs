//! Memory that bytes live in: the receive pool and its [`Slice`]s, pooled growable
//! [`Buffer`]s, and [`Chunk`]s on their way out.

mod chunk;
mod growable;
mod pool;
mod slice;

pub use chunk::Chunk;
pub use growable::Buffer;
pub(crate) use growable::forget_kept;
pub(crate) use pool::{BUFFER_BYTES, Pool, RATION_BYTES};
pub use slice::Slice;
