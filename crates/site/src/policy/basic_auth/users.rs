//! The file with users, as `htpasswd` writes it: one line each, `NAME:HASH`.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::form::Form;
use super::hash::PasswordHash;

/// The most users of a file.
const USERS_MAX: usize = 100_000;

/// The most bytes of a name, as for `htpasswd`.
const NAME_BYTES_MAX: usize = 255;

/// The most bytes of a hash.
const HASH_BYTES_MAX: usize = 512;

/// The most forms of hashes that a refusal checks. Some programs choose the rounds of each hash at random.
const FORMS_MAX: usize = 4;

/// Users, by their names. There is one at least.
pub struct Users {
    users: Box<[User]>,
    /// A hash of each form, the dearest ones first.
    of_forms: Box<[(Form, Arc<PasswordHash>)]>,
}

/// A user.
pub(super) struct User {
    /// Name and hash, as they are written.
    line: Box<[u8]>,
    name_bytes: usize,
    hash: Arc<PasswordHash>,
}

impl Users {
    /// The user with this name.
    pub(super) fn find(&self, name: &[u8]) -> Option<&User> {
        let at = self.users.binary_search_by(|user| user.name().cmp(name));
        self.users.get(at.ok()?)
    }

    /// The hashes by which a password is checked: that of the user, if there is one, and one of each other form. A
    /// refusal checks all of them, so that its time tells neither whether there is such a user, nor the form of the hash.
    pub(super) fn hashes_for(&self, user: Option<&User>) -> Box<[Arc<PasswordHash>]> {
        let own = user.map(|user| &user.hash);
        let form = own.map(|hash| hash.form());
        let others = self.of_forms.iter();
        let others = others.filter(|(other, _)| form != Some(*other));
        let others = others.map(|(_, hash)| hash);
        own.into_iter().chain(others).cloned().collect()
    }

    fn new(mut users: Vec<User>) -> Users {
        users.sort_unstable_by(|a, b| a.name().cmp(b.name()));
        let mut of_forms: Vec<(Form, Arc<PasswordHash>)> = Vec::new();
        for User { hash, .. } in &users {
            let form = hash.form();
            if of_forms.iter().any(|(known, _)| *known == form) {
                continue;
            }
            let is_cheaper = |(known, _): &(Form, _)| known.nanoseconds() < form.nanoseconds();
            let at = of_forms.iter().position(is_cheaper);
            of_forms.insert(at.unwrap_or(of_forms.len()), (form, Arc::clone(hash)));
            of_forms.truncate(FORMS_MAX);
        }
        Users {
            users: users.into(),
            of_forms: of_forms.into(),
        }
    }
}

impl PartialEq for Users {
    fn eq(&self, other: &Users) -> bool {
        self.users == other.users
    }
}

impl Eq for Users {}

impl Hash for Users {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.users.hash(state);
    }
}

impl User {
    fn name(&self) -> &[u8] {
        &self.line[..self.name_bytes]
    }

    /// Name and hash. A user whose password changes has another line.
    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }
}

impl PartialEq for User {
    fn eq(&self, other: &User) -> bool {
        self.line == other.line
    }
}

impl Eq for User {}

impl Hash for User {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.line.hash(state);
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} users", self.users.len())
    }
}

/// The users of a file, and a note on passwords that are easily found by their hashes.
///
/// # Errors
/// The file has none, or a wrong line: the problem, with the number of the line, and the remedy. They never have the text
/// of the line, which may be a password.
pub fn users(content: &[u8]) -> Result<(Users, Option<String>), (String, String)> {
    let mut users: Vec<User> = Vec::new();
    let mut lines = HashMap::new();
    let (mut weak, mut first_weak) = (0, 0);
    for (number, line) in (1..).zip(content.split(|byte| *byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let of_line =
            |(problem, remedy): (String, String)| (format!("line {number} {problem}"), remedy);
        let user = user(line).map_err(of_line)?;
        if let Some(first) = lines.insert(user.name().to_vec(), number) {
            let problem = format!("line {number} has the name of line {first}");
            return Err((problem, "keep one of the lines".to_owned()));
        }
        if user.hash.is_weak() {
            weak += 1;
            first_weak = if weak == 1 { number } else { first_weak };
        }
        users.push(user);
        if users.len() > USERS_MAX {
            let problem = format!("the file has more than {USERS_MAX} users");
            return Err((problem, "divide it among several routes".to_owned()));
        }
    }
    if users.is_empty() {
        let remedy = "add one, with htpasswd -B FILE NAME for example";
        return Err(("the file has no users".to_owned(), remedy.to_owned()));
    }
    let note = match weak {
        0 => None,
        1 => Some(format!(
            "the password of line {first_weak} is hashed with MD5 or SHA-1"
        )),
        _ => Some(format!(
            "{weak} passwords are hashed with MD5 or SHA-1, the first one in line {first_weak}"
        )),
    };
    Ok((Users::new(users), note))
}

fn user(line: &[u8]) -> Result<User, (String, String)> {
    let no_line = || {
        let remedy = "write NAME:HASH, as htpasswd -B does";
        ("has not the form of a user".to_owned(), remedy.to_owned())
    };
    let mut parts = line.split(|byte| *byte == b':');
    let (Some(name), Some(hash)) = (parts.next(), parts.next()) else {
        return Err(no_line());
    };
    let is_control = |byte: &u8| byte.is_ascii_control();
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.iter().any(is_control) {
        let remedy = format!("names have 1 to {NAME_BYTES_MAX} bytes, and no control characters");
        return Err(("has a name that no client can say".to_owned(), remedy));
    }
    let hash = Some(hash).filter(|hash| hash.len() <= HASH_BYTES_MAX);
    let text = hash
        .and_then(|hash| str::from_utf8(hash).ok())
        .ok_or_else(no_line)?;
    let hash = Arc::new(PasswordHash::parse(text)?);
    // Behind the hash there may be a comment.
    let line: Box<[u8]> = line[..name.len() + 1 + text.len()].into();
    Ok(User {
        name_bytes: name.len(),
        line,
        hash,
    })
}
