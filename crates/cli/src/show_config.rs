//! `blitz run --show-config`: the configuration file that flags stand for.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use blitz_config::{Diagnostic, Document, Environment, Process, Severity, UpgradeProtocol, quoted};
use blitz_gateway::{Origin, Prefix, Target};
use blitz_host::serving::ListenerConfig;
use blitz_http::{Address, FOREVER};
use clap::parser::ValueSource;
use clap::{Args, Command};

use crate::run::RunArguments;
use crate::{listen, output};

/// The flags that have a key in the file.
pub(crate) struct FileSettings<'a> {
    pub(crate) listen: Vec<ListenerConfig>,
    pub(crate) listen_tls: Vec<Address>,
    pub(crate) redirect_https: bool,
    pub(crate) trusted_proxies: Vec<String>,
    /// Each with the file of its key.
    pub(crate) certificates: Vec<(&'a Path, &'a Path)>,
    pub(crate) targets: &'a [Target],
    pub(crate) request_trailers: bool,
    pub(crate) body_max: Option<u64>,
    /// The key of each timeout, and its value.
    pub(crate) timeouts: Vec<(&'static str, Duration)>,
    pub(crate) process: Process,
}

/// Flags that a file has no keys for yet.
const WITHOUT_KEYS: [&str; 8] = [
    "client-auth",
    "client-ca",
    "client-cert-header",
    "connect-retry",
    "upstream-ca",
    "upstream-cert",
    "upstream-idle",
    "upstream-key",
];

/// Prints the file on standard output.
pub(crate) fn print(settings: &FileSettings<'_>) -> ExitCode {
    let others = without_keys(&given(env::args_os().skip(1)));
    let document = Document::new("blitz.toml", text(settings, &others));
    let (_, diagnostics) = blitz_config::read(&document, &Environment::default());
    let is_error = |diagnostic: &Diagnostic| diagnostic.severity == Severity::Error;
    match diagnostics.iter().any(is_error) {
        false => {
            output::print(&document.text);
            ExitCode::SUCCESS
        }
        // Paths of a file have one spelling only.
        true => {
            eprint!("{}", blitz_config::render(&document, &diagnostics, false));
            eprintln!("blitz: no file says the same as these flags");
            ExitCode::FAILURE
        }
    }
}

/// The file, with comments for the flags that it has no keys for.
fn text(settings: &FileSettings<'_>, flags: &[String]) -> String {
    let mut file = File::default();
    file.top(settings);
    file.comments(flags);
    file.site(settings);
    file.text
}

/// The flags of a command line, each as it was written; defaults are not among them.
fn given(arguments: impl IntoIterator<Item = OsString>) -> Vec<(String, String)> {
    let command = RunArguments::augment_args(Command::new("blitz"));
    let program = std::iter::once(OsString::from("blitz"));
    let arguments = arguments.into_iter();
    let is_command = |(at, argument): &(usize, OsString)| *at == 0 && argument == "run";
    let arguments = arguments.enumerate().filter(|one| !is_command(one));
    let arguments = program.chain(arguments.map(|(_, argument)| argument));
    // They were parsed before.
    let Ok(matches) = command.clone().try_get_matches_from(arguments) else {
        return Vec::new();
    };
    let flags = command.get_arguments().filter_map(|flag| {
        let id = flag.get_id().as_str();
        let is_given = matches.value_source(id) == Some(ValueSource::CommandLine);
        let values = matches
            .get_raw(id)
            .filter(|_| flag.get_action().takes_values());
        let values = values.into_iter().flatten();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        let name = flag.get_long().filter(|_| is_given)?;
        Some((name.to_owned(), values.join(" ")))
    });
    flags.collect()
}

/// Those that a file has no keys for.
fn without_keys(given: &[(String, String)]) -> Vec<String> {
    let others = given
        .iter()
        .filter(|(name, _)| WITHOUT_KEYS.contains(&name.as_str()));
    others
        .map(|(name, value)| format!("--{name} {value}").trim_end().to_owned())
        .collect()
}

#[derive(Default)]
struct File {
    text: String,
}

impl File {
    fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    fn list(&mut self, key: &str, values: impl IntoIterator<Item = String>) {
        let values: Vec<String> = values.into_iter().map(|value| quoted(&value)).collect();
        self.line(&format!("{key} = [{}]", values.join(", ")));
    }

    fn top(&mut self, settings: &FileSettings<'_>) {
        let listener = |listener: &ListenerConfig| {
            let prefix = if listener.http2_only { "h2c://" } else { "" };
            format!("{prefix}{}", listen::text_of(&listener.address))
        };
        self.list("listen", settings.listen.iter().map(listener));
        if !settings.listen_tls.is_empty() {
            self.list(
                "listen_tls",
                settings.listen_tls.iter().map(listen::text_of),
            );
        }
        if !settings.trusted_proxies.is_empty() {
            self.list("trusted_proxies", settings.trusted_proxies.clone());
        }
        self.certificates(settings);
        if settings.request_trailers {
            self.line("defaults.request_trailers = true");
        }
        if let Some(bytes) = settings.body_max {
            self.line(&format!("defaults.body_max = \"{bytes}\""));
        }
        for (key, value) in &settings.timeouts {
            self.line(&format!(
                "defaults.timeout.{key} = \"{}\"",
                duration(*value)
            ));
        }
        for (key, value, _) in settings.process.written() {
            self.line(&format!("{key} = {value}"));
        }
    }

    /// A key beside its certificate is found.
    fn certificates(&mut self, settings: &FileSettings<'_>) {
        let shown = |path: &Path| quoted(&absolute(path).display().to_string());
        let written = |(certificate, key): &(&Path, &Path)| {
            let is_found = *key == certificate.with_extension("key");
            match is_found || key == certificate {
                true => shown(certificate),
                false => format!("{{ cert = {}, key = {} }}", shown(certificate), shown(key)),
            }
        };
        let certificates: Vec<String> = settings.certificates.iter().map(written).collect();
        if !certificates.is_empty() {
            self.line(&format!("certificates = [{}]", certificates.join(", ")));
        }
    }

    fn comments(&mut self, flags: &[String]) {
        for flag in flags {
            self.line(&format!(
                "# {} has no key yet: write the flag beside --config",
                shown(flag)
            ));
        }
    }

    fn site(&mut self, settings: &FileSettings<'_>) {
        self.line("\n[site.\"*\"]");
        if settings.redirect_https {
            self.line("tls = true");
        }
        if !settings
            .targets
            .iter()
            .any(|target| target.prefix.matches_all_paths())
        {
            self.line("# Other paths get the built-in site with flags, and 404 with a file.");
        }
        if settings.targets.is_empty() {
            self.line("respond = 404");
        }
        let mut targets: Vec<&Target> = settings.targets.iter().collect();
        targets.sort_by_key(|target| (!target.prefix.matches_all_paths(), target.prefix.text()));
        let has_upgrades = targets.iter().any(|target| !target.upgrades.is_empty());
        for target in targets {
            for (key, path) in routes(target, settings.targets) {
                let mut values = vec![format!("to = {}", quoted(&url(target)))];
                values.extend(path.map(|path| format!("path = {}", quoted(&path))));
                // Routes inherit it.
                values.extend(has_upgrades.then(|| upgrade(target)));
                // The site's own route has its keys in the site.
                match (key.as_str(), values.as_slice()) {
                    ("/", values) => self.line(&values.join("\n")),
                    (key, [_]) => {
                        self.line(&format!("{} = {}", quoted(key), quoted(&url(target))));
                    }
                    (key, values) => {
                        self.line(&format!("{} = {{ {} }}", quoted(key), values.join(", ")));
                    }
                }
            }
        }
    }
}

/// The keys of a target, each with the path that its upstream receives.
fn routes(target: &Target, all: &[Target]) -> Vec<(String, Option<String>)> {
    let key = match &target.prefix {
        prefix if prefix.matches_all_paths() => "/".to_owned(),
        Prefix::Everything | Prefix::Segments(_) => target.prefix.text().to_owned(),
        Prefix::Text(text) if text.ends_with('/') => text.clone(),
        Prefix::Text(text) => format!("{text}*"),
    };
    let Some(path) = &target.path else {
        return vec![(key, None)];
    };
    let is_below = key.ends_with('/');
    let kept = path.strip_suffix('/').unwrap_or(path);
    let with_rest = format!("{kept}{{rest}}");
    if kept == path || is_below {
        return vec![(key, Some(with_rest))];
    }
    // A slash at the end of the path stays where nothing follows, and is not doubled where a slash does.
    match key.strip_suffix('*') {
        None => vec![
            (format!("={key}"), Some(path.clone())),
            (key, Some(with_rest)),
        ],
        Some(text) => {
            let is_taken = |other: &Target| other.prefix.text().trim_end_matches('/') == text;
            let others = all
                .iter()
                .filter(|other| !matches!(&other.prefix, Prefix::Text(other) if other == text));
            let below =
                (!others.into_iter().any(is_taken)).then(|| (format!("{text}/"), Some(with_rest)));
            let own = (key.clone(), Some(format!("{path}{{rest}}")));
            below.into_iter().chain([own]).collect()
        }
    }
}

/// The protocols that its clients may switch to.
fn upgrade(target: &Target) -> String {
    let others = target.upgrades.iter().map(UpgradeProtocol::as_str);
    let protocols = std::iter::once("websocket").chain(others).map(quoted);
    format!("upgrade = [{}]", protocols.collect::<Vec<_>>().join(", "))
}

/// Its URL with the host as written, which requests without one get.
fn url(target: &Target) -> String {
    let url = target.url();
    let has_zone =
        matches!(&target.origin, Origin::Ip(address) if address.to_string().contains('%'));
    match url.split_once("://") {
        Some((scheme, _)) if !has_zone => format!("{scheme}://{}", target.authority),
        _ => url,
    }
}

/// A duration of whole milliseconds.
fn duration(duration: Duration) -> String {
    match duration == FOREVER {
        true => "forever".to_owned(),
        false => format!("{}ms", duration.as_nanos().div_ceil(1_000_000)),
    }
}

/// Without line breaks, for a comment.
fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// Flags are relative to the working folder, and a file to its own.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use blitz_gateway::{Rejection, RequestOutcome, Sites, TrustedProxies, compile, explain};
    use blitz_http::{Peer, RequestHead, Scheme};
    use clap::Parser;

    use super::*;
    use crate::{run, upgrades};

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        run: RunArguments,
    }

    fn parsed(flags: &[&str]) -> (RunArguments, Vec<String>) {
        let run = Flags::try_parse_from([&["blitz"], flags].concat())
            .expect("they are flags")
            .run;
        (run, without_keys(&given(flags.iter().map(OsString::from))))
    }

    fn file(flags: &[&str]) -> String {
        let (run, others) = parsed(flags);
        let targets = upgrades::apply(&run.to, &run.upgrade).expect("each has a target");
        text(&run::file_settings(&run, &targets), &others)
    }

    #[test]
    fn flags_are_written_as_keys_and_comments() {
        let written = file(&[
            "--listen=h2c://127.0.0.1:80",
            "--listen=unix:/run/${a}",
            "--listen-tls=127.0.0.1:443",
            "--redirect-https",
            "--cert=/c/a.pem",
            "--key=/c/a.key",
            "--cert=/c/b.pem",
            "--key=/k/b",
            "--trusted-proxies=10.0.0.0/8,unix",
            "--to=http://127.0.0.1:3000",
            "--to=/api=http://app/v2/",
            "--to=/img*=h2c://img:81/b/",
            "--to=/pkg.v1.=unix:/run/a.sock",
            "--upgrade=/api=tcp",
            "--via",
            "--cores=2",
            "--body-max=10m",
            "--timeout-idle=1h30m",
            "--timeout-response=forever",
        ]);
        assert_eq!(
            written,
            r#"listen = ["h2c://127.0.0.1:80", "unix:/run/$${a}"]
listen_tls = ["127.0.0.1:443"]
trusted_proxies = ["10.0.0.0/8", "unix"]
certificates = ["/c/a.pem", { cert = "/c/b.pem", key = "/k/b" }]
defaults.body_max = "10485760"
defaults.timeout.response = "forever"
defaults.timeout.idle = "5400000ms"
server.cores = 2
server.via = true

[site."*"]
tls = true
to = "http://127.0.0.1:3000"
upgrade = ["websocket"]
"=/api" = { to = "http://app", path = "/v2/", upgrade = ["websocket", "tcp"] }
"/api" = { to = "http://app", path = "/v2{rest}", upgrade = ["websocket", "tcp"] }
"/img/" = { to = "h2c://img:81", path = "/b{rest}", upgrade = ["websocket"] }
"/img*" = { to = "h2c://img:81", path = "/b/{rest}", upgrade = ["websocket"] }
"/pkg.v1.*" = { to = "unix:/run/a.sock", upgrade = ["websocket"] }
"#
        );
    }

    /// Each flag of `run` in turn: it is a key, or known to have none.
    #[test]
    fn each_flag_is_a_key_or_a_comment() {
        const FLAGS: [&[&str]; 48] = [
            &["--listen=:80"],
            &["--listen-tls=:443"],
            &["--redirect-https"],
            &["--to=http://h"],
            &["--request-trailers"],
            &["--trusted-proxies=10.0.0.0/8"],
            &["--cert=/c/a.pem", "--key=/c/a.key"],
            &["--body-max=1k"],
            &["--timeout-connect=1s"],
            &["--timeout-response=1s"],
            &["--timeout-idle=1s"],
            &["--timeout-drain=1s"],
            &["--http3=off"],
            &["--alt-svc-port=443"],
            &["--alt-svc-max-age=0"],
            &["--h2c-upgrade"],
            &["--via"],
            &["--loop-id=edge-1"],
            &["--head-max=1k"],
            &["--fields-max=5"],
            &["--cookies-max=5"],
            &["--request-line-max=1k"],
            &["--trailers-max=1k"],
            &["--trailer-fields-max=5"],
            &["--upstream-head-max=1k"],
            &["--upstream-fields-max=5"],
            &["--half-close-grace=forever"],
            &["--lingering-time=0"],
            &["--lingering-timeout=1s"],
            &["--cores=2"],
            &["--pin=off"],
            &["--io=epoll"],
            &["--log=debug"],
            &["--log-summary=30s"],
            &["--access-log=stdout"],
            &["--control=off"],
            &["--control-listen=127.0.0.1:9181"],
            &["--drain-delay=5s"],
            &["--client-ca=/c/ca.pem"],
            &["--client-ca=/c/ca.pem", "--client-auth=optional"],
            &["--client-ca=/c/ca.pem", "--client-cert-header"],
            &["--connect-retry=1s"],
            &["--to=http://h", "--upgrade=tcp"],
            &["--upstream-ca=/c/ca.pem"],
            &["--upstream-cert=/c/a.pem", "--upstream-key=/c/a.key"],
            &["--upstream-key=/c/a.key", "--upstream-cert=/c/a.pem"],
            &["--upstream-idle=1s"],
            &["--key=/c/a.key", "--cert=/c/a.pem"],
        ];
        let without = file(&[]);
        let mut known: Vec<String> = vec!["config".to_owned(), "show-config".to_owned()];
        for flags in FLAGS {
            let name = flags.last().expect("there is one").trim_start_matches('-');
            let name = name.split('=').next().expect("there is one");
            let text = file(flags);
            let comment = format!("# --{name}");
            let is_key = text != without && !text.contains(&comment);
            assert_ne!(is_key, WITHOUT_KEYS.contains(&name), "{flags:?}: {text}");
            sites_of(&text.replace("to = \"http://h\"", "to = \"http://127.0.0.1\""));
            known.push(name.to_owned());
        }
        for flag in RunArguments::augment_args(Command::new("blitz")).get_arguments() {
            let name = flag.get_long().expect("it has a name").to_owned();
            assert!(known.contains(&name), "{name}");
        }
    }

    /// Numbers that follow from a seed (xorshift).
    struct Random(u64);

    impl Random {
        fn below(&mut self, below: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % below as u64) as usize
        }

        fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
            of[self.below(of.len())]
        }

        fn path(&mut self) -> String {
            const SEGMENTS: [&str; 9] = ["a", "b", "a.b", "ab", "", "a%2Fb", "a;x", "..", "%C3%A9"];
            let segments = (0..=self.below(4)).map(|_| format!("/{}", self.one(&SEGMENTS)));
            segments.collect()
        }

        fn to(&mut self) -> String {
            let prefix = self.one(&[
                "", "/a=", "/a/=", "/a*=", "/a/b=", "/ab*=", "/a.=", "/=", "/b/=",
            ]);
            let url = self.one(&[
                "http://u1",
                "http://u2:81",
                "h2c://127.0.0.1:50",
                "https://u3",
                "unix:/run/a",
            ]);
            let path = self.one(&["", "/", "/v2", "/v2/", "/x/y", "/x/y/", "/z."]);
            match url.starts_with("unix:") {
                true => format!("--to={prefix}{url}"),
                false => format!("--to={prefix}{url}{path}"),
            }
        }

        fn flags(&mut self) -> Vec<String> {
            let mut flags: Vec<String> = (0..self.below(5)).map(|_| self.to()).collect();
            let others = [
                "--listen=:80",
                "--listen=unix:/run/b.sock",
                "--listen-tls=127.0.0.1:443",
                "--redirect-https",
                "--trusted-proxies=10.0.0.0/8,192.0.2.7",
                "--request-trailers",
                "--upgrade=tcp",
                "--body-max=1k",
                "--timeout-connect=1s",
                "--via",
            ];
            flags.extend(
                others
                    .iter()
                    .filter(|_| self.below(3) == 0)
                    .map(|flag| (*flag).to_owned()),
            );
            flags
        }
    }

    /// The sites of a file, which must have no mistake.
    fn sites_of(text: &str) -> (Sites, TrustedProxies) {
        let document = Document::new("blitz.toml", text);
        let (configuration, mut diagnostics) =
            blitz_config::read(&document, &Environment::default());
        let mut no_file = |_: &str| Err((String::new(), String::new()));
        let sites = compile(&configuration, &mut no_file, &mut diagnostics);
        let mistakes = diagnostics
            .iter()
            .filter(|mistake| mistake.severity == Severity::Error);
        assert_eq!(mistakes.count(), 0, "{text}{diagnostics:?}");
        let trusted = configuration.trusted_proxies.iter();
        (
            Sites::of_file(sites),
            trusted.map(|network| network.value.into()).collect(),
        )
    }

    #[test]
    fn the_file_answers_as_the_flags_do() {
        let (mut random, mut compared, mut forwarded) = (Random(0x2545_f491_4f6c_dd1d), 0, 0);
        while compared < 20_000 {
            let flags = random.flags();
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let (run, others) = parsed(&flags);
            // Contradictory ones.
            if run::check(&run).is_err() {
                continue;
            }
            let Ok(targets) = upgrades::apply(&run.to, &run.upgrade) else {
                continue;
            };
            let text = text(&run::file_settings(&run, &targets), &others);
            let of_flags = Sites::of_targets(targets, run.redirect_https).expect("it was checked");
            let (of_file, trusted) = sites_of(&text);
            let proxies: TrustedProxies = run.trusted_proxies.iter().copied().collect();
            assert_eq!(trusted, proxies, "{text}");
            for _ in 0..20 {
                let (path, scheme) = (
                    random.path(),
                    [Scheme::Http, Scheme::Https][random.below(2)],
                );
                let peer = Peer {
                    remote: Some(([10, 0, 0, 1], 1).into()),
                    listener: None,
                    scheme,
                    tls: None,
                };
                let Ok(mut head) = RequestHead::parse("GET", &path) else {
                    continue;
                };
                if random.below(4) > 0 {
                    head.set_authority("a.example");
                }
                let mut other = RequestHead::parse("GET", &path).expect("it was parsed");
                head.authority()
                    .into_iter()
                    .for_each(|host| other.set_authority(host));
                let expected = explain(&of_flags, &mut head, &peer, &proxies).outcome;
                let mut found = explain(&of_file, &mut other, &peer, &trusted).outcome;
                // Flags do not tell the upstream of the prefix.
                if let RequestOutcome::Forwarded { fields, .. } = &mut found {
                    fields.retain(|(name, _)| name != "x-forwarded-prefix");
                }
                let is_nothing =
                    matches!(expected, RequestOutcome::Rejected(Rejection::UnknownPath));
                forwarded += usize::from(matches!(expected, RequestOutcome::Forwarded { .. }));
                // The built-in site.
                let is_same = expected == found
                    || is_nothing
                        && found
                            == (RequestOutcome::Answered {
                                status: 404,
                                location: None,
                            });
                assert!(
                    is_same,
                    "{flags:?}\n{text}\n{path}: {expected:?}, and in the file {found:?}"
                );
                compared += 1;
            }
        }
        assert!(forwarded > compared / 3, "{forwarded}");
    }
}
