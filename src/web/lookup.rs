//! Looking up names for connections: what comes out is checked, and is exactly what is connected to.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use super::address::is_public;
use super::target::Policy;

/// Most look-ups at the same time: each takes a thread for as long as the system's resolver is willing to wait, even
/// when nobody waits for it any more.
const MAX_LOOKUPS: usize = 32;
/// Most addresses of a host that are tried.
const MAX_ADDRESSES: usize = 8;

/// The resolver of the client. It is asked once for each connection; the client never looks anything up itself, and
/// connects to addresses in URLs without asking, which [`Policy::target`] has judged by then.
pub(super) struct Lookup {
    policy: Arc<Policy>,
    turns: Arc<Semaphore>,
}

/// Why a name was not connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum LookupError {
    /// It has no address.
    #[error("the name has no address")]
    NotFound,
    /// One of its addresses at least is not on the public internet.
    #[error("the name has an address that may not be connected to")]
    Forbidden,
}

impl Lookup {
    pub(super) fn new(policy: Arc<Policy>) -> Self {
        Self {
            policy,
            turns: Arc::new(Semaphore::new(MAX_LOOKUPS)),
        }
    }
}

impl Resolve for Lookup {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let is_private = self.policy.is_private(&name);
        let turns = Arc::clone(&self.turns);
        Box::pin(async move {
            let turn = turns.acquire_owned().await?;
            let looking = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                look_up(&name, is_private)
            });
            let addresses = looking.await??;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn look_up(name: &str, is_private: bool) -> Result<Vec<SocketAddr>, LookupError> {
    // With the dot at its end the name is whole: the search domains of this machine, which lead into its own network,
    // are not appended to it.
    let whole = match is_private {
        true => name.to_owned(),
        false => format!("{name}."),
    };
    let found = (whole.as_str(), 0).to_socket_addrs();
    let found = found.map_err(|_| LookupError::NotFound)?;
    judge(found.collect(), is_private)
}

/// A name with public and private addresses is no oversight but an attempt to be looked up once as the one and once as
/// the other, so a single forbidden address is enough.
fn judge(mut addresses: Vec<SocketAddr>, is_private: bool) -> Result<Vec<SocketAddr>, LookupError> {
    if addresses.is_empty() {
        return Err(LookupError::NotFound);
    }
    if !is_private && !addresses.iter().all(|address| is_public(address.ip())) {
        return Err(LookupError::Forbidden);
    }
    addresses.truncate(MAX_ADDRESSES);
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_forbidden_address_is_enough() {
        let addresses = |written: &[&str]| {
            let addresses = written.iter().map(|address| address.parse().unwrap());
            addresses.collect::<Vec<SocketAddr>>()
        };
        let public = addresses(&["93.184.216.34:0", "[2606:4700::1111]:0"]);
        assert_eq!(judge(public.clone(), false), Ok(public));
        for mixed in [
            &["93.184.216.34:0", "10.0.0.5:0"][..],
            &["10.0.0.5:0", "93.184.216.34:0"],
            &["93.184.216.34:0", "[::ffff:10.0.0.5]:0"],
            &["93.184.216.34:0", "[fd00::5]:0"],
        ] {
            let mixed = addresses(mixed);
            assert_eq!(judge(mixed.clone(), false), Err(LookupError::Forbidden));
            assert_eq!(judge(mixed.clone(), true), Ok(mixed));
        }
        assert_eq!(judge(Vec::new(), true), Err(LookupError::NotFound));
        let mut many = addresses(&["93.184.216.34:0"; 20]);
        assert_eq!(judge(many.clone(), false).unwrap().len(), MAX_ADDRESSES);
        // Beyond those that would be tried, too.
        many.extend(addresses(&["127.0.0.1:0"]));
        assert_eq!(judge(many, false), Err(LookupError::Forbidden));
    }
}
