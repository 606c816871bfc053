//! How a change affects the suspended turn of its session.

use super::super::approval::ApprovalQuestion;
use super::super::record::TurnChange;
use super::super::tx::signed;
use super::connect::Statement;

/// A turn, and the columns of its questions.
#[derive(Default)]
pub(super) struct TurnColumns<'a> {
    turn: Option<&'a [u8]>,
    ids: Vec<&'a str>,
    runs: Vec<&'a str>,
    rounds: Vec<i64>,
    tool_calls: Vec<&'a [u8]>,
    tools: Vec<&'a [u8]>,
    arguments: Vec<&'a [u8]>,
    digests: Vec<&'a str>,
    scopes: Vec<&'a [u8]>,
    reasons: Vec<Option<&'a [u8]>>,
    rules: Vec<Option<&'a [u8]>>,
    expire_at: Vec<i64>,
    sizes: Vec<i64>,
}

impl<'a> TurnColumns<'a> {
    /// The columns of the turn that a change stores; empty if it ends the turn.
    pub(super) fn of(change: &'a TurnChange) -> Self {
        let mut columns = Self::default();
        if let Some((turn, questions)) = change.kept() {
            columns.turn = Some(turn.as_bytes());
            questions.iter().for_each(|question| columns.add(question));
        }
        columns
    }

    fn add(&mut self, question: &'a ApprovalQuestion) {
        self.ids.push(question.id.as_str());
        self.runs.push(question.run.as_str());
        self.rounds.push(question.round.into());
        self.tool_calls.push(question.tool_call_id.as_bytes());
        self.tools.push(question.tool.as_bytes());
        self.arguments.push(question.arguments.as_bytes());
        self.digests.push(&question.digest);
        self.scopes.push(question.scope.as_bytes());
        self.reasons
            .push(question.reason.as_ref().map(String::as_bytes));
        self.rules
            .push(question.rule.as_ref().map(String::as_bytes));
        self.expire_at.push(question.expires_micros());
        self.sizes.push(signed(question.bytes()));
    }

    /// Adds them to the arguments of a statement.
    pub(super) fn bind<'q>(&'q self, statement: Statement<'q>) -> Statement<'q> {
        statement
            .bind(self.turn)
            .bind(&self.ids)
            .bind(&self.runs)
            .bind(&self.rounds)
            .bind(&self.tool_calls)
            .bind(&self.tools)
            .bind(&self.arguments)
            .bind(&self.digests)
            .bind(&self.scopes)
            .bind(&self.reasons)
            .bind(&self.rules)
            .bind(&self.expire_at)
            .bind(&self.sizes)
    }
}
