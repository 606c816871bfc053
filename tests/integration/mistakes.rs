//! What people get wrong first, and what loopwright says to it.

mod dispatch;
mod refusals;
