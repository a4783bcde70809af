//! The methods of a route key.

use std::fmt;

use blitz_http::Method;

use super::key::KeyError;

/// Methods in the order in which they are printed.
const KNOWN: [Method; 9] = [
    Method::Get,
    Method::Head,
    Method::Post,
    Method::Put,
    Method::Patch,
    Method::Delete,
    Method::Options,
    Method::Trace,
    Method::Connect,
];

/// A set of methods: bits for those of [`Method`], names for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Methods {
    bits: u16,
    others: Box<[Box<str>]>,
}

impl Methods {
    /// Parses names between commas, such as `GET,HEAD`.
    ///
    /// # Errors
    /// A name is no method, or appears twice.
    pub fn parse(text: &str) -> Result<Methods, KeyError> {
        let (mut bits, mut others) = (0, Vec::<Box<str>>::new());
        for name in text.split(',') {
            check(name)?;
            let method = Method::parse(name.as_bytes());
            let is_new = match method {
                Method::Other => !others.iter().any(|other| &**other == name),
                known => bits & bit(known) == 0,
            };
            if !is_new {
                let problem = format!("the method {name} appears twice");
                return Err(KeyError::new(problem, "leave out one of them"));
            }
            bits |= bit(method);
            if method == Method::Other {
                others.push(name.into());
            }
        }
        Ok(Methods {
            bits,
            others: others.into(),
        })
    }

    /// The bits of its methods. That of [`Method::Other`] is set if [`Methods::names_other`] may be true.
    pub(super) fn bits(&self) -> u16 {
        self.bits
    }

    /// Whether it has this method, which is not one of [`Method`].
    pub(super) fn names_other(&self, token: &str) -> bool {
        self.others.iter().any(|other| &**other == token)
    }

    pub(super) fn overlaps(&self, other: &Methods) -> bool {
        self.bits & other.bits & !bit(Method::Other) != 0
            || self.others.iter().any(|name| other.names_other(name))
    }

    pub(super) fn includes(&self, other: &Methods) -> bool {
        other.bits & !self.bits == 0 && other.others.iter().all(|name| self.names_other(name))
    }
}

/// The bit of a method.
#[inline]
pub(super) const fn bit(method: Method) -> u16 {
    1 << method as u16
}

/// Checks that this is a method: a token, in upper case if it is a known one (RFC 9110, section 9.1).
fn check(name: &str) -> Result<(), KeyError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        let problem = format!("`{name}` is no method");
        return Err(KeyError::new(
            problem,
            "write methods as in \"GET,HEAD /a\"",
        ));
    }
    let upper = name.to_ascii_uppercase();
    if upper != name && Method::parse(upper.as_bytes()) != Method::Other {
        let problem = format!("`{name}` is no method: they are case-sensitive");
        return Err(KeyError::new(problem, format!("write {upper}")));
    }
    Ok(())
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = KNOWN.iter().filter(|known| self.bits & bit(**known) != 0);
        let names = known.map(|known| known.as_str());
        let others = self.others.iter().map(|name| &**name);
        for (at, name) in names.chain(others).enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}
