//! Static files, by the same code as `files` of the gateway.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use blitz_http::files::SymbolicLinks;
use blitz_http::{PoolFuture, Pooled, PooledFuture, RequestHead, ResponseHead};
use blitz_site::Responder;
use blitz_site::compress::{Compressing, Compression};
use blitz_site::folder::{FileAnswer, FileContent, FileRequest, FileStep, Folder, FolderSettings};

use crate::error::{Error, Result};
use crate::outcome::Outcome;
use crate::policy::unreadable;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::Response;
use crate::site::DynHandler;

/// The parameter of a route of files.
pub(crate) const PARAMETER: &str = "{path...}";

/// The most names of `index`, and the most endings of `extensions`: each is looked for.
const NAMES_MAX: usize = 16;

/// A folder for [`App::files`](crate::App::files).
///
/// Small files are remembered for a second, large ones are sent from the page cache. Responses have validators, and
/// requests may name ranges and conditions (RFC 9110, sections 13 and 14). A compressed file beside another one, such as
/// `app.js.br`, is sent to clients that accept it; other files are compressed. Nothing outside of the folder is sent, and
/// no file with a name that begins with a dot but those of `/.well-known`.
///
/// ```no_run
/// use blitz::{App, Files};
///
/// fn main() -> blitz::Result {
///     App::new()
///         .get("/api/time", || "noon")
///         .files("/", Files::new("dist").precompressed().spa("index.html"))
///         .run()
/// }
/// ```
#[must_use]
pub struct Files {
    settings: FolderSettings,
}

impl Files {
    /// The files of a folder. A relative path begins at the working directory.
    pub fn new(folder: impl Into<PathBuf>) -> Files {
        Files {
            settings: FolderSettings {
                root: folder.into(),
                index: vec!["index.html".to_owned()],
                extensions: Vec::new(),
                fallback: None,
                hidden: false,
                list: false,
                is_before_upstream: false,
                links: SymbolicLinks::Inside,
                compression: Some(Compression::default()),
            },
        }
    }

    /// The files are compressed already: clients get the compressed file beside another one, which a build tool has
    /// written, and nothing is compressed by the app.
    pub fn precompressed(mut self) -> Files {
        self.settings.compression = None;
        self
    }

    /// The page of a single-page application, for paths without a file that clients want as a page: their last segment
    /// has no dot, or they prefer HTML.
    pub fn spa(mut self, page: impl Into<String>) -> Files {
        self.settings.fallback = Some(page.into());
        self
    }

    /// Names of files that stand for their folder, the preferred first. Default: `index.html`.
    pub fn index<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Files {
        self.settings.index = names.into_iter().map(Into::into).collect();
        self
    }

    /// Endings that paths may leave out: with `.html` the path `/about` is for `about.html`.
    pub fn extensions<T: Into<String>>(mut self, endings: impl IntoIterator<Item = T>) -> Files {
        self.settings.extensions = endings.into_iter().map(Into::into).collect();
        self
    }

    /// Lists folders without an index, as a page or as JSON. Default: no.
    pub fn list(mut self, is_on: bool) -> Files {
        self.settings.list = is_on;
        self
    }

    /// Sends files whose names begin with a dot. Default: no.
    pub fn hidden(mut self, is_on: bool) -> Files {
        self.settings.hidden = is_on;
        self
    }

    /// Which symbolic links are followed. Default: those that stay in the folder.
    pub fn symlinks(mut self, links: SymbolicLinks) -> Files {
        self.settings.links = links;
        self
    }

    /// The folder, if it is there.
    pub(crate) fn folder(mut self) -> Result<Folder> {
        let settings = &mut self.settings;
        let invalid = |text: &str, example: &str| {
            let remedy = format!("Write for example `{example}`.");
            Error::new(format!("`{text}` is no name of a file")).with_remedy(remedy)
        };
        let names = settings
            .index
            .iter()
            .map(|name| (name, is_name(name), "index.html"));
        let endings = settings.extensions.iter();
        let endings = endings.map(|ending| (ending, is_ending(ending), ".html"));
        if let Some((text, _, example)) = names.chain(endings).find(|(_, is_valid, _)| !is_valid) {
            return Err(invalid(text, example));
        }
        if settings.index.len().max(settings.extensions.len()) > NAMES_MAX {
            let problem = format!("files have at most {NAMES_MAX} names of an index or endings");
            return Err(Error::new(problem));
        }
        let root = &settings.root;
        match fs::metadata(root) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(Error::new(format!("{} is no folder", root.display()))),
            Err(error) => return Err(unreadable("folder", root, &error)),
        }
        if let Some(page) = &mut settings.fallback {
            let path = page.strip_prefix('/').unwrap_or(page);
            if !path.split('/').all(is_name) {
                return Err(invalid(page, "index.html"));
            }
            let path = path.to_owned();
            let found = fs::metadata(root.join(&path)).and_then(|found| match found.is_file() {
                true => Ok(()),
                false => Err(io::ErrorKind::NotFound.into()),
            });
            found.map_err(|error| unreadable("page", &root.join(&path), &error))?;
            *page = path;
        }
        Ok(Folder::new(self.settings))
    }
}

/// Whether the text is a segment of a path in the file system.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])
}

/// Whether the text is an ending of names of files.
fn is_ending(text: &str) -> bool {
    text.len() > 1 && text.starts_with('.') && !text.contains(['/', '\0'])
}

/// The handler of the files of a folder.
pub(crate) fn handler(folder: Arc<Folder>) -> DynHandler {
    Box::new(move |request| {
        let core = Rc::clone(&request.core);
        match asked(&folder, &request).begin(&core.files) {
            FileStep::Answer(answer) => Outcome::Ready(response(answer, &folder, request)),
            FileStep::LookUp(lookup) => {
                let folder = Arc::clone(&folder);
                Outcome::Later(PoolFuture::new(async move {
                    let looked_up = asked(&folder, &request).look_up(&core.files, lookup);
                    let answer = looked_up.await;
                    response(answer, &folder, request)
                }))
            }
        }
    })
}

fn asked<'a>(folder: &'a Arc<Folder>, request: &'a Request) -> FileRequest<'a> {
    let path = request.path();
    let names = request.core.pattern(request.route).param_names.len();
    // The last parameter, which the route of the folder without a slash has not.
    let rest = match request.params.len() == names {
        true => request.params.get(path, names.saturating_sub(1)),
        false => None,
    };
    // The folder begins with the slash before it.
    let start = rest.map_or(path.len(), |rest| path.len().saturating_sub(rest.len() + 1));
    FileRequest {
        folder,
        head: &request.head,
        start,
    }
}

fn response(answer: FileAnswer, folder: &Arc<Folder>, request: Request) -> Response {
    match answer {
        FileAnswer::Response(head, content) => {
            let is_compressed = content.is_large() && folder.compression().is_some();
            let compressed = is_compressed.then(|| (request.head, Arc::clone(folder)));
            let file = FileBody {
                content,
                compressed,
            };
            Response::file(head, file)
        }
        FileAnswer::Refused(head, detail) => {
            let problem = Problem::new(head.status);
            // The page of a site for missing files is for errors without a detail.
            let problem = match head.status {
                blitz_http::Status::NOT_FOUND => problem,
                _ => problem.detail(detail),
            };
            Response::problem_with(head, problem)
        }
    }
}

/// A file as the content of a response.
pub(crate) struct FileBody {
    content: FileContent,
    /// The request, if the file may be compressed while it is sent.
    compressed: Option<(Pooled<RequestHead>, Arc<Folder>)>,
}

impl FileBody {
    /// Sends the response. Returns the rest of the work.
    pub(crate) fn send<'a>(
        self,
        responder: Responder<'a>,
        mut head: Pooled<ResponseHead>,
    ) -> Option<PooledFuture<'a, ()>> {
        let Some((request, folder)) = self.compressed else {
            return self.content.send(responder, &mut head, None);
        };
        Some(PooledFuture::new(async move {
            let compression = folder.compression();
            let compressing =
                compression.map(|compression| Compressing::of_public(compression, &request));
            if let Some(rest) = self
                .content
                .send(responder, &mut head, compressing.as_ref())
            {
                rest.await;
            }
        }))
    }
}
