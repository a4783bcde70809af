//! Methods that routes and `methods` may name.

use std::fmt;

/// A method of a request (RFC 9110, section 9.3, and RFC 5789). CONNECT has no path, so no route names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// `TRACE`
    Trace,
    /// `PATCH`
    Patch,
}

const NAMES: [(&str, Method); 8] = [
    ("GET", Method::Get),
    ("HEAD", Method::Head),
    ("POST", Method::Post),
    ("PUT", Method::Put),
    ("DELETE", Method::Delete),
    ("OPTIONS", Method::Options),
    ("TRACE", Method::Trace),
    ("PATCH", Method::Patch),
];

impl Method {
    /// The method of this name, which is case-sensitive.
    pub(crate) fn parse(name: &str) -> Option<Method> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, method)| *method)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES[self as usize].0
    }

    /// The names of all methods.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(name, _)| *name)
    }
}

/// A set of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Methods(u8);

impl Methods {
    /// Whether the set has this method.
    #[must_use]
    pub fn contains(self, method: Method) -> bool {
        self.0 & Methods::bit(method) != 0
    }

    /// The methods in a fixed order.
    pub fn iter(self) -> impl Iterator<Item = Method> {
        let all = NAMES.iter().map(|(_, method)| *method);
        all.filter(move |method| self.contains(*method))
    }

    pub(crate) fn insert(&mut self, method: Method) {
        self.0 |= Methods::bit(method);
    }

    pub(crate) fn intersection(self, other: Methods) -> Methods {
        Methods(self.0 & other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    fn bit(method: Method) -> u8 {
        1 << method as u8
    }
}

impl FromIterator<Method> for Methods {
    fn from_iter<I: IntoIterator<Item = Method>>(methods: I) -> Methods {
        let mut set = Methods::default();
        for method in methods {
            set.insert(method);
        }
        set
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Method::name).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_their_methods() {
        for (name, method) in NAMES {
            assert_eq!(method.name(), name);
            assert_eq!(Method::parse(name), Some(method));
        }
        assert_eq!(Method::parse("get"), None);
        let methods: Methods = [Method::Patch, Method::Get].into_iter().collect();
        assert_eq!(methods.to_string(), "GET,PATCH");
        assert!(!methods.contains(Method::Head));
    }
}
