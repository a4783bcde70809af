//! The checker, run by callgrind.

use std::collections::HashMap;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use super::profile::{CodeLocation, Profile, add};
use crate::dist::PROFILE;

/// The counts of a request.
pub(super) const NAMES: [&str; 6] = [
    "instructions",
    "allocations",
    "receives",
    "sends",
    "datagrams in",
    "datagrams out",
];

/// The counts of [`NAMES`].
pub(super) type Cost = [f64; 6];

/// The cost of a run, and where its instructions are.
type Counted = (Cost, Profile);

/// Requests of two runs, whose difference is the cost of requests in a warm process.
const FEWER: u64 = 800;
const MORE: u64 = 2_400;

/// The same for requests with large bodies, and for those with a connection each.
const FEWER_LARGE: u64 = 16;
const MORE_LARGE: u64 = 48;

/// The functions that switch the collection of callgrind: on within a turn of a core, and off again within
/// what simulates the network for it. Its copies are those of the kernel, and make the most instructions of
/// a large body, whose number depends on the processor and its C library.
const COLLECTED: [&str; 4] = [
    "*step_once*",
    "*driver::sim::Sim::turn",
    "*driver::sim::Sim::receive_now",
    "*driver::sim::Sim::send_datagrams",
];

/// Functions of the C library that allocate.
const ALLOCATING: [&str; 6] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
];

/// A program that serves requests of one kind, and counts what it can itself.
pub(super) struct Checker {
    program: PathBuf,
}

impl Checker {
    /// Builds that of this checkout.
    pub(super) fn build(root: &Path) -> Result<Checker, String> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
        Checker::build_at(root, &target)
    }

    /// Builds that of another revision, in a work tree of its own.
    pub(super) fn build_revision(root: &Path, revision: &str) -> Result<Checker, String> {
        let target: PathBuf = std::env::var_os("CARGO_TARGET_DIR")
            .map_or(root.join("target"), Into::into)
            .join("against");
        let tree = target.join("tree");
        let git = |arguments: &[&str]| {
            let done = Command::new("git")
                .args(arguments)
                .current_dir(root)
                .status();
            match done.is_ok_and(|status| status.success()) {
                true => Ok(()),
                false => Err(format!("git {} failed", arguments.join(" "))),
            }
        };
        let folder = tree.to_str().ok_or("the path is not UTF-8")?;
        match tree.exists() {
            true => git(&["-C", folder, "checkout", "--quiet", "--detach", revision])?,
            false => git(&["worktree", "add", "--quiet", "--detach", folder, revision])?,
        }
        Checker::build_at(&tree, &target)
    }

    fn build_at(root: &Path, target: &Path) -> Result<Checker, String> {
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--profile",
                PROFILE,
                // Revisions that have no such profile build their releases so.
                "--config",
                "profile.dist.inherits=\"release\"",
                "--quiet",
                "--package",
                "blitz-simulate",
            ])
            .env("CARGO_TARGET_DIR", target)
            .current_dir(root)
            .status();
        if !built.is_ok_and(|status| status.success()) {
            return Err("the checker does not build".to_owned());
        }
        Ok(Checker {
            program: target.join(PROFILE).join("blitz-simulate"),
        })
    }

    /// The kinds of requests that can be counted.
    pub(super) fn kinds(&self) -> Result<Vec<String>, String> {
        let listed = Command::new(&self.program)
            .arg("--kinds")
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let kinds = String::from_utf8_lossy(&listed.stdout);
        Ok(kinds.lines().map(str::to_owned).collect())
    }

    /// The cost of one request in a warm process.
    pub(super) fn cost_each(&self, kind: &str) -> Result<Cost, String> {
        let (fewer, more) = requests(kind);
        let ((less, _), (all, _)) = self.run_both(kind, fewer, more)?;
        Ok(std::array::from_fn(|at| {
            (all[at] - less[at]) / (more - fewer) as f64
        }))
    }

    /// The instructions of one request in a warm process, by place.
    pub(super) fn parts_each(&self, kind: &str) -> Result<HashMap<CodeLocation, f64>, String> {
        let (fewer, more) = requests(kind);
        let ((_, less), (_, all)) = self.run_both(kind, fewer, more)?;
        let mut each = HashMap::new();
        for (profile, sign) in [(all, 1.0), (less, -1.0)] {
            for (place, instructions) in &profile.instructions {
                let instructions = *instructions as f64 / (more - fewer) as f64;
                add(&mut each, place, sign * instructions);
            }
        }
        Ok(each)
    }

    /// The costs of all kinds, each given to `each` in their order as soon as it is known. As many are counted side by side
    /// as there are processors, which changes no count.
    pub(super) fn costs(
        &self,
        kinds: &[String],
        mut each: impl FnMut(&str, Cost) -> Result<(), String>,
    ) -> Result<(), String> {
        let next = AtomicUsize::new(0);
        let (sender, costs) = channel();
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
                let (next, sender) = (&next, sender.clone());
                scope.spawn(move || {
                    while let Some(kind) = kinds.get(next.fetch_add(1, Ordering::Relaxed)) {
                        // It fails if another kind could not be counted.
                        let _ = sender.send((kind, self.cost_each(kind)));
                    }
                });
            }
            drop(sender);
            let mut known = HashMap::new();
            for kind in kinds {
                while !known.contains_key(kind) {
                    let (counted, cost) = costs.recv().map_err(|_| "a run panicked")?;
                    known.insert(counted, cost?);
                }
                each(kind, known[kind])?;
            }
            Ok(())
        })
    }

    fn run_both(&self, kind: &str, fewer: u64, more: u64) -> Result<(Counted, Counted), String> {
        Ok((self.run(kind, fewer)?, self.run(kind, more)?))
    }

    /// The cost of `requests` requests, and where the instructions are.
    fn run(&self, kind: &str, requests: u64) -> Result<Counted, String> {
        let output = self.program.with_extension(format!("{kind}.{requests}"));
        let ran = Command::new("valgrind")
            .args(["--tool=callgrind", "--dump-instr=yes"])
            .arg(format!("--callgrind-out-file={}", output.display()))
            .args(COLLECTED.map(|function| format!("--toggle-collect={function}")))
            .arg(&self.program)
            .args(["--count", kind, "--requests", &requests.to_string()])
            .output()
            .map_err(|error| format!("valgrind: {error}; install it"))?;
        let printed = String::from_utf8_lossy(&ran.stdout);
        let profile = fs::read(&output).unwrap_or_default();
        let profile = Profile::parse(&String::from_utf8_lossy(&profile));
        let counted = |label: &str| number_after(&printed, label);
        let cost = (|| {
            Some([
                profile.total() as f64,
                allocations(&profile) as f64,
                counted("receives ")?,
                counted("sends ")?,
                // A revision from before these were counted has none.
                counted("datagrams_received ").unwrap_or(0.0),
                counted("datagrams_sent ").unwrap_or(0.0),
            ])
        })();
        match cost {
            Some(cost) if ran.status.success() && cost[0] > 0.0 => Ok((cost, profile)),
            _ => {
                let report = String::from_utf8_lossy(&ran.stderr);
                Err(format!("{kind} could not be counted:\n{printed}{report}"))
            }
        }
    }
}

/// The requests of both runs.
fn requests(kind: &str) -> (u64, u64) {
    match kind.contains("MiB") || kind.contains("handshake") {
        true => (FEWER_LARGE, MORE_LARGE),
        false => (FEWER, MORE),
    }
}

fn allocations(profile: &Profile) -> u64 {
    ALLOCATING.iter().map(|name| profile.calls(name)).sum()
}

/// The number that follows `label`.
fn number_after(text: &str, label: &str) -> Option<f64> {
    let (_, rest) = text.split_once(label)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_their_labels() {
        let printed = "receives 96 sends 1440\n";
        assert_eq!(number_after(printed, "receives "), Some(96.0));
        assert_eq!(number_after(printed, "sends "), Some(1_440.0));
        assert_eq!(number_after(printed, "datagrams_sent "), None);
    }
}
