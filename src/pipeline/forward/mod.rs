//! Step 6: to the store and back. Sends once, never repeats, and withholds a write's tail until the fence
//! has counted the exchange.

mod answer;
mod budget;
mod collect;
mod read;
mod stream;
mod write;

use std::rc::Rc;
use std::sync::Arc;

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Uri, Version};
use hyper::body::Incoming;

pub use budget::Budget;
pub use collect::document;
pub use read::read;
pub use write::{Fenced, write};

use super::body::UpBody;
use super::classify::Operation;
use super::frame::Framed;
use super::refusal::Refusal;
use super::rules::{RuleSet, Upstream};
use super::worker::Worker;

/// One request that may be forwarded, once its fence says so.
pub struct Forward {
    /// The rules it was routed by.
    pub set: Arc<RuleSet>,
    /// Where it goes.
    pub upstream: Arc<Upstream>,
    /// Its thread.
    pub worker: Rc<Worker>,
    /// What it does.
    pub operation: Operation,
    /// Its head, as checked.
    pub framed: Framed,
    /// Its path and query as the store gets them.
    pub target: PathAndQuery,
    /// Its method and fields, prepared to go on.
    pub head: Parts,
    /// Its body, as far as it was not read yet.
    pub incoming: Option<Incoming>,
    /// Its body, if it was read already to learn its keys.
    pub document: Option<bytes::Bytes>,
    /// Everything withheld by all requests.
    pub budget: Budget,
    /// Withhold tails; off only to see a test fail.
    pub hold_tail: bool,
}

/// Why nothing, or nothing usable, came back.
pub struct Failed {
    /// For the client.
    pub refusal: Refusal,
    /// The client's side, if its body was not read to the end.
    pub unread: Option<Incoming>,
}

// === impl Forward ===

impl Forward {
    /// The request as the store gets it: origin-form, byte for byte the client's path and query.
    fn request(&mut self, body: UpBody) -> Request<UpBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = Uri::from(self.target.clone());
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = std::mem::replace(&mut self.head.headers, HeaderMap::new());
        request
    }

    fn failed(&mut self, refusal: Refusal) -> Failed {
        Failed { refusal, unread: self.incoming.take() }
    }
}
