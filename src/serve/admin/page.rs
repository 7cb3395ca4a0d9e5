//! `/`: one page for people. No script, no style of others, no tokens, everything escaped.

use std::fmt::Write;

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::header::CONTENT_SECURITY_POLICY;
use serde_json::Value;

use super::state::{AdminState, FenceControl, Ready};
use crate::core::units::Span;
use crate::lease::{LeaseBackend, LeaseView};
use crate::pipeline::fence::FenceView;

/// Rows of each table; the rest is for `fencegate lease list`.
const ROWS: usize = 100;

const STYLE: &str =
    "body{font:15px sans-serif;margin:2em}td,th{text-align:left;padding:.2em 1em .2em 0}";

pub(super) async fn page<B: LeaseBackend, F: FenceControl>(
    State(state): State<AdminState<B, F>>,
) -> Response {
    let leases = state.lease.list("", None, ROWS).await;
    let html = render(&Facts {
        ready: state.readiness.get(),
        backends: (state.health)(),
        rules: (state.status)()["rules"].take(),
        leases: leases.as_deref().ok(),
        fences: &state.fences.busy(ROWS),
    });
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    ([(CONTENT_SECURITY_POLICY, policy)], Html(html)).into_response()
}

/// What the page tells.
struct Facts<'a> {
    ready: Ready,
    /// As in `/readyz`: the last look.
    backends: Value,
    /// As in `/v1/status`.
    rules: Value,
    /// `None`: the backend does not answer.
    leases: Option<&'a [LeaseView]>,
    fences: &'a [FenceView],
}

fn render(facts: &Facts<'_>) -> String {
    let ready = match (facts.ready.is_ready(), facts.ready.draining) {
        (true, _) => "ready",
        (false, true) => "shutting down",
        (false, false) => "not ready",
    };
    let backends = &facts.backends;
    let count = |name: &str| backends[name].as_u64().unwrap_or(0);
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>fencegate</title><style>{STYLE}</style>\
         <h1>fencegate {}</h1><p>{ready}; clients of the store use {}; lease backend {}; stores: {} up, {} down</p>\
         <p>More: <code>fencegate status</code>, <a href=readyz>readyz</a>, <a href=metrics>metrics</a>, \
         <a href=v1/status>v1/status</a>, <a href=openapi.json>openapi.json</a></p>",
        env!("CARGO_PKG_VERSION"),
        Escaped(facts.ready.proxy.as_deref().unwrap_or("nothing yet")),
        Escaped(backends["lease"].as_str().unwrap_or("not looked at yet")),
        count("stores_up"),
        count("stores_down"),
    );
    rules(&mut out, &facts.rules);
    out.push_str("<h2>Leases</h2>");
    match facts.leases {
        None => out.push_str("<p>The lease backend does not answer.</p>"),
        Some([]) => out.push_str("<p>None was granted yet.</p>"),
        Some(leases) => {
            out.push_str("<table><tr><th>resource<th>holder<th>state<th>expires in");
            for lease in leases {
                let left = Span(std::time::Duration::from_secs(lease.expires_in.as_secs()));
                row(
                    &mut out,
                    &[
                        lease.resource.as_str(),
                        lease.holder.as_str(),
                        state_of(lease),
                        &left.to_string(),
                    ],
                );
            }
            out.push_str("</table>");
        }
    }
    out.push_str("<h2>Fences at work</h2>");
    if facts.fences.is_empty() {
        out.push_str("<p>Nothing is in flight, in doubt or waiting.</p></html>\n");
        return out;
    }
    out.push_str("<table><tr><th>resource<th>permits<th>in flight<th>tainted<th>waiting<th>closed");
    for fence in facts.fences {
        let counted: usize = fence.permits.iter().map(|permit| permit.counted).sum();
        let tainted = fence.permits.iter().filter(|permit| permit.tainted).count();
        let numbers = [fence.permits.len(), counted, tainted, fence.waiting].map(|n| n.to_string());
        let [permits, counted, tainted, waiting] = &numbers;
        let closed = fence.closed.as_deref().unwrap_or("no");
        row(&mut out, &[fence.resource.as_str(), permits, counted, tainted, waiting, closed]);
    }
    out.push_str("</table></html>\n");
    out
}

/// The fenced rules. No patterns: the page needs no credential, and shows what metrics show.
fn rules(out: &mut String, rules: &Value) {
    let fenced = || rules.as_array().into_iter().flatten().filter(|rule| rule["level"].is_string());
    out.push_str("<h2>Fenced rules</h2>");
    if fenced().next().is_none() {
        out.push_str("<p>None.</p>");
        return;
    }
    out.push_str("<table><tr><th>rule<th>resource<th>level");
    for rule in fenced() {
        let text = |name: &str| rule[name].as_str().unwrap_or_default();
        row(out, &[&rule["rule"].to_string(), text("resource"), text("level")]);
    }
    out.push_str("</table>");
}

fn row(out: &mut String, cells: &[&str]) {
    out.push_str("<tr>");
    for cell in cells {
        // Writing to a String cannot fail.
        let _ = write!(out, "<td>{}", Escaped(cell));
    }
}

/// How a lease stands, in one word.
fn state_of(lease: &LeaseView) -> &'static str {
    match (lease.live, lease.released) {
        (true, _) => "live",
        (false, true) => "released",
        (false, false) => "expired",
    }
}

/// Text that means itself in HTML, in an element and in a quoted attribute.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_of_others_cannot_leave_its_cell() {
        let shown = Escaped("<img src=x onerror='alert(1)' a=\"b\">&lt;").to_string();
        assert_eq!(shown, "&lt;img src=x onerror=&#39;alert(1)&#39; a=&quot;b&quot;&gt;&amp;lt;");
    }
    #[test]
    fn the_page_shows_what_somebody_who_was_woken_looks_for() {
        let facts = Facts {
            ready: Ready { draining: true, ..Ready::default() },
            backends: json!({ "lease": "up", "stores_up": 0, "stores_down": 1 }),
            rules: json!([
                { "rule": 1, "match": ["secret/**"], "resource": "wal/<a>", "level": "advisory" },
                { "rule": 2, "match": ["public/**"], "resource": null },
            ]),
            leases: None,
            fences: &[],
        };
        let page = render(&facts);
        for text in [
            "shutting down",
            "lease backend up; stores: 0 up, 1 down",
            "<td>1<td>wal/&lt;a&gt;<td>advisory",
            "The lease backend does not answer.",
            "Nothing is in flight",
            "fencegate status",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        assert!(!page.contains("secret") && !page.contains("<td>2"), "{page}");
    }
}
