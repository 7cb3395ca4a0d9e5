//! `/`: one page for people. No script, no style of others, no tokens, everything escaped.

use std::fmt::Write;

use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use http::header::CONTENT_SECURITY_POLICY;

use super::state::{AdminState, FenceControl};
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
    let ready = state.readiness.get().is_ready();
    let leases = state.lease.list("", None, ROWS).await;
    let html = render(ready, leases.as_deref().ok(), &state.fences.busy(ROWS));
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    ([(CONTENT_SECURITY_POLICY, policy)], Html(html)).into_response()
}

fn render(ready: bool, leases: Option<&[LeaseView]>, fences: &[FenceView]) -> String {
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>fencegate</title><style>{STYLE}</style>\
         <h1>fencegate {}</h1><p>{}</p><h2>Leases</h2>",
        env!("CARGO_PKG_VERSION"),
        if ready { "ready" } else { "not ready" },
    );
    match leases {
        None => out.push_str("<p>The lease backend does not answer.</p>"),
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
    out.push_str("<h2>Fences at work</h2><table><tr><th>resource<th>permits<th>in flight<th>tainted<th>waiting<th>closed");
    for fence in fences {
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
    use super::*;

    #[test]
    fn text_of_others_cannot_leave_its_cell() {
        let shown = Escaped("<img src=x onerror='alert(1)' a=\"b\">&lt;").to_string();
        assert_eq!(shown, "&lt;img src=x onerror=&#39;alert(1)&#39; a=&quot;b&quot;&gt;&amp;lt;");
    }
}
