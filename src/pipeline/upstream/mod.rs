//! Connections to stores: where they lead, how they are made, and a pool of idle ones for each thread.

mod connect;
mod io;
mod pool;

pub use connect::{ConnectError, Endpoint};
pub use io::UpstreamIo;
pub use pool::{Checkout, Connection, Pool};
