//! Blitz with the routes of a file.

use std::process::Command;

use super::{CONTENT_FOLDER, StartOptions, write};
use crate::board;
use crate::group::{ClientProtocol, Group};

/// `blitz run` with a file whose only site has these lines, for all hosts.
pub(crate) fn with_routes(
    group: &Group,
    (io, cores): (&str, u32),
    routes: &str,
    options: &StartOptions<'_>,
) -> Result<Command, String> {
    let listen = options.listen;
    let (listeners, tls) = match group.protocol {
        ClientProtocol::Http1 | ClientProtocol::H2c => {
            (format!("listen = [\"{listen}\"]"), String::new())
        }
        ClientProtocol::Tls => {
            let tls = options.tls()?;
            let (certificate, key) = (tls.certificate.display(), tls.key.display());
            (
                format!("listen = []\nlisten_tls = [\"{listen}\"]"),
                format!("tls = {{ cert = \"{certificate}\", key = \"{key}\" }}\n"),
            )
        }
    };
    let text = format!("{listeners}\ncontrol = false\n\n[site.\"*\"]\n{tls}{routes}");
    let file = options.folder.join(format!("blitz-{}.toml", listen.port()));
    write(&file, &text)?;
    let mut command = Command::new(options.programs.blitz());
    command.args(["run", "--cores", &cores.to_string(), "--io", io]);
    command.arg("--config").arg(&file);
    Ok(command)
}

/// The route of the folder of files.
pub(crate) fn folder_route(options: &StartOptions<'_>) -> String {
    let root = options.folder.join(CONTENT_FOLDER);
    format!(
        "\"/{CONTENT_FOLDER}\" = {{ files = \"{}\" }}\n",
        root.display()
    )
}

/// The routes of the board: its files, and the texts that its requests get.
pub(crate) fn board_routes(options: &StartOptions<'_>) -> String {
    let root = options.folder.join(board::FOLDER);
    let root = root.display();
    let (pipeline, text) = board::PIPELINE;
    let (sum, _) = board::SUM;
    let (without, _, with) = board::SUM_RESULTS;
    let (sum_streams, _, result) = board::SUM_STREAMS;
    let pages = board::PAGE_REQUESTS.map(|(count, _)| {
        format!(
            "\"={}\" = {{ respond = {{ status = 200, file = \"{root}/{}/{count}.json\" }} }}\n",
            board::page_path(count),
            board::PAGES
        )
    });
    format!(
        "\"={pipeline}\" = {{ respond = \"200 {text}\" }}\n\
         \"GET ={sum}\" = {{ respond = \"200 {without}\" }}\n\
         \"POST ={sum}\" = {{ respond = \"200 {with}\" }}\n\
         \"={sum_streams}\" = {{ respond = \"200 {result}\" }}\n{}\
         \"/{}\" = {{ files = \"{root}/{}\" }}\n",
        pages.concat(),
        board::STATIC,
        board::STATIC,
    )
}
