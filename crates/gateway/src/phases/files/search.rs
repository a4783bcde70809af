//! The search for the file of a request: among those that the core remembers, then on another thread.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use blitz_http::files::blocking_in;
use blitz_http::reactor::sockets_limit;
use blitz_http::{RequestHead, prefers_html};
use blitz_site::files::{AcceptedCodings, FilePath};

use crate::files::{Content, CoreFiles, Files, Found, Lookup, Permit, Remembered};

/// The beginning of a search.
pub(crate) enum Begun {
    /// It is over.
    Answer(Answer),
    /// Such a path has no file.
    NoPath,
    /// Another thread has to look.
    Search(Search),
}

/// The outcome of a search.
pub(crate) enum Answer {
    /// The file is remembered.
    Fresh(Rc<Content>),
    /// The core has as many files open as it may.
    TooManyOpen,
    /// As many requests for files of the folder wait as may.
    TooManyWait,
    /// Another thread has looked.
    Searched(Searched),
}

/// A search on another thread.
pub(crate) struct Search {
    lookup: Lookup,
    listed: Option<FilePath>,
    known: Option<Rc<Content>>,
    depends_on_accept: bool,
    permit: Permit,
}

/// The result of another thread.
pub(crate) struct Searched {
    pub(crate) found: Found,
    /// The folder to list if there is no file.
    pub(crate) listed: Option<FilePath>,
    /// The file as it was remembered.
    pub(crate) known: Option<Rc<Content>>,
    pub(crate) codings: AcceptedCodings,
    /// Whether a fallback is for the fields of the request.
    pub(crate) depends_on_accept: bool,
    /// When the search began.
    pub(crate) times: (Instant, SystemTime),
    pub(crate) permit: Permit,
}

/// Begins the search for the file of a request.
#[inline]
pub(crate) fn begin(core: &CoreFiles, files: &Arc<Files>, head: &RequestHead) -> Begun {
    let codings = AcceptedCodings::of(&head.fields);
    let mut cache = core.cache.borrow_mut();
    let known = match cache.get(files, head.path(), codings, blitz_http::now()) {
        Some(Remembered::Fresh(content)) => return Begun::Answer(Answer::Fresh(content)),
        Some(Remembered::Stale(content)) => Some(content),
        None => None,
    };
    drop(cache);
    let Ok(path) = files.path(head.path()) else {
        return Begun::NoPath;
    };
    let Some(permit) = core.permits.take(sockets_limit().1) else {
        return Begun::Answer(Answer::TooManyOpen);
    };
    let listed = files.may_list(&path).then(|| path.clone());
    Begun::Search(Search {
        depends_on_accept: files.depends_on_accept(&path),
        lookup: Lookup {
            files: Arc::clone(files),
            // A folder is listed in place of the fallback.
            takes_page: listed.is_none() && files.takes_fallback(&path, prefers_html(&head.fields)),
            path,
            codings,
            known: known.as_ref().map(|content| content.identity()),
        },
        listed,
        known,
        permit,
    })
}

impl Search {
    /// Looks for the file on another thread.
    pub(crate) async fn run(self) -> Answer {
        let Search {
            lookup,
            listed,
            known,
            depends_on_accept,
            permit,
        } = self;
        let (files, codings) = (Arc::clone(&lookup.files), lookup.codings);
        let times = (blitz_http::now(), blitz_http::wall_clock());
        let found = blocking_in(files.share(), move || (lookup.run(), permit)).await;
        match found {
            Err(_) => Answer::TooManyWait,
            Ok((found, permit)) => Answer::Searched(Searched {
                found,
                listed,
                known,
                codings,
                depends_on_accept,
                times,
                permit,
            }),
        }
    }
}
