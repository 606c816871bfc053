//! Ends suspended turns as cancelled. No turn is opened for that: the unanswered calls get results, and the events of
//! the whole answer are sent.

use std::collections::VecDeque;
use std::time::Duration;

use http::HeaderMap;

use super::call::{Call, CallAnswer, CallState};
use super::conversation::take_suspended;
use super::event::{AgentEvent, Outcome, RoundEnd, ToolCallRecord};
use super::said::replayed;
use super::stop::{StopReason, TurnEnd};
use super::suspended_turn::SuspendedTurn;
use super::transcript::AnswerText;
use super::{Agent, AgentError, citations};
use crate::session::{Change, StoredMessage, StoredSession, TurnChange, View, interrupted_results};
use protocol::ids::{Owner, RunId, SessionId};
use tools::cited_sources::CitedSources;
use tools::refusal::CallRefusal;

/// What ends a suspended turn: the messages that the session lacks, and the events of the answer.
struct EndOfTurn {
    messages: Vec<StoredMessage>,
    events: Vec<AgentEvent>,
}

impl Agent {
    /// Ends the suspended turn of a run as cancelled, and returns the events of its answer; `None` if the session has
    /// no such turn any more. A turn that another version has stored, and that cannot be read, ends without its earlier
    /// answer.
    ///
    /// # Errors
    /// When another turn of the session runs, or the store fails.
    pub async fn end_suspended(
        &self,
        owner: &Owner,
        session: &SessionId,
        run: &RunId,
    ) -> Result<Option<Vec<AgentEvent>>, AgentError> {
        let sessions = &self.parts.sessions;
        let lease = sessions.lease(owner, session).await?;
        if sessions
            .store
            .suspended_run_of(owner, session)
            .await?
            .as_ref()
            != Some(run)
        {
            return Ok(None);
        }
        let Some(mut stored) = sessions.store.load(owner, session).await? else {
            return Ok(None);
        };
        let end = match take_suspended(&mut stored) {
            Some(suspended) => self.end_of(suspended, &stored, owner, run).await,
            None => EndOfTurn {
                messages: interrupted_results(&stored, |_| CallRefusal::interrupted(false).text),
                events: vec![
                    started(),
                    AgentEvent::Finished(Box::new(Outcome::cancelled())),
                ],
            },
        };
        let change = Change {
            keep: stored.messages.len(),
            append: end.messages,
            run: Some(run.clone()),
            turn: TurnChange::End,
            ..Change::default()
        };
        let written = sessions.write(&lease, change).await;
        written.map_err(|failed| AgentError::Session(failed.error))?;
        let mut events = end.events;
        if let Some(AgentEvent::Finished(outcome)) = events.last_mut() {
            outcome.session_id = Some(session.clone());
        }
        Ok(Some(events))
    }

    /// What ends a turn whose state is known.
    async fn end_of(
        &self,
        mut suspended: SuspendedTurn,
        stored: &StoredSession,
        owner: &Owner,
        run: &RunId,
    ) -> EndOfTurn {
        suspended.find_results(&stored.messages);
        let machine = &mut suspended.state.machine;
        let cancelled = cancel_calls(&mut suspended.batch.calls, machine.rounds());
        let outcomes: Vec<_> = suspended.batch.calls.iter().map(Call::outcome).collect();
        // Counts the round; the next decision is not used.
        let _next = machine.after_batch(&outcomes);
        let (rounds, model_calls) = (machine.rounds(), machine.model_calls());
        let figures = suspended.said.figures();
        let mut said = suspended.said;
        let reported = said.events.split_off(said.from.min(said.events.len()));
        let files = &self.parts.sessions.files;
        let mut events = vec![started()];
        events.extend(replayed(reported, suspended.results, files, owner).await);
        events.extend(
            cancelled
                .into_iter()
                .map(|call| AgentEvent::Complete(Box::new(call))),
        );
        let keep = suspended.draft.is_some_and(|draft| draft.options.keep);
        let id = run.as_str().to_owned();
        let view = View {
            text: figures.text.joined,
            final_text: figures.text.last_round,
            run: keep.then(|| id.clone()),
            completion: (!keep).then_some(id),
            ..View::default()
        };
        // The assistant message with the calls is stored already.
        let results = suspended.batch.into_results().messages.into_iter().skip(1);
        let mut messages: Vec<StoredMessage> = results.collect();
        if let Some(last) = messages.last_mut() {
            last.view = Some(view);
        }
        let all = stored.messages.iter().chain(&messages);
        let sources = all.flat_map(|message| message.sources.iter().cloned());
        let sources = CitedSources::of(sources.collect::<Vec<_>>());
        let mut text = AnswerText::new(said.citations, &sources);
        let own = said.own;
        text.continues(own.text);
        let mut rest = VecDeque::new();
        text.send_rest(&mut rest);
        events.extend(rest);
        events.push(AgentEvent::RoundEnded(RoundEnd {
            has_calls: false,
            calls: Vec::new(),
            citations: text.round_citations(&sources),
        }));
        let found = text.linked_citations().unwrap_or_else(|| {
            let text = match said.last_text_only {
                true => text.last_round(),
                false => text.joined(),
            };
            citations::find(text, |number| sources.find(number))
        });
        if !found.is_empty() {
            events.push(AgentEvent::Annotations(found));
        }
        let end = TurnEnd::Stopped(StopReason::Cancelled);
        self.parts.metrics.turn_ended(rounds, end.as_str());
        let before = said.before;
        events.push(AgentEvent::Finished(Box::new(Outcome {
            usage: own.usage,
            usage_by_round: own.usage_by_round,
            rounds: rounds.saturating_sub(before.rounds),
            model_calls: model_calls.saturating_sub(before.model_calls),
            notices: own.notices,
            ..Outcome::cancelled()
        })));
        EndOfTurn { messages, events }
    }
}

/// Answers the calls that have no result, and returns their records for the client.
fn cancel_calls(calls: &mut [Call], round: u32) -> Vec<ToolCallRecord> {
    let mut reported = Vec::new();
    for (index, call) in calls.iter_mut().enumerate() {
        if call.answer().is_some() {
            continue;
        }
        let refusal = call.cancelled();
        if call.shown() {
            reported.push(ToolCallRecord {
                index,
                round,
                tool_call_id: call.call.id.clone(),
                name: call.call.name.clone(),
                arguments: call.call.arguments.clone(),
                content: refusal.text.clone(),
                status: refusal.status,
                duration: Duration::ZERO,
                images: Vec::new(),
                frames: Vec::new(),
                file_ids: Vec::new(),
                repairs: call
                    .repairs
                    .iter()
                    .map(|repair| repair.as_str().to_owned())
                    .collect(),
                edited: false,
                kind: call.kind,
                detail: None,
            });
        }
        call.state = CallState::Answered(Box::new(CallAnswer::refused(&refusal)));
    }
    reported
}

fn started() -> AgentEvent {
    AgentEvent::Started {
        headers: HeaderMap::new(),
    }
}
