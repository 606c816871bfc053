//! A model of a client and a server: the server stores a conversation, the client keeps the messages that it received.

use proptest::prelude::*;

use super::super::View;
use super::*;
use protocol::openai::message::AssistantParts;
use protocol::openai::tool::{CallKind, CallMembers, ToolCall};

/// One response of the server.
#[derive(Debug, Clone)]
struct Response {
    /// The text of each hidden round.
    rounds: Vec<&'static str>,
    /// Rounds that were stored before the process ended; the next attempt continued after them.
    broken_rounds: usize,
    text: &'static str,
    /// How many client tools are called; the client sends all results, and the next response follows.
    client_calls: usize,
    /// Whether a server-side tool is called together with the client tools; its hidden result ends the response.
    server_call: bool,
    reverse_results: bool,
}

#[derive(Debug, Clone)]
struct Turn {
    user: &'static str,
    responses: Vec<Response>,
    /// Rounds of a last response that was interrupted.
    crashed_rounds: usize,
}

/// How the client represents a response.
#[derive(Debug, Clone, Copy)]
struct Client {
    final_text_only: bool,
    as_parts: bool,
    trims: bool,
    splits_answers: bool,
}

#[derive(Debug, Default)]
struct Conversation {
    stored: StoredSession,
    /// What the client sends back.
    seen: Vec<Message>,
    /// For each message of `seen`, how many stored messages come before it.
    starts: Vec<usize>,
    next_id: usize,
}

fn word() -> impl Strategy<Value = &'static str> {
    // Few words, so that different turns often have the same text.
    prop::sample::select(vec!["a", "b", "", " a", "b\n\nb"])
}

fn response() -> impl Strategy<Value = Response> {
    (
        prop::collection::vec(word(), 0..3),
        0..2_usize,
        word(),
        prop_oneof![2 => Just(0), 1 => 1..3_usize],
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(rounds, broken_rounds, text, client_calls, server_call, reverse_results)| Response {
                rounds,
                broken_rounds,
                text,
                client_calls,
                server_call,
                reverse_results,
            },
        )
}

fn turn() -> impl Strategy<Value = Turn> {
    (
        prop::sample::select(vec!["a", "b", "c"]),
        prop::collection::vec(response(), 0..3),
        0..3_usize,
    )
        .prop_map(|(user, responses, crashed_rounds)| Turn {
            user,
            responses,
            crashed_rounds,
        })
}

fn client() -> impl Strategy<Value = Client> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(final_text_only, as_parts, trims, splits_answers)| Client {
            final_text_only,
            as_parts,
            trims,
            splits_answers,
        },
    )
}

fn conversation() -> impl Strategy<Value = Conversation> {
    (prop::collection::vec(turn(), 1..5), client())
        .prop_map(|(turns, client)| Conversation::play(&turns, client))
}

impl Conversation {
    fn play(turns: &[Turn], client: Client) -> Self {
        let mut conversation = Self::default();
        for turn in turns {
            conversation.visible(Message::text(Role::User, turn.user));
            let mut continues = true;
            for response in &turn.responses {
                if continues {
                    continues = conversation.respond(response, client);
                }
            }
            if continues {
                conversation.rounds(&vec!["r"; turn.crashed_rounds]);
            }
        }
        conversation
    }

    /// Adds a response; returns whether it called client tools, so that another response follows.
    fn respond(&mut self, response: &Response, client: Client) -> bool {
        let start = self.stored.messages.len();
        self.rounds(&vec!["lost"; response.broken_rounds]);
        self.rounds(&response.rounds);
        let client_calls = self.fresh_calls(response.client_calls);
        let server_call = response.server_call && response.client_calls > 0;
        let server_calls = self.fresh_calls(usize::from(server_call));
        let all_calls = [server_calls.clone(), client_calls.clone()].concat();
        self.store(assistant(response.text, &all_calls), server_call);
        if let Some(call) = server_calls.first() {
            self.store(Message::tool_result(&call.id, "server's"), true);
        }
        let texts = response.rounds.iter().chain([&response.text]);
        let text: Vec<&str> = texts.filter(|text| !text.is_empty()).copied().collect();
        let view = View {
            run: None,
            completion: None,
            removed: Vec::new(),
            text: text.join("\n\n"),
            final_text: response.text.into(),
            behind_wait: None,
            call_ids: client_calls.iter().map(|call| call.id.clone()).collect(),
        };
        self.show(&view, &client_calls, client, start);
        self.stored.messages.last_mut().unwrap().view = Some(view);
        let mut results: Vec<Message> = client_calls
            .iter()
            .map(|call| Message::tool_result(&call.id, "client's"))
            .collect();
        if response.reverse_results {
            results.reverse();
        }
        let asked = !results.is_empty();
        results.into_iter().for_each(|result| self.visible(result));
        asked
    }

    fn show(&mut self, view: &View, calls: &[ToolCall], client: Client, start: usize) {
        let mut text = if client.final_text_only {
            view.final_text.as_str()
        } else {
            view.text.as_str()
        };
        if client.trims {
            text = text.trim();
        }
        let mut shown = vec![assistant(text, calls)];
        if client.splits_answers && !calls.is_empty() {
            shown = vec![assistant(text, &[]), assistant("", calls)];
        } else if client.as_parts && calls.is_empty() {
            let text = serde_json::Value::from(text);
            let parts =
                format!(r#"{{"role":"assistant","content":[{{"type":"text","text":{text}}}]}}"#);
            shown = vec![Message::parse(&parts).unwrap()];
        }
        for message in shown {
            self.seen.push(message);
            self.starts.push(start);
        }
    }

    fn rounds(&mut self, texts: &[&str]) {
        for text in texts {
            let calls = self.fresh_calls(1);
            self.store(assistant(text, &calls), true);
            self.store(Message::tool_result(&calls[0].id, "result"), true);
        }
    }

    fn visible(&mut self, message: Message) {
        self.starts.push(self.stored.messages.len());
        self.seen.push(message.clone());
        self.store(message, false);
    }

    fn store(&mut self, message: Message, hidden: bool) {
        self.stored.messages.push(StoredMessage {
            hidden,
            ..StoredMessage::visible(message)
        });
    }

    fn fresh_calls(&mut self, count: usize) -> Vec<ToolCall> {
        (0..count)
            .map(|_| {
                self.next_id += 1;
                ToolCall {
                    id: format!("call_{}", self.next_id),
                    name: "f".into(),
                    arguments: "{}".into(),
                    kind: CallKind::Function,
                    members: CallMembers::default(),
                }
            })
            .collect()
    }

    fn all_stored(&self) -> Vec<Message> {
        let stored = self.stored.messages.iter();
        stored.map(|stored| stored.message.clone()).collect()
    }

    fn ends_complete(&self) -> bool {
        self.stored.messages.last().unwrap().view.is_some()
    }

    /// The session after the messages of the request were stored and before the model answered.
    fn after(&self, merged: &MergePlan) -> StoredSession {
        let mut stored = self.stored.clone();
        stored.messages.truncate(merged.keep);
        let new = merged.new.iter().cloned();
        stored.messages.extend(new.map(StoredMessage::visible));
        stored
    }
}

fn assistant(text: &str, calls: &[ToolCall]) -> Message {
    Message::assistant(&AssistantParts {
        text,
        tool_calls: calls,
        ..AssistantParts::default()
    })
}

fn new_user() -> Message {
    Message::text(Role::User, "something new")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_replay_neither_loses_nor_repeats_a_message(conversation in conversation()) {
        let mut incoming = conversation.seen.clone();
        incoming.push(new_user());
        let merged = plan(&conversation.stored, incoming, SessionMode::Replay);
        let mut expected = conversation.all_stored();
        expected.push(new_user());
        prop_assert_eq!(history(&conversation.stored, &merged), expected);
        prop_assert_eq!(&merged.new, &[new_user()]);
        let appended = plan(&conversation.stored, vec![new_user()], SessionMode::Auto);
        prop_assert_eq!(appended, merged);
    }

    #[test]
    fn a_regeneration_keeps_what_came_before(conversation in conversation()) {
        prop_assume!(conversation.ends_complete());
        let last = *conversation.starts.last().unwrap();
        let mut incoming = conversation.seen.clone();
        while conversation.starts.get(incoming.len().wrapping_sub(1)) == Some(&last) {
            incoming.pop();
        }
        let merged = plan(&conversation.stored, incoming, SessionMode::Replay);
        prop_assert_eq!(merged, MergePlan { instructions: None, keep: last, new: vec![] });
    }

    #[test]
    fn an_edit_keeps_what_came_before(
        conversation in conversation(),
        position in any::<prop::sample::Index>(),
        as_answer in any::<bool>(),
    ) {
        let position = position.index(conversation.seen.len());
        let edited = &conversation.seen[position];
        // An edited message keeps its role. Tool results are compared by call id, so their text does not matter.
        prop_assume!(edited.role() != &Role::Tool);
        // If two messages represent one response, an edit of either is an edit of the response.
        let start = conversation.starts[position];
        let position = conversation.starts.iter().position(|one| *one == start).unwrap();
        let role = edited.role().clone();
        let mut incoming = conversation.seen[..position].to_vec();
        let mut new = vec![Message::text(role, "edited")];
        if as_answer {
            new.push(assistant("answered elsewhere", &[]));
            new.push(new_user());
        }
        incoming.extend(new.clone());
        let merged = plan(&conversation.stored, incoming, SessionMode::Replay);
        prop_assert_eq!(merged, MergePlan { instructions: None, keep: start, new });
    }

    #[test]
    fn the_same_request_again_changes_nothing(
        conversation in conversation(),
        cut in any::<prop::sample::Index>(),
        adds in any::<bool>(),
    ) {
        let cut = cut.index(conversation.seen.len() + 1);
        let mut incoming = conversation.seen[..cut].to_vec();
        if adds {
            incoming.push(new_user());
        }
        let first = plan(&conversation.stored, incoming.clone(), SessionMode::Replay);
        let stored = conversation.after(&first);
        let again = plan(&stored, incoming, SessionMode::Replay);
        prop_assert_eq!(&again.new, &[]);
        prop_assert_eq!(history(&stored, &again), history(&conversation.stored, &first));
    }

    #[test]
    fn the_same_append_again_changes_nothing(conversation in conversation(), results in any::<bool>()) {
        let pending = conversation.stored.messages.iter().rev().find_map(|stored| stored.view.as_ref());
        let mut incoming: Vec<Message> = pending.iter().filter(|_| results)
            .flat_map(|view| &view.call_ids).map(|id| Message::tool_result(id, "again")).collect();
        if incoming.is_empty() {
            incoming.push(new_user());
        }
        let first = plan(&conversation.stored, incoming.clone(), SessionMode::Append);
        let stored = conversation.after(&first);
        let again = plan(&stored, incoming, SessionMode::Append);
        prop_assert_eq!(again, MergePlan { instructions: None, keep: stored.messages.len(), new: vec![] });
    }

    #[test]
    fn any_pair_of_lists_can_be_merged(
        one in conversation(),
        other in conversation(),
        mode in prop::sample::select(vec![SessionMode::Auto, SessionMode::Append, SessionMode::Replay]),
    ) {
        let merged = plan(&one.stored, other.seen.clone(), mode);
        prop_assert!(merged.keep <= one.stored.messages.len());
        prop_assert!(other.seen.ends_with(&merged.new) || mode != SessionMode::Replay);
        prop_assert_eq!(history(&one.stored, &merged).len(), merged.keep + merged.new.len());
    }
}
