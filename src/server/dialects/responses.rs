//! The dialect of `/v1/responses`: decoding a request's body into a turn, and encoding the events of a turn as items.
//!
//! A model server only ever sees chat completions. A body is decoded into the same draft as a chat request; members
//! that only this dialect has are in [`decode::ResponseOptions`], for the encoder.
//!
//! - **Input.** Items become messages. A round of the model is one assistant message: its text, its reasoning if the client
//!   gives back an `encrypted_content` of this server, and its calls. Calls of hosted tools become calls with their results.
//!   Leading instructions are joined into one message.
//! - **Tools.** A custom tool is offered as a function with one text, and the functions of a namespace as
//!   `<namespace>__<name>`; [`decode::names::ToolNames`] finds the way back.
//! - **Output.** Each round's text is a message item of its own. A server-side call is a hosted item that no client mistakes
//!   for a call of its own: a search is a `web_search_call`, code a `code_interpreter_call`, anything else an `mcp_call`.
//!   The client's own calls are a `function_call` or `custom_tool_call`. The items of a batch stand in the order of the model.
//! - **Ids.** An item's id consists of the run's id and the item's index, so that it leads back to the run.
//!
//! It does not depend on connections, status codes and stores.

pub(crate) mod answer;
pub(crate) mod conversation;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod items;
pub(crate) mod objects;
