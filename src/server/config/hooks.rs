//! The settings of hooks.

use super::ConfigError;
use super::file::File;
use super::file::hooks::{ApprovalWebhookSection, ApproverSection, HookSection};
use super::tools::signing_secret;
use super::validation::Validation;
use super::value::ByteSize;
use policy::hooks::settings::{HookServiceSettings, HookSettings, OnFailure, Settings};

pub(super) fn settings(file: &File, checks: &Validation<'_>) -> Result<Settings, ConfigError> {
    let hooks = file.hooks.iter().enumerate();
    let hooks = hooks.map(|(index, section)| hook(index, section, checks));
    Ok(Settings {
        hooks: hooks.collect::<Result<_, _>>()?,
        approver: (file.approver.as_ref())
            .map(|it| service_settings("approver", it, checks))
            .transpose()?,
        approval_webhook: (file.approval_webhook.as_ref())
            .map(|it| approval_webhook(it, checks))
            .transpose()?,
        certificates: checks.certificates.clone(),
    })
}

fn service_settings(
    name: &str,
    section: &ApproverSection,
    checks: &Validation<'_>,
) -> Result<HookServiceSettings, ConfigError> {
    checks.secrets.add_parts(&section.url.0);
    let (secret_env, secret_file) = (&section.secret_env, &section.secret_file);
    Ok(HookServiceSettings {
        url: section.url.0.clone(),
        headers: checks.headers(&format!("{name}.headers"), &section.headers)?,
        secret: checks.secret(
            &format!("{name}.secret"),
            secret_env.as_ref(),
            secret_file.as_ref(),
            signing_secret,
        )?,
        timeout: section.timeout.into(),
        max_answer_bytes: section.max_answer_bytes.into(),
        on_failure: section.on_failure,
    })
}

/// Only the status of its answers counts.
fn approval_webhook(
    section: &ApprovalWebhookSection,
    checks: &Validation<'_>,
) -> Result<HookServiceSettings, ConfigError> {
    let section = section.clone();
    let service = ApproverSection {
        url: section.url,
        timeout: section.timeout,
        max_answer_bytes: ByteSize::default(),
        on_failure: OnFailure::default(),
        headers: section.headers,
        secret_env: section.secret_env,
        secret_file: section.secret_file,
    };
    service_settings("approval_webhook", &service, checks)
}

fn hook(
    index: usize,
    section: &HookSection,
    checks: &Validation<'_>,
) -> Result<HookSettings, ConfigError> {
    let table = format!("hooks[{index}]");
    let tools = section.tools.as_ref().map(|patterns| {
        let patterns = patterns.iter().cloned();
        patterns.map(Into::into).collect::<Vec<String>>()
    });
    let refused = match &tools {
        Some(_) if !section.on.is_of_tools() => {
            Some("belongs to a hook on before_tool or after_tool; remove it")
        }
        Some(patterns) if patterns.is_empty() => {
            Some("names nothing; write at least one pattern, or leave it out for all tools")
        }
        Some(_) | None => None,
    };
    if let Some(problem) = refused {
        return Err(checks.error(&format!("{table}.tools"), problem));
    }
    checks.secrets.add_parts(&section.url.0);
    let (secret_env, secret_file) = (&section.secret_env, &section.secret_file);
    Ok(HookSettings {
        on: section.on,
        tools,
        service: HookServiceSettings {
            url: section.url.0.clone(),
            headers: checks.headers(&format!("{table}.headers"), &section.headers)?,
            secret: checks.secret(
                &format!("{table}.secret"),
                secret_env.as_ref(),
                secret_file.as_ref(),
                signing_secret,
            )?,
            timeout: section.timeout.into(),
            max_answer_bytes: section.max_answer_bytes.into(),
            on_failure: section.on_failure,
        },
    })
}
