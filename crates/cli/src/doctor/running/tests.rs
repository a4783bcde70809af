//! The checks of a running process, from answers of one.

use super::*;
use crate::live::{Answers, Reading};

const FIRST: &str = "process_start_time_seconds 1000\nprocess_cpu_seconds_total 10\nblitz_cores 2\n\
    blitz_retries_total 900\nblitz_connections_evicted_total 5\nblitz_head_timeouts_total 1\n# EOF\n";

/// Checks of a process whose second reading has these answers.
fn checks(answers: Answers<'_>) -> Vec<Check> {
    let first = Reading::new(Duration::ZERO, 4000.0, Answers::of_metrics(FIRST)).unwrap();
    let second = Reading::new(Duration::from_secs(2), 4002.0, answers).unwrap();
    of_view(&View::new(Some(&first), &second))
}

/// The lines that are not ok.
fn problems(checks: &[Check]) -> Vec<(CheckResult, &str)> {
    let problems = checks
        .iter()
        .filter(|check| check.verdict != CheckResult::Ok);
    assert!(problems.clone().all(|check| !check.advice.is_empty()));
    problems
        .map(|check| (check.verdict, &*check.found))
        .collect()
}

#[test]
fn a_process_without_problems_has_none() {
    let checks = checks(Answers::of_metrics(FIRST));
    assert_eq!(problems(&checks), []);
    assert_eq!(summary(&checks), "The running Blitz has no problem.");
    let earlier = checks.last().unwrap();
    assert_eq!(
        (&*earlier.name, &*earlier.found),
        (
            "earlier",
            "retries 900, connections evicted 5; not in 2.0 s"
        )
    );
}

#[test]
fn each_problem_has_its_evidence() {
    let metrics = "process_start_time_seconds 1000\nprocess_cpu_seconds_total 13.9\nblitz_cores 2\n\
        process_open_fds 1000\nprocess_max_fds 1024\nblitz_sockets_open{core=\"0\"} 3\nblitz_sockets_max 400\n\
        blitz_connections 401\nblitz_connections_reading_head 400\nblitz_requests_in_flight 1\n\
        blitz_memory_available_bytes{core=\"0\"} 67108864\nblitz_memory_available_bytes{core=\"1\"} 1048576\n\
        blitz_configuration_generation 3\nblitz_configuration_last_reload_successful 0\n\
        blitz_configuration_last_reload_timestamp_seconds 3990\n\
        blitz_retries_total 907\nblitz_connections_evicted_total 5\nblitz_head_timeouts_total 9\n# EOF\n";
    let answers = Answers {
        metrics,
        upstreams: r#"{"upstreams":[
            {"url":"http://a:1","names":["app"],"failure":"no such name","addresses":[]},
            {"url":"http://b:1","names":["app"],"addresses":[]},
            {"url":"http://c:1","names":[],"addresses":[{"cores":[{"cooling_down_until":"2026-11-29T18:55:00Z"}]}]}]}"#,
        certificates: r#"{"certificates":[{"names":["a.example"],"days_left":-1,"seconds_left":-120,"file":"/a.pem"},
            {"names":["b.example"],"days_left":13,"file":null},{"names":["c.example"],"days_left":14,"file":null}]}"#,
        failures: r#"{"failures":[{"cause":"refused","site":"a.example","route":"/b","address":"10.0.0.1:1",
            "status":502,"count":12,"seconds_since_first":300,"seconds_since_last":1}]}"#,
        clients: "{}",
    };
    let checks = checks(answers);
    use CheckResult::{Slow, Stop};
    assert_eq!(
        problems(&checks),
        [
            (Slow, "1.95 of 2 in use"),
            (
                Slow,
                "1,000 of 1,024 of the process; at most 3 of 400 sockets of a core"
            ),
            (
                Slow,
                "unknown; a core has 1.0 MiB left for what it receives"
            ),
            (Slow, "401, 400 of them within a head; 1 requests"),
            (Slow, "number 3 stays, because the reload 12 s ago failed"),
            (Stop, "a.example: expired 2 min ago"),
            (Slow, "b.example: expires in 13 days"),
            (Slow, "app: http://a:1 has no address: no such name"),
            (Stop, "http://c:1: cannot be reached"),
            (
                Slow,
                "refused: 12 in 2.0 s, 12 since 5 min ago, on a.example/b, upstream 10.0.0.1:1"
            ),
            (Slow, "retries: 7 in 2.0 s, 907 since the start"),
        ]
    );
    assert_eq!(summary(&checks), "The running Blitz has 11 problems.");
}

#[test]
fn slow_requests_are_told() {
    let found = |slow: u64| {
        let name = "http_server_request_duration_seconds_bucket";
        let metrics = format!(
            "process_start_time_seconds 1000\nprocess_cpu_seconds_total 10\nblitz_cores 2\n\
             {name}{{le=\"0.01\"}} 90\n{name}{{le=\"1\"}} {}\n{name}{{le=\"+Inf\"}} 100\n# EOF\n",
            100 - slow
        );
        let checks = checks(Answers::of_metrics(&metrics));
        checks[1].found.clone()
    };
    assert!(found(9).ends_with(": `blitz tail --slower 500ms` shows slow requests"));
    let all = found(0);
    assert!(all.starts_with("p50 5.6 ms, p99 "), "{all}");
    let metrics = Answers::of_metrics(FIRST);
    assert_eq!(checks(metrics)[1].found, "p50 -, p99 -");
}

/// The problems of upstreams after a second reading, from both answers of `/upstreams`.
fn of_upstreams(first: &str, second: &str, failures: &str) -> Vec<(String, String)> {
    let reading = |at, upstreams: &str| {
        let answers = Answers {
            upstreams,
            failures,
            ..Answers::of_metrics(FIRST)
        };
        Reading::new(Duration::from_secs(at), 4000.0 + at as f64, answers).unwrap()
    };
    let view = View::new(Some(&reading(0, first)), &reading(3, second));
    let checks = of_view(&view).into_iter();
    let problems = checks.filter(|check| check.verdict != CheckResult::Ok);
    problems.map(|check| (check.found, check.advice)).collect()
}

#[test]
fn a_server_that_is_slower_than_its_siblings_has_a_problem() {
    let servers = |counts: [(u64, f64); 3]| {
        let servers = counts.iter().enumerate().map(|(at, (responses, seconds))| {
            format!(
                r#"{{"url":"http://10.0.0.{at}:1","names":["app"],"addresses":[{{"address":"10.0.0.{at}:1","cores":[],
                "requests":{responses},"failures":0,"responses":{responses},"response_seconds":{seconds}}}]}}"#
            )
        });
        format!(
            r#"{{"upstreams":[{}]}}"#,
            servers.collect::<Vec<_>>().join(",")
        )
    };
    let first = servers([(10, 0.1); 3]);
    let found = |counts| {
        let problems = of_upstreams(&first, &servers(counts), "{}").into_iter();
        problems.map(|(found, _)| found).collect::<Vec<_>>()
    };
    assert_eq!(
        found([(20, 0.2), (20, 6.1), (20, 0.4)]),
        [
            "app: 10.0.0.1:1 answers 30 times slower than its siblings: 600 ms on average, 20 ms there"
        ]
    );
    assert!(
        found([(20, 0.2), (14, 6.1), (20, 0.2)]).is_empty(),
        "too few"
    );
    assert!(
        found([(20, 0.11), (20, 0.5), (20, 0.11)]).is_empty(),
        "it is fast"
    );
}

#[test]
fn a_shared_server_is_no_sibling_and_keeps_its_upstreams_up() {
    let answer = |requests: u64, failures: u64, seconds: f64| {
        let times = |times: u64, failures, seconds| {
            format!(
                r#""requests":{times},"failures":{failures},"responses":{times},"response_seconds":{seconds}"#
            )
        };
        format!(
            r#"{{"upstreams":[{{"url":"http://a:5","names":["alpha","beta"],"used_alone":true,"addresses":[
                {{"address":"10.0.0.1:5","cores":[{{}}],{}}}]}},
            {{"url":"http://a:7","names":["alpha"],"addresses":[{{"address":"10.0.0.1:7","cores":[{{}}],{}}}]}},
            {{"url":"http://a:9","names":["beta"],"addresses":[
                {{"address":"10.0.0.1:9","cores":[{{"cooling_down_until":"2026-11-29T18:55:00Z"}}]}}]}}]}}"#,
            times(requests, failures, seconds),
            times(requests, 0, 0.01)
        )
    };
    let problems = of_upstreams(&answer(10, 0, 0.1), &answer(90, 50, 60.0), "{}");
    let found: Vec<_> = problems.iter().map(|(found, _)| &**found).collect();
    assert_eq!(found, ["beta: http://a:9 cannot be reached"]);
}

#[test]
fn a_server_that_does_not_respond_has_a_problem() {
    let answer = |active: u64, unanswered: u64, seconds: f64| {
        format!(
            r#"{{"upstreams":[{{"url":"http://a:1","names":[],"addresses":[{{"address":"10.0.0.1:1","cores":[{{}}],
            "in_use":{active},"unanswered":{unanswered},"seconds_unanswered":{seconds}}}]}}]}}"#
        )
    };
    let problems = of_upstreams(&answer(17, 20, 9.5), &answer(17, 21, 12.5), "{}");
    let (found, advice) = &problems[0];
    assert_eq!(
        found,
        "http://a:1: 10.0.0.1:1 does not respond: 17 in use, no response for 12 s"
    );
    assert!(advice.contains("timeout.response"), "{advice}");
    assert!(of_upstreams(&answer(17, 0, 0.0), &answer(17, 0, 0.0), "{}").is_empty());
}

#[test]
fn an_address_that_cannot_be_reached_and_a_name_without_one_have_their_remedies() {
    let answer = r#"{"upstreams":[{"url":"http://a:1","names":[],"addresses":[{"address":"10.0.0.1:1","cores":[{}]},
        {"address":"10.0.0.2:1","cores":[{"cooling_down_until":"2026-11-29T18:55:00Z"}]}]},
        {"url":"http://b:1","names":[],"failure":"name does not exist","addresses":[]}]}"#;
    let problems = of_upstreams(answer, answer, "{}");
    let found: Vec<_> = problems.iter().map(|(found, _)| &**found).collect();
    assert_eq!(
        found,
        [
            "http://b:1: has no address: name does not exist",
            "http://a:1: cannot be reached at 1 of 2 addresses: 10.0.0.2:1",
        ]
    );
    assert!(problems[0].1.contains("DNS"), "{}", problems[0].1);
}

#[test]
fn a_drain_is_no_overload() {
    let metrics = "process_start_time_seconds 1000\nblitz_cores 2\nblitz_cores_absent 1\nblitz_ready 0\n# EOF\n";
    let checks = checks(Answers::of_metrics(metrics));
    assert_eq!(problems(&checks), []);
    assert!(checks[0].found.contains("it drains"), "{}", checks[0].found);
}

#[test]
fn nothing_failed_only_if_nothing_did() {
    let limits = |metrics: &str, failures: &str| {
        let answers = Answers {
            failures,
            ..Answers::of_metrics(metrics)
        };
        let checks = checks(answers).into_iter();
        let mut found = checks.filter(|check| check.name == "limits");
        found.next().map(|check| check.found).unwrap()
    };
    assert!(limits(FIRST, "{}").ends_with(", and nothing failed"));
    let failures = r#"{"failures":[{"cause":"refused","site":"a","route":"/","count":2,"seconds_since_last":1}]}"#;
    assert_eq!(limits(FIRST, failures), "none was reached in 2.0 s");
    let errors =
        "http_server_request_duration_seconds_count{route=\"/\",status=\"5xx\"} 3\n# EOF\n";
    assert_eq!(limits(errors, "{}"), "none was reached in 2.0 s");
}

#[test]
fn a_client_that_has_most_connections_at_the_limit_is_named() {
    let metrics = "process_start_time_seconds 1000\nblitz_connections_evicted_total 297\nblitz_sockets_max 28\n\
        blitz_sockets_open{core=\"0\"} 25\n# EOF\n";
    let clients = r#"{"seconds":2,"clients":[{"client":"192.0.2.66","open":47,"requests":0}],
        "others":{"open":1,"requests":0}}"#;
    let answers = Answers {
        clients,
        ..Answers::of_metrics(metrics)
    };
    let checks = checks(answers);
    assert_eq!(
        problems(&checks),
        [(
            CheckResult::Slow,
            "unknown; at most 25 of 28 sockets of a core; 292 were closed for new ones"
        )]
    );
    let descriptors = checks.iter().find(|check| check.name == "descriptors");
    let advice = &*descriptors.unwrap().advice;
    assert!(
        advice.starts_with("192.0.2.66 has 47 of 48 connections: "),
        "{advice}"
    );
}

#[test]
fn a_name_that_changed_before_the_failures_is_their_cause() {
    let upstreams = r#"{"upstreams":[{"url":"http://app.test:80","names":[],"addresses":[{"address":"127.0.0.9:80",
        "cores":[{"cooling_down_until":"2026-11-29T22:25:00Z","last_failure_type":"tls_protocol_error"}]}],
        "addresses_before":["127.0.0.1:80"],"changed":"2026-11-29T22:22:26Z","seconds_since_change":100}]}"#;
    let problems = |first_age| {
        let failures = format!(
            r#"{{"failures":[{{"cause":"refused","site":"a","route":"/","address":"127.0.0.9:80","count":1,
            "seconds_since_first":{first_age},"seconds_since_last":1}}]}}"#
        );
        of_upstreams(upstreams, upstreams, &failures).remove(0)
    };
    let (found, advice) = problems(95);
    let change = "127.0.0.9, was 127.0.0.1 until 22:22:26 UTC";
    assert_eq!(found, format!("http://app.test:80: fails at TLS; {change}"));
    assert!(advice.starts_with("the name changed shortly before the failures"));
    let (found, advice) = problems(5000);
    assert_eq!(found, "http://app.test:80: fails at TLS");
    assert!(advice.contains("which certificate"), "{advice}");
}

#[test]
fn an_upstream_that_answers_with_errors_has_a_problem() {
    let metrics = "process_start_time_seconds 1000\nprocess_cpu_seconds_total 10\nblitz_cores 2\n\
        http_client_request_duration_seconds_count{upstream=\"http://b:1\",status=\"5xx\"} 1\n\
        http_client_request_duration_seconds_count{upstream=\"http://b:1\",status=\"2xx\"} 3\n# EOF\n";
    let answers = Answers {
        upstreams: r#"{"upstreams":[{"url":"http://b:1","names":[],"addresses":[]}]}"#,
        ..Answers::of_metrics(metrics)
    };
    let checks = checks(answers);
    assert_eq!(
        problems(&checks),
        [(CheckResult::Slow, "http://b:1: 25% of 2.0 requests/s fail")]
    );
}

#[test]
fn failures_that_several_counters_have_are_one_problem() {
    let counters = |failures: u32, tls: u32, connect: u32| {
        format!(
            "blitz_upstream_failures_total{{cause=\"certificate\"}} {failures}\n\
             blitz_upstream_tls_failures_total {tls}\nblitz_upstream_connect_failures_total {connect}\n# EOF\n"
        )
    };
    for (text, expected) in [
        (
            counters(3, 3, 3),
            &["upstream failures: certificate: 3 in 2.0 s, 3 since the start"][..],
        ),
        (
            counters(0, 3, 3),
            &["upstream tls failures: 3 in 2.0 s, 3 since the start"],
        ),
        (
            counters(0, 3, 5),
            &[
                "upstream connect failures: 5 in 2.0 s, 5 since the start",
                "upstream tls failures: 3 in 2.0 s, 3 since the start",
            ],
        ),
    ] {
        let checks = checks(Answers::of_metrics(&text));
        let found: Vec<_> = problems(&checks)
            .into_iter()
            .map(|(_, found)| found)
            .collect();
        assert_eq!(found, expected);
        let has_firewall = checks.iter().any(|check| check.advice.contains("firewall"));
        assert_eq!(has_firewall, expected.len() == 2);
    }
}

#[test]
fn a_process_that_does_not_answer_is_a_problem() {
    let late = "blitz: the process has not answered in time";
    let folder = std::env::temp_dir().join(format!("blitz-doctor-{}", std::process::id()));
    let process = folder.join("proc/7");
    std::fs::create_dir_all(process.join("fd")).unwrap();
    let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files  2  2  files\n";
    std::fs::write(process.join("limits"), limits).unwrap();
    for name in ["0", "1"] {
        std::fs::write(process.join("fd").join(name), "").unwrap();
    }
    let checks = without_answer(late, Some(7), &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(
        problems(&checks),
        [
            (
                CheckResult::Stop,
                "process 7: the process has not answered in time"
            ),
            (CheckResult::Slow, "2 of 2 of the process"),
        ]
    );
    let checks = without_answer(late, None, &folder);
    assert_eq!(
        problems(&checks),
        [(CheckResult::Stop, "the process has not answered in time")]
    );
}
