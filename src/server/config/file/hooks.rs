//! `[[hooks]]`, `[approver]` and `[approval_webhook]`: the services that are asked or notified.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::text::{NamePattern, ServiceUrl, VariableName};
use crate::config::value::{ByteSize, Headers, MIB, Seconds};
use policy::hooks::settings::{HookPoint, OnFailure};

/// One entry of `[[hooks]]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct HookSection {
    pub(in crate::config) on: HookPoint,
    pub(in crate::config) url: ServiceUrl,
    /// By default all tools.
    pub(in crate::config) tools: Option<Vec<NamePattern>>,
    #[serde(default)]
    pub(in crate::config) timeout: Seconds<10_000>,
    #[serde(default)]
    pub(in crate::config) max_answer_bytes: ByteSize<1, MIB>,
    #[serde(default)]
    pub(in crate::config) on_failure: OnFailure,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub(in crate::config) headers: Headers,
    pub(in crate::config) secret_env: Option<VariableName>,
    pub(in crate::config) secret_file: Option<PathBuf>,
}

/// `[approver]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct ApproverSection {
    pub(in crate::config) url: ServiceUrl,
    #[serde(default)]
    pub(in crate::config) timeout: Seconds<10_000>,
    #[serde(default)]
    pub(in crate::config) max_answer_bytes: ByteSize<1, MIB>,
    #[serde(default)]
    pub(in crate::config) on_failure: OnFailure,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub(in crate::config) headers: Headers,
    pub(in crate::config) secret_env: Option<VariableName>,
    pub(in crate::config) secret_file: Option<PathBuf>,
}

/// `[approval_webhook]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct ApprovalWebhookSection {
    pub(in crate::config) url: ServiceUrl,
    #[serde(default)]
    pub(in crate::config) timeout: Seconds<10_000>,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub(in crate::config) headers: Headers,
    pub(in crate::config) secret_env: Option<VariableName>,
    pub(in crate::config) secret_file: Option<PathBuf>,
}
