//! Streams without their frames: the common part of the versions whose connections carry many exchanges.

pub(super) mod due;
pub(super) mod exchange_task;
pub(super) mod liveness;
pub(super) mod permits;
pub(super) mod resets;
pub(super) mod response;
pub(super) mod response_head;
pub(super) mod room;
pub(super) mod spare;
pub(super) mod stream;
