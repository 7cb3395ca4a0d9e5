//! Tells systemd how a service is doing.
//!
//! # Reference
//! sd_notify(3): datagrams to the socket in NOTIFY_SOCKET, a path or an abstract name after `@`.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state` if somebody listens. That nobody does is no fault of ours.
pub(super) fn notify(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = send(&socket, state)
    {
        super::term::say(&format!("NOTIFY_SOCKET does not take {state:?}: {error}"));
    }
}

fn send(socket: &OsString, state: &str) -> io::Result<()> {
    let address = match socket.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
