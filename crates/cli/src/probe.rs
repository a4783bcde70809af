//! What the reactor finds when it tries; `None` where this build does not try yet.

pub(crate) fn io_uring() -> Option<Result<String, String>> {
    None
}

pub(crate) fn epoll() -> Option<Result<(), String>> {
    None
}

pub(crate) fn reuseport() -> Option<Result<(), String>> {
    None
}

pub(crate) fn udp_gso() -> Option<Result<(), String>> {
    None
}
