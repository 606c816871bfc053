//! Reading pages: what is kept of realistic ones, and what hostile ones can do.

#[path = "corpus.rs"]
mod corpus;
mod hostile;
