//! The client of a request: who it is, and whether it is still there.

use std::cell::Cell;
use std::fmt;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, send};

/// How often a waiting request looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(250);

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// From this address.
    Tcp(std::net::SocketAddr),
    /// Through a Unix socket.
    Unix,
}

/// A client's connection. Lives on its thread.
#[derive(Clone)]
pub struct Client {
    /// Who is at its other end.
    pub peer: Peer,
    /// None once it is closed.
    socket: Rc<Cell<Option<RawFd>>>,
}

/// Held by the owner of the socket, and dropped before it: nobody looks at a number that may by then name
/// another socket.
pub struct Connected(Rc<Cell<Option<RawFd>>>);

// === impl Client ===

impl Client {
    /// The client at the other end of `socket`.
    pub fn new(peer: Peer, socket: RawFd) -> (Client, Connected) {
        let socket = Rc::new(Cell::new(Some(socket)));
        (Client { peer, socket: Rc::clone(&socket) }, Connected(socket))
    }

    /// Whether its connection was reset or closed. A client that only ended its own side still waits for
    /// an answer, and one that closed in good order cannot be told from it.
    pub fn is_gone(&self) -> bool {
        let Some(socket) = self.socket.get() else { return true };
        // Sending nothing sends nothing, and fails on a connection that is no more: unlike reading, it
        // does not stop at bytes that nobody has taken yet.
        let nothing = send(socket, &[], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
        matches!(nothing, Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ETIMEDOUT))
    }

    /// Returns once it is gone. Cancel safe.
    pub async fn gone(&self) {
        while !self.is_gone() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Unix => f.write_str("unix"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use socket2::SockRef;

    use super::*;

    #[tokio::test]
    async fn a_reset_client_is_gone_even_if_bytes_of_it_are_unread() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, from) = listener.accept().unwrap();
        let (client, connected) = Client::new(Peer::Tcp(from), ours.as_raw_fd());
        theirs.write_all(b"unread").unwrap();
        assert!(!client.is_gone());
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(!client.is_gone(), "it still waits for an answer");
        SockRef::from(&theirs).set_linger(Some(Duration::ZERO)).unwrap();
        drop(theirs);
        tokio::time::timeout(Duration::from_secs(30), client.gone()).await.unwrap();
        drop(connected);
        assert!(client.is_gone(), "a closed socket's number is not looked at");
    }

    #[test]
    fn a_client_of_a_unix_socket_is_gone_when_it_closed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (client, _connected) = Client::new(Peer::Unix, ours.as_raw_fd());
        assert!(!client.is_gone());
        drop(theirs);
        assert!(client.is_gone());
    }
}
