//! Replaces PostgreSQL in a program that is built without it. No value of these types is ever made.

#![expect(
    clippy::unused_async,
    reason = "the functions have the signatures of those that they stand for"
)]

use std::convert::Infallible;
use std::time::Duration;

use secrecy::SecretString;
use tokio_util::task::TaskTracker;

use super::StoreError;
use super::clock::ExpiryTime;
use super::copy::CopyError;
use super::lease::Lease;
use super::leases::Fence;
use super::record::{Change, Replaced, SessionSummary};
use super::replica::OtherReplica;
use super::shares::StatementSize;
use super::tx::SqlValue;
use protocol::ids::{Owner, RunId, SessionId};

/// See the module of the same name in a program with PostgreSQL.
#[derive(Debug, Clone)]
pub(super) struct Postgres(Infallible);

/// The URL of a PostgreSQL database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresUrl(Infallible);

#[derive(Debug)]
pub(super) struct PostgresTx(Infallible);

#[derive(Debug)]
pub(super) struct PgRow(Infallible);

#[derive(Debug)]
pub(super) struct RowHold(Infallible);

#[derive(Debug)]
pub(super) struct CopyLock(Infallible);

impl PostgresUrl {
    /// Refuses every URL.
    ///
    /// # Errors
    /// Always: this program is built without PostgreSQL.
    pub fn parse(_text: &str) -> Result<Self, String> {
        Err("this program is built without PostgreSQL; write sqlite:PATH, or build it with the feature postgres".to_owned())
    }

    /// The passwords in it.
    pub fn passwords(&self) -> Vec<SecretString> {
        match self.0 {}
    }

    /// The host and the database.
    pub fn location(&self) -> &str {
        match self.0 {}
    }
}

impl CopyLock {
    pub(super) fn release(self) {
        match self.0 {}
    }
}

impl RowHold {
    pub(super) async fn release(self) {
        match self.0 {}
    }
}

pub(super) fn is_passing(_error: &StoreError) -> bool {
    false
}

pub(super) fn is_null(row: &PgRow, _index: usize) -> Result<bool, StoreError> {
    match row.0 {}
}

pub(super) fn integer(row: &PgRow, _index: usize) -> Result<i64, StoreError> {
    match row.0 {}
}

pub(super) fn text(row: &PgRow, _index: usize) -> Result<String, StoreError> {
    match row.0 {}
}

pub(super) fn column<T>(row: &PgRow, _index: usize) -> Result<T, StoreError> {
    match row.0 {}
}

/// Methods of a value that is never made.
macro_rules! never {
    ($(async fn $name:ident(&$($self:ident)+ $(, $argument:ident: $type:ty)* $(,)?) $(-> $output:ty)?;)*) => {
        $(pub(super) async fn $name(&$($self)+ $(, _: $type)*) $(-> $output)? {
            never!(@ $($self)+)
        })*
    };
    (@ mut $self:ident) => { match $self.0 {} };
    (@ $self:ident) => { match $self.0 {} };
}

impl PostgresTx {
    never! {
        async fn rows(&mut self, sql: &'static str, values: &[SqlValue<'_>]) -> Result<Vec<PgRow>, StoreError>;
        async fn dynamic(&mut self, sql: &str, values: &[SqlValue<'_>]) -> Result<Vec<PgRow>, StoreError>;
    }

    pub(super) async fn commit(self) -> Result<(), StoreError> {
        match self.0 {}
    }
}

impl Postgres {
    never! {
        async fn acquire(&self, owner: &Owner, id: &SessionId, wait: Duration) -> Result<Lease, StoreError>;
        async fn advance_expiry(&self) -> Result<(), StoreError>;
        async fn announce(&self, address: &str) -> Result<(), StoreError>;
        async fn begin(&self, owner: &Owner, size: StatementSize) -> Result<PostgresTx, StoreError>;
        async fn close(&self);
        async fn expiry_time(&self) -> Result<ExpiryTime, StoreError>;
        async fn is_served(&self) -> Result<bool, StoreError>;
        async fn mark_leased(&self, owner: &Owner, page: &mut [SessionSummary]) -> Result<(), StoreError>;
        async fn renew(&self, fence: &Fence) -> Result<(), StoreError>;
        async fn replica_of_run(&self, owner: &Owner, run: &RunId) -> Result<Option<OtherReplica>, StoreError>;
        async fn replica_of_session(&self, owner: &Owner, id: &SessionId) -> Result<Option<OtherReplica>, StoreError>;
        async fn set_expiry_time(&self, time: ExpiryTime) -> Result<(), StoreError>;
        async fn snapshot(&self) -> Result<PostgresTx, StoreError>;
        async fn write(
            &self, fence: &Fence, change: (&Change, Option<i64>), most: (u64, u64)
        ) -> Result<Result<(Replaced, u64), u64>, StoreError>;
    }

    pub(super) async fn open(url: &PostgresUrl) -> Result<Self, StoreError> {
        match url.0 {}
    }

    pub(super) async fn check(url: &PostgresUrl) -> Result<(), StoreError> {
        match url.0 {}
    }

    pub(super) async fn attach(url: &PostgresUrl) -> Result<Self, StoreError> {
        match url.0 {}
    }

    pub(super) async fn lock_for_copy(url: &PostgresUrl) -> Result<(Self, CopyLock), CopyError> {
        match url.0 {}
    }

    #[cfg(test)]
    pub(super) async fn shift_clock(&self, _seconds: i64) {
        match self.0 {}
    }

    pub(super) fn was_upgraded(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn share_connections(&self, _shared: bool) {
        match self.0 {}
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        match self.0 {}
    }

    pub(super) fn replica(&self) -> &str {
        match self.0 {}
    }

    pub(super) fn single(&self, _owner: &Owner, _size: StatementSize) -> PostgresTx {
        match self.0 {}
    }
}
