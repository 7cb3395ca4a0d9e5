//! Reads a write's answer to its end, so that it can be settled, whatever the client does.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

use crate::pipeline::classify::AnswerKind;
use crate::pipeline::classify::answer::{BodyVerdict, judge};
use crate::pipeline::respond::is_ambiguous;
use crate::pipeline::settle::Answer;
use crate::pipeline::upstream::Connection;

/// An answer of this size is read whole before the client gets its head.
const SMALL: u64 = 64 << 10;

/// Most of an answer that is kept to be judged.
const MOST_JUDGED: usize = 1 << 20;

/// What is known of an answer once its head is here.
pub enum Reply {
    /// It was read to its end, well or badly; nothing of it has to be streamed.
    Read(Answer, Option<Response<Bytes>>),
    /// It is long, or of unknown length: read it with [`relay`].
    Long(Response<Incoming>),
}

/// Why no head of an answer came.
#[derive(Debug, thiserror::Error)]
pub enum NoHead {
    /// The time is over.
    #[error("no answer in time")]
    TimedOut,
    /// The connection ended, or brought something that is no answer.
    #[error("the connection ended before an answer")]
    Ended(#[source] Option<hyper::Error>),
}

/// Waits for the head of an answer.
///
/// # Errors
/// [`NoHead`].
pub async fn head(
    connection: &mut Connection,
    sending: &mut (impl Future<Output = hyper::Result<Response<Incoming>>> + Unpin),
    deadline: Instant,
) -> Result<Response<Incoming>, NoHead> {
    let answer = poll_fn(|cx| poll_head(connection, sending, cx));
    timeout_at(deadline, answer).await.unwrap_or(Err(NoHead::TimedOut))
}

/// The connection may end in the very poll that delivers the answer: so it is asked for the answer after
/// that poll, and only then believed to have none.
pub fn poll_head(
    connection: &mut Connection,
    sending: &mut (impl Future<Output = hyper::Result<Response<Incoming>>> + Unpin),
    cx: &mut Context<'_>,
) -> Poll<Result<Response<Incoming>, NoHead>> {
    let over = connection.poll(cx).is_ready();
    match Pin::new(sending).poll(cx) {
        Poll::Ready(answer) => Poll::Ready(answer.map_err(|error| NoHead::Ended(Some(error)))),
        Poll::Pending if over => Poll::Ready(Err(NoHead::Ended(None))),
        Poll::Pending => Poll::Pending,
    }
}

/// Reads a small answer whole; hands back a long one.
pub async fn read(
    connection: &mut Connection,
    response: Response<Incoming>,
    kind: AnswerKind,
    deadline: Instant,
) -> Reply {
    if response.status().is_informational() || is_ambiguous(response.headers()) {
        return Reply::Read(Answer::Garbled, None);
    }
    if response.body().size_hint().exact().is_none_or(|length| length > SMALL) {
        return Reply::Long(response);
    }
    read_whole(connection, response, kind, deadline).await
}

/// Reads a long answer whole, up to what can be judged: for one that nobody may stream.
pub async fn read_whole(
    connection: &mut Connection,
    response: Response<Incoming>,
    kind: AnswerKind,
    deadline: Instant,
) -> Reply {
    let (head, mut body) = response.into_parts();
    let mut whole = BytesMut::new();
    loop {
        match timeout_at(deadline, frame(connection, &mut body)).await {
            Err(_) | Ok(Some(Err(_))) => return Reply::Read(Answer::Torn(head.status), None),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    if whole.len() + data.len() > MOST_JUDGED {
                        return Reply::Read(Answer::Torn(head.status), None);
                    }
                    whole.extend_from_slice(&data);
                }
            }
            Ok(None) => break,
        }
    }
    let whole = whole.freeze();
    let answer = judged(connection, head.status, kind, &whole).await;
    let response = (answer != Answer::Garbled).then(|| Response::from_parts(head, whole));
    Reply::Read(answer, response)
}

/// The next frame of an answer; polls the connection that brings it.
pub async fn frame(
    connection: &mut Connection,
    body: &mut Incoming,
) -> Option<hyper::Result<Frame<Bytes>>> {
    poll_fn(|cx| {
        let over = connection.poll(cx).is_ready();
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Pending if over => Pin::new(&mut *body).poll_frame(cx),
            polled => polled,
        }
    })
    .await
}

/// Judges a complete answer: what it says, and whether more bytes follow it.
pub async fn judged(
    connection: &mut Connection,
    status: StatusCode,
    kind: AnswerKind,
    body: &[u8],
) -> Answer {
    let surplus =
        poll_fn(|cx| Poll::Ready(matches!(connection.poll(cx), Poll::Ready(Err(_))))).await;
    if surplus {
        return Answer::Garbled;
    }
    let verdict = if status == StatusCode::OK { judge(kind, body) } else { BodyVerdict::Success };
    Answer::Complete(status, verdict)
}

/// Doubts a success to a request whose tail was handed over but has not left: its store cannot have got it.
pub fn doubted(connection: &Connection, answer: Answer) -> Answer {
    match answer {
        Answer::Complete(status, _) if status.is_success() && connection.has_lost() => {
            Answer::Garbled
        }
        answer => answer,
    }
}

/// Keeps what has to be judged of a long answer.
pub struct Judge {
    kind: AnswerKind,
    kept: BytesMut,
    too_long: bool,
}

// === impl Judge ===

impl Judge {
    /// For an answer to be read as `kind`.
    pub fn new(kind: AnswerKind) -> Judge {
        Judge { kind, kept: BytesMut::new(), too_long: false }
    }

    /// Takes one piece.
    pub fn take(&mut self, piece: &[u8]) {
        if self.kind == AnswerKind::Plain || self.too_long {
            return;
        }
        self.too_long = self.kept.len() + piece.len() > MOST_JUDGED;
        if !self.too_long {
            self.kept.extend_from_slice(piece);
        }
    }

    /// The answer came to its end.
    pub async fn finish(self, connection: &mut Connection, status: StatusCode) -> Answer {
        match judged(connection, status, self.kind, &self.kept).await {
            Answer::Complete(status, _) if self.too_long => {
                Answer::Complete(status, BodyVerdict::Unreadable)
            }
            answer => answer,
        }
    }
}

/// The length that an answer's head announces.
pub fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
