//! Pages for errors, and other files of a configuration that are kept in memory.

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;
use std::path::Path;

use blitz_http::{Fields, Status, prefers_html};
use bytes::Bytes;

use crate::files::media_type;

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFile {
    /// Its bytes, which all responses share.
    pub content: Bytes,
    /// Its media type.
    pub content_type: &'static str,
}

/// The content may be large: its length is enough to tell most files apart.
impl Hash for LoadedFile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.content.len(), self.content_type).hash(state);
    }
}

impl LoadedFile {
    /// A file with its media type, which follows from the ending of the path.
    pub fn new(path: &Path, content: &[u8]) -> LoadedFile {
        let content_type = media_type(path.as_os_str().as_encoded_bytes());
        LoadedFile {
            content: Bytes::copy_from_slice(content),
            content_type,
        }
    }
}

/// The pages for a request whose head is gone.
#[derive(Debug)]
pub struct RequestPages<'a> {
    pages: &'a Pages,
    prefers_html: bool,
}

impl<'a> RequestPages<'a> {
    /// `None` without pages.
    #[inline]
    pub fn new(pages: &'a Pages, request: &Fields) -> Option<RequestPages<'a>> {
        let prefers_html = !pages.0.is_empty() && prefers_html(request);
        (!pages.0.is_empty()).then_some(RequestPages {
            pages,
            prefers_html,
        })
    }

    pub(crate) fn find(&self, status: Status) -> Option<&'a LoadedFile> {
        self.pages.find_for(status, || self.prefers_html)
    }
}

/// Pages by statuses, of which the first that matches counts; `None` is the page that is built in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Pages(pub Box<[(RangeInclusive<u16>, Option<LoadedFile>)]>);

impl Pages {
    /// The page for a response of the gateway's own; `None` is the one that is built in. HTML is for those who prefer it.
    pub fn find(&self, status: Status, request: &Fields) -> Option<&LoadedFile> {
        self.find_for(status, || prefers_html(request))
    }

    /// Whether there is a page for this status, also if it is the one that is built in.
    #[must_use]
    pub fn has(&self, status: Status) -> bool {
        let mut all = self.0.iter();
        all.any(|(statuses, _)| statuses.contains(&status.code()))
    }

    fn find_for(&self, status: Status, prefers_html: impl Fn() -> bool) -> Option<&LoadedFile> {
        let is_for = |(statuses, _): &&(RangeInclusive<u16>, _)| statuses.contains(&status.code());
        let (_, page) = self.0.iter().find(is_for)?;
        let is_html = |page: &LoadedFile| page.content_type.starts_with("text/html");
        page.as_ref()
            .filter(|page| !is_html(page) || prefers_html())
    }
}
