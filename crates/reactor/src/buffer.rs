//! Memory for bytes: the receive pool and its [`Slice`]s, buffers for datagrams, growable [`Buffer`]s from a
//! free list, and [`Chunk`]s to send.

mod chunk;
mod datagrams;
mod growable;
mod pool;
mod region;
mod slice;

pub use chunk::Chunk;
pub(crate) use datagrams::{
    DATAGRAM_BUFFER_BYTES, DATAGRAM_BUFFERS, DATAGRAM_HEAD_BYTES, DatagramBuffer, DatagramBuffers,
};
pub use growable::Buffer;
pub(crate) use growable::free_unused_buffers;
pub use pool::FAIR_SHARE_MAX;
pub(crate) use pool::{BUFFER_BYTES, LARGE_BYTES, Pool, RATION_BYTES};
pub use slice::Slice;
