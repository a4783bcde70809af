//! A request for a file, and its answer.

mod listing;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use blitz_http::files::blocking_in;
use blitz_http::{
    Chunk, Method, Name, Pooled, PooledFuture, RequestHead, ResponseHead, Status, prefers_html,
    sleep,
};

use super::cache::Remembered;
use super::content::{Content, Source};
use super::lookup::{Found, Lookup};
use super::open_files::{OpenFiles, Permit};
use super::send::respond;
use super::{CoreFiles, FILE_METHODS, Folder};
use crate::compress::{Compressing, note_compressed};
use crate::counters::count;
use crate::files::{AcceptedCodings, FilePath, Selection, select};
use crate::responder::Responder;
use listing::ListedContent;

/// Seconds after which a client may try again when too many files are open.
const RETRY_AFTER: &str = "1";

/// The pauses before looking for a file is tried again, which double: 1.3 s altogether.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(640);

/// A request for a file.
#[derive(Clone, Copy)]
pub struct FileRequest<'a> {
    /// The folder of the file.
    pub folder: &'a Arc<Folder>,
    /// The head of the request.
    pub head: &'a RequestHead,
    /// The folder stands for so many bytes of the normalised path.
    pub start: usize,
}

/// The next step for a request.
pub enum FileStep {
    /// It is answered.
    Answer(FileAnswer),
    /// The disk has to be asked.
    LookUp(FileLookup),
}

/// A look-up that has not begun.
pub struct FileLookup {
    path: FilePath,
    codings: AcceptedCodings,
    /// The file that is remembered, which may have changed.
    known: Option<Rc<Content>>,
    /// Whether the client gets the fallback if there is no file.
    takes_page: bool,
}

/// The answer to a request for a file.
pub enum FileAnswer {
    /// A response.
    Response(Pooled<ResponseHead>, FileContent),
    /// An error with its fields, and an explanation in a form that needs no escaping.
    Refused(Pooled<ResponseHead>, &'static str),
}

/// The content of a response.
pub struct FileContent(Inner);

enum Inner {
    Empty,
    File {
        content: Rc<Content>,
        selection: Selection,
        open_files: Rc<OpenFiles>,
    },
    Listing(ListedContent),
}

impl FileRequest<'_> {
    /// Answers at once if the file is remembered.
    #[must_use]
    pub fn begin(self, core: &CoreFiles) -> FileStep {
        match self.head.method {
            Method::Get | Method::Head => {}
            Method::Options => {
                let mut head = Pooled::response(Status::NO_CONTENT);
                head.fields.append(Name::Allow, FILE_METHODS);
                return FileStep::Answer(FileAnswer::Response(head, FileContent(Inner::Empty)));
            }
            _ => {
                let mut head = Pooled::response(Status::METHOD_NOT_ALLOWED);
                head.fields.append(Name::Allow, FILE_METHODS);
                return FileStep::Answer(FileAnswer::Refused(head, "files are only read"));
            }
        }
        let codings = AcceptedCodings::of(&self.head.fields);
        let mut cache = core.cache.borrow_mut();
        let now = blitz_http::now();
        let known = match cache.get(self.folder, self.head.path(), codings, now) {
            // One that is closed may be gone.
            Some(Remembered::Fresh(content)) if content.is_at_hand() => {
                return FileStep::Answer(self.content(core, content, false));
            }
            Some(Remembered::Fresh(content) | Remembered::Stale(content)) => Some(content),
            None => None,
        };
        let Ok(path) = self.folder.path(self.head.path(), self.start) else {
            return FileStep::Answer(missing());
        };
        // A folder is listed in place of the fallback.
        let takes_page = !self.folder.may_list(&path)
            && self
                .folder
                .takes_fallback(&path, || prefers_html(&self.head.fields));
        let asked = (self.head.path(), codings, takes_page);
        if cache.is_missing(self.folder, asked, now) {
            return FileStep::Answer(missing());
        }
        FileStep::LookUp(FileLookup {
            path,
            codings,
            known,
            takes_page,
        })
    }

    /// Looks for the file on another thread, and answers.
    pub async fn look_up(self, core: &CoreFiles, lookup: FileLookup) -> FileAnswer {
        let listed = self.folder.may_list(&lookup.path);
        let depends_on_accept = self.folder.depends_on_accept(&lookup.path);
        let (found, permit, times) = match self.find(core, &lookup).await {
            Ok(found) => found,
            Err(refused) => return refused,
        };
        let FileLookup {
            path,
            codings,
            known,
            takes_page,
        } = lookup;
        if let (Found::Missing, true, Some(permit)) = (&found, listed, permit) {
            core.cache
                .borrow_mut()
                .forget(self.folder, self.head.path(), codings);
            return self.list(core, path, permit).await;
        }
        let (folder, url) = (self.folder, self.head.path());
        let mut cache = core.cache.borrow_mut();
        match (found, known) {
            (Found::Unchanged, Some(content)) => {
                cache.confirm(folder, url, codings, &content, times.0);
                self.content(core, content, false)
            }
            (Found::Content(content), _) => {
                let content = Rc::new(content);
                cache.insert(folder, url, codings, &content, times);
                core.open_files.note(&content);
                self.content(core, content, false)
            }
            (other, known) => {
                if known.is_some() {
                    cache.forget(folder, url, codings);
                }
                if matches!(other, Found::Missing) {
                    cache.note_missing(folder, (url, codings, takes_page), times.0);
                }
                self.other(core, other, depends_on_accept)
            }
        }
    }

    /// Looks for the file on another thread. While descriptors or threads are lacking it tries again, so that a burst of
    /// requests is served late and not refused.
    async fn find(
        self,
        core: &CoreFiles,
        lookup: &FileLookup,
    ) -> Result<(Found, Option<Permit>, (Instant, SystemTime)), FileAnswer> {
        let mut pause = PAUSE_MIN;
        loop {
            let permit = core.open_files.permit();
            let has_permit = permit.is_some();
            if has_permit {
                let mut lookup = Lookup {
                    files: Arc::clone(self.folder),
                    path: lookup.path.clone(),
                    codings: lookup.codings,
                    takes_page: lookup.takes_page,
                    known: lookup.known.as_ref().map(|content| content.identity()),
                    permit,
                };
                let times = (blitz_http::now(), blitz_http::wall_clock());
                let job = move || (lookup.run(), lookup.permit);
                if let Ok((found, permit)) = blocking_in(self.folder.share(), job).await {
                    return Ok((found, permit, times));
                }
            }
            if pause > PAUSE_MAX {
                return Err(match has_permit {
                    true => too_many_wait(),
                    false => too_many_open(),
                });
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    fn other(self, core: &CoreFiles, found: Found, depends_on_accept: bool) -> FileAnswer {
        match found {
            Found::Fallback(content) => {
                let content = Rc::new(content);
                core.open_files.note(&content);
                self.content(core, content, depends_on_accept)
            }
            Found::Folder => self.redirect(),
            Found::Forbidden => {
                let head = Pooled::response(Status::FORBIDDEN);
                FileAnswer::Refused(head, "the file may not be read")
            }
            Found::Unavailable => unavailable("the file cannot be opened at the moment"),
            Found::Failed(error) => {
                let root = self.folder.root().display();
                tracing::warn!(%error, folder = %root, "a file cannot be read");
                let head = Pooled::response(Status::INTERNAL_SERVER_ERROR);
                FileAnswer::Refused(head, "the file cannot be read")
            }
            Found::Missing | Found::Unchanged | Found::Content(_) => missing(),
        }
    }

    /// A file, or the part that the request wants of it.
    fn content(
        self,
        core: &CoreFiles,
        content: Rc<Content>,
        depends_on_accept: bool,
    ) -> FileAnswer {
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
        let refusal = match head.status {
            Status::PRECONDITION_FAILED => "the file is not in the state that the request demands",
            Status::RANGE_NOT_SATISFIABLE => "the file ends before the range",
            _ => {
                if let Some(before) = content.compressed_from {
                    note_compressed(before, selection.length);
                }
                let content = Inner::File {
                    content,
                    selection,
                    open_files: Rc::clone(&core.open_files),
                };
                return FileAnswer::Response(head, FileContent(content));
            }
        };
        FileAnswer::Refused(head, refusal)
    }

    /// To the same path with a slash at its end, so that relative links of the index are right. The path begins with one
    /// slash, since paths with empty segments have no file.
    fn redirect(self) -> FileAnswer {
        let mut head = Pooled::response(Status::PERMANENT_REDIRECT);
        let mut location = format!("{}/", self.head.sent_path());
        if let Some(query) = self.head.query() {
            location.push('?');
            location.push_str(query);
        }
        head.fields.append(Name::Location, location);
        FileAnswer::Response(head, FileContent(Inner::Empty))
    }
}

impl FileAnswer {
    /// Whether there is no file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, FileAnswer::Refused(head, _) if head.status == Status::NOT_FOUND)
    }
}

impl FileContent {
    /// Whether it is read while it is sent, and may be compressed then. Small files are compressed by the look-up.
    #[must_use]
    pub fn is_large(&self) -> bool {
        let Inner::File { content, .. } = &self.0 else {
            return false;
        };
        matches!(content.source, Source::File(_))
    }

    /// Sends the response. Returns the rest of the work. `compressing` is for large files.
    pub fn send<'a>(
        self,
        responder: Responder<'a>,
        head: &mut ResponseHead,
        compressing: Option<&'a Compressing<'a>>,
    ) -> Option<PooledFuture<'a, ()>> {
        let compressing = compressing.filter(|_| self.is_large());
        match self.0 {
            Inner::Empty => {
                responder.send(head, Chunk::from(""));
                None
            }
            Inner::File {
                content,
                selection,
                open_files,
            } => {
                let responder = responder.compressing(compressing);
                respond(responder, head, content, selection, open_files)
            }
            Inner::Listing(listing) => listing.send(responder, head),
        }
    }
}

fn missing() -> FileAnswer {
    let head = Pooled::response(Status::NOT_FOUND);
    FileAnswer::Refused(head, "there is no such file")
}

/// Refuses a request while all files that may be open are in use.
fn too_many_open() -> FileAnswer {
    count(|counters| counters.files_refused_open += 1);
    unavailable("too many files are open")
}

/// Refuses a request for a folder whose disk is too slow for the requests that wait for it.
fn too_many_wait() -> FileAnswer {
    count(|counters| counters.files_refused_waiting += 1);
    unavailable("too many files of this folder are looked for")
}

fn unavailable(detail: &'static str) -> FileAnswer {
    let mut head = Pooled::response(Status::SERVICE_UNAVAILABLE);
    head.fields.append(Name::RetryAfter, RETRY_AFTER);
    FileAnswer::Refused(head, detail)
}
