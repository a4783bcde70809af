//! Receiving without a reader: to notice that the client leaves, and to reach the next request.

use std::task::{Context, Poll};
use std::time::Instant;

use super::driver::{Driver, InputStep};
use super::server::ServerRole;
use crate::counters::count;
use crate::exchange::{BodyState, wake};
use crate::transport::Transport;

/// Bytes of responses queued before a pipelined request has to wait.
const PIPELINED_RESPONSE_BYTES_MAX: usize = 64 * 1024;

impl Driver<ServerRole> {
    /// Notices without a reader that the client has left. Received bytes are kept, within the bound for
    /// reading ahead (rule 17).
    pub(super) fn read_ahead(&mut self, cx: &mut Context<'_>) {
        let bytes_max = self.role.options.limits.pipelined_bytes_max;
        if self.input.is_empty() {
            // The bytes that closed the window were taken since.
            match self.exchange.receiving.body {
                BodyState::Done => self.restore_window(),
                _ => self.widen_window(),
            }
        } else {
            self.input.keep();
            self.shrink_window(0);
        }
        while !self.has_fin() && self.input.bytes() < bytes_max {
            // Before they are taken, because the socket then receives as many again at once.
            let unread = self.socket.as_mut().map_or(0, Transport::unread_content);
            if unread > 0 {
                self.shrink_window(unread);
            }
            match self.poll_receive_ahead(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(_)) => {
                    self.exchange.receiving.last = Some(blitz_reactor::now());
                    wake(&mut self.exchange.receiving.reader);
                    self.input.keep();
                    self.shrink_window(0);
                }
                Poll::Ready(Err(_)) => {
                    wake(&mut self.exchange.receiving.reader);
                    self.exchange.is_gone = true;
                    return;
                }
            }
        }
    }

    /// Discards the rest of a body without a reader: at most `left` bytes, until `due`.
    pub(super) fn poll_discard(
        &mut self,
        left: &mut usize,
        due: Instant,
        cx: &mut Context<'_>,
    ) -> Poll<bool> {
        loop {
            match self.step() {
                Ok(InputStep::End) => {
                    self.exchange.receiving.body = BodyState::Done;
                    return Poll::Ready(true);
                }
                Ok(InputStep::Data(slice)) if slice.len() > *left => return Poll::Ready(false),
                Ok(InputStep::Data(slice)) => {
                    *left -= slice.len();
                    continue;
                }
                Ok(InputStep::Trailers) => continue,
                Ok(InputStep::NeedMore | InputStep::Paused) => {}
                Ok(InputStep::Head(_)) | Err(_) => return Poll::Ready(false),
            }
            match self.poll_receive(cx) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false) | Err(_)) => return Poll::Ready(false),
                Poll::Pending => {
                    // Its request has its response.
                    if let Some(socket) = &self.socket {
                        socket.await_request(false);
                    }
                    return self.exchange.timer.poll_due(due, cx).map(|()| false);
                }
            }
        }
    }

    /// Pipelined responses must not pile up before a client that does not read.
    pub(super) fn poll_pipeline_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let Some(socket) = &self.socket else {
            return Poll::Ready(Err(()));
        };
        match socket.poll_send_room(cx, PIPELINED_RESPONSE_BYTES_MAX) {
            Poll::Ready(room) => Poll::Ready(room.map_err(drop)),
            Poll::Pending => {
                if socket.queued() == 0 {
                    return Poll::Pending;
                }
                let timeout = self.role.options.limits.send_stall_timeout;
                let due = socket.send_progress() + timeout;
                self.exchange.timer.poll_due(due, cx).map(|()| {
                    count(|counters| counters.send_stalls += 1);
                    Err(())
                })
            }
        }
    }
}
