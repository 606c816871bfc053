//! The launcher's end of the socket to the server: length-prefixed JSON, with descriptors attached.

use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::de::DeserializeOwned;

use super::spec::LauncherMessage;

/// Longest message accepted, in bytes; a launch specification contains the text of the worker program. A longer one is
/// an error.
pub(crate) const MAX_MESSAGE: usize = 1024 * 1024;
/// Most descriptors with one message; sending more fails, and others that arrive are closed.
pub(crate) const MAX_DESCRIPTORS: usize = 8;

/// The socket to the server.
#[derive(Debug)]
pub(super) struct ServerSocket(UnixStream);

impl ServerSocket {
    /// Moves the socket away from descriptor 0, which becomes `/dev/null`.
    pub(super) fn from_stdin() -> io::Result<Self> {
        // Above the descriptor numbers with fixed uses in a worker.
        let socket = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 10)?;
        rustix::net::sockopt::socket_type(&socket)?;
        let null = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        rustix::stdio::dup2_stdin(null)?;
        Ok(Self(UnixStream::from(socket)))
    }

    /// Waits for the next message.
    pub(super) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_MESSAGE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        serde_json::from_slice(&body).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    pub(super) fn send(
        &mut self,
        message: &LauncherMessage,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let body = serde_json::to_vec(message).map_err(io::Error::other)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = [&length.to_le_bytes()[..], &body].concat();
        // A message is far smaller than the socket's buffer, so it is sent whole.
        let sent = rustix::net::sendmsg(
            &self.0,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    /// Another handle to the same socket, for a forked child.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    pub(super) fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for ServerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<ServerSocket> for OwnedFd {
    fn from(server: ServerSocket) -> Self {
        server.0.into()
    }
}
