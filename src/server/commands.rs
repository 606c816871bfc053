//! The commands besides `serve`.
//!
//! | module | owns |
//! |---|---|
//! | [`manual`] | the reference by subject, which `loopwright manual` prints |
//! | [`client`] | asking a running server, for the commands that do so |
//! | [`health`] | asks whether a server is well |
//! | [`launch`] | starts a coding agent against a server |
//! | [`approvals`] | the command that shows a person what waits on a running server, and decides |
//! | [`copies`] | backs up and copies session stores |
//! | [`demo`] | the scripted model, the sample tool and the tour |

pub mod approvals;
pub(crate) mod client;
pub mod copies;
pub mod demo;
pub mod health;
pub mod launch;
pub mod manual;
