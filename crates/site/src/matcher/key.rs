//! Keys of routes, parsed once: `[METHODS ]PATH`.

use std::fmt;
use std::ops::Range;

use blitz_http::path::may_be_dot_segment;
use regex::bytes::Regex;

use super::methods::Methods;
use super::path_regex::PathRegex;
use super::pattern::{Kind, PARAMS_MAX, Token, normalize};

/// Most parameters of a path pattern: one of the [`PARAMS_MAX`] ranges is for what lies below it.
const NAMES_MAX: usize = PARAMS_MAX - 1;

/// Which requests a route gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteKey {
    /// `None` for all methods. GET includes HEAD, unless another key of the same path has HEAD.
    pub methods: Option<Methods>,
    /// The paths.
    pub path: PathPattern,
}

/// Paths of normalised requests (rule 10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    /// The path in normal form, with `{name}` for parameters. Only [`Form::Below`] ends with a slash that is not
    /// a part of the last segment; empty for the pattern that matches everything. For a regex the text that all its
    /// matches begin with.
    body: Box<str>,
    form: Form,
    /// The number of parameters.
    params: u8,
    /// That of [`Form::Regex`].
    regex: Option<Box<PathRegex>>,
}

/// Which paths match, given the body of a pattern. In the order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// `=/a`: this path only.
    Exact,
    /// `/a/`: paths that begin with this one.
    Below,
    /// `/a`: this path, and those below it.
    Subtree,
    /// `/a*`: paths that begin with this text, whose last segment is not empty.
    Prefix,
    /// `~/a\d`: paths that a regular expression matches.
    Regex,
}

/// Why a key is invalid, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyError {
    problem: String,
    fix: String,
}

impl RouteKey {
    /// Parses a path pattern, or methods between commas, a space and a path pattern.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<RouteKey, KeyError> {
        let split = text
            .split_once(' ')
            .filter(|_| !text.starts_with(['/', '=']));
        let (methods, path) = match split {
            Some((methods, path)) => (Some(Methods::parse(methods)?), path),
            None => (None, text),
        };
        Ok(RouteKey {
            methods,
            path: PathPattern::parse(path)?,
        })
    }
}

impl PathPattern {
    /// Parses `/a`, `/a/`, `=/a`, `/a*`, each with `{name}` in place of segments. `/` matches everything, also
    /// requests whose target has no path. `/a/*` is the same as `/a/`.
    ///
    /// # Errors
    /// No normalised path can match it, or a parameter is not a whole segment.
    pub fn parse(text: &str) -> Result<PathPattern, KeyError> {
        let (form, path) = match (text.strip_prefix('='), text.strip_suffix('*')) {
            (Some(_), Some(_)) => {
                let problem = "`=` is for one path and `*` for many";
                return Err(KeyError::new(problem, "leave out one of them"));
            }
            (Some(exact), None) => (Form::Exact, exact),
            (None, Some(prefix)) if !prefix.ends_with('/') => (Form::Prefix, prefix),
            (None, Some(below)) => (Form::Below, below),
            (None, None) if text == "/" => return Ok(PathPattern::everything()),
            (None, None) if text.ends_with('/') => (Form::Below, text),
            (None, None) => (Form::Subtree, text),
        };
        let Some(segments) = path.strip_prefix('/') else {
            return Err(KeyError::new(
                "a path starts with `/`",
                "write \"/\" before it",
            ));
        };
        let (body, params) = body(segments, form == Form::Prefix)?;
        Ok(PathPattern {
            body: body.into(),
            form,
            params,
            regex: None,
        })
    }

    /// The pattern that matches every request, also one whose target has no path.
    #[must_use]
    pub fn everything() -> PathPattern {
        PathPattern {
            body: "".into(),
            form: Form::Subtree,
            params: 0,
            regex: None,
        }
    }

    /// The pattern of all paths that a regular expression matches, which has to be for whole paths. They all begin with
    /// `beginning`, which says where a search looks for the regex, and its rank. Of two regexes with the same beginning
    /// that with the greater priority comes first.
    ///
    /// # Panics
    /// If the beginning does not start with a slash.
    #[must_use]
    pub fn regex(text: &str, beginning: &str, priority: u64, regex: Regex) -> PathPattern {
        assert!(beginning.starts_with('/'), "{beginning} begins no path");
        PathPattern {
            body: beginning.into(),
            form: Form::Regex,
            params: 0,
            regex: Some(Box::new(PathRegex::new(text, priority, regex))),
        }
    }

    /// The pattern of a path in normal form and of those below it; with a slash at its end, only of those below.
    /// `/` matches all paths, but no request without one.
    ///
    /// # Panics
    /// If the path does not start with a slash.
    #[must_use]
    pub fn subtree(path: &str) -> PathPattern {
        assert!(path.starts_with('/'), "{path} is no path");
        let is_below = path.ends_with('/');
        PathPattern {
            body: path.into(),
            form: if is_below { Form::Below } else { Form::Subtree },
            params: 0,
            regex: None,
        }
    }

    /// The pattern of all paths that begin with a text in normal form.
    ///
    /// # Panics
    /// If the text does not start with a slash.
    #[must_use]
    pub fn starting_with(text: &str) -> PathPattern {
        if text.ends_with('/') {
            return PathPattern::subtree(text);
        }
        assert!(text.starts_with('/'), "{text} is no path");
        PathPattern {
            body: text.into(),
            form: Form::Prefix,
            params: 0,
            regex: None,
        }
    }

    /// The names of its parameters, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let segments = self.body.split('/').filter(|_| self.regex.is_none());
        segments.filter_map(param_name)
    }

    /// Whether it is a regular expression.
    #[must_use]
    pub fn is_regex(&self) -> bool {
        self.regex.is_some()
    }

    /// The named groups of a regular expression that take part in the match of a path, with their places in it.
    #[must_use]
    pub fn groups(&self, path: &str) -> Vec<(&str, Range<usize>)> {
        let regex = self.regex.as_deref();
        regex.map_or_else(Vec::new, |regex| regex.groups(path))
    }

    pub(super) fn as_regex(&self) -> Option<&PathRegex> {
        self.regex.as_deref()
    }

    /// Whether both have the same regular expression, or none.
    pub(super) fn has_regex_of(&self, other: &PathPattern) -> bool {
        let texts = [self, other].map(|path| path.as_regex().map(|regex| &regex.text));
        texts[0] == texts[1]
    }

    /// The number of its parameters.
    pub(super) fn params(&self) -> u8 {
        self.params
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// The segments before the end of the pattern.
    pub(super) fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let segments = match self.form {
            Form::Below => self.body.strip_suffix('/').unwrap_or(&self.body),
            _ => &*self.body,
        };
        segments
            .split('/')
            .skip(1)
            .map(|text| match param_name(text) {
                // Braces in a regex are text.
                Some(_) if self.regex.is_none() => Segment::Param,
                _ => Segment::Text(text),
            })
    }

    /// Where the tree has the route: at the end of a path, and for all that follows a path.
    pub(super) fn places(&self) -> Places<'_> {
        let tokens = self.tokens();
        let below = |tokens: &[Token], slash: &[u8]| {
            let mut below = tokens.to_vec();
            if !slash.is_empty() {
                below.push(Token::Literal(slash.to_vec()));
            }
            below.push(Token::Rest);
            below
        };
        match self.form {
            Form::Exact => Places {
                at: Some(tokens),
                ..Places::default()
            },
            Form::Regex => Places {
                regexes: Some(self.body.as_bytes()),
                ..Places::default()
            },
            Form::Subtree if !self.body.is_empty() => Places {
                below: Some(below(&tokens, b"/")),
                at: Some(tokens),
                regexes: None,
            },
            Form::Subtree | Form::Below | Form::Prefix => Places {
                below: Some(below(&tokens, b"")),
                ..Places::default()
            },
        }
    }

    fn tokens(&self) -> Vec<Token> {
        let (mut tokens, mut literal) = (Vec::new(), Vec::new());
        for (at, segment) in self.body.split('/').enumerate() {
            if at > 0 {
                literal.push(b'/');
            }
            match param_name(segment) {
                Some(_) => {
                    tokens.push(Token::Literal(std::mem::take(&mut literal)));
                    tokens.push(Token::Param(Kind::Text));
                }
                None => literal.extend_from_slice(segment.as_bytes()),
            }
        }
        if !literal.is_empty() {
            tokens.push(Token::Literal(literal));
        }
        tokens
    }
}

/// A segment of a pattern.
pub(super) enum Segment<'p> {
    Text(&'p str),
    Param,
}

/// The sequences of tokens that lead to a route, or the text that leads to a regex.
#[derive(Default)]
pub(super) struct Places<'p> {
    pub(super) at: Option<Vec<Token>>,
    pub(super) below: Option<Vec<Token>>,
    pub(super) regexes: Option<&'p [u8]>,
}

/// The normal form of a path that is given without its first slash, and the number of its parameters.
fn body(segments: &str, is_prefix: bool) -> Result<(String, u8), KeyError> {
    let (mut body, mut names) = (String::new(), Vec::new());
    let mut segments = segments.split('/').peekable();
    while let Some(segment) = segments.next() {
        body.push('/');
        let is_part = is_prefix && segments.peek().is_none();
        if segment.contains(['{', '}']) {
            let name = checked_name(segment, is_part)?;
            if names.contains(&name) {
                let problem = format!("the parameter `{name}` appears twice");
                return Err(KeyError::new(problem, "give each a name of its own"));
            }
            names.push(name);
            body.push_str(segment);
            continue;
        }
        if let Some(bad) = segment.chars().find(|c| matches!(c, '?' | '#')) {
            let problem = format!("a path has no `{bad}`");
            return Err(KeyError::new(
                problem,
                "leave it out, and all that follows it",
            ));
        }
        if !is_part && may_be_dot_segment(segment) {
            let problem = format!("paths are compared without segments such as `{segment}`");
            return Err(KeyError::new(
                problem,
                "write the path that results without them",
            ));
        }
        let literal = normalize(segment)
            .map_err(|problem| KeyError::new(problem, "write a percent sign itself as %25"))?;
        body.extend(literal.iter().copied().map(char::from));
    }
    if names.len() > NAMES_MAX {
        let problem = format!("the path has more than {NAMES_MAX} parameters");
        return Err(KeyError::new(problem, "end it with `/` before the others"));
    }
    Ok((body, names.len() as u8))
}

/// The name of a segment that has a brace.
fn checked_name(segment: &str, is_part: bool) -> Result<&str, KeyError> {
    match param_name(segment) {
        Some(name) if !is_part && is_name(name) => Ok(name),
        Some(name) if !is_part => {
            let problem = format!("`{name}` is no name of a parameter");
            Err(KeyError::new(problem, "use letters, digits and `_`"))
        }
        _ => {
            let problem = format!("`{segment}`: a parameter is a whole segment");
            Err(KeyError::new(problem, "write \"/{name}\", or \"/{name}/\""))
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The name in the braces of a parameter.
fn param_name(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

impl KeyError {
    pub(super) fn new(problem: impl Into<String>, fix: impl Into<String>) -> KeyError {
        KeyError {
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    /// The problem with the key.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The remedy.
    #[must_use]
    pub fn fix(&self) -> &str {
        &self.fix
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

impl std::error::Error for KeyError {}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.methods {
            Some(methods) => write!(f, "{methods} {}", self.path),
            None => self.path.fmt(f),
        }
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(regex) = &self.regex {
            return write!(f, "~{}", regex.text);
        }
        let (before, after) = match self.form {
            Form::Exact => ("=", ""),
            Form::Prefix => ("", "*"),
            // `/` matches everything.
            Form::Below if &*self.body == "/" => ("", "*"),
            Form::Below | Form::Subtree | Form::Regex => ("", ""),
        };
        let body = if self.body.is_empty() {
            "/"
        } else {
            &self.body
        };
        write!(f, "{before}{body}{after}")
    }
}
