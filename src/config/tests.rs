use std::path::Path;

use super::*;
use crate::pipeline::settings::{FenceSettings, Limits, StoreKind, UpstreamSettings};

const STORE: &str = "[upstream]\nkind = \"s3\"\nurl = \"http://127.0.0.1:9000\"\n";

fn good(text: &str) -> Config {
    parse(Path::new("/etc/fencegate/f.toml"), text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn faults(text: &str) -> Vec<Fault> {
    match parse(Path::new("f.toml"), text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0,
    }
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_commented_file_says_the_defaults() {
    let written = good(&example("fencegate.toml"));
    let bare = good(STORE);
    assert_eq!(written.pipeline, bare.pipeline);
    assert_eq!(written.proxy, bare.proxy);
    assert_eq!(written.admin, bare.admin);
    assert_eq!(written.lease, bare.lease);
    assert_eq!(written.ledger, bare.ledger);
    assert_eq!(written.pipeline.limits, Limits::default());
    assert_eq!(written.pipeline.fence, FenceSettings::default());
    let upstream = UpstreamSettings::new(StoreKind::S3, "http://127.0.0.1:9000");
    assert_eq!(written.pipeline.upstream, upstream);
}

#[test]
fn the_commented_file_has_every_key_in_it() {
    // With the comment signs off, every key that is commented out has to be a known one.
    let text = example("fencegate.toml");
    let mut open = String::new();
    for line in text.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let code = (bare.starts_with('[') && bare.ends_with(']'))
            || bare
                .split_once(" = ")
                .is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
        let both = bare.starts_with("fence = ")
            || bare.starts_with("read_methods")
            || bare.starts_with("level");
        if code && !both {
            open += &format!("{bare}\n");
        }
    }
    let config = good(&open.replace("\"/state\"\nadd", "\"/backups\"\nadd"));
    let rule = &config.pipeline.rules[0];
    assert_eq!(rule.upstream.as_deref(), Some("state"));
    assert_eq!(rule.add_prefix.as_deref(), Some("/api/v4/projects"));
    assert_eq!(config.pipeline.upstream.sole_path, Some(true));
}

#[test]
fn every_example_loads_and_prints_as_what_loads_to_it() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let mut seen = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let config = load(&path).unwrap_or_else(|errors| panic!("{errors}"));
        let printed = config.print();
        let again = parse(&path, &printed).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
        assert_eq!(again.pipeline, config.pipeline, "{printed}");
        assert_eq!(again.proxy, config.proxy);
        assert_eq!(again.admin, config.admin);
        assert_eq!(again.lease, config.lease);
        assert_eq!(again.ledger, config.ledger);
        assert_eq!(again.levels, config.levels);
        assert_eq!(again.print(), printed);
        seen += 1;
    }
    assert!(seen >= 4);
}

#[test]
fn relative_paths_start_from_the_files_directory() {
    let config =
        good(&format!("{STORE}[admin]\ntokens = [{{ file = \"a.token\" }}, \"inline\"]\n"));
    assert_eq!(config.lease.path, Path::new("/etc/fencegate/fencegate.redb"));
    assert_eq!(config.ledger.path.as_deref(), Some(Path::new("/etc/fencegate/fencegate.redb")));
    let printed = config.print();
    assert!(printed.contains("/etc/fencegate/a.token"), "{printed}");
    assert!(printed.contains("\"***\"") && !printed.contains("inline"), "{printed}");
    let config = good(&format!("{STORE}[ledger]\npath = \"l.redb\"\n"));
    assert_eq!(config.ledger.path.as_deref(), Some(Path::new("/etc/fencegate/l.redb")));
}

/// One line that is wrong, appended to a good store: line, column, and what the message has in it.
#[test]
fn each_fault_has_its_place_and_its_remedy() {
    let rule = "[[rule]]\nmatch = \"b/**\"\nresource = \"r\"\n";
    let cases: &[(&str, usize, usize, &str, &str)] = &[
        (
            "sole_pth = true",
            4,
            1,
            "unknown key `sole_pth` in `upstream`",
            "did you mean `sole_path`?",
        ),
        ("tls = {}", 4, 1, "unknown key `tls`", "known keys are `kind`"),
        ("auth = \"re-sign\"", 4, 1, "\"re-sign\", not a way", "pass-through"),
        (
            "idle_timeout = \"4\"",
            4,
            1,
            "`upstream.idle_timeout` is \"4\", not a duration",
            "\"15s\"",
        ),
        ("idle_timeout = 4", 4, 1, "is the number 4, not a duration", "unit"),
        ("idle_timeout = \"0s\"", 4, 1, "is zero", "above zero"),
        ("profile = \"seawedfs\"", 4, 1, "names no known store", "did you mean \"seaweedfs\"?"),
        ("profile = \"minio\"", 4, 1, "names no known store", "torn_uploads = \"discarded\""),
        ("[prxy]", 4, 2, "unknown key `prxy` at the top of the file", "did you mean `proxy`?"),
        ("[proxy]\nlisten = \"8080\"", 5, 1, "\"8080\", which is no address", "127.0.0.1:8080"),
        ("[proxy]\nlisten = \"0.0.0.0:80\"", 5, 1, "every address", "proxy.hosts ="),
        (
            "[proxy]\nlisten = [\"127.0.0.1:1\", \"[::]:80\"]",
            5,
            1,
            "every address",
            "proxy.hosts =",
        ),
        ("[proxy]\nlisten = [\"127.0.0.1:1\", \"x\"]", 5, 26, "no address", "port"),
        ("[proxy]\nhosts = [\"S3.x\"]", 5, 10, "\"S3.x\"", "lower case"),
        ("[proxy]\nhosts = [\"s3.x:80\"]", 5, 10, "s3.x:80", "without port"),
        ("[proxy]\nvirtual_hosts = true", 5, 1, "needs `proxy.hosts`", "proxy.hosts ="),
        ("[proxy.limits]\nhead = \"1KB\"", 5, 1, "not a size", "KiB"),
        ("[proxy.limits]\nmax_document = \"1KiB\"", 5, 1, "less than", "64KiB"),
        (
            "[lease]\nbackend = \"redis\"",
            5,
            1,
            "\"redis\", not a lease backend of this build",
            "embedded",
        ),
        (
            "[ledger]\nkind = \"shared\"",
            5,
            1,
            "not a ledger of this build",
            "etcd, Postgres, ZooKeeper or Consul",
        ),
        ("[fence]\nreads = \"all\"", 5, 1, "\"all\", not a rule for reads", "fenced"),
        ("[fence]\nsettle_after = \"0s\"", 5, 1, "zero", "never"),
        (
            "[admin]\nlisten = \"10.0.0.1:81\"",
            5,
            1,
            "reachable from other machines",
            "admin.tokens =",
        ),
        ("[admin]\nlisten = \"127.0.0.1:8080\"", 5, 1, "both have 127.0.0.1:8080", "different"),
        ("[rule]\nmatch = \"b/**\"", 4, 2, "is a table, not a list of tables", "[[rule]]"),
        ("[[rule]]\nresource = \"r\"", 4, 1, "`rule.match` is missing", "match = "),
        ("[[rule]]\nmatch = []\nresource = \"r\"", 5, 1, "empty list", "match = "),
        ("[[rule]]\nmatch = \"b/**\"", 4, 1, "neither `resource` nor `fence`", "fence = \"none\""),
        ("[[rule]]\nmatch = \"b/x**\"\nresource = \"r\"", 5, 13, "whole segments", "write `*`"),
        ("[[rule]]\nmatch = [\"a\", \"b/{x\"]\nresource = \"r\"", 5, 18, "not closed", "{name}"),
        ("[[rule]]\nmatch = \"b/{x}\"\nresource = \"r/{y}\"", 6, 15, "uses {y}", "every pattern"),
        ("[[rule]]\nmatch = \"b/*\"\nresource = \"r/*\"", 6, 15, "`*` cannot stand", "{name}"),
        ("[[rule]]\nmatch = \"b/*\"\nresource = \"\"", 6, 1, "empty", "1 to 1,024"),
        (&format!("{rule}fence = \"none\""), 7, 1, "both `resource` and fence", "drop"),
        (
            &format!("{rule}upstream = \"state\""),
            7,
            1,
            "no store named \"state\"",
            "[upstreams.state]",
        ),
        (&format!("{rule}methods = [\"post\"]"), 7, 12, "\"post\", which is no method", "capitals"),
        (&format!("{rule}read_methods = [\"POST\"]"), 7, 1, "kind rest", "drop it"),
        (
            &format!("{rule}carrier = \"terraform-lock\""),
            7,
            1,
            "unknown key `carrier` in `rule`",
            "known keys",
        ),
        (&format!("{rule}level = \"store-cas\""), 7, 1, "not a level", "drained"),
        (
            &format!("{rule}level = \"drained\""),
            7,
            1,
            "`advisory` only, not `drained`, for want of U1, U2, U3, U4",
            "set upstream.sole_path = true",
        ),
        (
            "[[rule]]\nmatch = \"b/**\"\nfence = \"none\"\nreads = \"fenced\"",
            7,
            1,
            "says nothing",
            "drop it",
        ),
        ("x = = 1", 4, 5, "not TOML", "toml.io"),
        ("x = words", 4, 5, "not TOML", "quotes"),
    ];
    for (line, row, column, what, remedy) in cases {
        let found = faults(&format!("{STORE}{line}\n"));
        let [fault] = &found[..] else { panic!("{line}: {found:#?}") };
        assert_eq!((fault.line, fault.column), (*row, *column), "{line}: {fault}");
        assert!(fault.what.contains(what), "{line}: {fault}");
        assert!(fault.remedy.contains(remedy), "{line}: {fault}");
        let text = fault.to_string();
        assert!(text.starts_with(&format!("f.toml:{row}:{column}: ")), "{text}");
    }
}

#[test]
fn a_url_is_an_address_and_nothing_more() {
    for good_url in ["http://h", "https://h:443", "http://[::1]:9000", "http://h/", "unix:/run/s"] {
        let text = format!("[upstream]\nkind = \"rest\"\nurl = \"{good_url}\"\n");
        assert_eq!(good(&text).pipeline.upstream.url, good_url.trim_end_matches('/'));
    }
    for bad in [
        "",
        "h:9000",
        "ftp://h",
        "HTTP://h",
        "http://",
        "http://:80",
        "http://h:0",
        "http://h:99999",
        "http://h:",
        "http://h/x",
        "http://h?x",
        "http://h#x",
        "http://u:p@h",
        "http://a b",
        "unix:",
        "unix:rel",
        "unix:/",
    ] {
        let found = faults(&format!("[upstream]\nkind = \"rest\"\nurl = \"{bad}\"\n"));
        assert_eq!(found.len(), 1, "{bad:?}: {found:?}");
        assert_eq!((found[0].line, found[0].column), (3, 1), "{bad:?}");
    }
}

#[test]
fn all_faults_are_reported_in_the_order_of_the_lines() {
    let text = "[proxy]\nlisten = 8080\n[upstream]\nkind = \"s3\"\nurl = \"http://h/x\"\n[fence]\nreeds = 1\n\
                [[rule]]\nmatch = \"/b\"\n[[rule]]\nmatch = \"{\"\nresource = \"x\"\n";
    let places: Vec<_> = faults(text).iter().map(|fault| (fault.line, fault.column)).collect();
    assert_eq!(places, [(2, 1), (5, 1), (7, 1), (8, 1), (9, 10), (11, 10)]);
    let lines: Vec<_> = faults("").iter().map(ToString::to_string).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].starts_with("f.toml:1:1: `[upstream]` is missing; write [upstream]"),
        "{lines:?}"
    );
}

#[test]
fn no_fault_shows_a_secret() {
    // One secret; wrong things around it and in its own place.
    for text in [
        "[admin]\ntokens = \"s3cr3t\"\n",
        "[admin]\ntokens = [[\"s3cr3t\"]]\n",
        "[admin]\ntokens = [\"s3cr3t\", 5]\n",
        "[admin]\ntokens = [{ env = \"A\", file = \"s3cr3t\" }]\n",
        "[admin]\ntokens = [{ text = \"s3cr3t\" }]\n",
        "[admin]\ntokens = [\"s3cr3t\"]\ntoken = \"s3cr3t\"\n",
        "[admin]\ntokens = [\"s3cr3t\"\nlisten = 5\n",
        "[admin]\ntokens = [s3cr3t]\n",
        "[admin]\ntokens = [\"s3cr3t]\n",
        "[lease]\npassword = \"s3cr3t\"\n",
        "[lease]\nbackend = \"redis://:s3cr3t@h\"\n",
        "[upstreams.x]\nkind = \"s3\"\nurl = \"http://u:s3cr3t@h\"\n",
        "[proxy]\nlisten = \"http://u:s3cr3t@h\"\n",
        "[proxy]\nhosts = [\"u:s3cr3t@h\"]\n",
        "[upstreams.x]\nkind = \"http://u:s3cr3t@h\"\nurl = \"http://h\"\n",
    ] {
        let found = faults(&format!("{STORE}{text}"));
        assert!(!found.is_empty(), "{text}");
        for fault in found {
            assert!(!format!("{fault} {fault:?}").contains("s3cr3t"), "{text}: {fault}");
        }
    }
    let config = good(&format!("{STORE}[admin]\ntokens = [\"s3cr3t\"]\n"));
    assert!(!format!("{config:?}").contains("s3cr3t"));
}

#[test]
fn a_rule_is_drained_only_if_every_assumption_holds() {
    let facts = [
        "sole_path = true",
        "final_answers = true",
        "linearizable = true",
        "torn_uploads = \"discarded\"",
    ];
    let level = |lines: &[&str], fence: &str| {
        let text = format!(
            "{STORE}{}\n[fence]\n{fence}\n[[rule]]\nmatch = \"b/**\"\nresource = \"r\"\n",
            lines.join("\n")
        );
        let config = good(&text);
        let level = config.levels[0].clone().unwrap();
        let lacking: Vec<_> = level.lacking().map(|f| (f.assumption, f.basis)).collect();
        (level.level, lacking)
    };
    use super::level::{Assumption::*, Basis::*};
    assert_eq!(level(&facts, ""), (Level::Drained, vec![]));
    assert_eq!(level(&facts, "settle_after = \"never\""), (Level::Drained, vec![]));
    for (dropped, assumption) in [(0, U1), (1, U2), (2, U4), (3, U3)] {
        let mut fewer = facts.to_vec();
        fewer.remove(dropped);
        assert_eq!(level(&fewer, ""), (Level::Advisory, vec![(assumption, Missing)]));
    }
    let said = |last: &'static str| [facts[0], facts[1], facts[2], last];
    assert_eq!(level(&said("profile = \"seaweedfs\""), ""), (Level::Drained, vec![]));
    assert_eq!(level(&said("profile = \"s3rver\""), ""), (Level::Advisory, vec![(U3, Denied)]));
    assert_eq!(level(&said("torn_uploads = \"kept\""), ""), (Level::Advisory, vec![(U3, Denied)]));
    let against = ["profile = \"moto\"", "torn_uploads = \"kept\"", "sole_path = false"];
    let lacking = vec![(U1, Denied), (U2, Missing), (U3, Denied), (U4, Missing)];
    assert_eq!(level(&against, ""), (Level::Advisory, lacking));
}

#[test]
fn a_profile_gives_nothing_that_depends_on_the_deployment() {
    for profile in super::profile::PROFILES {
        let text = format!(
            "{STORE}profile = \"{}\"\n[[rule]]\nmatch = \"b/**\"\nresource = \"r\"\n",
            profile.name
        );
        let level = good(&text).levels[0].clone().unwrap();
        use super::level::Assumption::*;
        for finding in level.findings.iter().filter(|f| matches!(f.assumption, U1 | U2 | U4)) {
            assert!(!finding.basis.holds(), "{}: {finding:?}", profile.name);
        }
    }
}

#[test]
fn what_may_not_be_meant_is_a_warning() {
    let text = format!(
        "{STORE}[fence]\nsettle_after = \"never\"\nunmatched_writes = \"pass\"\n[[rule]]\nmatch = \"a/**\"\nresource = \"a\"\n\
         [[rule]]\nmatch = \"a/x\"\nfence = \"none\"\n[[rule]]\nmatch = \"b\"\nresource = \"b\"\nmethods = [\"PUT\"]\n"
    );
    let warnings: Vec<_> = good(&text).warnings.iter().map(|w| (w.line, w.what.clone())).collect();
    assert_eq!(warnings.len(), 4, "{warnings:?}");
    assert!(warnings[0].1.contains("blocks every successor") && warnings[0].0 == 5, "{warnings:?}");
    assert!(warnings[1].1.contains("no rule covers pass"), "{warnings:?}");
    assert!(
        warnings[2].1.contains("rule 2 never matches: rule 1") && warnings[2].0 == 10,
        "{warnings:?}"
    );
    assert!(warnings[3].1.contains("other methods than those of rule 3"), "{warnings:?}");
    assert!(good(STORE).warnings[0].what.contains("every write is refused"));
}

#[test]
fn the_pipelines_own_table_is_that_of_the_configuration() {
    let config = good(&example("s3-seaweedfs.toml"));
    let table = config.pipeline.rule_table().unwrap();
    for key in ["backups/main/0A", "backups/", "public/x", "other/x"] {
        assert_eq!(table.lookup("PUT", key), config.rules.lookup("PUT", key), "{key}");
    }
}

#[test]
fn addresses_of_one_machine_need_no_token_and_no_host() {
    for listen in
        ["127.0.0.1:81", "[::1]:81", "127.9.9.9:0", "[::ffff:127.0.0.1]:81", "unix:/run/a"]
    {
        good(&format!("{STORE}[admin]\nlisten = \"{listen}\"\n[proxy]\nlisten = \"{listen}9\"\n"));
    }
    for listen in ["0.0.0.0:81", "[::]:81", "10.0.0.1:81", "[::ffff:10.0.0.1]:81"] {
        assert_eq!(
            faults(&format!("{STORE}[admin]\nlisten = \"{listen}\"\n")).len(),
            1,
            "{listen}"
        );
        good(&format!("{STORE}[admin]\nlisten = \"{listen}\"\ntokens = [\"x\"]\n"));
    }
    // A Host decides nothing for a REST store.
    good("[upstream]\nkind = \"rest\"\nurl = \"http://h\"\n[proxy]\nlisten = \"0.0.0.0:80\"\n");
    good(&format!("{STORE}[proxy]\nlisten = \"0.0.0.0:80\"\nhosts = [\"s3.internal\"]\n"));
}

#[test]
fn rest_rules_have_prefixes_and_reading_methods_within_reason() {
    let rest = "[upstream]\nkind = \"rest\"\nurl = \"http://h\"\n[[rule]]\nresource = \"r\"\n";
    good(&format!(
        "{rest}match = \"tf/x/**\"\nstrip_prefix = \"/tf/x\"\nadd_prefix = \"/a\"\nread_methods = [\"POST\"]\n"
    ));
    for (line, remedy) in [
        ("match = \"**\"\nread_methods = [\"PUT\"]", "drop it"),
        ("match = \"**\"\nstrip_prefix = \"/tf\"", "start every pattern"),
        ("match = \"tf\"\nstrip_prefix = \"/tf\"", "start every pattern"),
        ("match = [\"tf/x\", \"t*/x\"]\nstrip_prefix = \"/tf\"", "start every pattern"),
        ("match = \"**\"\nadd_prefix = \"a\"", "whole segments"),
        ("match = \"**\"\nadd_prefix = \"/a/\"", "whole segments"),
        ("match = \"**\"\nadd_prefix = \"/a/../b\"", "whole segments"),
        ("match = \"**\"\nadd_prefix = \"/a?x\"", "whole segments"),
        ("match = \"**\"\nmethods = []", "drop `methods`"),
    ] {
        let found = faults(&format!("{rest}{line}\n"));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].remedy.contains(remedy), "{line}: {found:?}");
    }
}

proptest::proptest! {
    #[test]
    fn a_damaged_file_has_faults_in_lines_that_exist(
        from in 0..1_200_usize,
        length in 0..40_usize,
        put in "[\\[\\]{}\"'=é#,\n a]{0,4}",
    ) {
        let text = example("s3-seaweedfs.toml");
        let (from, to) = (text.floor_char_boundary(from), text.floor_char_boundary(from + length));
        let damaged = format!("{}{put}{}", &text[..from], &text[to..]);
        let lines = damaged.split('\n').count();
        for fault in faults(&damaged) {
            proptest::prop_assert!((1..=lines).contains(&fault.line), "{}", fault);
            proptest::prop_assert!(!fault.what.is_empty() && !fault.remedy.is_empty());
        }
    }
}
