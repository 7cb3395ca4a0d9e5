//! Uploads whose body is not complete when the lease moves: cut before their commit point, never visible.

use crate::support::clients::Curl;
use crate::support::gate::{Builder, Gate};
use crate::support::raw_client::RawClient;
use crate::support::relay::Relay;
use crate::support::scenario::Verdict;
use crate::support::signed::{SHAPES, Shape, Signed};
use crate::support::stores::{self, Store};
use crate::support::wait::long;

/// Streamed, not withheld whole, and larger than what one read of the gate takes at first.
const PAYLOAD: usize = 200 << 10;
/// What the store must have been sent before the lease moves: the upload is under way.
const UNDER_WAY: usize = 64 << 10;
/// How often a withheld upload is looked for.
const LOOKS: usize = 4;

/// An upload that has begun: all of it was sent but its end.
struct Upload {
    client: RawClient,
    rest: Vec<u8>,
}

/// A bucket behind a gate; everything under `NAME/` belongs to `up/NAME`.
struct Scene<'s> {
    store: &'s Store,
    bucket: String,
    relay: &'s Relay,
    gate: Gate,
}

// === impl Scene ===

impl<'s> Scene<'s> {
    fn new(store: &'s Store, relay: &'s Relay, gate: Builder) -> Scene<'s> {
        let bucket = store.bucket("up");
        let rule =
            format!("[[rule]]\nmatch = \"{bucket}/{{name}}/**\"\nresource = \"up/{{name}}\"\n");
        // Each commit point asks the lease again.
        let gate = gate.rules(&rule).fence("revalidate_after = \"1ms\"").start();
        Scene { store, bucket, relay, gate }
    }

    /// Sends everything but the end and waits until the store has been sent much of it, so that it is admitted.
    /// The end is: the last byte of a plain body; of an aws-chunked one what follows the
    /// payload; of HTTP chunks what follows the last one.
    fn begin(&self, shape: Shape, key: &str, token: u64) -> Upload {
        let host = self.gate.address().to_string();
        let target = format!("/{}/{key}", self.bucket);
        let payload = vec![b'A'; PAYLOAD];
        let wire = Signed::new("PUT", &target, &host).token(token).body(shape, &payload).wire();
        let stop = match shape {
            Shape::Plain => wire.last_payload,
            Shape::Trailer | Shape::SignedChunks => wire.last_payload + 1,
            Shape::HttpPlain | Shape::HttpTrailer | Shape::HttpSigned => wire.outer_end,
        };
        let before = self.relay.sent();
        let mut client = RawClient::connect(self.gate.address());
        client.send(&wire.head);
        client.send(&wire.body[..stop]);
        self.relay.wait_sent(before, UNDER_WAY);
        Upload { client, rest: wire.body[stop..].to_vec() }
    }

    /// Whether anything is at `key`, looked at again and again.
    fn is_visible(&self, key: &str) -> bool {
        (0..LOOKS).any(|_| self.store.object(&self.bucket, key).is_some())
    }

    fn put(&self, key: &str, token: u64, body: &[u8]) -> u16 {
        let url = format!("{}/{}/{key}", self.gate.url(), self.bucket);
        Curl::put(&url).token(token).body(body).send().status
    }

    /// Shows that the same upload, undisturbed, is one that this store takes.
    fn must_be_stored_when_whole(&self, shape: Shape, name: &str, token: u64) {
        let mut upload = self.begin(shape, &format!("{name}/whole"), token);
        upload.client.try_send(&upload.rest);
        let answer = upload.client.answer();
        assert_eq!(answer.status, 200, "{} {shape:?}: {answer:?}", self.store.name);
        let stored = self.store.object(&self.bucket, &format!("{name}/whole")).expect("stored");
        // nanio takes the framing of an unsigned trailer for content.
        let keeps_framing = self.store.name == "nanio" && shape.has_trailer();
        assert!(keeps_framing || stored == vec![b'A'; PAYLOAD], "{} {shape:?}", self.store.name);
    }

    fn story(&self, shape: Shape) -> Verdict {
        let name = format!("{shape:?}").to_lowercase();
        let resource = format!("up/{name}");
        let (only, both) = (format!("{name}/only"), format!("{name}/both"));
        let broken = |how: &str| Verdict::Violated(format!("{} {shape:?}: {how}", self.store.name));
        // The lease moves, and its new holder has not written yet when the end arrives.
        let a = self.gate.acquire(&resource, "a", "60s");
        self.must_be_stored_when_whole(shape, &name, a);
        let mut upload = self.begin(shape, &only, a);
        if self.is_visible(&only) {
            return broken("visible while its end is withheld");
        }
        let b = self.gate.hand_over(&resource, a, "b");
        if self.is_visible(&only) {
            return broken("visible after the lease moved");
        }
        upload.client.try_send(&upload.rest);
        let answer = upload.client.answer();
        if answer.status != 412 || self.is_visible(&only) {
            return broken(&format!("committed after the lease moved: {answer:?}"));
        }
        // The lease moves, and its new holder writes first.
        let mut upload = self.begin(shape, &both, b);
        let c = self.gate.hand_over(&resource, b, "c");
        let status = self.put(&both, c, b"successor");
        if status != 200 {
            return broken(&format!("the successor got {status} while the old upload stands"));
        }
        // The cut came without the end: that may not be taken any more.
        upload.client.try_send(&upload.rest);
        let answer = upload.client.answer();
        if answer.status != 412 {
            return broken(&format!("the overtaken upload got {answer:?}"));
        }
        let status = self.put(&only, c, b"later");
        let stored = self.store.object(&self.bucket, &both);
        if (status, stored.as_deref()) != (200, Some(b"successor")) {
            return broken("the successor's bytes are not what is stored");
        }
        Verdict::Held
    }
}

/// The whole story on one store for some shapes; `gate` stands before `relay`.
pub fn overtaken_uploads(store: &Store, relay: &Relay, shapes: &[Shape], gate: Builder) -> Verdict {
    let scene = Scene::new(store, relay, gate);
    let verdicts = shapes.iter().map(|shape| scene.story(*shape));
    verdicts.into_iter().find(|verdict| *verdict != Verdict::Held).unwrap_or(Verdict::Held)
}

fn every_shape_holds(store: Option<&Store>) {
    let Some(store) = store else { return };
    let relay = Relay::start(&store.url);
    for _ in 0..if long() { 20 } else { 1 } {
        let gate = Gate::builder(&relay.url());
        overtaken_uploads(store, &relay, &SHAPES, gate).must_hold();
    }
}

// T10; seen on these stores: SeaweedFS and nanio commit at the inner end of an aws-chunked body.

#[test]
fn an_overtaken_upload_is_never_visible_on_seaweedfs() {
    every_shape_holds(stores::seaweedfs());
}

#[test]
fn an_overtaken_upload_is_never_visible_on_moto() {
    every_shape_holds(stores::moto());
}

#[test]
fn an_overtaken_upload_is_never_visible_on_nanio() {
    every_shape_holds(stores::nanio());
}
