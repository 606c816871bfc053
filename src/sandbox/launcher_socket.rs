//! The server's end of the socket to a launcher.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use super::launcher::server_socket::{MAX_DESCRIPTORS, MAX_MESSAGE};
use super::launcher::spec::{LauncherCommand, LauncherMessage, Spec};

/// The socket to a launcher. Dropping it ends the interpreter and everything it started.
#[derive(Debug)]
pub(super) struct LauncherSocket {
    socket: UnixStream,
    received: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl LauncherSocket {
    /// Creates a socket pair: the server's end, and the launcher's end for its descriptor 0.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = StdStream::pair()?;
        ours.set_nonblocking(true)?;
        let socket = Self {
            socket: UnixStream::from_std(ours)?,
            received: Vec::new(),
            descriptors: Vec::new(),
        };
        Ok((socket, theirs.into()))
    }

    /// Sends the launch specification.
    pub(super) async fn send(&mut self, spec: &Spec) -> io::Result<()> {
        let body = serde_json::to_vec(spec).map_err(io::Error::other)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        self.socket.write_all(&length.to_le_bytes()).await?;
        self.socket.write_all(&body).await
    }

    /// The next message and the descriptors that came with it.
    ///
    /// # Cancel safety
    /// A dropped future loses no message.
    pub(super) async fn receive(&mut self) -> io::Result<(LauncherMessage, Vec<OwnedFd>)> {
        loop {
            if let Some(message) = self.take()? {
                return Ok((message, std::mem::take(&mut self.descriptors)));
            }
            self.socket.readable().await?;
            let (received, descriptors) = (&mut self.received, &mut self.descriptors);
            let read = || read(&self.socket, received, descriptors);
            match self.socket.try_io(Interest::READABLE, read) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a command without waiting: it is far smaller than the socket's buffer, which the launcher keeps empty.
    pub(super) fn send_command(&self, command: LauncherCommand) -> io::Result<()> {
        let body = serde_json::to_vec(&command).map_err(io::Error::other)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let bytes = [&length.to_le_bytes()[..], &body].concat();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(&self.socket, &bytes, flags)? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Makes the launcher end everything.
    pub(super) fn close(&self) {
        close(&self.socket);
    }

    /// A second handle that can end everything, independently of this socket's owner.
    pub(super) fn kill_handle(&self) -> io::Result<KillHandle> {
        self.socket.as_fd().try_clone_to_owned().map(KillHandle)
    }

    /// The next complete message, if there is one.
    fn take(&mut self) -> io::Result<Option<LauncherMessage>> {
        let Some((length, rest)) = self.received.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_MESSAGE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body).map_err(|_| io::ErrorKind::InvalidData)?;
        self.received.drain(..4 + length);
        Ok(Some(message))
    }
}

impl Drop for LauncherSocket {
    fn drop(&mut self) {
        // Shut down explicitly: a remaining [`KillHandle`] would keep the connection open.
        self.close();
    }
}

/// Ends an interpreter and everything it started.
#[derive(Debug)]
pub(super) struct KillHandle(OwnedFd);

impl KillHandle {
    /// Makes the launcher end everything.
    pub(super) fn close(&self) {
        close(&self.0);
    }
}

fn close(socket: impl AsFd) {
    let _may_be_closed = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

fn read(
    socket: &UnixStream,
    received: &mut Vec<u8>,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    received.extend(bytes.iter().take(message.bytes));
    Ok(message.bytes)
}
