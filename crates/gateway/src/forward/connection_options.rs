//! `Connection`, which names fields that are for this hop only (RFC 9110 section 7.6.1), and other
//! lists of tokens.

use std::collections::HashSet;

use blitz_http::{Fields, Name};

use super::NotForwarded;
use super::presence::{END_TO_END, HOP, is_forwarding_name, set_of};

/// Options that `Connection` may name. A request with more is rejected; in a response, the fields of
/// all of them are removed.
pub(super) const CONNECTION_OPTIONS_MAX: usize = 16;

/// Removes the fields that `Connection` names, except those for every recipient.
pub(super) fn remove_named_by_connection(
    fields: &mut Fields,
    scratch: &mut Vec<u8>,
) -> Result<(), NotForwarded> {
    let names_nothing = |value: &[u8]| {
        value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close")
    };
    if fields.get_all(Name::Connection).all(names_nothing) {
        return Ok(());
    }
    // Names are copied, since the options lie in the block from which fields are removed.
    scratch.clear();
    let items = fields
        .get_all(Name::Connection)
        .flat_map(|value| value.split(|&b| b == b','));
    let options = items
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty());
    for (at, option) in options.enumerate() {
        if at == CONNECTION_OPTIONS_MAX {
            return Err(NotForwarded::TooManyConnectionOptions);
        }
        if names_removable_field(option) {
            scratch.extend_from_slice(option);
            scratch.push(b',');
        }
    }
    let named = scratch.split(|&b| b == b',').map(std::str::from_utf8);
    named
        .flatten()
        .filter(|name| !name.is_empty())
        .for_each(|name| {
            fields.remove(name);
        });
    Ok(())
}

/// Whether an option of `Connection` names a field that has to be removed because of it.
fn names_removable_field(option: &[u8]) -> bool {
    let is_settled =
        (HOP | END_TO_END) & set_of(&[Name::parse(option)]) != 0 || is_forwarding_name(option);
    !is_settled && !option.eq_ignore_ascii_case(b"close")
}

/// Removes the fields that `Connection` names, however many these are. The effort grows with the length
/// of the head, not with its square.
#[cold]
pub(super) fn remove_all_named_by_connection(fields: &mut Fields) {
    let named: HashSet<Vec<u8>> = fields
        .get_all(Name::Connection)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|option| names_removable_field(option))
        .map(<[u8]>::to_ascii_lowercase)
        .collect();
    fields.retain(|name, _| !named.contains(&name.as_bytes().to_ascii_lowercase()));
}

/// Whether a list field contains a token, without its parameters.
pub(crate) fn contains_token(fields: &Fields, name: Name, token: &str) -> bool {
    fields.get_all(name).any(|value| {
        value.split(|&byte| byte == b',').any(|item| {
            let item = item.split(|&byte| byte == b';').next().unwrap_or_default();
            item.trim_ascii().eq_ignore_ascii_case(token.as_bytes())
        })
    })
}
