//! The exit codes of `blitz bench regression`, and the reports that it saves.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use serde_json::{Value, json};

use crate::{blitz, stderr, stdout};

/// A folder for changed results, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("blitz-regression-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }

    /// A result of 15 rounds, changed.
    fn result(&self, name: &str, change: impl Fn(&mut Value)) -> String {
        let system = |name: &str, us: f64| {
            let run = |round: i32| {
                let us = us * (1.0 + 0.002 * f64::from(round % 5 - 2));
                json!({"cpu_us_per_request": us, "requests_per_second": 1e6 / us, "resident_bytes": 1e6})
            };
            json!({"name": name, "runs": (0..15).map(run).collect::<Vec<_>>()})
        };
        let mut json = json!({
            "command": "cargo xtask bench h1",
            "facts": {"revision": "0123456789ab", "cpu": "AMD EPYC"},
            "connections": 100,
            "void": [],
            "measured": [system("blitz-uring", 7.0), system("blitz-epoll", 8.0), system("nginx", 9.0)],
        });
        change(&mut json);
        let file = self.0.join(name);
        fs::write(&file, json.to_string()).unwrap();
        file.display().to_string()
    }

    fn compare(&self, base: &str, new: &str, more: &[&str]) -> Output {
        let out = self.0.join("out").display().to_string();
        blitz(&[&["bench", "regression", base, new, "--out", &out], more].concat())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Multiplies the CPU time of all runs of Blitz.
fn slower(json: &mut Value, factor: f64) {
    slower_system(json, "blitz-uring", factor);
}

fn slower_system(json: &mut Value, name: &str, factor: f64) {
    let mut systems = json["measured"].as_array_mut().unwrap().iter_mut();
    let system = systems.find(|system| system["name"] == name).unwrap();
    for run in system["runs"].as_array_mut().unwrap() {
        let time = run["cpu_us_per_request"].as_f64().unwrap();
        run["cpu_us_per_request"] = (time * factor).into();
    }
}

#[test]
fn equal_results_have_no_regression_and_the_report_is_saved() {
    let folder = Folder::new("equal");
    let base = folder.result("base.json", |_| {});
    let output = folder.compare(&base, &base, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("different by less than 5 %, if at all"));
    let saved = fs::read_dir(folder.0.join("out")).unwrap();
    let mut endings: Vec<String> = saved
        .map(|file| {
            file.unwrap()
                .path()
                .extension()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    endings.sort();
    assert_eq!(endings, ["gz", "html", "md"]);
}

#[test]
fn a_saved_report_becomes_html_and_can_be_compared_in_its_compressed_form() {
    let folder = Folder::new("report");
    let base = folder.result("base.json", |_| {});
    let output = folder.compare(&base, &base, &["--no-html"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let saved = fs::read_dir(folder.0.join("out")).unwrap();
    let saved: Vec<PathBuf> = saved.map(|file| file.unwrap().path()).collect();
    let compressed = saved.iter().find(|file| file.extension().unwrap() == "gz");
    let compressed = compressed.unwrap().display().to_string();
    assert_eq!(saved.len(), 2, "{saved:?}");
    let page = folder.0.join("page.html").display().to_string();
    let output = blitz(&["bench", "report", "--html", &page, &compressed]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(fs::read_to_string(&page).unwrap().contains("blitz-uring"));
    let output = blitz(&["bench", "report", "--markdown", "-", &compressed]);
    assert!(stdout(&output).contains("**equal**"), "{}", stdout(&output));
    let output = blitz(&["bench", "report", "/etc/hostname"]);
    assert_eq!(output.status.code(), Some(2));
    let output = folder.compare(&compressed, &compressed, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_slower_system_is_a_regression_unless_the_threshold_allows_it() {
    let folder = Folder::new("slower");
    let base = folder.result("base.json", |_| {});
    let new = folder.result("new.json", |json| slower(json, 1.3));
    let output = folder.compare(&base, &new, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("+30.0 %"), "{}", stdout(&output));
    assert!(stderr(&output).contains("there is a regression"));
    let allowed = folder.compare(&base, &new, &["--at-most", "40%"]);
    assert_eq!(allowed.status.code(), Some(0), "{}", stdout(&allowed));
    let better = folder.compare(&new, &base, &[]);
    assert_eq!(better.status.code(), Some(0), "{}", stdout(&better));
}

#[test]
fn a_slower_control_is_no_regression_and_is_told() {
    let folder = Folder::new("control");
    let base = folder.result("base.json", |_| {});
    let new = folder.result("new.json", |json| slower_system(json, "nginx", 1.3));
    let output = folder.compare(&base, &new, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let text = stdout(&output);
    assert!(
        text.contains("other programs") && text.contains("+30.0 %"),
        "{text}"
    );
}

#[test]
fn a_void_result_has_no_verdict() {
    let folder = Folder::new("void");
    let base = folder.result("base.json", |json| {
        json["void"] = Value::from(vec!["steal"]);
    });
    let new = folder.result("new.json", |json| slower(json, 1.3));
    let output = folder.compare(&base, &new, &[]);
    assert_eq!(output.status.code(), Some(75), "{}", stdout(&output));
    assert!(stdout(&output).contains("steal"), "{}", stdout(&output));
}

#[test]
fn a_file_that_is_no_result_is_a_usage_error() {
    let folder = Folder::new("usage");
    let base = folder.result("base.json", |_| {});
    for (new, reason) in [
        ("/nowhere.json", "/nowhere.json"),
        ("/etc/hostname", "no result"),
    ] {
        let output = folder.compare(&base, new, &[]);
        assert_eq!(output.status.code(), Some(2), "{new}");
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    let output = folder.compare(&base, &base, &["--at-most", "much"]);
    assert_eq!(output.status.code(), Some(2));
    let output = folder.compare("/bin/true", "/bin/true", &["--binaries", "--quick"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
