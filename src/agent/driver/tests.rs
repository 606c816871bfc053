//! A turn that waits in the middle of a batch: one process stores it, another one finishes it.

mod parked;
mod process;
