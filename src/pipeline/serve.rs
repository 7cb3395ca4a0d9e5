//! One request through all steps.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{Method, Request, Response, Uri};
use http_body::Body;
use hyper::body::Incoming;

use super::body::DownBody;
use super::classify::{Effect, decides_by_body, document_keys};
use super::client::{Client, Peer};
use super::fence::{Cargo, Fences, Turned};
use super::forward::{self, Budget, Failed, Fenced, Forward};
use super::frame::{self, Framed};
use super::plan::{Plan, plan, store_of};
use super::refusal::Refusal;
use super::respond::{Occasion, RequestId, is_conditional, refuse};
use super::route::{self, Routed};
use super::rules::{Rule, RuleSet};
use super::settings::{Reads, StoreKind};
use super::token::{carried, is_signed};
use super::upstream::Checkout;
use super::worker::Worker;
use crate::core::gate::Kind;
use crate::core::{Resource, Token};
use crate::telemetry::clock::Started;
use crate::telemetry::log::Redacted;
use crate::telemetry::metrics::{Answer, Metrics, Step};

/// The request path of the whole process. Shared by all threads.
pub struct Pipeline {
    /// The rules in force.
    pub rules: ArcSwap<RuleSet>,
    /// The fences.
    pub fences: Fences,
    /// Everything withheld by all requests.
    pub budget: Budget,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// No new request is served any more.
    pub draining: AtomicBool,
    /// Withhold tails; off only to see a test fail.
    pub hold_tail: bool,
}

/// What of a request is needed to refuse it, kept while the rest is consumed.
struct Origin {
    method: Method,
    uri: Uri,
    conditional: bool,
    id: RequestId,
}

// === impl Pipeline ===

impl Pipeline {
    /// Serves one request to its end; the answer may still stream.
    pub async fn serve(
        self: Arc<Pipeline>,
        worker: Rc<Worker>,
        client: Client,
        request: Request<Incoming>,
    ) -> Response<DownBody> {
        let started = Started::now();
        let (head, incoming) = request.into_parts();
        let origin = Origin {
            method: head.method.clone(),
            uri: head.uri.clone(),
            conditional: is_conditional(&head.headers),
            id: RequestId::next(),
        };
        let set = self.rules.load_full();
        let token = carried(&head.headers);
        let mut kind = set.default.kind;
        let mut steps = Steps {
            pipeline: &self,
            worker: &worker,
            client: &client,
            set,
            token: token.clone(),
            document: None,
            place: Place::default(),
        };
        // Whatever it held settles as the worst it may be when the rest of it is dropped.
        let served = AssertUnwindSafe(steps.run(&mut kind, head, incoming)).catch_unwind().await;
        let result = served.unwrap_or(Err(Failed { refusal: Refusal::Internal, unread: None }));
        let counters = steps.set.counters(steps.place.rule);
        let response = match result {
            Ok(response) => {
                counters.count(match steps.place.fenced {
                    true => Answer::Admitted,
                    false => Answer::Unfenced,
                });
                response
            }
            Err(failed) => {
                counters.count(Answer::Refused);
                let token = token.ok().flatten();
                self.note(&failed.refusal, &origin, &steps.place, &client.peer, token);
                self.refused(&worker, failed, &origin, kind, token.is_some()).await
            }
        };
        self.metrics.time(Step::Request, started);
        response
    }

    /// Answers a refused request without resetting its client, and without swallowing its body.
    async fn refused(
        &self,
        worker: &Rc<Worker>,
        failed: Failed,
        origin: &Origin,
        kind: StoreKind,
        carried: bool,
    ) -> Response<DownBody> {
        let unread = failed.unread.filter(|unread| !unread.is_end_stream());
        let occasion = Occasion {
            kind,
            path: origin.uri.path(),
            conditional: origin.conditional,
            carried,
            // What follows a CONNECT may be meant for the tunnel that there is not: RFC 9110, 9.3.6.
            close: unread.is_some()
                || origin.method == Method::CONNECT
                || failed.refusal == Refusal::Internal,
            id: origin.id,
        };
        let response = refuse(&failed.refusal, &occasion);
        worker.discard(unread);
        response
    }

    /// One line for each refused request.
    fn note(
        &self,
        refusal: &Refusal,
        origin: &Origin,
        place: &Place,
        peer: &Peer,
        token: Option<Token>,
    ) {
        let rank = refusal.rank(origin.conditional);
        self.metrics.refuse(rank.code);
        let resource = refusal.resource().or(place.resource.as_ref()).map(Resource::as_str);
        let query = origin.uri.query().map(|query| Redacted(query).to_string());
        tracing::warn!(
            code = rank.code,
            status = rank.status.as_u16(),
            resource,
            rule = place.rule.map(|rule| rule + 1),
            token = token.map(Token::get),
            method = %origin.method,
            path = origin.uri.path(),
            query,
            client = %peer,
            request_id = %origin.id,
            reason = refusal.text(),
            "request refused"
        );
    }
}

/// The steps of one request that can fail.
struct Steps<'a> {
    pipeline: &'a Arc<Pipeline>,
    worker: &'a Rc<Worker>,
    client: &'a Client,
    set: Arc<RuleSet>,
    token: Result<Option<Token>, Refusal>,
    /// The body, if it had to be read to learn its keys.
    document: Option<Bytes>,
    /// Where the request belongs, as far as that is known.
    place: Place,
}

/// Where a request belongs, for its log line and its counter.
#[derive(Default)]
struct Place {
    /// Its rule, from 0.
    rule: Option<usize>,
    resource: Option<Resource>,
    /// Whether it was admitted with a token.
    fenced: bool,
}

impl Steps<'_> {
    async fn run(
        &mut self,
        kind: &mut StoreKind,
        mut head: Parts,
        incoming: Incoming,
    ) -> Result<Response<DownBody>, Failed> {
        let mut incoming = Some(incoming);
        let framed = match frame::check(&head.method, &head.uri, head.version, &head.headers) {
            Ok(framed) => framed,
            Err(refusal) => return Err(Failed { refusal, unread: incoming }),
        };
        let keep_token = is_signed(&head.headers, framed.target.query());
        loop {
            if self.pipeline.draining.load(Ordering::Relaxed) {
                return Err(Failed { refusal: Refusal::ShuttingDown, unread: incoming });
            }
            let planned = match plan(&self.set, &framed, &head.method, &head.headers) {
                Ok(planned) => planned,
                Err((at, refusal)) => {
                    *kind = at;
                    return Err(Failed { refusal, unread: incoming });
                }
            };
            *kind = planned.upstream.kind;
            self.place = Place::default();
            self.place.learn(planned.routed.as_ref());
            let entered = self.enter(planned, &head.method, &mut incoming).await;
            let (planned, routed, ticket) = match entered {
                Ok(entered) => entered,
                Err(Turned::Refused(refusal)) => return Err(Failed { refusal, unread: incoming }),
                Err(Turned::Rerouted | Turned::Denied(_)) => {
                    // The reload is under way on another thread.
                    tokio::task::yield_now().await;
                    self.set = self.pipeline.rules.load_full();
                    continue;
                }
            };
            frame::prepare(&mut head.headers, &framed, keep_token);
            let rule = routed.rule.map(|rule| &self.set.rules[rule]);
            let target = match retarget(&framed, rule) {
                Ok(target) => target,
                Err(refusal) => return Err(Failed { refusal, unread: incoming }),
            };
            let forward = Box::new(Forward {
                set: Arc::clone(&self.set),
                upstream: planned.upstream,
                worker: Rc::clone(self.worker),
                operation: planned.operation,
                framed,
                target,
                head,
                incoming,
                budget: self.pipeline.budget.clone(),
                document: self.document.take(),
                hold_tail: self.pipeline.hold_tail,
            });
            return match ticket {
                Entered::Write(fenced) => forward::write(forward, fenced).await,
                Entered::Open(purpose) => forward::read(forward, purpose).await,
            };
        }
    }

    /// Steps 4 and 5: the token, and the fence.
    async fn enter(
        &mut self,
        plan: Plan,
        method: &Method,
        incoming: &mut Option<Incoming>,
    ) -> Result<(Plan, Routed, Entered), Turned> {
        let token = self.token.clone().map_err(Turned::Refused)?;
        match plan.operation.effect {
            Effect::Read => self.enter_read(plan, token).await,
            Effect::Write => self.enter_write(plan, method, token, incoming).await,
        }
    }

    async fn enter_read(
        &mut self,
        mut plan: Plan,
        token: Option<Token>,
    ) -> Result<(Plan, Routed, Entered), Turned> {
        let routed = plan.routed.take().unwrap_or_else(|| Routed {
            rule: None,
            resource: None,
            key: String::new(),
        });
        let open = Entered::Open(Checkout::Read);
        let (Some(rule), Some(resource)) = (routed.rule, routed.resource.clone()) else {
            return Ok((plan, routed, open));
        };
        let rule = &self.set.rules[rule];
        let Some(token) = token else {
            if rule.reads == Reads::Fenced {
                return Err(Turned::Refused(Refusal::MissingToken { resource }));
            }
            return Ok((plan, routed, open));
        };
        let fences = &self.pipeline.fences;
        let started = Started::now();
        let validated =
            fences.validate(&resource, token, &rule.policy).await.map_err(Turned::Refused)?;
        let cargo = Cargo { generation: self.set.generation, ..Cargo::default() };
        let entering = fences.enter(&resource, token, &rule.policy, Kind::Pass, validated, cargo);
        self.stay(entering).await?;
        self.pipeline.metrics.time(Step::Fence, started);
        self.place.fenced = true;
        Ok((plan, routed, open))
    }

    async fn enter_write(
        &mut self,
        mut plan: Plan,
        method: &Method,
        token: Option<Token>,
        incoming: &mut Option<Incoming>,
    ) -> Result<(Plan, Routed, Entered), Turned> {
        let checks_body = decides_by_body(&plan.operation);
        let mut keys = route::keys_of_head(&plan.operation).to_vec();
        if checks_body {
            let document = self.read_document(incoming).await.map_err(Turned::Refused)?;
            keys.extend(document_keys(&plan.operation, &document).map_err(Turned::Refused)?);
            self.document = Some(document);
        }
        let routed = match plan.routed.take().filter(|_| !checks_body) {
            Some(routed) => routed,
            None => route::write(&self.set, plan.upstream.kind, method.as_str(), &keys)
                .map_err(Turned::Refused)?,
        };
        self.place.learn(Some(&routed));
        plan.upstream = store_of(&self.set, &plan.upstream, plan.operation.effect, &routed)
            .map_err(Turned::Refused)?;
        if let Some(source) = &plan.operation.source {
            route::source(&self.set, plan.upstream.kind, source, &routed)
                .map_err(Turned::Refused)?;
        }
        let (Some(rule), Some(resource)) = (routed.rule, routed.resource.clone()) else {
            return Ok((plan, routed, Entered::Open(Checkout::Write)));
        };
        let Some(token) = token else {
            return Err(Turned::Refused(Refusal::MissingToken { resource }));
        };
        let policy = self.set.rules[rule].policy;
        let fences = &self.pipeline.fences;
        let started = Started::now();
        let validated =
            fences.validate(&resource, token, &policy).await.map_err(Turned::Refused)?;
        let cargo = Cargo { generation: self.set.generation, method: method.clone(), keys };
        let entering = fences.enter(&resource, token, &policy, Kind::Write, validated, cargo);
        let mut admission = self.stay(entering).await?;
        self.pipeline.metrics.time(Step::Fence, started);
        self.place.fenced = true;
        admission.belongs_to(self.set.counters(Some(rule)));
        let fenced = Fenced { token, admission, validated };
        Ok((plan, routed, Entered::Write(Box::new(fenced))))
    }

    /// Waits in the queue, unless the client goes away: its place belongs to those who still wait.
    async fn stay<T>(
        &self,
        entering: impl Future<Output = Result<T, Turned>>,
    ) -> Result<T, Turned> {
        tokio::select! {
            biased;
            entered = entering => entered,
            () = self.client.gone() => Err(Turned::Refused(Refusal::InvalidRequest {
                why: "the client went away while it waited; nothing was forwarded".to_owned(),
            })),
        }
    }

    /// Reads a document whose keys decide, before anything else is done with it.
    async fn read_document(&mut self, incoming: &mut Option<Incoming>) -> Result<Bytes, Refusal> {
        if let Some(document) = &self.document {
            return Ok(document.clone());
        }
        let Some(body) = incoming.as_mut() else { return Ok(Bytes::new()) };
        let document = forward::document(body, &self.set.limits, &self.pipeline.budget).await?;
        *incoming = None;
        Ok(document)
    }
}

// === impl Place ===

impl Place {
    fn learn(&mut self, routed: Option<&Routed>) {
        if let Some(routed) = routed {
            self.rule = routed.rule;
            self.resource = routed.resource.clone();
        }
    }
}

/// How a request got past the fence.
enum Entered {
    /// A fenced write.
    Write(Box<Fenced>),
    /// A read, or a write that nothing fences.
    Open(Checkout),
}

/// The path as the store gets it: the client's, byte for byte, but for the rule's prefixes (REST).
fn retarget(framed: &Framed, rule: Option<&Rule>) -> Result<http::uri::PathAndQuery, Refusal> {
    let Some(rule) = rule.filter(|rule| rule.strip_prefix.is_some() || rule.add_prefix.is_some())
    else {
        return Ok(framed.target.clone());
    };
    let wrong = |why: String| Refusal::InvalidRequest { why };
    let raw = framed.target.as_str();
    let rest = match &rule.strip_prefix {
        None => raw,
        Some(prefix) => raw
            .strip_prefix(prefix.as_str())
            .filter(|rest| rest.starts_with('/'))
            .ok_or_else(|| {
                wrong(format!("the path does not begin with {prefix:?}, which its rule takes off"))
            })?,
    };
    let target = format!("{}{rest}", rule.add_prefix.as_deref().unwrap_or_default());
    target
        .parse()
        .map_err(|_| wrong("the path is none once its rule's prefixes are applied".to_owned()))
}
