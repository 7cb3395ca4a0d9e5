use std::path::Path;

use super::*;

const FILE: &str = r#"
[upstream]
kind = "s3"
url = "http://127.0.0.1:9000"
[upstreams.state]
kind = "rest"
url = "http://127.0.0.1:9001"
[[rule]]
match = "backups/{cluster}/**"
resource = "wal/{cluster}"
[[rule]]
match = "tables/**"
resource = "table"
reads = "fenced"
[[rule]]
match = "state/**"
resource = "state"
upstream = "state"
[[rule]]
match = "public/**"
fence = "none"
[[rule]]
match = "moved/**"
resource = "state"
upstream = "state"
strip_prefix = "/moved"
[[rule]]
match = "other/**"
resource = "state"
upstream = "other"
[upstreams.other]
kind = "rest"
url = "http://127.0.0.1:9002"
"#;

fn ask(method: &str, target: &str, headers: &[&str]) -> Explanation {
    let config = config::parse(Path::new("fencegate.toml"), FILE).unwrap();
    let command = Explain {
        file: ConfigFile { config: "fencegate.toml".into() },
        method: method.to_owned(),
        target: target.to_owned(),
        host: None,
        headers: headers.iter().map(|line| (*line).to_owned()).collect(),
        json: false,
    };
    explain(&config, &command.asked(&config).unwrap()).unwrap()
}

fn accepted_of(explanation: Explanation) -> Accepted {
    match explanation.verdict {
        Verdict::Accepted(accepted) => *accepted,
        Verdict::Refused { refusal } => panic!("{refusal:?}"),
    }
}

#[test]
fn a_request_is_explained_up_to_its_token() {
    // Method, target, headers; operation, rule, resource, need, whether it is refused for want of a token.
    type Case = (
        (&'static str, &'static str, &'static [&'static str]),
        (&'static str, Option<usize>, Option<&'static str>, &'static str, bool),
    );
    let cases: &[Case] = &[
        (
            ("PUT", "/backups/main/1", &[]),
            ("PutObject", Some(1), Some("wal/main"), "required", true),
        ),
        (
            ("PUT", "/backups/main/1", &["Fencing-Token: 7"]),
            ("PutObject", Some(1), Some("wal/main"), "required", false),
        ),
        (
            ("GET", "/backups/main/1", &[]),
            ("GetObject", Some(1), Some("wal/main"), "optional", false),
        ),
        (("GET", "/tables/a", &[]), ("GetObject", Some(2), Some("table"), "required", true)),
        (("DELETE", "/public/a", &[]), ("DeleteObject", Some(4), None, "unused", false)),
        (
            ("POST", "/backups?delete", &[]),
            ("DeleteObjects", None, None, "depends on the body", false),
        ),
        (("POST", "/state/main", &[]), ("POST", Some(3), Some("state"), "required", true)),
        (("GET", "/elsewhere/a", &[]), ("GetObject", None, None, "unused", false)),
    ];
    for ((method, target, headers), want) in cases {
        let seen = accepted_of(ask(method, target, headers));
        let rule = seen.rule.as_ref().map(|rule| rule.number);
        let refused = seen.token.refusal.is_some();
        let got = (seen.operation, rule, seen.resource.as_deref(), seen.token.need, refused);
        assert_eq!(got, *want, "{method} {target}");
    }
    let seen = accepted_of(ask("POST", "/state/main", &[]));
    assert_eq!((seen.upstream.name.as_str(), seen.upstream.kind), ("state", StoreKind::Rest));
}

#[test]
fn a_refusal_is_the_one_that_the_proxy_would_answer_with() {
    let cases: &[(&str, &str, &[&str], u16, &str)] = &[
        ("PUT", "/elsewhere/a", &[], 403, "NoFenceRule"),
        ("PUT", "/backups/a%2Fb/c", &[], 400, "AmbiguousKey"),
        ("PUT", "/public//backups", &["Host: s3.elsewhere"], 421, "MisdirectedRequest"),
        ("PUT", "/backups/main/1", &["Fencing-Token: 07"], 400, "InvalidFencingToken"),
        ("PUT", "/backups/main/1?frobnicate", &[], 400, "InvalidRequest"),
        ("PATCH", "/backups/main/1", &[], 501, "NotImplemented"),
        ("PUT", "/backups/main/1", &["Connection: fencing-token"], 400, "InvalidRequest"),
        (
            "PUT",
            "/backups/main/1",
            &["x-amz-copy-source: tables/a", "Fencing-Token: 7"],
            400,
            "MultipleResources",
        ),
    ];
    for (method, target, headers, status, code) in cases {
        match ask(method, target, headers).verdict {
            Verdict::Refused { refusal } => {
                assert_eq!((refusal.status, refusal.code), (*status, *code), "{target}");
            }
            Verdict::Accepted(accepted) => panic!("{method} {target}: {accepted:?}"),
        }
    }
}

#[test]
fn a_destination_that_would_not_go_where_its_rule_says_is_refused() {
    for (method, target, destination) in [
        ("MOVE", "/moved/a", "/moved/b"),
        ("COPY", "/moved/a", "/state/b"),
        ("COPY", "/state/a", "/moved/b"),
        ("COPY", "/other/a", "/state/b"),
    ] {
        let shown = ask(method, target, &[&format!("Destination: {destination}")]);
        let Verdict::Refused { refusal } = shown.verdict else { panic!("{method} {target}") };
        assert_eq!((refusal.status, refusal.code), (400, "InvalidRequest"), "{method} {target}");
    }
    let moved = accepted_of(ask("MOVE", "/state/a", &["Destination: /state/b"]));
    assert_eq!(moved.resource.as_deref(), Some("state"));
}

#[test]
fn a_whole_url_is_explained_as_its_client_would_send_it() {
    let shown = ask("PUT", "http://127.0.0.1:8080/backups/main/1", &[]);
    assert_eq!(shown.host, "127.0.0.1:8080");
}

#[test]
fn other_readings_of_a_key_are_shown() {
    let seen = accepted_of(ask("PUT", "/backups/main/d//k/", &[]));
    let others = ["backups/main/d/k", "backups/main/d//k", "backups/main/d/k/"];
    assert_eq!(seen.keys[0].other_readings, others);
    let shown = ask("PUT", "/backups/main/d//k/", &[]).people();
    assert!(shown.contains("a store may read backups/main/d/k, "), "{shown}");
}
