//! What `[proxy.limits]`, `[upstream]`, `[fence]` and `[[rule]]` say, as written; every field has its default.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::rules::{Rule, RuleTable, RuleTextFault};
use crate::core::units::{Size, Span};

const fn secs(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}

/// `[proxy.limits]`: bounds on what one client, and all of them together, may use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest request head. Above it: 431.
    pub head: Size,
    /// Most header fields in one head. Above it: 431.
    pub headers: usize,
    /// Longest wait for a complete head, also on an idle kept-alive connection.
    pub header_time: Span,
    /// Longest pause between two pieces of a body, either way.
    pub body_idle: Span,
    /// Most client connections at once; further ones wait in the kernel's queue.
    pub connections: usize,
    /// Largest document that is withheld whole (batch deletes, multipart completions, REST JSON).
    pub max_document: Size,
    /// Most bytes withheld by all requests together.
    pub max_buffered: Size,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: Size(64 << 10),
            headers: 200,
            header_time: secs(30),
            body_idle: secs(60),
            connections: 10_000,
            max_document: Size(2 << 20),
            max_buffered: Size(256 << 20),
        }
    }
}

/// What a store speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// The S3 API.
    S3,
    /// Plain HTTP resources.
    Rest,
}

/// What happens to a client's signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// It goes upstream untouched; the store verifies it.
    #[default]
    PassThrough,
}

/// What a store does with an upload that ends before it is complete (assumption U3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TornUploads {
    /// Nothing of it remains.
    Discarded,
    /// Something may.
    Kept,
}

/// `[upstream]` and `[upstreams.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamSettings {
    /// `s3` or `rest`.
    pub kind: StoreKind,
    /// `http://host:port`, `https://host`, or `unix:/path`. No path, no query, no credentials.
    pub url: String,
    /// What happens to signatures.
    #[serde(default)]
    pub auth: Auth,
    /// The name of a store whose facts are known: `seaweedfs`, `moto`, `nanio`, `rclone`, `s3rver`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// U3, declared; overrides the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torn_uploads: Option<TornUploads>,
    /// U2, declared: nothing of a write happens after its complete answer, and no hop repeats requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_answers: Option<bool>,
    /// U4, declared: a read sees every finished write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linearizable: Option<bool>,
    /// U1, declared: nothing else writes there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sole_path: Option<bool>,
    /// Longest wait for a connection, name resolution and TLS included.
    #[serde(default = "default_connect_timeout")]
    pub connect_timeout: Span,
    /// Longest wait for the answer: for a write from its last byte to the answer's *end*, for a read to
    /// the answer's head.
    #[serde(default = "default_answer_timeout")]
    pub answer_timeout: Span,
    /// Idle connections older than this are not used again. Below the store's own keep-alive time.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: Span,
}

impl UpstreamSettings {
    /// A store with everything at its default and nothing declared.
    pub fn new(kind: StoreKind, url: &str) -> UpstreamSettings {
        UpstreamSettings {
            kind,
            url: url.into(),
            auth: Auth::default(),
            profile: None,
            torn_uploads: None,
            final_answers: None,
            linearizable: None,
            sole_path: None,
            connect_timeout: default_connect_timeout(),
            answer_timeout: default_answer_timeout(),
            idle_timeout: default_idle_timeout(),
        }
    }
}

fn default_connect_timeout() -> Span {
    secs(3)
}

fn default_answer_timeout() -> Span {
    secs(120)
}

fn default_idle_timeout() -> Span {
    secs(4)
}

/// Who must show a token to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reads {
    /// Nobody; a read that carries a token is fenced all the same.
    #[default]
    Open,
    /// Everybody.
    Fenced,
}

/// How a token is validated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Validate {
    /// By a linearizable read of the lease backend for every write.
    #[default]
    Linearizable,
    /// *Live* may come from a watched copy no older than `watch_lag`. The embedded backend is in
    /// process: there the two are the same.
    Watch,
}

/// How long an unknown outcome blocks successors (assumption U6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleAfter {
    /// This long after it was abandoned.
    After(Span),
    /// Until a definite answer or an operator.
    Never,
}

impl Serialize for SettleAfter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            SettleAfter::After(span) => span.serialize(serializer),
            SettleAfter::Never => serializer.serialize_str("never"),
        }
    }
}

impl<'de> Deserialize<'de> for SettleAfter {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<SettleAfter, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        if text == "never" {
            return Ok(SettleAfter::Never);
        }
        Span::parse(&text).map(SettleAfter::After).map_err(serde::de::Error::custom)
    }
}

/// The rungs of the guarantee ladder, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Stale tokens are refused at the moment of the check; nothing more.
    Advisory,
    /// Older writes have settled before a newer one begins. One replica with its own ledger.
    Drained,
}

/// `[fence]`: the defaults of every rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct FenceSettings {
    /// Who must show a token to read.
    pub reads: Reads,
    /// How a token is validated.
    pub validate: Validate,
    /// Refuse the latest token too once its lease has run out.
    pub require_live: bool,
    /// Longest wait for older writes to settle.
    pub drain_wait: Span,
    /// How long an unknown outcome blocks successors.
    pub settle_after: SettleAfter,
    /// A validation older than this is repeated before the commit point.
    pub revalidate_after: Span,
    /// Oldest watched copy that may answer *Live*.
    pub watch_lag: Span,
    /// The least level; below it `serve` refuses to start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// Most requests that wait for one resource.
    pub max_waiting: usize,
    /// What happens to a write that no rule covers.
    pub unmatched_writes: Unmatched,
}

/// What happens to a write that no rule covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unmatched {
    /// 403.
    #[default]
    Refuse,
    /// It goes upstream unfenced.
    Pass,
}

impl Default for FenceSettings {
    fn default() -> FenceSettings {
        FenceSettings {
            reads: Reads::Open,
            validate: Validate::Linearizable,
            require_live: false,
            drain_wait: secs(25),
            settle_after: SettleAfter::After(secs(60)),
            revalidate_after: secs(1),
            watch_lag: secs(1),
            level: None,
            max_waiting: 1_000,
            unmatched_writes: Unmatched::Refuse,
        }
    }
}

/// One or several patterns.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Patterns {
    /// `match = "a/**"`.
    One(String),
    /// `match = ["a/**", "b/**"]`.
    Several(Vec<String>),
}

impl Patterns {
    /// The patterns, in order.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Patterns::One(pattern) => std::slice::from_ref(pattern),
            Patterns::Several(patterns) => patterns,
        }
    }
}

/// `fence = "none"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NoFence {
    /// Writes pass without a token.
    None,
}

/// `[[rule]]`: which keys belong to which resource. First match wins.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSettings {
    /// The keys.
    #[serde(rename = "match")]
    pub patterns: Patterns,
    /// The resource they belong to; names captured by every pattern may stand in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// `"none"`: no fence. Exactly one of `resource` and `fence` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<NoFence>,
    /// Another store, by its name under `[upstreams]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Only requests with these methods; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<String>>,
    /// Further methods that only read (REST).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_methods: Vec<String>,
    /// Taken off the front of the path before it goes upstream (REST).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip_prefix: Option<String>,
    /// Put in front of the path before it goes upstream, after `strip_prefix` (REST).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_prefix: Option<String>,
    /// As under `[fence]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<Reads>,
    /// As under `[fence]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<Validate>,
    /// As under `[fence]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_live: Option<bool>,
    /// As under `[fence]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_wait: Option<Span>,
    /// As under `[fence]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle_after: Option<SettleAfter>,
    /// As under `[fence]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revalidate_after: Option<Span>,
    /// As under `[fence]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_lag: Option<Span>,
    /// As under `[fence]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// As under `[fence]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_waiting: Option<usize>,
}

impl RuleSettings {
    /// A rule with everything else at its default; `resource` is `None` for `fence = "none"`.
    pub fn new(pattern: &str, resource: Option<&str>) -> RuleSettings {
        RuleSettings {
            patterns: Patterns::One(pattern.into()),
            resource: resource.map(Into::into),
            fence: resource.is_none().then_some(NoFence::None),
            upstream: None,
            methods: None,
            read_methods: Vec::new(),
            strip_prefix: None,
            add_prefix: None,
            reads: None,
            validate: None,
            require_live: None,
            drain_wait: None,
            settle_after: None,
            revalidate_after: None,
            watch_lag: None,
            level: None,
            max_waiting: None,
        }
    }
}

/// Everything the request path is configured by, as written in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineSettings {
    /// `[proxy] hosts`.
    pub hosts: Vec<String>,
    /// `[proxy] virtual_hosts`.
    pub virtual_hosts: bool,
    /// `[proxy.limits]`.
    pub limits: Limits,
    /// `[upstream]`.
    pub upstream: UpstreamSettings,
    /// `[upstreams.NAME]`.
    pub upstreams: BTreeMap<String, UpstreamSettings>,
    /// `[fence]`.
    pub fence: FenceSettings,
    /// `[[rule]]`, in order.
    pub rules: Vec<RuleSettings>,
}

impl PipelineSettings {
    /// The rules as a table, in their order. A loaded configuration has it already.
    ///
    /// # Errors
    /// [`RuleTextFault`] of the first rule that is none.
    pub fn rule_table(&self) -> Result<RuleTable, RuleTextFault> {
        let rule = |rule: &RuleSettings| {
            let patterns = rule.patterns.as_slice();
            Rule::parse(patterns, rule.resource.as_deref(), rule.methods.as_deref())
        };
        Ok(RuleTable::new(self.rules.iter().map(rule).collect::<Result<_, _>>()?))
    }
}
