//! The secret of the cookies by which clients stay with a server, in a file, so that it outlives the process.

use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use aws_lc_rs::rand;

use crate::{issue, state_folder};

/// Its name in the folder for state. Its content is 64 hexadecimal digits.
const FILE: &str = "sticky-secret";

/// The stored secret, or a new one, which is stored. One that cannot be stored is logged, and lasts as long as the process.
pub(crate) fn stored_or_new() -> [u8; 32] {
    let stored = match state_folder::folder() {
        Some(folder) => load_or_make(&folder)
            .map_err(|error| format!("{} cannot be used: {error}", folder.join(FILE).display())),
        None => Err("neither XDG_STATE_HOME nor HOME is set".to_owned()),
    };
    stored.unwrap_or_else(|reason| {
        tracing::warn!(
            "the secret of the cookies of `sticky` is kept in memory only, so that clients get others after a restart: {reason}"
        );
        new()
    })
}

fn load_or_make(folder: &Path) -> io::Result<[u8; 32]> {
    issue::make_folder(folder)?;
    // Two processes that start at the same time must have the same secret.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let file = folder.join(FILE);
    let content = match fs::read_to_string(&file) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = new();
            issue::write_file(&file, &digits(&secret), 0o600)?;
            tracing::info!(
                "made the secret of the cookies of `sticky`: {}",
                file.display()
            );
            return Ok(secret);
        }
        Err(error) => return Err(error),
    };
    parse(content.trim_end())
        .ok_or_else(|| io::Error::other("its content is not 64 hexadecimal digits"))
}

fn new() -> [u8; 32] {
    let mut secret = [0; 32];
    rand::fill(&mut secret).expect("the system has random numbers");
    secret
}

fn digits(secret: &[u8; 32]) -> String {
    let mut digits = String::with_capacity(65);
    for byte in secret {
        // Writing to a text does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.push('\n');
    digits
}

fn parse(digits: &str) -> Option<[u8; 32]> {
    let mut secret = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_made_once() {
        let folder = std::env::temp_dir().join(format!("blitz-sticky-{}", std::process::id()));
        let secret = load_or_make(&folder).unwrap();
        assert_eq!(load_or_make(&folder).unwrap(), secret);
        let file = folder.join(FILE);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // One that another machine has, without a line end.
        fs::write(&file, "0A".repeat(32)).unwrap();
        assert_eq!(load_or_make(&folder).unwrap(), [10; 32]);
        for content in [
            "",
            "0a",
            &"zz".repeat(32),
            &"é".repeat(32),
            &"0a".repeat(33),
        ] {
            fs::write(&file, content).unwrap();
            assert!(load_or_make(&folder).is_err(), "{content}");
        }
        fs::remove_dir_all(&folder).unwrap();
        assert_ne!(secret, load_or_make(&folder).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert!(load_or_make(Path::new("/proc/none")).is_err());
    }
}
