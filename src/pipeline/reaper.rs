//! Exchanges outlive their clients: a request that is dropped half-way goes on here until it is settled.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, Stream};

/// A request being served.
type Serving<T> = Pin<Box<dyn Future<Output = T>>>;

/// Finishes what nobody waits for any more; one for each thread, run by [`Reaper::run`].
#[derive(Clone, Default)]
pub struct Reaper(Rc<Orphans>);

#[derive(Default)]
struct Orphans {
    new: RefCell<Vec<Serving<()>>>,
    waker: RefCell<Option<Waker>>,
    count: Cell<usize>,
}

/// A request's future that cannot be dropped unfinished: its client may go, it may not.
pub struct Attached<T: 'static> {
    serving: Option<Serving<T>>,
    reaper: Reaper,
}

// === impl Reaper ===

impl Reaper {
    /// Serves one request to its end, whatever becomes of its client.
    pub fn attach<T>(&self, serving: impl Future<Output = T> + 'static) -> Attached<T> {
        Attached { serving: Some(Box::pin(serving)), reaper: self.clone() }
    }

    /// Takes over a future whose result nobody waits for.
    pub fn adopt(&self, orphan: impl Future<Output = ()> + 'static) {
        self.push(Box::pin(orphan));
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.0.count.get()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&self, orphan: Serving<()>) {
        // One that panics settles itself on unwinding, and must not take the others with it.
        let orphan = Box::pin(AssertUnwindSafe(orphan).catch_unwind().map(drop));
        self.0.count.set(self.0.count.get() + 1);
        self.0.new.borrow_mut().push(orphan);
        if let Some(waker) = self.0.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Polls the orphans; runs until it is dropped, as a task of its own.
    pub async fn run(self) {
        let mut orphans = FuturesUnordered::new();
        std::future::poll_fn(|cx: &mut Context<'_>| -> Poll<()> {
            loop {
                *self.0.waker.borrow_mut() = Some(cx.waker().clone());
                orphans.extend(self.0.new.borrow_mut().drain(..));
                match Pin::new(&mut orphans).poll_next(cx) {
                    Poll::Ready(Some(())) => self.0.count.set(self.0.count.get() - 1),
                    Poll::Ready(None) | Poll::Pending if self.0.new.borrow().is_empty() => {
                        return Poll::Pending;
                    }
                    Poll::Ready(None) | Poll::Pending => {}
                }
            }
        })
        .await;
    }
}

// === impl Attached ===

impl<T: 'static> Future for Attached<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let serving = self.serving.as_mut().expect("polled after its end");
        match serving.as_mut().poll(cx) {
            Poll::Ready(done) => {
                self.serving = None;
                Poll::Ready(done)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: 'static> Drop for Attached<T> {
    fn drop(&mut self) {
        // A future that panicked must not be polled again: what it held has settled itself on unwinding.
        if let Some(serving) = self.serving.take().filter(|_| !std::thread::panicking()) {
            self.reaper.push(Box::pin(async move { drop(serving.await) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn an_orphan_that_panics_takes_no_other_with_it() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let reaper = Reaper::default();
                tokio::task::spawn_local(reaper.clone().run());
                let (settle, settled) = oneshot::channel::<()>();
                let (go, gone) = oneshot::channel::<()>();
                reaper.adopt(async move {
                    gone.await.unwrap();
                    settle.send(()).unwrap();
                });
                reaper.adopt(async { panic!("on purpose") });
                let settle_one = async {
                    while reaper.len() > 1 {
                        tokio::task::yield_now().await;
                    }
                };
                let patience = std::time::Duration::from_secs(30);
                tokio::time::timeout(patience, settle_one).await.expect("the panic is over");
                go.send(()).unwrap();
                settled.await.unwrap();
            })
            .await;
    }

    #[tokio::test]
    async fn a_request_goes_on_after_its_client_is_gone() {
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let reaper = Reaper::default();
                tokio::task::spawn_local(reaper.clone().run());
                let (answer, answered) = oneshot::channel::<()>();
                let (settle, settled) = oneshot::channel::<()>();
                let mut attached = reaper.attach(async move {
                    answered.await.unwrap();
                    settle.send(()).unwrap();
                });
                let pending = std::future::poll_fn(|cx| {
                    Poll::Ready(Pin::new(&mut attached).poll(cx).is_pending())
                });
                assert!(pending.await);
                drop(attached);
                assert_eq!(reaper.len(), 1);
                answer.send(()).unwrap();
                settled.await.unwrap();
                while !reaper.is_empty() {
                    tokio::task::yield_now().await;
                }
            })
            .await;
    }
}
