//! Paths in the form in which they are matched and sent on (RULES 10).

use crate::error::ErrorKind;

/// Appends the normal form of `path` to `out` and says whether it differs from `path`.
pub(crate) fn normalize(path: &str, out: &mut String) -> Result<bool, ErrorKind> {
    let _ = (path, out);
    todo!()
}
