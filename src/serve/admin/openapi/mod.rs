//! The admin listener as an OpenAPI 3.1 document, at `/openapi.json` and in `docs/reference/openapi.json`.
//!
//! Written by hand: `docs/decisions/0004-openapi-document.md` says why. Tests compare it with the router, with
//! the checked-in file, and, over the wire, with what the server answers.

mod schemas;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

/// `GET /openapi.json`: the same for everybody.
pub(super) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], text()).into_response()
}

/// The document, as it is served and checked in.
pub fn text() -> String {
    serde_json::to_string_pretty(&document()).expect("it has a form in JSON") + "\n"
}

/// The document.
pub fn document() -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "fencegate lease API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Leases with fencing tokens, and an operator's look at fences. The rules for every call are in docs/reference/lease-api.md.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "http://127.0.0.1:8081" }],
        "security": [{ "bearer": [] }, {}],
        "tags": [
            { "name": "leases", "description": "Take, keep and give back leases." },
            { "name": "fences", "description": "The barrier, and an operator's look and overrides." },
            { "name": "health", "description": "How the server is." },
        ],
        "paths": paths(),
        "components": {
            "schemas": schemas::schemas(),
            "headers": schemas::headers(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "One of admin.tokens. Without any configured, loopback addresses and Unix sockets need none, and others get 401.",
                },
            },
        },
    })
}

/// One call.
struct Call {
    id: &'static str,
    tag: &'static str,
    summary: &'static str,
    /// Whether everybody may.
    open: bool,
    /// The schema of its body.
    body: Option<&'static str>,
    /// Name, whether required, schema.
    query: Vec<(&'static str, bool, Value)>,
    answers: Vec<Answer>,
    /// Problems beside those of every call.
    problems: &'static [u16],
}

/// Status, what it means, media type and schema if it has a body.
type Answer = (u16, &'static str, Option<(&'static str, Value)>);

const JSON: &str = "application/json";

fn paths() -> Value {
    let mut paths = Map::new();
    for (path, method, call) in calls() {
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[method] = call.render();
    }
    Value::Object(paths)
}

/// Every path with its method.
fn calls() -> Vec<(&'static str, &'static str, Call)> {
    let mut calls = leases();
    calls.extend(fences());
    calls.extend(health());
    calls
}

fn leases() -> Vec<(&'static str, &'static str, Call)> {
    let call = |id, summary| Call::new(id, "leases", summary);
    let prefix = || ("prefix", false, json!({ "type": "string", "default": "" }));
    vec![
        (
            "/v1/lease/acquire",
            "post",
            call("acquireLease", "Take a lease, waiting for it if asked to.")
                .body("Acquire")
                .json(200, "Granted; the token is greater than every earlier one.", "Granted")
                .problems(&[403, 412, 423, 503, 507]),
        ),
        (
            "/v1/lease/renew",
            "post",
            call("renewLease", "Extend a lease; the token stays the same.")
                .body("Renew")
                .json(200, "Extended.", "Granted")
                .problems(&[412, 503]),
        ),
        (
            "/v1/lease/release",
            "post",
            call("releaseLease", "Give a lease back.")
                .body("Holding")
                .empty(204, "Given back.")
                .problems(&[412, 503]),
        ),
        (
            "/v1/lease",
            "get",
            call(
                "showLease",
                "Who has a lease. For looking only: never write with a token from here.",
            )
            .query("resource", true, schemas::of("Resource"))
            .json(200, "The lease; token and mark only for callers that may see them.", "Lease")
            .problems(&[404, 503]),
        ),
        (
            "/v1/leases",
            "get",
            call("listLeases", "Leases by name, in pages, without tokens.")
                .with(prefix())
                .query("after", false, json!({ "type": "string" }))
                .query(
                    "limit",
                    false,
                    json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
                )
                .json(200, "A page.", "LeasePage")
                .problems(&[503]),
        ),
        (
            "/v1/leases/watch",
            "get",
            call("watchLeases", "Changes as they happen, as server-sent events without tokens.")
                .with(prefix())
                .answer(
                    200,
                    "Events, until either side ends.",
                    "text/event-stream",
                    json!({ "type": "string" }),
                )
                .problems(&[404]),
        ),
    ]
}

fn fences() -> Vec<(&'static str, &'static str, Call)> {
    let call = |id, summary| Call::new(id, "fences", summary);
    vec![
        (
            "/v1/fence/raise",
            "post",
            call(
                "raiseFence",
                "The barrier: wait until every older write of the resource has settled.",
            )
            .body("Holding")
            .empty(204, "Every older write has settled.")
            .problems(&[403, 412, 503]),
        ),
        (
            "/v1/fence/bump",
            "post",
            call("bumpFence", "Make every token so far stale and end the lease.")
                .body("Which")
                .empty(204, "Every token so far is stale.")
                .problems(&[404, 503, 507]),
        ),
        (
            "/v1/fence/settle",
            "post",
            call("settleFence", "Declare that every unknown outcome of the resource is settled.")
                .body("Which")
                .empty(204, "Declared.")
                .problems(&[503]),
        ),
        (
            "/v1/fence",
            "get",
            call("showFence", "Mark, permits and waiters of a resource.")
                .query("resource", true, schemas::of("Resource"))
                .json(200, "The fence; of a resource never written, an empty one.", "Fence")
                .problems(&[503]),
        ),
        (
            "/v1/fence/backup",
            "get",
            call("backupLedger", "A consistent copy of the ledger.")
                .answer(
                    200,
                    "The copy, with its length.",
                    "application/octet-stream",
                    json!({ "type": "string", "contentMediaType": "application/octet-stream" }),
                )
                .problems(&[404]),
        ),
    ]
}

fn health() -> Vec<(&'static str, &'static str, Call)> {
    let call = |id, summary| Call::new(id, "health", summary);
    let text = || json!({ "type": "string" });
    vec![
        (
            "/v1/status",
            "get",
            call("status", "Readiness, backends, rules with their levels, fences at work.").json(
                200,
                "How the server is.",
                "Status",
            ),
        ),
        (
            "/healthz",
            "get",
            call("healthz", "Whether the process answers.").open().answer(
                200,
                "It does.",
                "text/plain; charset=utf-8",
                text(),
            ),
        ),
        (
            "/readyz",
            "get",
            call("readyz", "Whether the server may be sent work; no matter how backends are.")
                .open()
                .json(200, "It may.", "Readiness")
                .json(503, "It may not.", "Readiness"),
        ),
        (
            "/metrics",
            "get",
            call("metrics", "Prometheus text format 0.0.4.").open().answer(
                200,
                "The metrics; docs/reference/metrics.md lists them.",
                "text/plain; version=0.0.4; charset=utf-8",
                text(),
            ),
        ),
        (
            "/openapi.json",
            "get",
            call("openapi", "This document.").open().answer(
                200,
                "OpenAPI 3.1.",
                JSON,
                json!({ "type": "object" }),
            ),
        ),
        (
            "/",
            "get",
            call("page", "A page for people.")
                .open()
                .answer(200, "HTML.", "text/html; charset=utf-8", text())
                .problems(&[421]),
        ),
    ]
}

/// What is done with a grant: the calls that take its resource and token.
fn links() -> Value {
    let grant = json!({ "resource": "$response.body#/resource", "token": "$response.body#/token" });
    let link = |operation| json!({ "operationId": operation, "requestBody": grant });
    json!({
        "renew": link("renewLease"),
        "raise": link("raiseFence"),
        "release": link("releaseLease"),
        "show": { "operationId": "showLease", "parameters": { "resource": "$response.body#/resource" } },
    })
}

// === impl Call ===

impl Call {
    fn new(id: &'static str, tag: &'static str, summary: &'static str) -> Call {
        let (query, answers) = (Vec::new(), Vec::new());
        Call { id, tag, summary, open: false, body: None, query, answers, problems: &[] }
    }

    fn open(self) -> Call {
        Call { open: true, ..self }
    }

    fn body(self, schema: &'static str) -> Call {
        Call { body: Some(schema), ..self }
    }

    fn query(self, name: &'static str, required: bool, schema: Value) -> Call {
        self.with((name, required, schema))
    }

    fn with(mut self, parameter: (&'static str, bool, Value)) -> Call {
        self.query.push(parameter);
        self
    }

    fn answer(
        mut self,
        status: u16,
        what: &'static str,
        media: &'static str,
        schema: Value,
    ) -> Call {
        self.answers.push((status, what, Some((media, schema))));
        self
    }

    fn json(self, status: u16, what: &'static str, schema: &'static str) -> Call {
        self.answer(status, what, JSON, schemas::of(schema))
    }

    fn empty(mut self, status: u16, what: &'static str) -> Call {
        self.answers.push((status, what, None));
        self
    }

    fn problems(self, problems: &'static [u16]) -> Call {
        Call { problems, ..self }
    }

    fn render(&self) -> Value {
        let mut call = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "responses": self.responses(),
        });
        if self.open {
            call["security"] = json!([]);
        }
        if let Some(body) = self.body {
            let content = json!({ JSON: { "schema": schemas::of(body) } });
            call["requestBody"] = json!({ "required": true, "content": content });
        }
        if !self.query.is_empty() {
            let parameter = |(name, required, schema): &(&str, bool, Value)| json!({ "name": name, "in": "query", "required": required, "schema": schema });
            call["parameters"] = self.query.iter().map(parameter).collect();
        }
        call
    }

    fn responses(&self) -> Value {
        let mut responses = Map::new();
        let headers = json!({ "X-Request-Id": { "$ref": "#/components/headers/RequestId" } });
        for (status, what, body) in &self.answers {
            let mut response = json!({ "description": what, "headers": headers });
            if let Some((media, schema)) = body {
                response["content"] = json!({ *media: { "schema": schema } });
            }
            responses.insert(status.to_string(), response);
        }
        for status in self.every_problem() {
            let content =
                json!({ "application/problem+json": { "schema": schemas::of("Problem") } });
            let mut response = json!({ "description": schemas::problem(status), "headers": headers, "content": content });
            if matches!(status, 423 | 503) {
                response["headers"]["Retry-After"] =
                    json!({ "$ref": "#/components/headers/RetryAfter" });
            }
            responses.entry(status.to_string()).or_insert(response);
        }
        if self.id == "acquireLease" {
            responses["200"]["links"] = links();
        }
        Value::Object(responses)
    }

    /// The problems of this call and those of every call of its kind.
    fn every_problem(&self) -> Vec<u16> {
        let mut all = vec![400, 403, 500];
        if !self.open {
            all.extend([401, 421]);
        }
        if self.body.is_some() {
            all.extend([408, 413, 415]);
        }
        all.extend(self.problems);
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_in_the_document_with_its_method() {
        let routes = include_str!("../mod.rs").split(".route(\"").skip(1);
        let routed: BTreeSet<_> = routes
            .map(|rest| {
                let (path, handler) = rest.split_once("\", ").unwrap();
                (path, handler.split('(').next().unwrap())
            })
            .collect();
        let told: BTreeSet<_> = calls().iter().map(|(path, method, _)| (*path, *method)).collect();
        assert!(routed.len() > 10, "the scan is broken: {routed:?}");
        assert_eq!(told, routed);
    }

    #[test]
    fn every_reference_leads_to_a_schema_and_every_schema_is_used() {
        fn refs(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(members) => {
                    if let Some(Value::String(to)) = members.get("$ref") {
                        found.insert(to.clone());
                    }
                    members.values().for_each(|value| refs(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| refs(value, found)),
                _ => {}
            }
        }
        let document = document();
        let mut used = BTreeSet::new();
        refs(&document, &mut used);
        for to in &used {
            assert!(document.pointer(&to[1..]).is_some(), "{to} leads nowhere");
        }
        for kind in ["schemas", "headers"] {
            for name in document["components"][kind].as_object().unwrap().keys() {
                assert!(
                    used.contains(&format!("#/components/{kind}/{name}")),
                    "{name} is not used"
                );
            }
        }
    }

    #[test]
    fn the_file_in_the_docs_is_this_document() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/openapi.json");
        if std::env::var_os("FENCEGATE_WRITE_DOCS").is_some_and(|value| value == "1") {
            std::fs::write(file, text()).unwrap();
        }
        let checked_in = std::fs::read_to_string(file).unwrap_or_default();
        let how = "FENCEGATE_WRITE_DOCS=1 cargo test --lib openapi";
        assert!(checked_in == text(), "docs/reference/openapi.json is stale: run {how}");
    }
}
