//! Several servers in the output of commands.

use std::fs;

use crate::config_file::lines;
use crate::https::Folder;
use crate::{blitz, stdout};

#[test]
fn explain_and_show_name_several_servers() {
    let folder = Folder::new();
    let file = folder.file("blitz.toml");
    let text = "[site.\"a.example\"]\nto = \"app\"\nsticky = \"client\"\n\
                \"/x\".to = { app = 2, \"http://h:3\" = 1 }\n[upstream.app]\n\
                servers = { \"http://h:1\" = 3, \"http://h:2\" = 1 }\nbalance = \"round_robin\"\n";
    fs::write(&file, text).unwrap();
    let explain = |url: &str| stdout(&blitz(&["explain", "--config", &file, "GET", url]));
    lines(
        &explain("http://a.example/"),
        &[
            "outcome http://h:1/",
            "servers sticky by the client's address, else in turn",
            "weight 3 http://h:1",
            "weight 1 http://h:2",
        ],
    );
    let of_targets = [
        "servers in turn",
        "weight 2 app",
        "in turn",
        "weight 1 http://h:3",
    ];
    lines(&explain("http://a.example/x"), &of_targets);
    let shown = stdout(&blitz(&["config", "show", &file])).replace(&file, "FILE");
    lines(
        &shown,
        &[
            "to = { \"http://h:1\" = 3, \"http://h:2\" = 1 } # FILE:6",
            "balance = \"round_robin\" # FILE:7",
            "sticky = \"client\" # FILE:3",
            "to = { app = 2, \"http://h:3\" = 1 } # FILE:4",
            "upstream.app.servers = { \"http://h:1\" = 3, \"http://h:2\" = 1 } # FILE:6",
        ],
    );
}
