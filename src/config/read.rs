//! Reads each table of the file into the settings of the layer it belongs to.
//!
//! Every field is named here once; a setting that is not read does not compile.

use std::collections::BTreeMap;

use super::source::{Section, Source, Want, shown};
use crate::core::units::{Size, Span};
use crate::pipeline::settings::{
    Auth, FenceSettings, Limits, Patterns, PipelineSettings, RuleSettings, StoreKind,
    UpstreamSettings,
};
use crate::serve::settings::{AdminSettings, Listen, ProxySettings, SHUTDOWN_TIMEOUT};
use crate::store::secret::SecretSource;
use crate::{lease, ledger};

/// Everything as written, paths not yet resolved.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) pipeline: PipelineSettings,
    pub(super) proxy: ProxySettings,
    pub(super) admin: AdminSettings,
    pub(super) lease: lease::Config,
    pub(super) ledger: ledger::Config,
}

const TEXT: Want = Want("a text", "write it in quotes");
const TRUTH: Want = Want("true or false", "write true or false, without quotes");
const COUNT: Want = Want("a whole number", "write digits, without quotes");
const SPAN: Want =
    Want("a duration", "write a whole number and a unit, such as \"250ms\", \"15s\" or \"5m\"");
const SIZE: Want =
    Want("a size", "write a whole number and a unit, such as \"64KiB\", \"2MiB\" or \"1GiB\"");
const TEXTS: Want = Want("a list of texts", "write [\"…\", \"…\"]");
const LISTEN: Want =
    Want("an address or a list of addresses", "write \"127.0.0.1:8080\" or \"unix:/run/x.sock\"");
const LEVEL: Want =
    Want("a level", "write \"advisory\" or \"drained\", the levels of this version");

/// Reads the whole file. `None` if something without a default is missing; then there is a fault.
pub(super) fn file(source: &mut Source<'_>, mut root: Section<'_>) -> Option<Raw> {
    let mut section = root.section(source, "proxy");
    let listen = section.or(source, "listen", LISTEN, Listen::One("127.0.0.1:8080".into()));
    let hosts = section.or(source, "hosts", TEXTS, Vec::new());
    let virtual_hosts = section.or(source, "virtual_hosts", TRUTH, false);
    let shutdown_timeout = section.or(source, "shutdown_timeout", SPAN, SHUTDOWN_TIMEOUT);
    let mut inner = section.section(source, "limits");
    let limits = limits(source, &mut inner);
    inner.finish(source);
    section.finish(source);

    let mut section = root.section(source, "upstream");
    let upstream = if section.is_empty() && !source.has("upstream") {
        let remedy = "write [upstream] with `kind` and `url` of the store";
        source.fault("", "`[upstream]` is missing", remedy);
        None
    } else {
        upstream(source, &mut section)
    };
    section.finish(source);
    let mut upstreams = BTreeMap::new();
    for (name, mut section) in root.named(source, "upstreams") {
        if let Some(upstream) = self::upstream(source, &mut section) {
            upstreams.insert(name, upstream);
        }
        section.finish(source);
    }

    let mut section = root.section(source, "lease");
    let lease = lease(source, &mut section);
    section.finish(source);
    let mut section = root.section(source, "ledger");
    let ledger = ledger(source, &mut section);
    section.finish(source);
    let mut section = root.section(source, "fence");
    let fence = fence(source, &mut section);
    section.finish(source);
    let mut section = root.section(source, "admin");
    let admin = admin(source, &mut section);
    section.finish(source);

    let mut rules = Vec::new();
    for mut section in root.list(source, "rule") {
        rules.push(rule(source, &mut section));
        section.finish(source);
    }
    root.finish(source);

    let upstream = upstream?;
    let pipeline =
        PipelineSettings { hosts, virtual_hosts, limits, upstream, upstreams, fence, rules };
    Some(Raw { pipeline, proxy: ProxySettings { listen, shutdown_timeout }, admin, lease, ledger })
}

fn limits(source: &mut Source<'_>, section: &mut Section<'_>) -> Limits {
    let base = Limits::default();
    Limits {
        head: section.or::<Size>(source, "head", SIZE, base.head),
        headers: section.or(source, "headers", COUNT, base.headers),
        header_time: section.or::<Span>(source, "header_time", SPAN, base.header_time),
        body_idle: section.or(source, "body_idle", SPAN, base.body_idle),
        connections: section.or(source, "connections", COUNT, base.connections),
        max_document: section.or(source, "max_document", SIZE, base.max_document),
        max_buffered: section.or(source, "max_buffered", SIZE, base.max_buffered),
    }
}

fn upstream(source: &mut Source<'_>, section: &mut Section<'_>) -> Option<UpstreamSettings> {
    const KIND: Want = Want("a kind of store", "write \"s3\" or \"rest\"");
    const URL: Want =
        Want("a URL", "write \"http://host:port\", \"https://host\" or \"unix:/path\"");
    const AUTH: Want =
        Want("a way to treat signatures", "write \"pass-through\", the only one of this version");
    const TORN: Want = Want("a fact about torn uploads", "write \"discarded\" or \"kept\"");
    let kind = section.need(source, "kind", KIND);
    // A fault is noted already if it is missing, so that the check of the others can go on without it.
    let url: String = section.need(source, "url", URL).unwrap_or_default();
    let base = UpstreamSettings::new(StoreKind::S3, "");
    let rest = UpstreamSettings {
        auth: section.or(source, "auth", AUTH, Auth::PassThrough),
        profile: section.get(source, "profile", TEXT),
        torn_uploads: section.get(source, "torn_uploads", TORN),
        final_answers: section.get(source, "final_answers", TRUTH),
        linearizable: section.get(source, "linearizable", TRUTH),
        sole_path: section.get(source, "sole_path", TRUTH),
        connect_timeout: section.or(source, "connect_timeout", SPAN, base.connect_timeout),
        answer_timeout: section.or(source, "answer_timeout", SPAN, base.answer_timeout),
        idle_timeout: section.or(source, "idle_timeout", SPAN, base.idle_timeout),
        kind: base.kind,
        url,
    };
    Some(UpstreamSettings { kind: kind?, ..rest })
}

fn lease(source: &mut Source<'_>, section: &mut Section<'_>) -> lease::Config {
    const BACKEND: Want =
        Want("a lease backend of this build", "write \"embedded\", the only one it has");
    let base = lease::Config::default();
    lease::Config {
        backend: section.or(source, "backend", BACKEND, base.backend),
        path: section.or(source, "path", TEXT, base.path),
        open_wait: section.or(source, "open_wait", SPAN, base.open_wait),
        timeout: section.or(source, "timeout", SPAN, base.timeout),
    }
}

fn ledger(source: &mut Source<'_>, section: &mut Section<'_>) -> ledger::Config {
    const KIND: Want = Want(
        "a ledger of this build",
        "write \"embedded\"; a \"shared\" ledger needs an etcd, Postgres, ZooKeeper or Consul lease backend, and this build has none",
    );
    ledger::Config {
        kind: section.or(source, "kind", KIND, ledger::LedgerKind::Embedded),
        path: section.get(source, "path", TEXT),
    }
}

const READS: Want = Want("a rule for reads", "write \"open\" or \"fenced\"");
const VALIDATE: Want = Want("a way to validate", "write \"linearizable\" or \"watch\"");
const SETTLE: Want = Want(
    "a duration or \"never\"",
    "write a whole number and a unit, such as \"60s\", or \"never\" to wait for a definite answer",
);

fn fence(source: &mut Source<'_>, section: &mut Section<'_>) -> FenceSettings {
    const UNMATCHED: Want =
        Want("a fate for writes that no rule covers", "write \"refuse\" or \"pass\"");
    let base = FenceSettings::default();
    FenceSettings {
        reads: section.or(source, "reads", READS, base.reads),
        validate: section.or(source, "validate", VALIDATE, base.validate),
        require_live: section.or(source, "require_live", TRUTH, base.require_live),
        drain_wait: section.or(source, "drain_wait", SPAN, base.drain_wait),
        settle_after: section.or(source, "settle_after", SETTLE, base.settle_after),
        revalidate_after: section.or(source, "revalidate_after", SPAN, base.revalidate_after),
        watch_lag: section.or(source, "watch_lag", SPAN, base.watch_lag),
        level: section.get(source, "level", LEVEL),
        max_waiting: section.or(source, "max_waiting", COUNT, base.max_waiting),
        unmatched_writes: section.or(source, "unmatched_writes", UNMATCHED, base.unmatched_writes),
    }
}

fn admin(source: &mut Source<'_>, section: &mut Section<'_>) -> AdminSettings {
    let base = AdminSettings::default();
    AdminSettings {
        listen: section.or(source, "listen", LISTEN, base.listen),
        tokens: secrets(source, section, "tokens"),
    }
}

/// A list of secrets. Its faults speak of places only, never of what stands there.
fn secrets(
    source: &mut Source<'_>,
    section: &mut Section<'_>,
    key: &'static str,
) -> Vec<SecretSource> {
    let path = section.path(key);
    let name = shown(&path);
    let remedy = format!(
        "write {key} = [{{ file = \"admin.token\" }}], or {{ env = \"NAME\" }} or a text in the list"
    );
    let Some(secrets) = section.items::<SecretSource>(key) else {
        source.fault(&path, format!("`{name}` is not a list of secrets"), remedy);
        return Vec::new();
    };
    let mut good = Vec::new();
    for (index, secret) in secrets.into_iter().enumerate() {
        let empty = match &secret {
            Some(SecretSource::Text(text)) => text.is_empty(),
            Some(SecretSource::Env(source)) => source.env.is_empty(),
            Some(SecretSource::File(source)) => source.file.as_os_str().is_empty(),
            None => true,
        };
        match secret.filter(|_| !empty) {
            Some(secret) => good.push(secret),
            None => {
                let what = format!("entry {} of `{name}` is empty or no secret", index + 1);
                source.fault(&format!("{path}.{index}"), what, remedy.clone());
            }
        }
    }
    good
}

fn rule(source: &mut Source<'_>, section: &mut Section<'_>) -> RuleSettings {
    const MATCH: Want = Want("a pattern or a list of patterns", "write match = \"bucket/**\"");
    const FENCE: Want = Want("a fence", "write fence = \"none\", or `resource` to have one");
    let patterns = section.need::<Patterns>(source, "match", MATCH);
    if patterns.as_ref().is_some_and(|patterns| patterns.as_slice().is_empty()) {
        source.fault(&section.path("match"), "`rule.match` is an empty list", MATCH.1);
    }
    RuleSettings {
        // Where it is missing or wrong there is a fault; the rule stays, to keep the places of the others.
        patterns: patterns.unwrap_or(Patterns::Several(Vec::new())),
        resource: section.get(source, "resource", TEXT),
        fence: section.get(source, "fence", FENCE),
        upstream: section.get(source, "upstream", TEXT),
        methods: section.get(source, "methods", TEXTS),
        read_methods: section.or(source, "read_methods", TEXTS, Vec::new()),
        strip_prefix: section.get(source, "strip_prefix", TEXT),
        add_prefix: section.get(source, "add_prefix", TEXT),
        reads: section.get(source, "reads", READS),
        validate: section.get(source, "validate", VALIDATE),
        require_live: section.get(source, "require_live", TRUTH),
        drain_wait: section.get(source, "drain_wait", SPAN),
        settle_after: section.get(source, "settle_after", SETTLE),
        revalidate_after: section.get(source, "revalidate_after", SPAN),
        watch_lag: section.get(source, "watch_lag", SPAN),
        level: section.get(source, "level", LEVEL),
        max_waiting: section.get(source, "max_waiting", COUNT),
    }
}
