//! Connections of owners to servers: opened at the first use, closed when idle.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::CallToolResult;
use tokio::time::{Instant, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::connector::Connector;
use super::failure::RequestFailure;
use super::process::ProcessUser;
use crate::ToolInvocation;
use protocol::ids::Owner;
use quota::heaviest;

/// Longest time between two looks for idle connections.
const MAX_SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Shortest time between two looks for idle connections.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// How long nothing is started for an owner after a start that failed. Calls fail meanwhile.
const FAILED_PAUSE: Duration = Duration::from_secs(2);

/// The connections of owners.
#[derive(Debug)]
pub(super) struct Instances {
    limits: InstanceLimits,
    slots: Mutex<HashMap<InstanceKey, Slot>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

/// How many connections there are, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct InstanceLimits {
    /// Most connections.
    pub(super) max: usize,
    /// Most connections of one owner.
    pub(super) max_per_owner: usize,
    /// How long an unused connection stays open.
    pub(super) idle_ttl: Duration,
}

/// The owner and the server of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct InstanceKey {
    pub(super) owner: Owner,
    pub(super) server: ServerKey,
}

/// A server among the servers that share a pool of connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ServerKey {
    /// The only one.
    Configured,
    /// One of a request: the digest of its URL and headers.
    Requested([u8; 32]),
}

/// The connection of one owner, and its use.
#[derive(Debug)]
struct Slot {
    instance: Arc<Instance>,
    calls: usize,
    last_used: Instant,
}

/// The connection of one owner.
#[derive(Debug, Default)]
struct Instance {
    /// Held while the connection is opened, so that it is opened once.
    connection: tokio::sync::Mutex<InstanceState>,
}

#[derive(Debug, Default)]
enum InstanceState {
    #[default]
    Closed,
    Open(Arc<Connection>),
    Failed(Instant, RequestFailure),
}

/// The right to use a connection. While it exists the connection is not idle.
#[derive(Debug)]
pub(super) struct InstanceLease<'a> {
    connection: Arc<Connection>,
    hold: Hold<'a>,
}

/// Counts a call of an owner.
#[derive(Debug)]
struct Hold<'a> {
    instances: &'a Instances,
    key: InstanceKey,
    instance: Arc<Instance>,
}

impl fmt::Debug for ServerKey {
    /// Without the digest, from which weak secrets could be guessed.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Configured => "Configured",
            Self::Requested(_) => "Requested",
        })
    }
}

impl Instances {
    pub(super) fn new(
        limits: InstanceLimits,
        tasks: TaskTracker,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            limits,
            slots: Mutex::default(),
            tasks,
            shutdown,
        }
    }

    /// The connection of an owner, opened if there is none.
    ///
    /// # Errors
    /// When it cannot be opened, or all connections are in use.
    pub(super) async fn lease(
        &self,
        key: &InstanceKey,
        connector: &Connector,
        user: ProcessUser<'_>,
    ) -> Result<InstanceLease<'_>, RequestFailure> {
        let hold = self.hold(key)?;
        let mut state = hold.instance.connection.lock().await;
        let connection = match &*state {
            InstanceState::Open(connection) if !connection.is_ended() => connection.clone(),
            InstanceState::Failed(when, failure) if when.elapsed() < FAILED_PAUSE => {
                return Err(failure.clone());
            }
            InstanceState::Open(_) | InstanceState::Closed | InstanceState::Failed(..) => {
                let limit = connector.handshake_timeout;
                let opened = timeout(limit, connector.connect(user)).await;
                let opened = opened.unwrap_or_else(|_| {
                    let text = format!("it did not start within {} s", limit.as_secs_f64());
                    Err(RequestFailure::Unreachable(text))
                });
                match opened {
                    Ok(connection) => {
                        let connection = Arc::new(connection);
                        *state = InstanceState::Open(connection.clone());
                        connection
                    }
                    Err(failure) => {
                        *state = InstanceState::Failed(Instant::now(), failure.clone());
                        return Err(failure);
                    }
                }
            }
        };
        drop(state);
        Ok(InstanceLease { connection, hold })
    }

    /// Counts a use, in place of an idle connection if there are too many.
    fn hold(&self, key: &InstanceKey) -> Result<Hold<'_>, RequestFailure> {
        let unreachable = |text: &str| Err(RequestFailure::Unreachable(text.to_owned()));
        if self.shutdown.is_cancelled() {
            return unreachable("the process is stopping");
        }
        let mut slots = self.slots.lock();
        if !slots.contains_key(key) {
            let of_owner = |other: &InstanceKey| other.owner == key.owner;
            let own = slots.keys().filter(|other| of_owner(other)).count();
            let is_full = slots.len() >= self.limits.max;
            let makes_way = match (own >= self.limits.max_per_owner, is_full) {
                (true, _) => Some(longest_idle(&slots, of_owner).ok_or(
                    "as many connections of this caller are in use as it can have; try again later",
                )),
                (false, true) => {
                    let owner = largest_idle(&slots);
                    let longest = longest_idle(&slots, |other| Some(&other.owner) == owner);
                    Some(longest.ok_or("it serves as many callers as it can; try again later"))
                }
                (false, false) => None,
            };
            match makes_way.transpose() {
                Ok(Some(longest)) => {
                    if let Some(slot) = slots.remove(&longest) {
                        self.close(slot.instance);
                    }
                }
                Ok(None) => {}
                Err(text) => return unreachable(text),
            }
        }
        let slot = slots.entry(key.clone()).or_insert_with(|| Slot {
            instance: Arc::default(),
            calls: 0,
            last_used: Instant::now(),
        });
        slot.calls += 1;
        Ok(Hold {
            instances: self,
            key: key.clone(),
            instance: slot.instance.clone(),
        })
    }

    /// The number of open connections.
    pub(super) fn count(&self) -> usize {
        self.slots.lock().len()
    }

    fn close(&self, instance: Arc<Instance>) {
        self.tasks.spawn(async move {
            instance.close().await;
        });
    }

    /// Closes idle connections until the shutdown, and then all.
    pub(super) async fn sweep(&self) {
        let idle_ttl = self.limits.idle_ttl;
        let every = (idle_ttl / 4).clamp(MIN_SWEEP_INTERVAL, MAX_SWEEP_INTERVAL);
        let mut ticks = interval(every);
        while let Some(_tick) = self.shutdown.run_until_cancelled(ticks.tick()).await {
            let idle = |slot: &Slot| slot.calls == 0 && slot.last_used.elapsed() >= idle_ttl;
            let mut slots = self.slots.lock();
            for (_, slot) in slots.extract_if(|_, slot| idle(slot)) {
                self.close(slot.instance);
            }
        }
        let slots = std::mem::take(&mut *self.slots.lock());
        let closing = slots
            .into_values()
            .map(|slot| async move { slot.instance.close().await });
        futures_util::future::join_all(closing).await;
    }
}

/// The owner with the most connections, of those that have an unused one.
fn largest_idle(slots: &HashMap<InstanceKey, Slot>) -> Option<&Owner> {
    let idle = slots.iter().filter(|(_, slot)| slot.calls == 0);
    let owners: HashSet<&Owner> = idle.map(|(key, _)| &key.owner).collect();
    let all = slots.keys().map(|key| &key.owner);
    let counted = all.filter(|owner| owners.contains(owner));
    heaviest(counted.map(|owner| (owner, 1)))
}

/// The connection that has been unused for longest, among some.
fn longest_idle(
    slots: &HashMap<InstanceKey, Slot>,
    among: impl Fn(&InstanceKey) -> bool,
) -> Option<InstanceKey> {
    let idle = slots
        .iter()
        .filter(|(key, slot)| slot.calls == 0 && among(key));
    let longest = idle.min_by_key(|(_, slot)| slot.last_used);
    longest.map(|(key, _)| key.clone())
}

impl Instance {
    async fn close(&self) {
        let state = std::mem::take(&mut *self.connection.lock().await);
        if let InstanceState::Open(connection) = state {
            connection.close().await;
        }
    }
}

impl InstanceLease<'_> {
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Calls a tool. A connection that cannot be used any more is closed.
    ///
    /// # Errors
    /// When there is no result.
    pub(super) async fn call(
        self,
        tool: &str,
        invocation: &ToolInvocation,
    ) -> Result<CallToolResult, RequestFailure> {
        let result = self.connection.call(tool, invocation).await;
        if let Err(failure) = &result
            && (failure.ends_connection() || failure.may_have_lost_session())
        {
            self.give_up().await;
        }
        result
    }

    /// Closes a connection that cannot be used any more, so that the next call opens another.
    pub(super) async fn give_up(self) {
        let mut state = self.hold.instance.connection.lock().await;
        if let InstanceState::Open(current) = &*state
            && Arc::ptr_eq(current, &self.connection)
        {
            *state = InstanceState::Closed;
        }
        drop(state);
        self.connection.close().await;
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut slots = self.instances.slots.lock();
        if let Some(slot) = slots.get_mut(&self.key)
            && Arc::ptr_eq(&slot.instance, &self.instance)
        {
            slot.calls = slot.calls.saturating_sub(1);
            slot.last_used = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_owner_with_most_connections_makes_way_for_others() {
        let limits = InstanceLimits {
            max: 5,
            max_per_owner: 4,
            idle_ttl: Duration::from_secs(60),
        };
        let instances = Instances::new(limits, TaskTracker::new(), CancellationToken::new());
        let key = |owner: &str, server: u8| InstanceKey {
            owner: Owner::key(owner),
            server: ServerKey::Requested([server; 32]),
        };
        let used = |owner: &str, server| drop(instances.hold(&key(owner, server)).unwrap());
        used("bob", 0);
        for server in 0..4 {
            used("alice", server);
        }
        used("carol", 0);
        let kept = |owner: &str| {
            let slots = instances.slots.lock();
            let of_owner = slots.keys().filter(|key| key.owner == Owner::key(owner));
            of_owner.count()
        };
        assert_eq!(["alice", "bob", "carol"].map(kept), [3, 1, 1]);
        // Connections in use do not make way.
        let alices = (1..4).map(|server| instances.hold(&key("alice", server)).unwrap());
        let alices: Vec<_> = alices.collect();
        used("dave", 0);
        assert_eq!(["alice", "bob", "dave"].map(kept), [3, 0, 1]);
        drop(alices);
    }
}
