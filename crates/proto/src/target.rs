//! Request targets (RFC 9112, section 3.2) and authorities (RFC 3986, section 3.2).

use crate::error::ErrorKind;
use crate::message::RequestHead;

pub(crate) fn parse_request_line(_: &mut RequestHead, _: &[u8], _: &[u8]) -> Result<(), ErrorKind> {
    todo!()
}
pub(crate) fn is_path(_: &[u8]) -> bool {
    todo!()
}
pub(crate) fn is_query(_: &[u8]) -> bool {
    todo!()
}
pub(crate) fn is_authority(_: &[u8]) -> bool {
    todo!()
}
