//! The store of the benchmark: reads requests, throws bodies away, answers at once, counts.
//!
//! One thread and a handful of system calls a request, so that what is measured is the proxy. PUT answers
//! 200 without a body; GET answers as many bytes as the last part of the path says (`/b/k/1024`).
//!
//! `bench_sink ADDRESS`: prints nothing; `GET /count` answers how many requests were served.

use std::cell::Cell;
use std::io::{self, IoSlice, Write};
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const READ: usize = 256 << 10;

fn main() -> io::Result<()> {
    let address: SocketAddr = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| io::Error::other("usage: bench_sink ADDRESS"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let listener = TcpListener::bind(address).await?;
        let served = Rc::new(Cell::new(0u64));
        let filler: Rc<[u8]> = vec![b'x'; 8 << 20].into();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (served, filler) = (Rc::clone(&served), Rc::clone(&filler));
            tokio::task::spawn_local(async move {
                // A client that goes away has seen what it wanted.
                let _ = serve(stream, &served, &filler).await;
            });
        }
    })
}

async fn serve(mut stream: TcpStream, served: &Cell<u64>, filler: &[u8]) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    let mut have = 0;
    loop {
        let end = loop {
            if let Some(end) = find(&buffer[..have], b"\r\n\r\n") {
                break end + 4;
            }
            let read = stream.read(&mut buffer[have..]).await?;
            if read == 0 {
                return Ok(());
            }
            have += read;
        };
        let head = &buffer[..end];
        let mut left = length(head);
        let get = head.starts_with(b"GET ");
        let wants = if get { wanted(head) } else { 0 };
        let count = head.starts_with(b"GET /count ");
        let buffered = (have - end).min(left);
        left -= buffered;
        buffer.copy_within(end + buffered..have, 0);
        have -= end + buffered;
        while left > 0 {
            let most = left.min(READ);
            let read = stream.read(&mut buffer[..most]).await?;
            if read == 0 {
                return Ok(());
            }
            left -= read;
        }
        if count {
            let body = served.get().to_string();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            stream.write_all(answer.as_bytes()).await?;
            continue;
        }
        served.set(served.get() + 1);
        let mut head = Vec::with_capacity(96);
        write!(head, "HTTP/1.1 200 OK\r\nETag: \"0\"\r\nContent-Length: {wants}\r\n\r\n")?;
        let body = &filler[..wants.min(filler.len())];
        let mut sent = stream.write_vectored(&[IoSlice::new(&head), IoSlice::new(body)]).await?;
        if sent < head.len() {
            stream.write_all(&head[sent..]).await?;
            sent = head.len();
        }
        stream.write_all(&body[sent - head.len()..]).await?;
    }
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

fn length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let field = head.split("\r\ncontent-length:").nth(1);
    field
        .and_then(|rest| rest.split("\r\n").next())
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

fn wanted(head: &[u8]) -> usize {
    let target = String::from_utf8_lossy(head);
    let target = target.split(' ').nth(1).unwrap_or_default();
    target.rsplit('/').next().and_then(|last| last.parse().ok()).unwrap_or(0)
}
