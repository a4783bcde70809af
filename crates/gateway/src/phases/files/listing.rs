//! A folder without an index is listed.

use blitz_http::files::{Folder, blocking_in};
use blitz_http::{BodyLength, Fields, Name, Pooled, PooledFuture, Status, prefers_html};
use blitz_site::Ended;
use blitz_site::files::{FilePath, ListingOrder};
use bytes::Bytes;

use super::{FileRequest, Rest};
use crate::files::{CoreFiles, Found, ListingRequest, Permit};

/// Bytes of a listing that are sent at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// A page has no script, and nothing from elsewhere.
const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

impl<'a> FileRequest<'a> {
    /// Lists the folder, on another thread, and sends the listing. It holds the permit of the look-up.
    pub(super) async fn list(
        self,
        core: &CoreFiles,
        path: FilePath,
        permit: Permit,
    ) -> Option<(PooledFuture<'a, ()>, Permit)> {
        let Some(listing_permit) = core.listings.take() else {
            let rest = self.unavailable("too many folders are being listed");
            return rest.map(|rest| (rest, permit));
        };
        let is_json = wants_json(&self.head.fields);
        let request = ListingRequest {
            files: self.files.clone(),
            path,
            url: self.head.path().to_owned(),
            order: ListingOrder::of_query(self.head.query().unwrap_or_default()),
            is_json,
        };
        let job = move || (request.run(), permit);
        let Ok((listed, permit)) = blocking_in(self.files.share(), job).await else {
            return self.too_many_wait();
        };
        let rest = match listed {
            Ok(Some(content)) => {
                let rest = self.send_listing(content.into(), is_json);
                rest.map(|rest| {
                    PooledFuture::new(async move {
                        let _held = listing_permit;
                        rest.await;
                    })
                })
            }
            Ok(None) => self.missing(),
            Err(error) => self.answer_other(failure(error), false),
        };
        rest.map(|rest| (rest, permit))
    }

    fn send_listing(self, content: Bytes, is_json: bool) -> Rest<'a> {
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
        let length = BodyLength::Known(content.len() as u64);
        let (mut body, sent) = self.responder.start_content(&mut head, length)?;
        if body.is_discarding() {
            sent.end(Ended::Complete);
            return None;
        }
        Some(PooledFuture::new(async move {
            let mut rest = content;
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
        _ if Folder::may_retry(&error) => Found::Unavailable,
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
