//! One log line for every call that changes a lease or a fence: who, what, which, and what became of it.

use crate::core::{Holder, Resource, Token};
use crate::telemetry::log::field;

use super::guard::{Caller, Peer};
use super::problem::{Problem, RequestId};

/// A change being made. If it is dropped before its end is known, it says so: the client went away.
pub(super) struct Audit {
    peer: Peer,
    request_id: String,
    action: &'static str,
    resource: Resource,
    token: Option<Token>,
    holder: Option<Holder>,
    done: bool,
}

// === impl Audit ===

impl Audit {
    pub(super) fn of(
        caller: Caller,
        id: RequestId,
        action: &'static str,
        resource: &Resource,
    ) -> Audit {
        Audit {
            peer: caller.peer,
            request_id: id.0,
            action,
            resource: resource.clone(),
            token: None,
            holder: None,
            done: false,
        }
    }

    pub(super) fn token(&mut self, token: Token) {
        self.token = Some(token);
    }

    pub(super) fn holder(&mut self, holder: &Holder) {
        self.holder = Some(holder.clone());
    }

    /// Logs the end and hands the result on.
    pub(super) fn end<T>(mut self, result: Result<T, Problem>) -> Result<T, Problem> {
        self.done = true;
        self.log(match &result {
            Ok(_) => "done",
            Err(problem) => problem.kind,
        });
        result
    }

    fn log(&self, outcome: &str) {
        // As text, not as Debug: quoted in text lines all the same, and once only in JSON.
        tracing::info!(
            { field::PEER } = %self.peer,
            { field::ACTION } = self.action,
            { field::RESOURCE } = self.resource.as_str(),
            { field::TOKEN } = self.token.map(Token::get),
            { field::HOLDER } = self.holder.as_ref().map(Holder::as_str),
            { field::OUTCOME } = outcome,
            { field::REQUEST_ID } = self.request_id,
            "admin change"
        );
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        if !self.done {
            self.log("abandoned");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_one_line_that_names_cannot_forge() {
        let (mut seen, caller) = (String::new(), Caller { peer: Peer::Unix, bearer: false });
        let resource = Resource::new("wal/main\" outcome=\"done").expect("a name");
        let audit = || {
            let mut audit = Audit::of(caller, RequestId("id7".into()), "lease.acquire", &resource);
            audit.holder(&Holder::new("h i").expect("a name"));
            audit.token(Token::MIN);
            audit
        };
        let lines = crate::telemetry::log::captured(|| {
            let _ = audit().end(Ok(()));
            let _ = audit().end::<()>(Err(Problem::invalid("x")));
            drop(audit());
        });
        for (line, outcome) in lines.lines().zip(["done", "invalid-request", "abandoned"]) {
            for part in [
                "peer=unix",
                "action=\"lease.acquire\"",
                r#"resource="wal/main\" outcome=\"done""#,
                "token=1",
                "holder=\"h i\"",
                &format!(" outcome=\"{outcome}\" "),
                "request_id=\"id7\"",
            ] {
                assert!(line.contains(part), "{part} in {line}");
            }
            seen.push_str(outcome);
        }
        assert_eq!(seen, "doneinvalid-requestabandoned");
    }
}
