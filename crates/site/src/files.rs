//! Static files: how the path of a request becomes a response. Nothing here opens a file.

mod conditional;
mod listing;
mod media_type;
mod range;
mod request_path;
mod selection;

pub use crate::coding::{AcceptedCodings, ContentCoding};
pub use listing::{Listing, ListingOrder, is_listed};
pub use media_type::media_type;
pub use request_path::{FilePath, PathError};
pub use selection::{Piece, Representation, Selection, select};

pub(crate) use listing::{LISTED_BYTES_MAX, LISTED_MAX};
