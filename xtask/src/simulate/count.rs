//! Instructions of whole requests, counted by callgrind inside the turns of a simulated core.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The reference counts.
const FILE: &str = "crates/simulate/counts.txt";

/// Largest increase over the reference, in thousandths.
const ABOVE_MAX: u64 = 20;

/// Requests of two runs, whose difference is the cost of requests in a warm process.
const FEWER: u64 = 1_600;
const MORE: u64 = 4_800;

/// The same for requests with large bodies.
const FEWER_LARGE: u64 = 32;
const MORE_LARGE: u64 = 96;

const HELP: &str = "\
Instructions of whole requests, counted by callgrind

  cargo xtask simulate --count            compares with crates/simulate/counts.txt
  cargo xtask simulate --count --write    writes that file
";

/// Runs `cargo xtask simulate --count`.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let writes = match args {
        [] => false,
        [flag] if flag == "--write" => true,
        _ => {
            print!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match count_all(writes) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask simulate --count: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Counts all kinds of requests; whether none is too high.
fn count_all(writes: bool) -> Result<bool, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("xtask has no parent folder")?;
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--quiet",
            "--package",
            "blitz-simulate",
        ])
        .current_dir(root)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the checker does not build".to_owned());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    let checker = target.join("release/blitz-simulate");
    let file = root.join(FILE);
    let known = fs::read_to_string(&file).unwrap_or_default();
    let listed = Command::new(&checker)
        .arg("--kinds")
        .output()
        .map_err(|error| format!("{}: {error}", checker.display()))?;
    let kinds = String::from_utf8_lossy(&listed.stdout);
    if let Some(missing) = missing_kind(&known, &kinds).filter(|_| !writes) {
        return Err(format!(
            "{FILE} has {missing}, which the checker cannot count"
        ));
    }
    let (mut text, mut is_good) = (String::new(), true);
    for kind in kinds.lines() {
        let is_large = kind.ends_with("MiB");
        let (fewer, more) = match is_large {
            true => (FEWER_LARGE, MORE_LARGE),
            false => (FEWER, MORE),
        };
        let difference = instructions(&checker, kind, more)?
            .checked_sub(instructions(&checker, kind, fewer)?)
            .ok_or_else(|| format!("{kind}: more requests took fewer instructions"))?;
        let each = difference / (more - fewer);
        text += &format!("{kind} {each}\n");
        let before = known.lines().find_map(|line| {
            let (name, count) = line.split_once(' ')?;
            count.parse::<u64>().ok().filter(|_| name == kind)
        });
        let Some(before) = before else {
            println!("{kind:<16} {each:>9}");
            is_good &= writes;
            continue;
        };
        let is_above = each * 1_000 > before * (1_000 + ABOVE_MAX);
        let verdict = if is_above { "  TOO HIGH" } else { "" };
        println!(
            "{kind:<16} {each:>9}  {:+.1} % of {before}{verdict}",
            each as f64 / before as f64 * 100.0 - 100.0
        );
        is_good &= writes || !is_above;
    }
    if writes {
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(is_good)
}

/// A kind of the reference that is not counted any more. Without this check its gate would vanish
/// unnoticed.
fn missing_kind<'k>(known: &'k str, kinds: &str) -> Option<&'k str> {
    let mut names = known.lines().filter_map(|line| line.split(' ').next());
    names.find(|name| kinds.lines().all(|kind| kind != *name))
}

/// Instructions inside the turns of the core for `requests` requests.
fn instructions(checker: &Path, kind: &str, requests: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*step_once*")
        .arg(checker)
        .args(["--count", kind, "--requests", &requests.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}; install it"))?;
    let output_text = String::from_utf8_lossy(&output.stderr);
    let collected = output_text.lines().find_map(|line| {
        let (_, count) = line.split_once("Collected : ")?;
        count.trim().parse().ok()
    });
    match collected {
        Some(count) if output.status.success() && count > 0 => Ok(count),
        _ => Err(format!("{kind} could not be counted:\n{output_text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_not_counted_any_more_is_reported() {
        let known = "h1 100\nh1-1MiB 9000\n";
        assert_eq!(missing_kind(known, "h1\nh1-1MiB\nh2\n"), None);
        assert_eq!(missing_kind(known, "h1-1MiB\n"), Some("h1"));
        assert_eq!(missing_kind(known, ""), Some("h1"));
    }
}
