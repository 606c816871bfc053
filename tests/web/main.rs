//! Reading pages: what is kept of realistic ones, and what hostile ones can do.

mod corpus;
mod hostile;
