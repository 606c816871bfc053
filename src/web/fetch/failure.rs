//! What the errors of the client mean.

use std::error::Error;

use super::super::lookup::LookupError;
use super::super::target::Target;
use super::FetchError;

/// Why there is no answer.
pub(super) fn no_head(target: &Target, error: &reqwest::Error) -> FetchError {
    let host = target.host.clone();
    match cause::<LookupError>(error) {
        Some(LookupError::NotFound) => return FetchError::Unresolved { host },
        Some(LookupError::Forbidden) => return FetchError::Address { host },
        None => {}
    }
    if !error.is_connect() {
        return FetchError::Broken { host };
    }
    // TLS errors have no type of their own here.
    let mut causes = causes(error);
    match causes.any(|cause| cause.to_string().contains("certificate")) {
        true => FetchError::Certificate { host },
        false => FetchError::Connect { host },
    }
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let source: fn(&&'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> =
        |error| (*error).source();
    std::iter::successors(Some(error), source)
}

fn cause<E: Error + Copy + 'static>(error: &(dyn Error + 'static)) -> Option<E> {
    causes(error).find_map(|cause| cause.downcast_ref::<E>().copied())
}
