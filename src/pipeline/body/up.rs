//! The request body as the store gets it: whole, or streamed with its tail held until the commit point.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::tail::{Tail, TailError};

/// What goes upstream.
pub enum UpBody {
    /// Nothing.
    Empty,
    /// Collected before its head was sent.
    Whole(Whole),
    /// Streamed.
    Stream(Streaming),
}

/// A body that is here in full.
#[derive(Default)]
pub struct Whole {
    bytes: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

/// The connection's side of a streamed body.
pub struct Streaming(Rc<Shared>);

/// The exchange's side of the same body: it decides whether the tail may leave.
pub struct StreamControl(Rc<Shared>);

/// How far a streamed body has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More is to come from the client.
    Flowing,
    /// All of it is here and in order; the tail waits for the commit point.
    AtTail,
    /// The tail was handed over.
    Released,
    /// The client went away, or sent something else than it announced.
    Broken(Broken),
}

/// Why a body will never be complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The client's connection ended or was no HTTP any more.
    Client,
    /// The body must not be forwarded.
    Refused(TailError),
}

/// Ends the request to the store: hyper drops the connection.
#[derive(Debug, thiserror::Error)]
#[error("the request body was cut before its end")]
pub struct Cut;

struct Shared {
    progress: RefCell<Progress>,
    incoming: RefCell<Option<Incoming>>,
    /// Frames that were read before the decision to stream.
    first: RefCell<VecDeque<Bytes>>,
    tail: RefCell<Tail>,
    ready: RefCell<VecDeque<Bytes>>,
    trailers: RefCell<Option<HeaderMap>>,
    /// Nothing leaves until it is set: the store was asked whether it wants the body (Expect).
    open: Cell<bool>,
    /// Nothing has to be withheld: it is over when the client's side is.
    free: Cell<bool>,
    /// Bytes of the body have been handed to the connection.
    touched: Cell<bool>,
    /// Grows with every piece that arrives.
    pieces: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

// === impl StreamControl ===

impl StreamControl {
    /// A body that begins with `first` and goes on with `incoming`.
    pub fn new(
        first: VecDeque<Bytes>,
        incoming: Incoming,
        tail: Tail,
        open: bool,
    ) -> (StreamControl, UpBody) {
        let shared = Rc::new(Shared {
            progress: RefCell::new(Progress::Flowing),
            incoming: RefCell::new(Some(incoming)),
            first: RefCell::new(first),
            tail: RefCell::new(tail),
            ready: RefCell::default(),
            trailers: RefCell::default(),
            open: Cell::new(open),
            free: Cell::new(false),
            touched: Cell::new(false),
            pieces: Cell::new(0),
            waker: RefCell::default(),
        });
        (StreamControl(Rc::clone(&shared)), UpBody::Stream(Streaming(shared)))
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.0.progress.borrow().clone()
    }

    /// Lets the body flow, if the store was asked first.
    pub fn open(&self) {
        if !self.0.open.replace(true) {
            self.wake();
        }
    }

    /// Withholds nothing.
    pub fn flow_freely(&self) {
        self.0.free.set(true);
        self.open();
    }

    /// Whether the body may flow.
    pub fn is_open(&self) -> bool {
        self.0.open.get()
    }

    /// The commit point was passed: the tail may leave.
    pub fn release(&self) {
        *self.0.progress.borrow_mut() = Progress::Released;
        self.wake();
    }

    /// Whether bytes of the body have been handed to the connection.
    pub fn is_touched(&self) -> bool {
        self.0.touched.get()
    }

    /// Grows with every piece that arrives from the client.
    pub fn pieces(&self) -> u64 {
        self.0.pieces.get()
    }

    /// Takes the client's side back, to answer it without resetting it. The connection must be dropped.
    pub fn reclaim(&self) -> Option<Incoming> {
        self.0.incoming.borrow_mut().take()
    }

    /// Whether the client has not sent all of it yet, or we have not read it.
    pub fn has_unread(&self) -> bool {
        // One in chunks does not know its end before it was asked for it.
        !matches!(*self.0.progress.borrow(), Progress::AtTail | Progress::Released)
            && self.0.incoming.borrow().as_ref().is_some_and(|body| !body.is_end_stream())
    }

    fn wake(&self) {
        if let Some(waker) = self.0.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

// === impl Streaming ===

impl Streaming {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let shared = &*self.0;
        loop {
            if let Some(frame) = shared.ready.borrow_mut().pop_front() {
                shared.touched.set(true);
                return Poll::Ready(Some(Ok(Frame::data(frame))));
            }
            let progress = shared.progress.borrow().clone();
            match progress {
                Progress::Released => return self.poll_tail(),
                Progress::Broken(_) => return Poll::Ready(Some(Err(Cut))),
                Progress::Flowing if shared.open.get() => match self.poll_client(cx) {
                    Poll::Ready(()) => {}
                    Poll::Pending => return Poll::Pending,
                },
                Progress::Flowing | Progress::AtTail => {
                    *shared.waker.borrow_mut() = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    /// Reads on from the client; afterwards there is something ready or the progress has changed.
    fn poll_client(&self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &*self.0;
        let first = shared.first.borrow_mut().pop_front();
        if let Some(first) = first {
            self.take(first);
            return Poll::Ready(());
        }
        let mut incoming = shared.incoming.borrow_mut();
        let Some(body) = incoming.as_mut() else {
            self.set(Progress::Broken(Broken::Client));
            return Poll::Ready(());
        };
        match Pin::new(body).poll_frame(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => match shared.tail.borrow().finish() {
                Ok(()) if shared.free.get() => self.set(Progress::Released),
                Ok(()) => self.set(Progress::AtTail),
                Err(error) => self.set(Progress::Broken(Broken::Refused(error))),
            },
            Poll::Ready(Some(Err(error))) => {
                tracing::debug!(
                    error = &error as &dyn std::error::Error,
                    "client went away inside its body"
                );
                self.set(Progress::Broken(Broken::Client));
            }
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => self.take(data),
                Err(frame) => {
                    *shared.trailers.borrow_mut() = frame.into_trailers().ok().map(clean_trailers)
                }
            },
        }
        Poll::Ready(())
    }

    fn take(&self, frame: Bytes) {
        let shared = &*self.0;
        shared.pieces.set(shared.pieces.get() + 1);
        let pushed = shared.tail.borrow_mut().push(frame);
        match pushed {
            Ok(frames) => shared.ready.borrow_mut().extend(frames),
            Err(error) => self.set(Progress::Broken(Broken::Refused(error))),
        }
    }

    fn poll_tail(&self) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let shared = &*self.0;
        let tail = shared.tail.borrow_mut().release();
        if !tail.is_empty() {
            shared.touched.set(true);
            return Poll::Ready(Some(Ok(Frame::data(tail))));
        }
        Poll::Ready(
            shared.trailers.borrow_mut().take().map(|trailers| Ok(Frame::trailers(trailers))),
        )
    }

    fn set(&self, progress: Progress) {
        *self.0.progress.borrow_mut() = progress;
    }

    fn is_over(&self) -> bool {
        let shared = &*self.0;
        *shared.progress.borrow() == Progress::Released
            && shared.ready.borrow().is_empty()
            && shared.tail.borrow().is_empty()
            && shared.trailers.borrow().is_none()
    }
}

// === impl Whole ===

impl Whole {
    /// A body that was collected.
    pub fn new(bytes: Bytes, trailers: Option<HeaderMap>) -> Whole {
        // An empty one is not over before it was asked for once: hyper drops Transfer-Encoding of a body
        // that says beforehand that it is empty, and the store answers 411.
        Whole { bytes: Some(bytes), trailers: trailers.map(clean_trailers) }
    }

    fn next(&mut self) -> Option<Frame<Bytes>> {
        if let Some(bytes) = self.bytes.take().filter(|bytes| !bytes.is_empty()) {
            return Some(Frame::data(bytes));
        }
        self.trailers.take().map(Frame::trailers)
    }

    fn is_over(&self) -> bool {
        self.bytes.is_none() && self.trailers.is_none()
    }
}

/// A trailer is never a carrier of a token, and no store shall see one there.
fn clean_trailers(mut trailers: HeaderMap) -> HeaderMap {
    super::strip_token(&mut trailers);
    trailers
}

impl Body for UpBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            UpBody::Empty => Poll::Ready(None),
            UpBody::Whole(whole) => Poll::Ready(whole.next().map(Ok)),
            UpBody::Stream(stream) => stream.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            UpBody::Empty => true,
            UpBody::Whole(whole) => whole.is_over(),
            UpBody::Stream(stream) => stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            UpBody::Empty => SizeHint::with_exact(0),
            // Lengths come from the client's own header.
            UpBody::Whole(_) | UpBody::Stream(_) => SizeHint::default(),
        }
    }
}
