//! Phase `files`: a file of the route's folder answers.

mod listing;
mod search;

use std::rc::Rc;
use std::sync::Arc;

use blitz_http::{
    Chunk, Exchange, Method, Name, Pooled, PooledFuture, RequestHead, ResponseHead, Status,
};
use blitz_site::compress::{Compressing, note_compressed};
use blitz_site::files::select;
use blitz_site::{CoreObservers, HandedOver, Notes, Pages, Record, Responder, count};

use super::admit::check_method;
use super::finish::{reject, response_edits};
use super::route::Rejected;
use crate::files::{Content, CoreFiles, Files, Found, Permit, Source, respond};
use crate::forward;
use crate::route::Route;
use crate::service::GatewayService;
use crate::sites::SiteRoutes;

pub(super) use search::{Answer, Begun, begin};

/// The methods that files have.
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// Seconds after which a client may try again when too many files are open.
const RETRY_AFTER: &str = "1";

/// Answers with a file of the folder. Its future has memory of its own, since it is larger than those of other actions.
pub(super) async fn respond_file<E>(
    gateway: &GatewayService<E>,
    observers: &CoreObservers,
    site: &SiteRoutes,
    (route, files, notes): (&Route, &Arc<Files>, Option<Box<Notes<'_>>>),
    mut exchange: Exchange,
) {
    if let Err(rejection) = check_method(&mut exchange.request) {
        let rejected = Rejected {
            rejection,
            site: Some(site),
            route: Some(route),
            notes,
        };
        return reject(gateway, observers, exchange, rejected);
    }
    let route = (route, files, notes);
    respond_with(gateway, observers, site, route, exchange, None).await;
}

/// Answers with what was found; `None` looks for it.
pub(super) async fn respond_with<E>(
    gateway: &GatewayService<E>,
    observers: &CoreObservers,
    site: &SiteRoutes,
    (route, files, notes): (&Route, &Arc<Files>, Option<Box<Notes<'_>>>),
    mut exchange: Exchange,
    found: Option<Answer>,
) {
    let (head, peer) = (&mut exchange.request, &exchange.peer);
    let rules = route.rules.as_deref();
    let edits = rules.map(|rules| {
        let trusted = &gateway.options.trusted_proxies;
        rules.edit_response(head, peer, trusted, notes.as_deref())
    });
    let mut record = Record::new(head, Rc::clone(peer), site.name(), Some(route), observers);
    record.begin_with(notes.as_deref());
    let compression = files.compression.as_ref();
    let compressing = compression.map(|compression| Compressing::of_public(compression, head));
    let mut handed = HandedOver::new(record, &exchange.request);
    let exchange = handed.exchange(exchange, response_edits(&notes, edits.as_deref()), None);
    let request = FileRequest {
        files,
        head: exchange.request,
        responder: exchange.responder,
        pages: rules.map(|rules| &rules.pages),
        compressing: compressing.as_ref(),
        compresses_errors: rules.is_some_and(|rules| rules.compression.is_some()),
    };
    let core = &gateway.files;
    match found {
        None => {
            if let Some(rest) = request.answer(core) {
                rest.await;
            }
        }
        Some(found) => {
            // A file that is being sent is still open.
            if let Some((rest, _permit)) = request.answer_with(core, found).await {
                rest.await;
            }
        }
    }
}

/// A request for a file.
struct FileRequest<'a> {
    files: &'a Arc<Files>,
    head: Pooled<RequestHead>,
    responder: Responder<'a>,
    pages: Option<&'a Pages>,
    compressing: Option<&'a Compressing<'a>>,
    compresses_errors: bool,
}

/// The rest of the work; `None` if there is none.
type Rest<'a> = Option<PooledFuture<'a, ()>>;

impl<'a> FileRequest<'a> {
    /// Answers at once if the file is remembered.
    fn answer(self, core: &'a CoreFiles) -> Rest<'a> {
        match self.head.method {
            Method::Get | Method::Head => {}
            Method::Options => {
                let mut head = Pooled::response(Status::NO_CONTENT);
                head.fields.append(Name::Allow, ALLOW);
                self.responder.send(&mut head, Chunk::from(""));
                return None;
            }
            _ => {
                let mut head = Pooled::response(Status::METHOD_NOT_ALLOWED);
                head.fields.append(Name::Allow, ALLOW);
                return self.refuse(head, "files are only read");
            }
        }
        match begin(core, self.files, &self.head) {
            Begun::Answer(Answer::Fresh(content)) => self.send(&content, false),
            Begun::Answer(_) => self.too_many_open(),
            Begun::NoPath => self.missing(),
            Begun::Search(search) => Some(PooledFuture::new(async move {
                let answer = search.run().await;
                // A file that is being sent is still open.
                if let Some((rest, _permit)) = self.answer_with(core, answer).await {
                    rest.await;
                }
            })),
        }
    }

    /// Answers with what was found.
    async fn answer_with(
        self,
        core: &CoreFiles,
        answer: Answer,
    ) -> Option<(PooledFuture<'a, ()>, Option<Permit>)> {
        let searched = match answer {
            Answer::Fresh(content) => return self.send(&content, false).map(|rest| (rest, None)),
            Answer::TooManyOpen => return self.too_many_open().map(|rest| (rest, None)),
            Answer::TooManyWait => return self.too_many_wait(),
            Answer::Searched(searched) => searched,
        };
        let permit = searched.permit;
        if let (Found::Missing, Some(path)) = (&searched.found, searched.listed) {
            let mut cache = core.cache.borrow_mut();
            cache.forget(self.files, self.head.path(), searched.codings);
            drop(cache);
            let listed = self.list(core, path, permit).await;
            return listed.map(|(rest, permit)| (rest, Some(permit)));
        }
        let (files, url, codings) = (self.files, self.head.path(), searched.codings);
        let mut cache = core.cache.borrow_mut();
        let rest = match (searched.found, searched.known) {
            (Found::Unchanged, Some(content)) => {
                cache.confirm(files, url, codings, &content, searched.times.0);
                drop(cache);
                self.send(&content, false)
            }
            (Found::Content(content), _) => {
                let content = Rc::new(content);
                cache.insert(files, url, codings, &content, searched.times);
                drop(cache);
                self.send(&content, false)
            }
            (other, known) => {
                if known.is_some() {
                    cache.forget(files, url, codings);
                }
                drop(cache);
                self.answer_other(other, searched.depends_on_accept)
            }
        };
        rest.map(|rest| (rest, Some(permit)))
    }

    fn answer_other(self, found: Found, depends_on_accept: bool) -> Rest<'a> {
        match found {
            Found::Fallback(content) => self.send(&content, depends_on_accept),
            Found::Folder => self.redirect(),
            Found::Forbidden => {
                let head = Pooled::response(Status::FORBIDDEN);
                self.refuse(head, "the file may not be read")
            }
            Found::Unavailable => self.unavailable("the file cannot be opened at the moment"),
            Found::Failed(error) => {
                let root = self.files.root().display();
                tracing::warn!(%error, folder = %root, "a file cannot be read");
                let head = Pooled::response(Status::INTERNAL_SERVER_ERROR);
                self.refuse(head, "the file cannot be read")
            }
            Found::Missing | Found::Unchanged | Found::Content(_) => self.missing(),
        }
    }

    /// Sends a file, or the part that the request wants of it.
    fn send(self, content: &Content, depends_on_accept: bool) -> Rest<'a> {
        let mut head = Pooled::response(Status::OK);
        head.fields.append(Name::ContentType, content.media_type);
        if let Some(coding) = content.coding {
            head.fields.append(Name::ContentEncoding, coding.name());
        }
        if content.varies {
            head.fields.append(Name::Vary, "Accept-Encoding");
        }
        if depends_on_accept {
            head.fields.append(Name::Vary, "Accept");
        }
        let selection = select(
            self.head.method,
            &self.head.fields,
            &content.representation,
            blitz_http::wall_clock(),
            blitz_http::random_u64,
            &mut head,
        );
        match head.status {
            Status::PRECONDITION_FAILED => self.refuse(
                head,
                "the file is not in the state that the request demands",
            ),
            Status::RANGE_NOT_SATISFIABLE => self.refuse(head, "the file ends before the range"),
            _ => {
                if let Some(before) = content.compressed_from {
                    note_compressed(before, selection.length);
                }
                // Small files are compressed by the lookup.
                let is_large = matches!(content.source, Source::File(_));
                let compressing = self.compressing.filter(|_| is_large);
                let responder = self.responder.compressing(compressing);
                respond(responder, head, content, selection)
            }
        }
    }

    /// To the same path with a slash at its end, so that relative links of the index are right. The path begins with one
    /// slash, since paths with empty segments have no file.
    fn redirect(self) -> Rest<'a> {
        let mut head = Pooled::response(Status::PERMANENT_REDIRECT);
        let mut location = format!("{}/", self.head.sent_path());
        if let Some(query) = self.head.query() {
            location.push('?');
            location.push_str(query);
        }
        head.fields.append(Name::Location, location);
        self.responder.send(&mut head, Chunk::from(""));
        None
    }

    fn missing(self) -> Rest<'a> {
        let head = Pooled::response(Status::NOT_FOUND);
        self.refuse(head, "there is no such file")
    }

    fn too_many_open(self) -> Rest<'a> {
        count(|counters| counters.files_refused_open += 1);
        self.unavailable("too many files are open")
    }

    /// Refuses a request for a folder whose disk is too slow for the requests that wait for it.
    fn too_many_wait<T>(self) -> Option<T> {
        count(|counters| counters.files_refused_waiting += 1);
        self.unavailable("too many files of this folder are looked for");
        None
    }

    fn unavailable(self, detail: &str) -> Rest<'a> {
        let mut head = Pooled::response(Status::SERVICE_UNAVAILABLE);
        head.fields.append(Name::RetryAfter, RETRY_AFTER);
        self.refuse(head, detail)
    }

    /// Sends the error, or the page of the route for it.
    #[cold]
    fn refuse(mut self, head: Pooled<ResponseHead>, detail: &str) -> Rest<'a> {
        forward::ensure_request_id(&mut self.head.fields);
        let compressing = self.compressing.filter(|_| self.compresses_errors);
        self.responder.compressing(compressing).send_error(
            &self.head.fields,
            self.pages,
            head,
            detail,
        );
        None
    }
}
