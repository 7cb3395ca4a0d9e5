//! What goes in and comes out.

use serde_json::{Value, json};

/// A reference to one of [`schemas`].
pub(super) fn of(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// What a problem of this status means, whichever call it is of.
pub(super) fn problem(status: u16) -> &'static str {
    match status {
        400 => {
            "Not JSON, an unknown member or parameter, a value out of range, or not exactly one Host."
        }
        401 => {
            "No valid bearer token; or none is configured and the caller is not on this machine."
        }
        403 => {
            "The request comes from a web page of another origin; or the token was never issued for this resource."
        }
        404 => "The resource was never leased; or there is no such thing on this server.",
        408 => "The body took more than 10 s.",
        412 => "The token does not hold the lease, or is stale: stop writing.",
        413 => "The body has more than 64 KiB.",
        415 => "The body is not application/json.",
        421 => "Host is a name that is not the server's.",
        423 => "Another holder has the lease.",
        503 => "No sure answer now; ask again after Retry-After.",
        507 => "The resource has no tokens left.",
        _ => "The server failed; see its log.",
    }
}

pub(super) fn headers() -> Value {
    json!({
        "RequestId": {
            "description": "The request_id of this request in the server's log.",
            "required": true,
            "schema": { "type": "string", "pattern": "^[0-9a-f]{16}$" },
        },
        "RetryAfter": {
            "description": "Whole seconds after which to ask again.",
            "schema": { "type": "integer", "minimum": 1 },
        },
    })
}

pub(super) fn schemas() -> Value {
    let mut all = json!({
        "Acquire": object(
            &["resource", "holder", "ttl"],
            json!({
                "resource": of("Resource"),
                "holder": of("Holder"),
                "ttl": described("Ttl", "How long it lasts without a renewal."),
                "wait": nullable(described("Wait", "How long to wait while another has it, in arrival order. Default 0s.")),
                "request_id": {
                    "description": "Random. The same id gets the same grant, while that is the latest and unexpired.",
                    "type": ["string", "null"], "minLength": 1, "maxLength": 128, "pattern": "^[ -~]{1,128}$",
                },
                "drain": {
                    "description": "After the grant, wait until every older write of the resource has settled.",
                    "type": "boolean", "default": false,
                },
            }),
        ),
        "Renew": object(
            &["resource", "token"],
            json!({
                "resource": of("Resource"),
                "token": of("Token"),
                "ttl": nullable(described("Ttl", "The new time to live; default: the one granted.")),
            }),
        ),
        "Holding": object(
            &["resource", "token"],
            json!({ "resource": of("Resource"), "token": of("Token") }),
        ),
        "Which": object(&["resource"], json!({ "resource": of("Resource") })),
        "Granted": object(
            &["resource", "holder", "token", "ttl_ms", "expires_in_ms"],
            json!({
                "resource": of("Resource"),
                "holder": of("Holder"),
                "token": of("Token"),
                "ttl_ms": number(),
                "expires_in_ms": number(),
            }),
        ),
        "Lease": object(
            &["resource", "holder", "live", "released", "expires_in_ms"],
            json!({
                "resource": of("Resource"),
                "holder": of("Holder"),
                "token": of("Token"),
                "live": { "type": "boolean" },
                "released": { "type": "boolean" },
                "expires_in_ms": number(),
                "mark": nullable(of("Token")),
            }),
        ),
        "LeasePage": object(
            &["leases"],
            json!({ "leases": array(of("Lease")), "next": of("Resource") }),
        ),
        "Fence": object(
            &["resource", "mark", "permits", "waiting"],
            json!({
                "resource": of("Resource"),
                "mark": nullable(of("Token")),
                "permits": array(of("Permit")),
                "waiting": number(),
                "closed": { "type": "string" },
            }),
        ),
        "Permit": object(
            &["id", "token", "mine", "counted", "streaming", "tainted"],
            json!({
                "id": { "type": "string" },
                "token": of("Token"),
                "mine": { "type": "boolean" },
                "counted": number(),
                "streaming": number(),
                "tainted": { "type": "boolean" },
                "clears_in_ms": number(),
            }),
        ),
        "Problem": {
            "description": "RFC 9457. Compare type; detail is for people.",
            "type": "object",
            "required": ["type", "title", "status", "detail", "request_id"],
            "properties": {
                "type": { "type": "string", "pattern": "^/errors/[a-z-]+$" },
                "title": { "type": "string" },
                "status": { "type": "integer", "minimum": 400, "maximum": 599 },
                "detail": { "type": "string" },
                "request_id": { "type": "string" },
                "resource": of("Resource"),
                "holder": of("Holder"),
                "token": of("Token"),
            },
        },
    });
    for (name, schema) in names().into_iter().chain(health()) {
        all[name] = schema;
    }
    all
}

fn names() -> [(&'static str, Value); 5] {
    let name = |what: &str, longest: u32| json!({ "description": what, "type": "string", "minLength": 1, "maxLength": longest, "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$" });
    [
        (
            "Resource",
            name(
                "What one lease protects: at most 1024 bytes of UTF-8, no control characters.",
                1024,
            ),
        ),
        ("Holder", name("A label for people, no credential: at most 255 bytes of UTF-8.", 255)),
        (
            "Token",
            json!({ "description": "1 to 2^63 - 1, in decimal, no sign, no leading zero. A string, for JavaScript's numbers hold 53 bits.", "type": "string", "pattern": tokens() }),
        ),
        ("Ttl", span("1s to 24h", TTL, "30s")),
        ("Wait", span("At most 60s", WAIT, "0s")),
    ]
}

fn health() -> [(&'static str, Value); 4] {
    let state = || json!({ "type": "string", "enum": ["up", "down"] });
    let flag = || json!({ "type": "boolean" });
    [
        (
            "Readiness",
            object(
                &["ready", "configured", "ledger_open", "bound", "draining", "proxy", "backends"],
                json!({
                    "ready": flag(), "configured": flag(), "ledger_open": flag(), "bound": flag(),
                    "draining": flag(),
                    "proxy": { "type": ["string", "null"] },
                    "backends": {
                        "type": "object",
                        "properties": {
                            "lease": { "type": ["string", "null"], "enum": ["up", "down", null] },
                            "stores_up": number(), "stores_down": number(),
                            "age_ms": { "type": ["integer", "null"], "minimum": 0 },
                        },
                    },
                }),
            ),
        ),
        (
            "Status",
            object(
                &["version", "ready", "draining", "lease_grade", "backends", "service", "fences"],
                json!({
                    "version": { "type": "string" }, "ready": flag(), "draining": flag(),
                    "lease_grade": { "type": "string", "enum": ["consensus", "single-node-durable", "efficiency-only"] },
                    "backends": {
                        "type": "object",
                        "required": ["lease", "stores", "age_ms"],
                        "properties": {
                            "lease": {
                                "type": "object", "required": ["state"],
                                "properties": { "state": state(), "error": { "type": "string" } },
                            },
                            "stores": array(json!({
                                "type": "object", "required": ["name", "kind", "url", "state"],
                                "properties": {
                                    "name": { "type": "string" },
                                    "kind": { "type": "string", "enum": ["s3", "rest"] },
                                    "url": { "type": "string" },
                                    "state": state(),
                                    "error": { "type": "string" },
                                },
                            })),
                            "age_ms": number(),
                        },
                    },
                    "service": {
                        "type": "object",
                        "properties": {
                            "rules": array(of("Rule")), "rules_generation": number(),
                            "exchanges": number(), "withheld_bytes": number(),
                        },
                    },
                    "fences": array(of("Fence")),
                }),
            ),
        ),
        (
            "Rule",
            json!({
                "type": "object",
                "required": ["rule", "match", "resource"],
                "properties": {
                    "rule": { "type": "integer", "minimum": 1 },
                    "match": array(json!({ "type": "string" })),
                    "methods": { "type": ["array", "null"], "items": { "type": "string" } },
                    "resource": { "type": ["string", "null"] },
                    "level": { "type": "string", "enum": ["advisory", "drained"] },
                    "findings": array(of("Finding")),
                },
            }),
        ),
        (
            "Finding",
            json!({
                "description": "One assumption of the promise, and how it is known.",
                "type": "object",
                "required": ["assumption", "basis", "reason"],
                "properties": {
                    "assumption": { "type": "string", "pattern": "^U[1-7]$" },
                    "basis": { "type": "string", "enum": ["declared", "profile", "given", "missing", "denied"] },
                    "reason": { "type": "string" },
                },
            }),
        ),
    ]
}

/// A pattern for exactly the numbers from 1 to 2^63 - 1.
fn tokens() -> String {
    let most = (u64::MAX / 2).to_string();
    let mut ways = vec![format!("[1-9][0-9]{{0,{}}}", most.len() - 2), most.clone()];
    for (at, digit) in most.char_indices() {
        // As far as here the same, then lower, then anything.
        let least = if at == 0 { '1' } else { '0' };
        let rest = most.len() - at - 1;
        if digit > least {
            let below = char::from(digit as u8 - 1);
            ways.push(format!("{}[{least}-{below}][0-9]{{{rest}}}", &most[..at]));
        }
    }
    format!("^({})$", ways.join("|"))
}

/// A duration as text. The patterns say the bounds exactly, so that generated requests are right or wrong
/// just where the server says so.
fn span(bounds: &str, units: &[&str], example: &str) -> Value {
    let what = format!("A whole number with its unit (ms, s, m, h, d). {bounds}.");
    let pattern = format!("^0*({})$", units.join("|"));
    json!({ "description": what, "type": "string", "pattern": pattern, "examples": [example] })
}

const TTL: &[&str] = &[
    "([1-9][0-9]{3,6}|[1-7][0-9]{7}|8[0-5][0-9]{6}|86[0-3][0-9]{5}|86400000)ms",
    "([1-9][0-9]{0,3}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2}|86400)s",
    "([1-9][0-9]{0,2}|1[0-3][0-9]{2}|14[0-3][0-9]|1440)m",
    "([1-9]|1[0-9]|2[0-4])h",
    "1d",
];

const WAIT: &[&str] =
    &["([0-9]{1,4}|[1-5][0-9]{4}|60000)ms", "([0-9]|[1-5][0-9]|60)s", "[01]m", "0h", "0d"];

/// An object with these members and no others.
fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

fn array(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn number() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn nullable(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

fn described(name: &str, what: &str) -> Value {
    let mut schema = of(name);
    schema["description"] = what.into();
    schema
}
