//! The attempts of a model call: the first, those at other upstreams, and those after an answer broke off.

use std::time::{Duration, Instant};

use super::super::AgentError;
use super::super::event::Notice;
use super::super::machine::Offer;
use super::super::traced::ModelSpan;
use super::super::turn::TurnRequest;
use super::refusal::refused_addition;
use super::{ActiveModelCall, ModelCallContext, ModelCallStep};
use crate::metrics::{Metrics, ModelOutcome};
use protocol::openai::fold::FoldedFields;
use upstream::assemble::ReplyAssembler;
use upstream::fail_over::FailOver;
use upstream::learned::LearnedQuirk;
use upstream::{ModelCall, UpstreamError};

impl ActiveModelCall {
    /// Makes the call. Resolves when an upstream has answered it with a success status. Also returns a notice for each retry.
    ///
    /// # Errors
    /// The last error when no retry is left.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub(in super::super) async fn open(
        context: &mut ModelCallContext<'_>,
        call: ModelCall,
        offer: Offer,
        span: Option<Box<ModelSpan>>,
    ) -> Result<(Self, Vec<Notice>), AgentError> {
        let route = context.request.route.clone();
        let mut fail_over = context.router.fail_over(route);
        let opened = Self::open_with(context, call, offer, &mut fail_over).await;
        let active = match (opened, span) {
            (Ok(active), span) => Self { span, ..active },
            (Err(error), span) => {
                if let Some(span) = span {
                    span.failed(&error, &fail_over);
                }
                return Err(error);
            }
        };
        let notices = (0..active.fail_over.retries()).map(|_| retry_notice());
        let notices = notices.collect();
        Ok((active, notices))
    }

    async fn open_with(
        context: &mut ModelCallContext<'_>,
        mut call: ModelCall,
        offer: Offer,
        fail_over: &mut FailOver,
    ) -> Result<Self, AgentError> {
        let ModelCallContext {
            router,
            metrics,
            request,
            prompt,
        } = context;
        let learned = router.learned();
        // What this upstream has refused of the call.
        let mut refused = Vec::new();
        let (stream, began) = loop {
            let upstream = fail_over.upstream().clone();
            let knows = |quirk| learned.knows(quirk, &*upstream, &call.model);
            let lacks = |quirk| refused.contains(&quirk) || knows(quirk);
            call.streams = !lacks(LearnedQuirk::Stream);
            call.sends_stream_options = !lacks(LearnedQuirk::StreamOptions);
            if offer.is_final() && lacks(LearnedQuirk::WithheldTools) {
                remove_tools(&mut call, request);
            }
            call.transcript = prompt.for_candidate(fail_over.candidate());
            let began = Instant::now();
            let error = match upstream.stream(&call).await {
                Ok(stream) => break (stream, began),
                Err(error) => error,
            };
            count(metrics, upstream.name(), outcome(&error), began);
            if let Some(quirk) = refused_addition(&error, offer, &call, upstream.quirks()) {
                refused.push(quirk);
                continue;
            }
            let candidate = fail_over.candidate();
            fail_over.recover(error).await?;
            metrics.upstream_retried(upstream.name());
            if fail_over.candidate() != candidate {
                refused.clear();
            }
        };
        let upstream = fail_over.upstream();
        // The server takes the call without what it has refused. Whether it also answers is not known yet.
        for quirk in refused {
            if quirk != LearnedQuirk::WithheldTools {
                learned.learn(quirk, &**upstream, &call.model);
            }
        }
        let assembler = ReplyAssembler::new(upstream.quirks().split_names);
        Ok(Self {
            stream,
            fail_over: fail_over.clone(),
            call,
            offer,
            began,
            passed_on: false,
            is_shown: false,
            assembler,
            buffered: Vec::new(),
            of_message: FoldedFields::default(),
            of_choice: FoldedFields::default(),
            span: None,
        })
    }

    /// Retries the call after its answer broke off, if no part of the answer was passed on.
    pub(super) async fn retry(
        &mut self,
        context: &mut ModelCallContext<'_>,
        error: UpstreamError,
        waited: &mut Duration,
    ) -> Result<ModelCallStep, AgentError> {
        let metrics = context.metrics;
        count(
            metrics,
            self.fail_over.upstream().name(),
            outcome(&error),
            self.began,
        );
        if self.passed_on {
            return Err(error.into());
        }
        let waiting_since = Instant::now();
        let failed = self.fail_over.upstream().clone();
        self.fail_over.recover(error).await?;
        metrics.upstream_retried(failed.name());
        let call = self.call.clone();
        let opened = Self::open_with(context, call, self.offer, &mut self.fail_over).await;
        *waited += waiting_since.elapsed();
        let opened = opened?;
        *self = Self {
            span: self.span.take(),
            ..opened
        };
        Ok(ModelCallStep::Retried(retry_notice()))
    }
}

/// Adds a finished model call to the metrics.
pub(super) fn count(metrics: &Metrics, upstream: &str, outcome: ModelOutcome, began: Instant) {
    metrics.model_call_finished(upstream, outcome, began.elapsed());
}

/// The outcome of a failed call for the metrics.
fn outcome(error: &UpstreamError) -> ModelOutcome {
    match error {
        UpstreamError::Connect { .. } => ModelOutcome::Unreachable,
        UpstreamError::Timeout { .. } => ModelOutcome::TimedOut,
        UpstreamError::Status { status, .. } => ModelOutcome::of_status(*status),
        UpstreamError::InStream { .. } | UpstreamError::Incomplete { .. } => ModelOutcome::Failed,
        UpstreamError::Broken { .. } | UpstreamError::Malformed { .. } => ModelOutcome::Broken,
        UpstreamError::RequestBody => ModelOutcome::Cancelled,
    }
}

fn retry_notice() -> Notice {
    Notice {
        kind: "retry".into(),
        message: "the model server failed and was asked again".to_owned(),
    }
}

/// Takes the tools out of a call.
fn remove_tools(call: &mut ModelCall, request: &TurnRequest) {
    (call.tools, call.tool_choice) = (None, None);
    call.fields = request.call.fields_without_tools.clone();
}
