//! Resolves names for connections. All addresses are checked, and only checked addresses are connected to.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::is_public;
use super::error::ResolveError;
use super::target::UrlPolicy;
use crate::acting;
use protocol::ids::Owner;
use quota::FairSemaphore;

/// Most look-ups at the same time; others wait, and one owner alone has half of them. Each occupies a thread until the
/// system's resolver returns, even if its caller is gone, so a name that is never answered holds its permit for many
/// seconds.
/// Tried by `fetch::limits::look_ups_of_one_owner_leave_room_for_others`.
pub(super) const MAX_LOOKUPS: usize = 64;
/// Most addresses of a host that are tried; others are left out.
/// Tried by `resolver::one_forbidden_address_is_enough`.
const MAX_ADDRESSES: usize = 8;

/// The resolver of the guarded client, used once for each connection to a name. Addresses in URLs are not resolved;
/// [`UrlPolicy::target`] checks them.
pub(super) struct GuardedResolver {
    policy: Arc<UrlPolicy>,
    lookups: FairSemaphore,
    /// On whose behalf names are resolved, if it is the same for all of them.
    owner: Option<Owner>,
}

impl GuardedResolver {
    pub(super) fn new(policy: Arc<UrlPolicy>, lookups: FairSemaphore) -> Self {
        Self {
            policy,
            lookups,
            owner: None,
        }
    }

    /// A resolver on behalf of one owner, whichever task asks.
    pub(super) fn for_owner(self, owner: &Owner) -> Self {
        Self {
            owner: Some(owner.clone()),
            ..self
        }
    }
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let is_private = self.policy.is_private(&name);
        let owner = self.owner.clone().unwrap_or_else(acting::owner);
        let lookups = self.lookups.clone();
        Box::pin(async move {
            let permit = lookups.acquire(&owner).await;
            let looking = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                look_up(&name, is_private)
            });
            let addresses = looking.await??;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn look_up(name: &str, is_private: bool) -> Result<Vec<SocketAddr>, ResolveError> {
    // A dot at the end makes the name absolute. The search domains of this machine, which can lead into its own
    // network, are then not appended.
    let whole = match is_private {
        true => name.to_owned(),
        false => format!("{name}."),
    };
    let found = (whole.as_str(), 0).to_socket_addrs();
    let found = found.map_err(|_| ResolveError::NotFound)?;
    check(found.collect(), is_private)
}

/// Refuses a name if one of its addresses is forbidden: names with public and private addresses are used for DNS
/// rebinding.
fn check(
    mut addresses: Vec<SocketAddr>,
    is_private: bool,
) -> Result<Vec<SocketAddr>, ResolveError> {
    if addresses.is_empty() {
        return Err(ResolveError::NotFound);
    }
    if !is_private && !addresses.iter().all(|address| is_public(address.ip())) {
        return Err(ResolveError::Forbidden);
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
        assert_eq!(check(public.clone(), false), Ok(public));
        for mixed in [
            &["93.184.216.34:0", "10.0.0.5:0"][..],
            &["10.0.0.5:0", "93.184.216.34:0"],
            &["93.184.216.34:0", "[::ffff:10.0.0.5]:0"],
            &["93.184.216.34:0", "[fd00::5]:0"],
        ] {
            let mixed = addresses(mixed);
            assert_eq!(check(mixed.clone(), false), Err(ResolveError::Forbidden));
            assert_eq!(check(mixed.clone(), true), Ok(mixed));
        }
        assert_eq!(check(Vec::new(), true), Err(ResolveError::NotFound));
        let mut many = addresses(&["93.184.216.34:0"; 20]);
        assert_eq!(check(many.clone(), false).unwrap().len(), MAX_ADDRESSES);
        // An address beyond those that are tried counts too.
        many.extend(addresses(&["127.0.0.1:0"]));
        assert_eq!(check(many, false), Err(ResolveError::Forbidden));
    }
}
