//! The items of a session: what requests brought, and what responses answered.
//!
//! Items are made of one message or answer at a time, so that a page takes no more memory than the session and the page.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::super::AppState;
use super::super::error::ApiError;
use super::super::extract::{Order, OrderedQuery, PageCollector};
use super::super::reads;
use crate::dialects::responses::encode::{ItemText, as_response, output_items};
use crate::dialects::responses::items::{
    ItemSource, ItemSourceKind, PlacedItem, TurnMessages, input_sources, instruction, items_at,
    scope, sources,
};
use crate::dialects::responses::objects::ItemPage;
use agent::runs::RunAnswer;
use agent::session::StoredSession;
use net::polling::taking_apart;
use protocol::ids::{Owner, RunId, SessionId};
use protocol::openai::message::Role;
use quota::ReservedMemory;

/// The items of a session, or those that the request of one run brought; each is made when it is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionItems<'a> {
    pub(super) state: &'a AppState,
    pub(super) owner: &'a Owner,
    pub(super) id: &'a SessionId,
    pub(super) session: &'a StoredSession,
}

impl SessionItems<'_> {
    /// The page of all items that a query asks for, in the order of the conversation. More memory is reserved for what
    /// is read besides the session.
    ///
    /// # Errors
    /// When the query is not valid, the memory is in use for too long, or the store fails.
    pub(super) async fn page(
        self,
        query: &OrderedQuery,
        memory: &mut ReservedMemory,
    ) -> Result<ItemPage, ApiError> {
        let (turns, scope) = (TurnMessages::all(self.session), scope(self.id));
        let sources = sources(self.session, &turns, &scope);
        self.page_of(sources, query, memory).await
    }

    /// The page of the items that the request of a run brought.
    ///
    /// # Errors
    /// As [`Self::page`].
    pub(super) async fn page_of_input(
        self,
        run: &RunId,
        query: &OrderedQuery,
        memory: &mut ReservedMemory,
    ) -> Result<ItemPage, ApiError> {
        let turns = TurnMessages::all(self.session);
        let sources = input_sources(self.session, &turns, run);
        self.page_of(sources, query, memory).await
    }

    async fn page_of(
        self,
        mut sources: Vec<ItemSource<'_>>,
        query: &OrderedQuery,
        memory: &mut ReservedMemory,
    ) -> Result<ItemPage, ApiError> {
        let mut page: PageCollector<ItemText> = query.collector(Order::Descending)?;
        let is_descending = page.order() == Order::Descending;
        if is_descending {
            sources.reverse();
        }
        for source in sources {
            let (before, kept) = (memory.bytes(), page.len());
            let mut made = self.made(&source, memory).await?;
            if is_descending {
                made.reverse();
            }
            let bytes = made
                .iter()
                .map(|placed| placed.item.json().get().len())
                .sum::<usize>();
            let ended = offer(&mut page, made.into_iter().map(|placed| placed.item));
            let kept = if page.len() > kept { bytes as u64 } else { 0 };
            memory.shrink_to(before.saturating_add(kept));
            if ended.is_break() {
                break;
            }
        }
        let (items, has_more) = page.finish()?;
        Ok(ItemPage::of(items, has_more))
    }

    /// All items of the message or answer that has a wanted item.
    ///
    /// # Errors
    /// When the memory is in use for too long, or the store fails.
    pub(super) async fn beside(
        self,
        is_wanted: impl Fn(&PlacedItem) -> bool,
        memory: &mut ReservedMemory,
    ) -> Result<Option<Vec<PlacedItem>>, ApiError> {
        let (turns, scope) = (TurnMessages::all(self.session), scope(self.id));
        for source in sources(self.session, &turns, &scope) {
            let before = memory.bytes();
            let made = self.made(&source, memory).await?;
            if made.iter().any(&is_wanted) {
                return Ok(Some(made));
            }
            memory.shrink_to(before);
        }
        Ok(None)
    }

    /// The items of what the session did not hold when it had these numbers of instructions and messages.
    ///
    /// # Errors
    /// As [`Self::beside`].
    pub(super) async fn after(
        self,
        instructions: usize,
        messages: usize,
        memory: &mut ReservedMemory,
    ) -> Result<Vec<ItemText>, ApiError> {
        let (turns, scope) = (TurnMessages::all(self.session), scope(self.id));
        let mut items = Vec::new();
        for source in sources(self.session, &turns, &scope) {
            let is_new = match &source.kind {
                ItemSourceKind::Instruction(index) => *index >= instructions,
                ItemSourceKind::Input { index, .. } | ItemSourceKind::Unknown(_, index) => {
                    *index >= messages
                }
                ItemSourceKind::Answer(turn, _) => turn.start >= messages,
            };
            if is_new {
                let made = self.made(&source, memory).await?;
                items.extend(made.into_iter().map(|placed| placed.item));
            }
        }
        Ok(items)
    }

    /// Gives each of its items to `visit`: those that the requests of `runs` brought, or without these all.
    ///
    /// # Errors
    /// As [`Self::beside`].
    pub(super) async fn visit(
        self,
        runs: Option<&BTreeSet<RunId>>,
        memory: &mut ReservedMemory,
        mut visit: impl FnMut(ItemText) -> Result<(), ApiError>,
    ) -> Result<(), ApiError> {
        let (turns, scope) = (TurnMessages::all(self.session), scope(self.id));
        let sources = match runs {
            Some(runs) => {
                let of_run = runs.iter();
                of_run
                    .flat_map(|run| input_sources(self.session, &turns, run))
                    .collect()
            }
            None => sources(self.session, &turns, &scope),
        };
        for source in sources {
            let before = memory.bytes();
            for placed in self.made(&source, memory).await? {
                visit(placed.item)?;
            }
            memory.shrink_to(before);
        }
        Ok(())
    }

    /// Makes the items of a message or an answer.
    async fn made(
        self,
        source: &ItemSource<'_>,
        memory: &mut ReservedMemory,
    ) -> Result<Vec<PlacedItem>, ApiError> {
        let scope = source.scope;
        Ok(match &source.kind {
            ItemSourceKind::Instruction(index) => {
                let message = self.session.instructions.get(*index);
                message.map_or_else(Vec::new, |message| instruction(message, scope, *index))
            }
            ItemSourceKind::Input {
                stored,
                number,
                index,
            } => {
                let message = &stored.message;
                taking_apart(message.json().len(), || {
                    items_at(message, scope, *number, *index)
                })
            }
            ItemSourceKind::Answer(turn, run) => self.answer(turn, run, memory).await?,
            ItemSourceKind::Unknown(turn, index) => turn.answer(*index, scope),
        })
    }

    async fn answer(
        self,
        turn: &TurnMessages<'_>,
        run: &RunId,
        memory: &mut ReservedMemory,
    ) -> Result<Vec<PlacedItem>, ApiError> {
        if let Some(answer) =
            reads::shown_answer_within(self.state, self.owner, run, memory).await?
            && let Some(response) = response_of(run, &answer).await
            && let Some(output) = taking_apart(response.len(), || output_items(&response))
        {
            return Ok(turn.answered(output));
        }
        // The response itself is not stored any more.
        let answers = turn.messages.iter().enumerate().filter(|(_, stored)| {
            let is_answer = stored.hidden || stored.view.is_some();
            is_answer && *stored.message.role() == Role::Assistant
        });
        let items = answers.flat_map(|(index, _)| turn.answer(turn.start + index, run.as_str()));
        Ok(items.collect())
    }
}

fn offer(
    page: &mut PageCollector<ItemText>,
    items: impl Iterator<Item = ItemText>,
) -> ControlFlow<()> {
    for item in items {
        page.offer(item, |item, id| item.id == id)?;
    }
    ControlFlow::Continue(())
}

/// The response that a run has ended with; `None` after an error.
pub(super) async fn response_of(run: &RunId, answer: &RunAnswer) -> Option<String> {
    if !answer.status.is_success() {
        return None;
    }
    let body = answer
        .body
        .clone()
        .without_lost()
        .await
        .whole()
        .await
        .ok()?;
    let text = std::str::from_utf8(&body).ok()?;
    taking_apart(text.len(), || as_response(run, text))
}
