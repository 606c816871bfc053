//! Signatures of the requests of replicas and of the heads of their answers: the headers of Standard Webhooks over what
//! is asked, of whom, for whom, and the digest of the body (RFC 9530). The address is signed too, so a request to
//! another replica is not valid here. Clocks may differ by five minutes. For that time, an attacker who reads the
//! network can repeat a request.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
};

use crate::sign;
use protocol::ids::{Owner, fresh_delivery_id};

/// The digest of a body.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");

/// The key that all replicas have.
pub(super) struct ClusterKey(Webhook);

/// What a replica is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    /// The path with the query.
    pub(super) path: &'a str,
    /// The URL of the replica that is asked.
    pub(super) address: &'a str,
    pub(super) owner: &'a str,
}

/// A request that was signed with the key.
#[derive(Debug, Clone)]
pub struct SignedRequest {
    id: String,
    owner: Owner,
    digest: String,
}

impl SignedRequest {
    /// The owner on whose behalf it is sent.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whether this is the body that was signed.
    pub fn has_body(&self, body: &[u8]) -> bool {
        self.digest == digest_of(body)
    }
}

impl ClusterKey {
    pub(super) fn new(key: &SecretString) -> Option<Self> {
        let key = key.expose_secret().as_bytes().to_vec();
        Webhook::from_bytes(key).ok().map(Self)
    }

    pub(super) fn sign_request(
        &self,
        asked: Asked<'_>,
        body: &[u8],
        headers: &mut HeaderMap,
    ) -> SignedRequest {
        let request = SignedRequest {
            id: fresh_delivery_id(),
            owner: Owner::key(asked.owner),
            digest: digest_of(body),
        };
        if let Ok(digest) = HeaderValue::try_from(&request.digest) {
            headers.insert(CONTENT_DIGEST, digest);
        }
        let text = request_text(asked, &request.digest);
        // What could not be signed is refused where it is checked.
        let _signed = sign(&self.0, &request.id, text.as_bytes(), headers);
        request
    }

    /// The request if its signature is right.
    pub(super) fn check_request(
        &self,
        asked: Asked<'_>,
        headers: &HeaderMap,
    ) -> Option<SignedRequest> {
        let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::to_owned);
        let digest = text(&CONTENT_DIGEST)?;
        let signed = request_text(asked, &digest);
        self.0.verify(signed.as_bytes(), headers).ok()?;
        Some(SignedRequest {
            id: text(&HeaderName::from_static(HEADER_WEBHOOK_ID))?,
            owner: Owner::key(asked.owner),
            digest,
        })
    }

    /// Signs the head of an answer.
    pub(super) fn sign_answer(
        &self,
        request: &SignedRequest,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        // An answer without a signature is refused where it is checked.
        let _signed = sign(
            &self.0,
            &request.id,
            answer_text(status).as_bytes(),
            headers,
        );
    }

    /// Removes the signature from the head of an answer. Returns whether it is valid for an answer to this request.
    pub(super) fn take_signature(
        &self,
        request: &SignedRequest,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) -> bool {
        let verified = self.0.verify(answer_text(status).as_bytes(), headers);
        let id = headers.remove(HEADER_WEBHOOK_ID);
        headers.remove(HEADER_WEBHOOK_TIMESTAMP);
        headers.remove(HEADER_WEBHOOK_SIGNATURE);
        verified.is_ok() && id.is_some_and(|id| id.as_bytes() == request.id.as_bytes())
    }
}

/// What is signed of a request. No part can hold a line break.
fn request_text(asked: Asked<'_>, digest: &str) -> String {
    let Asked {
        method,
        path,
        address,
        owner,
    } = asked;
    format!("request\n{method}\n{path}\n{address}\n{owner}\n{digest}")
}

/// What is signed of an answer.
fn answer_text(status: StatusCode) -> String {
    format!("answer\n{}", status.as_u16())
}

fn digest_of(body: &[u8]) -> String {
    format!("sha-256=:{}:", STANDARD.encode(Sha256::digest(body)))
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    fn key(text: &str) -> ClusterKey {
        ClusterKey::new(&text.to_owned().into()).unwrap()
    }

    const ASKED: Asked<'static> = Asked {
        method: &Method::POST,
        path: "/v1/responses/resp_1/cancel?now=1",
        address: "http://replica-1:8081",
        owner: "alice",
    };

    #[test]
    fn a_request_counts_for_what_was_asked_alone() {
        let mut headers = HeaderMap::new();
        key("a key").sign_request(ASKED, b"{}", &mut headers);
        let found = key("a key").check_request(ASKED, &headers).unwrap();
        assert_eq!(found.owner(), &Owner::key("alice"));
        assert!(found.has_body(b"{}"));
        assert!(!found.has_body(b"[]"));
        assert!(!found.has_body(b""));
        let get = Method::GET;
        for other in [
            Asked {
                method: &get,
                ..ASKED
            },
            Asked {
                path: "/v1/responses/resp_2/cancel?now=1",
                ..ASKED
            },
            Asked {
                path: "/v1/responses/resp_1/cancel",
                ..ASKED
            },
            Asked {
                address: "http://replica-2:8081",
                ..ASKED
            },
            Asked {
                owner: "bob",
                ..ASKED
            },
            Asked { owner: "", ..ASKED },
        ] {
            assert!(
                key("a key").check_request(other, &headers).is_none(),
                "{other:?}"
            );
        }
        assert!(key("a kez").check_request(ASKED, &headers).is_none());
        for (name, value) in [
            (CONTENT_DIGEST.as_str(), digest_of(b"[]")),
            (HEADER_WEBHOOK_ID, "msg_1".to_owned()),
            (HEADER_WEBHOOK_TIMESTAMP, "1700000000".to_owned()),
            (HEADER_WEBHOOK_TIMESTAMP, "now".to_owned()),
            (HEADER_WEBHOOK_SIGNATURE, "v1,".to_owned()),
            (HEADER_WEBHOOK_SIGNATURE, String::new()),
        ] {
            let mut changed = headers.clone();
            let name = HeaderName::from_static(name.to_owned().leak());
            changed.insert(name.clone(), value.try_into().unwrap());
            assert!(
                key("a key").check_request(ASKED, &changed).is_none(),
                "{name}"
            );
            changed.remove(&name);
            assert!(
                key("a key").check_request(ASKED, &changed).is_none(),
                "no {name}"
            );
        }
    }

    #[test]
    fn an_old_request_does_not_count() {
        let mut headers = HeaderMap::new();
        let text = request_text(ASKED, &digest_of(b""));
        headers.insert(CONTENT_DIGEST, digest_of(b"").try_into().unwrap());
        headers.insert(HEADER_WEBHOOK_ID, HeaderValue::from_static("msg_1"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = i64::try_from(now.as_secs()).unwrap();
        for (at, counts) in [(now - 60, true), (now - 400, false), (now + 400, false)] {
            let signature = key("a key").0.sign("msg_1", at, text.as_bytes()).unwrap();
            headers.insert(HEADER_WEBHOOK_TIMESTAMP, at.into());
            headers.insert(HEADER_WEBHOOK_SIGNATURE, signature.try_into().unwrap());
            let found = key("a key").check_request(ASKED, &headers);
            assert_eq!(found.is_some(), counts, "{}", at - now);
        }
    }

    #[test]
    fn an_answer_is_of_the_replica_that_was_asked_this() {
        let mut asked = HeaderMap::new();
        let first = key("a key").sign_request(ASKED, b"", &mut asked);
        let second = key("a key").sign_request(ASKED, b"", &mut HeaderMap::new());
        let mut answer = HeaderMap::new();
        key("a key").sign_answer(&first, StatusCode::OK, &mut answer);
        let taken = |request, status, mut headers: HeaderMap| {
            let right = key("a key").take_signature(request, status, &mut headers);
            assert!(!headers.contains_key(HEADER_WEBHOOK_SIGNATURE));
            right
        };
        assert!(taken(&first, StatusCode::OK, answer.clone()));
        assert!(!taken(&first, StatusCode::ACCEPTED, answer.clone()));
        assert!(!taken(&second, StatusCode::OK, answer));
        // The request's own signature, sent back.
        assert!(!taken(&first, StatusCode::OK, asked));
        assert!(!taken(&first, StatusCode::OK, HeaderMap::new()));
    }
}
