//! Why a request failed, and the remedy.

use std::error::Error;

/// The message of the last error in the chain. The errors before it may contain the URL.
pub fn cause_of(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// What the operator can do about the certificate of a server, if that is why a request failed.
pub fn certificate_remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    // The library for TLS is known to the HTTP library only. Its errors are the last of the chain.
    let text = cause_of(error);
    let remedies = [
        (
            "UnknownIssuer",
            "the server's certificate is of an unknown issuer; set ca_file to the issuer's CA certificate",
        ),
        (
            "CaUsedAsEndEntity",
            "the server presents a CA certificate as its own; issue a server certificate for it",
        ),
    ];
    let remedy = remedies.iter().find(|(name, _)| text.contains(name));
    remedy.map(|(_, remedy)| *remedy)
}
