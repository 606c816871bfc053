//! Decoder of event streams.
