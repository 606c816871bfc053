//! The options of accepted sockets.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::write_timeout::MIN_PROGRESS_BYTES;

/// How long a connection may be silent before the operating system asks whether the peer still exists, and the pause
/// between questions.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Sets the options of an accepted socket.
///
/// After `write_timeout`, the operating system drops a peer that acknowledges nothing or accepts no data.
///
/// # Errors
/// When the operating system refuses an option; the options before it are set.
pub(super) fn configure(stream: &TcpStream, write_timeout: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    // Sends small writes immediately instead of waiting for the acknowledgement of the last one.
    socket.set_tcp_nodelay(true)?;
    let keep_alive = TcpKeepalive::new()
        .with_time(KEEP_ALIVE)
        .with_interval(KEEP_ALIVE);
    socket.set_tcp_keepalive(&keep_alive)?;
    socket.set_tcp_user_timeout(Some(write_timeout))?;
    // Limits the data that the operating system takes before it is sent. Otherwise a full buffer has megabytes, and a
    // third of them must be free before the next write; that hides how much a slow client takes.
    let unsent = u32::try_from(MIN_PROGRESS_BYTES).unwrap_or(u32::MAX);
    socket.set_tcp_notsent_lowat(unsent)
}
