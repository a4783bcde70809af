use std::time::Duration;

use unicode_width::UnicodeWidthStr;

use super::*;
use crate::live::{Answers, Reading};

/// Two readings, two seconds apart.
fn view(routes: usize, upstreams: usize) -> View {
    let mut text = String::from(
        "process_start_time_seconds 1000\nprocess_resident_memory_bytes 125829120\n\
         process_open_fds 950\nprocess_max_fds 1024\n\
         blitz_sockets_open{core=\"0\"} 12\nblitz_sockets_open{core=\"1\"} 45\nblitz_sockets_max 49\n\
         process_cpu_seconds_total 13\n\
         blitz_build_info{version=\"0.1.0\",revision=\"abc\"} 1\nblitz_cores 2\n\
         blitz_cores_absent 1\n\
         blitz_connections{core=\"0\"} 1234\n\
         blitz_connections_reading_head{core=\"0\"} 400\nblitz_configuration_generation 3\n\
         blitz_configuration_last_reload_successful 0\n\
         blitz_configuration_last_reload_timestamp_seconds 4000\n\
         blitz_upstream_failures_total{cause=\"connection-refused\",error_type=\"connection_refused\"} 12\n\
         # HELP blitz_send_stalls Connections that were closed, because the peer took no bytes for too long.\n\
         blitz_send_stalls_total 3\n",
    );
    for route in 0..routes {
        let labels = format!("route=\"app-{route}.example/a/long/path/of/a/route\",status=\"2xx\"");
        let name = "http_server_request_duration_seconds";
        text += &format!(
            "{name}_bucket{{{labels},le=\"0.01\"}} 90\n{name}_bucket{{{labels},le=\"0.1\"}} 100\n\
             {name}_bucket{{{labels},le=\"+Inf\"}} 100\n{name}_count{{{labels}}} 100\n"
        );
    }
    text += "# EOF\n";
    let servers: Vec<_> = (0..upstreams)
        .map(|at| format!(r#"{{"url":"http://10.0.0.{at}:8080","addresses":[]}}"#))
        .collect();
    let servers = format!(r#"{{"upstreams":[{}]}}"#, servers.join(","));
    let certificates = r#"{"certificates":[{"names":["app.example","www.app.example"],"days_left":3,"file":"/etc/a.pem"}]}"#;
    let first = "process_start_time_seconds 1000\nprocess_cpu_seconds_total 12\nblitz_send_stalls_total 3\n# EOF\n";
    let first = Reading::new(Duration::ZERO, 4000.0, Answers::of_metrics(first)).unwrap();
    let answers = Answers {
        metrics: &text,
        upstreams: &servers,
        certificates,
        failures: r#"{"failures":[{"cause":"the upstream refused the connection","site":"app.example","route":"/api",
            "address":"10.0.0.1:8080","status":502,"count":12,"seconds_since_first":300,
            "seconds_since_last":3.2}]}"#,
        clients: r#"{"seconds":2,"clients":[{"client":"127.0.0.66","open":400,"requests":90}],
            "others":{"open":1,"requests":110}}"#,
    };
    let second = Reading::new(Duration::from_secs(2), 4002.0, answers);
    View::new(Some(&first), &second.unwrap())
}

fn text(view: &View, rates: &[f64], columns: usize, rows: Option<usize>) -> Vec<String> {
    let frame = Frame {
        view: Some(view),
        rates,
        order: Routes::Slowest,
        problem: None,
        size: Size { columns, rows },
    };
    let lines = frame.lines().into_iter();
    lines.map(|line| line.text(columns, false)).collect()
}

#[test]
fn a_small_terminal_has_the_summary_and_some_rows_of_each_table() {
    let lines = text(&view(30, 30), &[10.0, 20.0, 0.0], 80, Some(24));
    let expected = [
        "blitz 0.1.0 · up 50 min · 2 cores, 1 without answer · a reload failed 2 s ago ·…",
        "requests  1,500/s  2xx 100%  3xx 0%  4xx 0%  5xx 0%  none 0%  over 2 s",
        "latency   p50 5.6 ms  p90 10 ms  p99 91 ms",
        "now       1,234 connections (400 within a head)  0 requests  content in 0 B/s  …",
        "process   0.50 processors  memory 120 MiB",
        "limits    descriptors 950 of 1,024  sockets 45 of 49 on core 1",
        "rates     ▅█▁",
        "",
        "ROUTES, slowest first · 2 of 30      REQ/S     P50    P90    P99  4XX  5XX  NONE",
        "app-0.example/a/long/path/of/a/rou…     50  5.6 ms  10 ms  91 ms   0%   0%    0%",
    ];
    assert_eq!(lines[..10], expected);
    assert_eq!(lines.len(), 24);
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("UPSTREAMS · 1 of 30"))
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("upstream failures: connection-refused      12"))
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("app.example, www.app.example      in 3 days"))
    );
    assert_eq!(lines[23], KEYS);
}

#[test]
fn a_drain_takes_the_place_of_cores_without_answer() {
    let mut view = view(1, 1);
    view.is_draining = true;
    let title = &text(&view, &[], 120, None)[0];
    assert!(
        title.contains(" · draining · ") && !title.contains("without answer"),
        "{title}"
    );
}

#[test]
fn states_of_upstreams_are_not_cut() {
    let server = |url: &str, more: &str| {
        format!(
            r#"{{"url":"http://{url}:1","names":["app"],{more}"addresses":[
            {{"address":"{url}:1","cores":[{{}}],"in_use":7,"unanswered":7,"seconds_unanswered":12}},
            {{"address":"{url}:2","cores":[{{"last_failure":"2001-09-09T01:46:39Z","last_failure_type":"tls_error"}}]}}]}}"#
        )
    };
    let unresolved = r#""failure":"the upstream's name does not exist","#;
    let upstreams = format!(
        r#"{{"upstreams":[{},{},{{"url":"http://c:1","names":["app","other"],"addresses":[
            {{"address":"c:1","cores":[{{}}],"in_use":7,"unanswered":7,"seconds_unanswered":12}}]}}]}}"#,
        server("a", unresolved),
        server("b", "")
    );
    let metrics =
        "http_client_request_duration_seconds_count{upstream=\"other\",status=\"5xx\"} 5\n# EOF\n";
    let answers = Answers {
        upstreams: &upstreams,
        ..Answers::of_metrics(metrics)
    };
    let first = Reading::new(Duration::ZERO, 1e9, Answers::of_metrics("# EOF\n")).unwrap();
    let second = Reading::new(Duration::from_secs(2), 1e9, answers).unwrap();
    let lines = text(&View::new(Some(&first), &second), &[], 80, None);
    for start in [
        "app                       down",
        "  http://a:1              no address ",
        "    the upstream's name does not exist",
        "  http://b:1              tls: 1 of 2 ",
        "    b:2",
        "  http://c:1 (shared)     no response ",
        "    c:1: 7 in use, no response for 12 s",
    ] {
        assert!(
            lines.iter().any(|line| line.starts_with(start)),
            "{start} in {lines:#?}"
        );
    }
}

#[test]
fn figures_that_the_process_cannot_tell_are_left_out() {
    let reading = |seconds| {
        let at = Duration::from_secs(seconds);
        Reading::new(at, 4000.0, Answers::of_metrics("blitz_cores 2\n# EOF\n")).unwrap()
    };
    let view = View::new(Some(&reading(0)), &reading(2));
    let lines = text(&view, &[], 80, Some(24));
    assert!(
        lines[3].starts_with("now ") && lines[4].is_empty(),
        "{lines:#?}"
    );
}

#[test]
fn certificates_with_time_left_need_no_row_of_others() {
    let mut view = view(30, 30);
    view.certificates[0].days_left = 60;
    let has_certificates = |rows| {
        let lines = text(&view, &[], 80, rows);
        lines.iter().any(|line| line.starts_with("CERTIFICATES"))
    };
    assert!(!has_certificates(Some(24)) && has_certificates(Some(90)) && has_certificates(None));
}

#[test]
fn a_large_terminal_has_all_columns() {
    let lines = text(&view(10, 5), &[1.0; 300], 200, Some(50));
    assert_eq!((lines.len(), lines[6].width()), (50, 200));
    let has = |text: &str| lines.iter().any(|line| line.contains(text));
    assert!(
        has("P90    P99  4XX  5XX  NONE") && has("ACTIVE  IDLE  REQ/S"),
        "{lines:#?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("127.0.0.66")
            && line.contains("   45")
            && line.contains("45%")
            && line.ends_with("400")),
        "{lines:#?}"
    );
    assert!(has("SINCE") && has("5 min  3 s ago"), "{lines:#?}");
    assert!(has(
        "Connections that were closed, because the peer took no bytes for too long."
    ));
}

#[test]
fn no_size_is_too_small() {
    let view = view(9, 9);
    for columns in [1, 5, 20, 40, 79, 120, 300] {
        for rows in 1..60 {
            let lines = text(&view, &[1.0; 300], columns, Some(rows));
            assert_eq!(lines.len(), rows);
            assert!(lines.iter().all(|line| line.width() <= columns));
        }
    }
}

#[test]
fn text_has_all_rows_and_no_keys() {
    let lines = text(&view(30, 30), &[], 100, None);
    let routes = lines.iter().filter(|line| line.starts_with("app-"));
    assert_eq!(routes.count(), 30);
    assert!(!lines.iter().any(|line| line == KEYS));
}

#[test]
fn an_old_state_is_told() {
    let view = view(1, 0);
    let frame = Frame {
        view: Some(&view),
        rates: &[],
        order: Routes::Busiest,
        problem: Some("for 5 s: the process has not answered in time"),
        size: Size {
            columns: 80,
            rows: Some(24),
        },
    };
    let line = frame.lines()[1].text(80, true);
    let expected =
        "\x1b[31mno new state for 5 s: the process has not answered in time; still trying\x1b[0m";
    assert_eq!(line, expected);
}

#[test]
fn a_process_that_has_not_answered_yet_has_no_state() {
    let frame = Frame {
        view: None,
        rates: &[],
        order: Routes::Busiest,
        problem: Some("for 5 s: the process has not answered in time"),
        size: Size {
            columns: 80,
            rows: Some(24),
        },
    };
    let lines: Vec<_> = frame
        .lines()
        .iter()
        .map(|line| line.text(80, false))
        .collect();
    assert_eq!(
        lines[0],
        "no state for 5 s: the process has not answered in time; still trying"
    );
    assert!(lines.len() == 24 && lines[1..23].iter().all(String::is_empty));
    assert_eq!(lines[23], KEYS);
}
