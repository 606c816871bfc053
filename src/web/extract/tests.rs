//! Tests of reading pages.
