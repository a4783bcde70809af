//! A folder without an index is listed.

use blitz_http::files::{Folder as OpenFolder, blocking_in};
use blitz_http::{
    BodyLength, Fields, Name, Pooled, PooledFuture, ResponseHead, Status, prefers_html,
};
use bytes::Bytes;

use super::{FileAnswer, FileContent, FileRequest, Inner, missing, too_many_wait, unavailable};
use crate::files::{FilePath, ListingOrder};
use crate::folder::CoreFiles;
use crate::folder::listing::{ListingPermit, ListingRequest};
use crate::folder::lookup::Found;
use crate::folder::open_files::Permit;
use crate::record::Ended;
use crate::responder::Responder;

/// Bytes of a listing that are sent at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// A page has no script, and nothing from elsewhere.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The listing of a folder, with its permit.
pub(super) struct ListedContent {
    content: Bytes,
    listing_permit: ListingPermit,
}

impl FileRequest<'_> {
    /// Lists the folder, on another thread, with the permit of the look-up.
    pub(super) async fn list(self, core: &CoreFiles, path: FilePath, permit: Permit) -> FileAnswer {
        let Some(listing_permit) = core.listings.take() else {
            return unavailable("too many folders are being listed");
        };
        let is_json = wants_json(&self.head.fields);
        let request = ListingRequest {
            files: self.folder.clone(),
            path,
            url: self.head.path().to_owned(),
            start: self.start,
            order: ListingOrder::of_query(self.head.query().unwrap_or_default()),
            is_json,
        };
        let job = move || {
            let listed = request.run();
            drop(permit);
            listed
        };
        let Ok(listed) = blocking_in(self.folder.share(), job).await else {
            return too_many_wait();
        };
        match listed {
            Ok(Some(content)) => {
                let content = Inner::Listing(ListedContent {
                    content: content.into(),
                    listing_permit,
                });
                FileAnswer::Response(head_of_listing(is_json), FileContent(content))
            }
            Ok(None) => missing(),
            Err(error) => self.other(core, failure(error), false),
        }
    }
}

fn head_of_listing(is_json: bool) -> Pooled<ResponseHead> {
    let mut head = Pooled::response(Status::OK);
    let content_type = match is_json {
        true => "application/json",
        false => "text/html; charset=utf-8",
    };
    head.fields.append(Name::ContentType, content_type);
    head.fields.append(Name::Vary, "Accept");
    head.fields.append(Name::CacheControl, "no-cache");
    for (name, value) in [
        ("content-security-policy", CONTENT_SECURITY_POLICY),
        ("x-content-type-options", "nosniff"),
    ] {
        // Both are valid.
        let _ = head.fields.try_append(name, value);
    }
    head
}

impl ListedContent {
    pub(super) fn send<'a>(
        self,
        responder: Responder<'a>,
        head: &mut ResponseHead,
    ) -> Option<PooledFuture<'a, ()>> {
        let length = BodyLength::Known(self.content.len() as u64);
        let (mut body, sent) = responder.start_content(head, length)?;
        if body.is_discarding() {
            sent.end(Ended::Complete);
            return None;
        }
        Some(PooledFuture::new(async move {
            let ListedContent {
                content: mut rest,
                listing_permit: _listing_permit,
            } = self;
            while !rest.is_empty() {
                let piece = rest.split_to(PIECE_BYTES.min(rest.len()));
                if body.send_part(piece.into()).await.is_err() {
                    return sent.end(Ended::ClientGone);
                }
            }
            sent.end(match body.finish(None) {
                Ok(()) => Ended::Complete,
                Err(_) => Ended::ClientGone,
            });
        }))
    }
}

fn failure(error: std::io::Error) -> Found {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Found::Forbidden,
        _ if OpenFolder::may_retry(&error) => Found::Unavailable,
        _ => Found::Failed(error),
    }
}

/// Whether the client names JSON, and does not prefer a page.
fn wants_json(fields: &Fields) -> bool {
    let names_json = |line: &[u8]| {
        let mut ranges = line.split(|byte| *byte == b',');
        ranges.any(|range| {
            let name = range.split(|byte| *byte == b';').next().unwrap_or_default();
            name.trim_ascii().eq_ignore_ascii_case(b"application/json")
        })
    };
    fields.get_all(Name::Accept).any(names_json) && !prefers_html(fields)
}
