//! The means to respond to a request of a site: the only place where heads of responses are changed by rules, and where
//! a record gets its response.

use std::cell::Cell;
use std::fmt::Display;
use std::rc::Rc;

use blitz_http::{
    BodyError, BodyLength, Chunk, Fields, Name, Pooled, PooledFuture, ResponseHead, SendBody,
    SendError, Status, Tunnel, accepts_problem,
};

use crate::compress::{Compressing, STEP_BYTES};
use crate::content_sender::ContentSender;
use crate::counters::count;
use crate::edit::{Edit, ResponseEdits, apply};
use crate::error_page;
use crate::pages::{LoadedFile, Pages, RequestPages};
use crate::policy::EarlyHints;
use crate::record::{Ended, ResponseRecord};
use crate::rejection::Rejection;

/// Takes the response to one request, as [`blitz_http::Responder`] does.
///
/// A final response gets the site's changes of fields, and its record the status and the length. The content of a
/// complete response is recorded as sent.
pub struct Responder<'a> {
    /// `None` once a response was given.
    http: Option<blitz_http::Responder>,
    edits: ResponseEdits<'a>,
    app: Option<&'a AppParts<'a>>,
    /// How content is compressed; `None` leaves it as it is.
    compressing: Option<&'a Compressing<'a>>,
    /// `None` for an app without a site.
    record: Option<&'a mut ResponseRecord>,
}

/// The parts of responses that only those of apps have.
#[derive(Clone, Copy, Default)]
pub struct AppParts<'a> {
    /// The changes that policies of the app make, before all others.
    pub edits: &'a [Edit],
    /// Pages for errors about which the app says nothing.
    pub pages: Option<&'a RequestPages<'a>>,
}

/// The content of a response that its endpoint sends by itself. Dropped early, it was cut off.
pub struct SentContent<'a> {
    record: Option<&'a mut ResponseRecord>,
    bytes: Option<Rc<Cell<u64>>>,
}

impl<'a> Responder<'a> {
    /// A responder that makes these changes, and fills this record.
    #[inline]
    pub fn new(
        http: blitz_http::Responder,
        edits: ResponseEdits<'a>,
        record: &'a mut ResponseRecord,
    ) -> Responder<'a> {
        Responder {
            http: Some(http),
            edits,
            app: None,
            compressing: None,
            record: Some(record),
        }
    }

    /// With these parts of an app in place of those that it has.
    #[inline]
    #[must_use]
    pub fn with_app_parts(mut self, parts: Option<&'a AppParts<'a>>) -> Responder<'a> {
        self.app = parts;
        self
    }

    /// Compresses content where that is possible, if this is given. Content that is there as a whole and has more than
    /// [`STEP_BYTES`] is compressed by [`send_long`](Responder::send_long) only.
    #[inline]
    #[must_use]
    pub fn compressing(mut self, compressing: Option<&'a Compressing<'a>>) -> Responder<'a> {
        self.compressing = compressing.or(self.compressing);
        self
    }

    /// The request was rejected by a policy of an app: its record says so once the response is sent.
    pub fn send_rejected(mut self, rejection: Rejection, head: &mut ResponseHead, content: Chunk) {
        let record = self.record.take();
        self.edit(head);
        let Some(http) = self.http.take() else { return };
        match record {
            Some(record) => {
                record.sent(head.status, content.len());
                record.ended = Ended::Rejected(rejection);
            }
            None => count(|counters| counters.rejections[rejection as usize] += 1),
        }
        http.send(head, content);
    }

    /// Sends early hints.
    pub fn early_hints(&mut self, hints: &EarlyHints) {
        if let Some(http) = &mut self.http {
            hints.send(http);
        }
    }

    /// The site's page for an error of this status.
    #[must_use]
    pub fn page(&self, status: Status) -> Option<&'a LoadedFile> {
        self.pages()?.find(status)
    }

    /// All of them.
    #[must_use]
    pub fn pages(&self) -> Option<&'a RequestPages<'a>> {
        self.app?.pages
    }

    /// A responder without a site, which changes and records nothing.
    #[inline]
    pub fn unrecorded(http: blitz_http::Responder) -> Responder<'a> {
        Responder {
            http: Some(http),
            edits: ResponseEdits::default(),
            app: None,
            compressing: None,
            record: None,
        }
    }

    /// Sends an interim response of the upstream (RFC 9110, section 15.2). No rule is about those.
    #[inline]
    pub fn informational(http: &mut blitz_http::Responder, head: &ResponseHead) {
        http.informational(head);
    }

    /// Sends a complete response of the upstream. Whether the request is complete as well, its owner knows.
    #[inline(always)]
    pub fn relay(
        http: blitz_http::Responder,
        edits: ResponseEdits<'_>,
        record: &mut ResponseRecord,
        head: &mut ResponseHead,
        content: Chunk,
    ) {
        edits.apply(&mut head.fields);
        record.relayed(head.status, content.len());
        http.send(head, content);
    }

    /// The response is that of the upstream.
    #[inline]
    #[must_use]
    pub fn relaying(mut self) -> Responder<'a> {
        if let Some(record) = &mut self.record {
            record.is_relayed = true;
        }
        self
    }

    /// Makes the changes of the final head already now, for those that go by the fields as the client gets them.
    pub fn edit_now(&mut self, head: &mut ResponseHead) {
        self.edit(head);
        (self.app, self.edits) = (None, ResponseEdits::default());
    }

    /// Sends a complete response.
    #[inline(always)]
    pub fn send(mut self, head: &mut ResponseHead, mut content: Chunk) {
        self.edit(head);
        if let Some(compressing) = self.compressing {
            content = compressed(compressing, head, content);
        }
        if let Some(record) = &mut self.record {
            record.sent(head.status, content.len());
        }
        if let Some(http) = self.http.take() {
            http.send(head, content);
        }
    }

    /// Sends the head of a response; the content follows through the returned body, and its sender counts it.
    #[inline]
    pub fn start(mut self, head: &mut ResponseHead, length: BodyLength) -> Option<SendBody> {
        self.edit(head);
        if let Some(record) = &mut self.record {
            record.started(head.status, length);
        }
        Some(self.http.take()?.start(head, length))
    }

    /// The same for an endpoint that reports its sent bytes at the end.
    pub fn start_content(
        mut self,
        head: &mut ResponseHead,
        length: BodyLength,
    ) -> Option<(ContentSender, SentContent<'a>)> {
        self.edit(head);
        let (length_sent, encoder) = match self.compressing {
            None => (length, None),
            Some(compressing) => compressing.streamed(head, length),
        };
        let http = self.http.take()?;
        let mut record = self.record.take();
        let mut bytes = None;
        if let Some(record) = &mut record {
            record.started(head.status, length_sent);
            bytes = record.is_observed.then(Rc::default);
        }
        let body = http.start(head, length_sent);
        let sender = ContentSender::new(body, encoder, length, bytes.clone());
        Some((sender, SentContent { record, bytes }))
    }

    /// Sends a complete response as [`send`](Responder::send) does. Long content may be compressed in steps, by the
    /// returned future.
    #[inline(always)]
    pub fn send_long(
        self,
        head: &mut ResponseHead,
        content: Chunk,
    ) -> Option<PooledFuture<'a, ()>> {
        if self.compressing.is_none() || content.len() <= STEP_BYTES {
            self.send(head, content);
            return None;
        }
        self.send_in_steps(head, content)
    }

    #[inline(never)]
    fn send_in_steps(
        self,
        head: &mut ResponseHead,
        content: Chunk,
    ) -> Option<PooledFuture<'a, ()>> {
        let length = BodyLength::Known(content.len() as u64);
        let (mut sender, sent) = self.start_content(head, length)?;
        if sender.is_discarding() {
            sent.end(Ended::Complete);
            return None;
        }
        Some(PooledFuture::new(async move {
            let mut ended = sender.send_part(content).await;
            if ended.is_ok() {
                ended = sender.finish(None);
            }
            sent.end(match ended {
                Ok(()) => Ended::Complete,
                Err(SendError::Closed) => Ended::ClientGone,
                Err(SendError::Length) => Ended::Aborted,
            });
        }))
    }

    /// Sends the head that opens a tunnel, which no rule changes.
    #[inline]
    #[must_use]
    pub fn upgrade(mut self, head: &mut ResponseHead) -> Option<Tunnel> {
        if let Some(record) = &mut self.record {
            record.opened_tunnel(head.status);
        }
        Some(self.http.take()?.upgrade(head))
    }

    /// Sends a response of the site's own to a request with these fields, with the request's id.
    pub fn send_own(self, request: &Fields, mut head: Pooled<ResponseHead>, content: Chunk) {
        if let Some(id) = request.get(Name::XRequestId) {
            head.fields.append(Name::XRequestId, id);
        }
        self.send(&mut head, content);
    }

    /// Sends an error: a page of the site, or the one that is built in, or problem+json (RFC 9457), or text. `detail` is
    /// one of our own texts, which need no escaping in JSON.
    pub fn send_error(
        self,
        request: &Fields,
        pages: Option<&Pages>,
        mut head: Pooled<ResponseHead>,
        detail: impl Display,
    ) {
        let status = head.status;
        if status.forbids_content() {
            return self.send_own(request, head, Chunk::from(""));
        }
        if let Some(page) = pages.and_then(|pages| pages.find(status, request)) {
            head.fields.append(Name::ContentType, page.content_type);
            let content = Chunk::from(page.content.clone());
            return self.send_own(request, head, content);
        }
        if let Some(page) = error_page::page(request, &mut head, &detail) {
            return self.send_own(request, head, page);
        }
        let content = problem(&mut head, accepts_problem(request).unwrap_or(true), detail);
        self.send_own(request, head, content);
    }

    #[inline]
    fn edit(&self, head: &mut ResponseHead) {
        if let Some(app) = self.app {
            apply(app.edits, &mut head.fields);
        }
        self.edits.apply(&mut head.fields);
    }
}

impl Drop for Responder<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(http) = self.http.take() {
            self.abandon(http);
        }
    }
}

impl Responder<'_> {
    /// The endpoint was dropped before it responded. To content that came too slowly the server responds, if the site does
    /// not.
    #[cold]
    fn abandon(&mut self, http: blitz_http::Responder) {
        let Some(error @ BodyError::TimedOut) = http.body_failure() else {
            return;
        };
        if !self.edits.is_empty() || self.app.is_some() {
            let mut head = Pooled::response(error.status());
            // The rest of the content may still come.
            head.fields.append(Name::Connection, "close");
            let content = match self.page(head.status) {
                Some(page) => {
                    head.fields.append(Name::ContentType, page.content_type);
                    Chunk::from(page.content.clone())
                }
                None => problem(&mut head, http.accepts_problem(), &error),
            };
            self.edit(&mut head);
            if let Some(record) = &mut self.record {
                record.sent(head.status, content.len());
            }
            http.send(&mut head, content);
        }
        if let Some(record) = &mut self.record {
            record.failed_content(error);
        }
    }
}

/// Content as it is sent: compressed, if that is possible in one step.
#[inline(never)]
fn compressed(compressing: &Compressing<'_>, head: &mut ResponseHead, content: Chunk) -> Chunk {
    match content.len() <= STEP_BYTES {
        true => compressing.whole(head, &content).unwrap_or(content),
        false => content,
    }
}

/// An error as problem+json, or as text. The head gets its type.
fn problem(head: &mut ResponseHead, as_problem: bool, detail: impl Display) -> Chunk {
    let (code, title) = (head.status.code(), head.status.reason());
    let (content_type, content) = match as_problem {
        true => (
            "application/problem+json",
            format!("{{\"title\":\"{title}\",\"status\":{code},\"detail\":\"{detail}\"}}\n"),
        ),
        false => (
            "text/plain; charset=utf-8",
            format!("{code} {title}: {detail}\n"),
        ),
    };
    head.fields.append(Name::ContentType, content_type);
    content.into()
}

impl SentContent<'_> {
    /// The endpoint has ended.
    pub fn end(mut self, ended: Ended) {
        if let Some(record) = self.record.as_deref_mut() {
            record.ended = ended;
        }
    }
}

impl Drop for SentContent<'_> {
    fn drop(&mut self) {
        if let (Some(record), Some(bytes)) = (&mut self.record, &self.bytes) {
            record.bytes = bytes.get();
        }
    }
}
