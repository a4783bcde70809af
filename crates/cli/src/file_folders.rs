//! The folders whose files routes send: they have to be there when a configuration is read.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::Path;

use blitz_config::{Action, Configuration, Diagnostic, Settings};

use crate::loaded_file;

/// Adds a diagnostic for each `files` that names no folder. A value that routes inherit is reported once.
pub(crate) fn check(
    configuration: &Configuration,
    folder: &Path,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut seen = BTreeSet::new();
    let routes = configuration.sites.iter().flat_map(|site| &site.routes);
    for route in routes {
        let variants = route.variants.iter();
        let variants = variants.flat_map(|variants| &variants.settings);
        for settings in std::iter::once(&route.settings).chain(variants) {
            diagnostics.extend(problem(settings, folder, &mut seen));
        }
    }
}

fn problem(
    settings: &Settings,
    folder: &Path,
    seen: &mut BTreeSet<(usize, String)>,
) -> Option<Diagnostic> {
    let files = match &settings.action.value {
        Action::Files(files) => files,
        Action::Proxy(proxy) => proxy.files.as_ref()?,
        Action::Redirect(_) | Action::Respond(_) => return None,
    };
    let (path, span) = (&files.folder.value, &files.folder.span);
    if !seen.insert((span.start, path.clone())) {
        return None;
    }
    let path = folder.join(path);
    let error = match fs::metadata(&path) {
        Ok(found) if found.is_dir() => return None,
        Ok(_) => Error::from(ErrorKind::NotADirectory),
        Err(error) => error,
    };
    let (message, label) = match error.kind() {
        ErrorKind::NotFound => (
            "the folder does not exist".to_owned(),
            loaded_file::similar_file(&path),
        ),
        ErrorKind::NotADirectory => (
            "this is no folder".to_owned(),
            "write the folder that has the files".to_owned(),
        ),
        _ => (
            format!("the folder cannot be read: {error}"),
            format!("have the user of Blitz read {}", path.display()),
        ),
    };
    Some(Diagnostic::error(
        "file-missing",
        span.clone(),
        message,
        label,
    ))
}
