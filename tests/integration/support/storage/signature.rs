//! Checks the signature of a request: AWS Signature Version 4, computed again from the request and the secret.

use hmac_sha256::HMAC;
use http::request::Parts;
use sha2::{Digest, Sha256};

use super::{ACCESS_KEY, SECRET_KEY};

/// What is wrong with the signature of a request.
pub(super) fn check(head: &Parts, body: &[u8]) -> Result<(), String> {
    let header = |name: &str| -> Result<&str, String> {
        let value = head.headers.get(name).and_then(|value| value.to_str().ok());
        value.ok_or_else(|| format!("{} {}: no {name}", head.method, head.uri))
    };
    let authorization = header("authorization")?;
    let fields = authorization
        .strip_prefix("AWS4-HMAC-SHA256 ")
        .ok_or("not signed with version 4")?;
    let field = |name: &str| {
        let found = fields
            .split(',')
            .find_map(|field| field.trim().strip_prefix(name));
        found.ok_or_else(|| format!("no {name} in {fields}"))
    };
    let scope = field("Credential=")?
        .strip_prefix(&format!("{ACCESS_KEY}/"))
        .ok_or("signed with another key")?;
    let [date, region, "s3", "aws4_request"] = scope.split('/').collect::<Vec<_>>()[..] else {
        return Err(format!("the scope is {scope}"));
    };
    let payload = header("x-amz-content-sha256")?;
    if payload != hex(&Sha256::digest(body)) {
        return Err("the digest of the content is not that of the content".to_owned());
    }
    let names = field("SignedHeaders=")?;
    let headers: Result<String, String> = names
        .split(';')
        .map(|name| Ok(format!("{name}:{}\n", header(name)?.trim())))
        .collect();
    let mut query: Vec<&str> = head.uri.query().unwrap_or_default().split('&').collect();
    query.sort_unstable();
    let query: Vec<String> = query
        .into_iter()
        .map(|pair| match pair.contains('=') || pair.is_empty() {
            true => pair.to_owned(),
            false => format!("{pair}="),
        })
        .collect();
    let canonical = format!(
        "{}\n{}\n{}\n{}\n{names}\n{payload}",
        head.method,
        head.uri.path(),
        query.join("&"),
        headers?,
    );
    let time = header("x-amz-date")?;
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    let signed = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
    let secret = format!("AWS4{SECRET_KEY}");
    let key = [date, region, "s3", "aws4_request"]
        .iter()
        .fold(secret.into_bytes(), |key, text| {
            HMAC::mac(text.as_bytes(), &key).to_vec()
        });
    let expected = hex(&HMAC::mac(signed.as_bytes(), &key));
    match field("Signature=")? == expected {
        true => Ok(()),
        false => Err(format!(
            "{} {}: the signature is wrong",
            head.method, head.uri
        )),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
