//! `fencegate explain`: what a request is, which rule and resource it falls under, what its fence asks for.

use std::io::Write;

use clap::Args;
use http::header::{HOST, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use serde::Serialize;

use super::ConfigFile;
use super::exit::Exit;
use super::serve::discards_torn;
use crate::config::{self, Config};
use crate::pipeline::classify::keys::readings;
use crate::pipeline::classify::{BodyKind, Effect, Keys, Operation};
use crate::pipeline::refusal::Refusal;
use crate::pipeline::respond::is_conditional;
use crate::pipeline::route::{self, Routed};
use crate::pipeline::rules::RuleSet;
use crate::pipeline::settings::{Reads, StoreKind};
use crate::pipeline::token::carried;
use crate::pipeline::{Plan, frame, plan};
use crate::telemetry::metrics::Metrics;

/// Say what the proxy makes of one request, without sending it.
///
/// Prints the operation, its keys, the rule and the resource they fall under, and whether a token is
/// needed; or the refusal. No network, no lease: whether a token is the latest one is not looked at.
/// Exits with 1 if the request would be refused whatever its token.
#[derive(Args, Debug)]
pub struct Explain {
    #[command(flatten)]
    file: ConfigFile,
    /// GET, PUT, DELETE, ...
    method: String,
    /// What follows the method in the request: `/bucket/key?query`, or the whole URL; percent-encoded as the
    /// client sends it.
    target: String,
    /// The Host header. Default: that of the URL, else the first of `proxy.hosts`, else localhost.
    #[arg(long)]
    host: Option<String>,
    /// A header of the request; may be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A request as typed, in the form that the pipeline gets it.
struct Asked {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

/// Everything that is known of a request before its token is looked at.
#[derive(Debug, PartialEq, Serialize)]
struct Explanation {
    method: String,
    target: String,
    host: String,
    #[serde(flatten)]
    verdict: Verdict,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Verdict {
    Accepted(Box<Accepted>),
    Refused { refusal: Refused },
}

#[derive(Debug, PartialEq, Serialize)]
struct Accepted {
    operation: &'static str,
    effect: &'static str,
    keys: Vec<Key>,
    /// Where the keys are if the head does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys_in: Option<String>,
    /// What a copy reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    rule: Option<RuleFound>,
    resource: Option<String>,
    upstream: UpstreamFound,
    body: &'static str,
    token: TokenNeed,
}

#[derive(Debug, PartialEq, Serialize)]
struct Key {
    key: String,
    /// What a store may take it for instead; all of it falls under the same rule and resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    other_readings: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
struct RuleFound {
    /// Its place, from 1.
    number: usize,
    #[serde(rename = "match")]
    patterns: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<&'static str>,
}

#[derive(Debug, PartialEq, Serialize)]
struct UpstreamFound {
    /// `upstream`, or its name under `[upstreams]`.
    name: String,
    kind: StoreKind,
}

#[derive(Debug, PartialEq, Serialize)]
struct TokenNeed {
    /// `required`, `optional`, `unused`, or `depends on the body`.
    need: &'static str,
    carried: Option<u64>,
    /// How the request as it stands is refused for want of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<Refused>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Refused {
    status: u16,
    code: &'static str,
    text: String,
}

// === impl Explain ===

impl Explain {
    /// Runs the command.
    pub fn run(self) -> Exit {
        let config = match config::load(&self.file.config) {
            Ok(config) => config,
            Err(errors) => {
                eprintln!("{errors}");
                return Exit::Usage;
            }
        };
        let explanation = self.asked(&config).and_then(|asked| explain(&config, &asked));
        let explanation = match explanation {
            Ok(explanation) => explanation,
            Err(fault) => {
                eprintln!("fencegate: {fault}");
                return Exit::Usage;
            }
        };
        let text = if self.json {
            let json = serde_json::to_string_pretty(&explanation);
            json.expect("the explanation has a form in JSON") + "\n"
        } else {
            explanation.people()
        };
        // A reader that went away has seen what it wanted.
        let _ = std::io::stdout().lock().write_all(text.as_bytes());
        match explanation.verdict {
            Verdict::Accepted(_) => Exit::Done,
            Verdict::Refused { .. } => Exit::Refused,
        }
    }

    fn asked(&self, config: &Config) -> Result<Asked, String> {
        let method = Method::from_bytes(self.method.as_bytes())
            .map_err(|_| format!("{:?} is no method; write GET, PUT, ...", self.method))?;
        let uri: Uri = self.target.parse().map_err(|_| {
            format!(
                "{:?} is no target, and is answered with 400; write /bucket/key, percent-encoded",
                self.target
            )
        })?;
        let mut headers = HeaderMap::new();
        for line in &self.headers {
            let parsed = line.split_once(':').and_then(|(name, value)| {
                let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
                Some((name, HeaderValue::from_str(value.trim()).ok()?))
            });
            let (name, value) =
                parsed.ok_or_else(|| format!("{line:?} is no header; write 'Name: value'"))?;
            headers.append(name, value);
        }
        // Of a whole URL, what its client would send.
        let default = match uri.authority() {
            Some(authority) => authority.as_str(),
            None => config.pipeline.hosts.first().map_or("localhost", String::as_str),
        };
        let host = match &self.host {
            Some(host) => Some(host.as_str()),
            None if headers.contains_key(HOST) => None,
            None => Some(default),
        };
        if let Some(host) = host {
            let value = HeaderValue::from_str(host);
            headers.append(HOST, value.map_err(|_| format!("{host:?} is no host"))?);
        }
        Ok(Asked { method, uri, headers })
    }
}

/// Puts one request through the steps before its token: framing, classification, routing.
///
/// # Errors
/// Why the rules of this configuration cannot be used.
fn explain(config: &Config, asked: &Asked) -> Result<Explanation, String> {
    let set = RuleSet::new(
        &config.pipeline,
        config.rules.clone(),
        discards_torn,
        None,
        &Metrics::new(1, &[]),
    )
    .map_err(|error| crate::telemetry::log::chain(&error))?;
    let conditional = is_conditional(&asked.headers);
    let verdict = match accepted(config, &set, asked) {
        Ok(accepted) => Verdict::Accepted(Box::new(accepted)),
        Err(refusal) => Verdict::Refused { refusal: refused(&refusal, conditional) },
    };
    let host = asked.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    Ok(Explanation {
        method: asked.method.to_string(),
        target: asked.uri.to_string(),
        host: host.to_owned(),
        verdict,
    })
}

fn refused(refusal: &Refusal, conditional: bool) -> Refused {
    let rank = refusal.rank(conditional);
    Refused { status: rank.status.as_u16(), code: rank.code, text: refusal.text() }
}

fn accepted(config: &Config, set: &RuleSet, asked: &Asked) -> Result<Accepted, Refusal> {
    let framed = frame::check(&asked.method, &asked.uri, Version::HTTP_11, &asked.headers)?;
    let planned = plan(set, &framed, &asked.method, &asked.headers);
    let Plan { operation, routed, upstream } = planned.map_err(|(_, refusal)| refusal)?;
    let kind = upstream.kind;
    if let (Some(source), Some(routed)) = (&operation.source, &routed) {
        route::source(set, kind, source, routed)?;
    }
    let token = need(set, &operation, routed.as_ref(), asked)?;
    let (keys, keys_in) = match &operation.keys {
        Keys::One(key) => (vec![key.clone()], None),
        Keys::Several(keys) => (keys.clone(), None),
        Keys::Prefix(prefix) => (Vec::new(), Some(format!("everything below {prefix:?}"))),
        Keys::InBody { bucket } => (Vec::new(), Some(format!("the body, in bucket {bucket:?}"))),
        Keys::Nothing => (Vec::new(), None),
    };
    let others = |key: &str| match operation.effect {
        Effect::Read => Vec::new(),
        Effect::Write => readings(kind, key).others,
    };
    let keys = keys.into_iter().map(|key| Key { other_readings: others(&key), key }).collect();
    let rule = routed.as_ref().and_then(|routed| routed.rule);
    Ok(Accepted {
        operation: operation.name,
        effect: match operation.effect {
            Effect::Read => "read",
            Effect::Write => "write",
        },
        keys,
        keys_in,
        source: operation.source.clone(),
        rule: rule.map(|at| RuleFound {
            number: at + 1,
            patterns: config.pipeline.rules[at].patterns.as_slice().to_vec(),
            level: config.levels[at].as_ref().map(|level| config::name_of(level.level)),
        }),
        resource: routed.and_then(|routed| routed.resource).map(|resource| resource.to_string()),
        upstream: UpstreamFound {
            name: set
                .stores()
                .find(|(_, store)| std::sync::Arc::ptr_eq(store, &upstream))
                .map_or_else(String::new, |(name, _)| name.to_owned()),
            kind,
        },
        body: body(&operation),
        token,
    })
}

/// What the fence would ask for.
fn need(
    set: &RuleSet,
    operation: &Operation,
    routed: Option<&Routed>,
    asked: &Asked,
) -> Result<TokenNeed, Refusal> {
    let token = carried(&asked.headers)?.map(crate::core::Token::get);
    let resource = routed.and_then(|routed| routed.resource.as_ref());
    let fenced_reads = routed
        .and_then(|routed| routed.rule)
        .is_some_and(|rule| set.rules[rule].reads == Reads::Fenced);
    let need = match (operation.effect, routed, resource) {
        (Effect::Write, None, _) => "depends on the body",
        (_, _, None) => "unused",
        (Effect::Read, _, Some(_)) if !fenced_reads => "optional",
        (_, _, Some(_)) => "required",
    };
    let missing = resource.filter(|_| need == "required" && token.is_none());
    let refusal = missing.map(|resource| {
        let refusal = Refusal::MissingToken { resource: resource.clone() };
        refused(&refusal, is_conditional(&asked.headers))
    });
    Ok(TokenNeed { need, carried: token, refusal })
}

fn body(operation: &Operation) -> &'static str {
    match (operation.effect, operation.body) {
        (Effect::Read, _) => "none that matters",
        (_, BodyKind::Stream) => "streamed, its last byte withheld; up to 64 KiB withheld whole",
        (_, BodyKind::AwsChunked { .. }) => "aws-chunked, withheld from the last payload byte on",
        (_, BodyKind::Document) => "a document, withheld whole up to proxy.limits.max_document",
        (_, BodyKind::RestDocument) => {
            "a document, withheld whole up to proxy.limits.max_document, above it from its last character on"
        }
    }
}

// === impl Explanation ===

impl Explanation {
    /// As people read it.
    fn people(&self) -> String {
        let mut lines = vec![format!("{} {} (Host: {})", self.method, self.target, self.host)];
        let mut line = |name: &str, value: String| lines.push(format!("{name:<10} {value}"));
        match &self.verdict {
            Verdict::Refused { refusal } => line("refused", refusal.people()),
            Verdict::Accepted(accepted) => accepted.lines(&mut line),
        }
        lines.join("\n") + "\n"
    }
}

// === impl Accepted ===

impl Accepted {
    fn lines(&self, line: &mut impl FnMut(&str, String)) {
        line("operation", format!("{} ({})", self.operation, self.effect));
        for key in &self.keys {
            line("key", key.key.clone());
            for other in &key.other_readings {
                line("", format!("a store may read {other}, which falls under the same rule"));
            }
        }
        if let Some(place) = &self.keys_in {
            line("keys", place.clone());
        }
        if let Some(source) = &self.source {
            line("source", source.clone());
        }
        let rule = self.rule.as_ref().map(|rule| {
            let level = rule.level.map(|level| format!(", level {level}")).unwrap_or_default();
            format!("{} ({}){level}", rule.number, rule.patterns.join(", "))
        });
        let by_body = self.token.need == "depends on the body";
        let none = |what: &str| if by_body { "depends on the body" } else { what }.to_owned();
        line("rule", rule.unwrap_or_else(|| none("none")));
        line("resource", self.resource.clone().unwrap_or_else(|| none("none: no fence")));
        let kind = match self.upstream.kind {
            StoreKind::S3 => "s3",
            StoreKind::Rest => "rest",
        };
        line("upstream", format!("{} ({kind})", self.upstream.name));
        line("body", self.body.to_owned());
        let carried = match self.token.carried {
            None => "none is carried".to_owned(),
            Some(token) => format!("{token} is carried"),
        };
        line("token", format!("{}; {carried}", self.token.need));
        if let Some(refusal) = &self.token.refusal {
            line("as it is", refusal.people());
        }
    }
}

// === impl Refused ===

impl Refused {
    fn people(&self) -> String {
        format!("{} {}: {}", self.status, self.code, self.text)
    }
}

#[cfg(test)]
mod tests;
