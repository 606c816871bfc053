//! The address for other replicas.

use super::*;

const STORE: &str = "session_store = \"postgres://h/db\"\nfiles_dir = \"files\"\n";
const KEY: &str = "cluster_key_env = \"CLUSTER_KEY\"\n";

fn listen(address: &str) -> String {
    format!("cluster_listen = \"{address}\"\n")
}

#[test]
fn replicas_have_an_address_a_url_and_a_key() {
    let text = format!("{UPSTREAM}{STORE}{KEY}{}", listen("127.0.0.1:8081"));
    let cluster = load(&text).unwrap().cluster.unwrap();
    assert_eq!(cluster.listen.port(), 8081);
    assert_eq!(cluster.url, None);
    assert_eq!(cluster.key.expose_secret(), "cluster-secret-0123456789");
    let url = "cluster_url = \"http://replica-1:8081/\"\n";
    let text = format!("{UPSTREAM}{STORE}{KEY}{url}{}", listen("0.0.0.0:8081"));
    let config = load(&text).unwrap();
    let given = config.cluster.clone().unwrap().url.unwrap();
    assert_eq!(given.as_str(), "http://replica-1:8081/");
    let shown = config.summary() + &format!("{config:?}");
    assert!(!shown.contains("-secret"), "{shown}");
    assert!(load(UPSTREAM).unwrap().cluster.is_none());
}

#[test]
fn a_store_that_no_other_replica_can_use_needs_no_address() {
    let config = load(&format!("{UPSTREAM}{KEY}{}", listen("127.0.0.1:8081"))).unwrap();
    assert!(config.cluster.is_none());
    assert!(
        config
            .notices
            .iter()
            .any(|notice| notice.contains("cluster_listen")),
        "{:?}",
        config.notices
    );
}

#[test]
fn an_address_that_others_cannot_use_is_refused() {
    let with = |lines: &str| format!("{UPSTREAM}{STORE}{lines}");
    let any = listen("0.0.0.0:8081");
    check(
        &with(&format!("{KEY}{any}")),
        "cluster_listen",
        "cluster_url",
    );
    let any = listen("[::]:8081");
    check(
        &with(&format!("{KEY}{any}")),
        "cluster_listen",
        "http://replica-1:8081",
    );
    let one = listen("127.0.0.1:8081");
    check(&with(&one), "cluster_listen", "cluster_key_env");
    for (variable, part) in [
        ("SHORT_KEY", "openssl rand"),
        ("SPACED_KEY", "visible ASCII"),
        ("EMPTY", "is not set"),
    ] {
        let key = format!("cluster_key_env = \"{variable}\"\n");
        check(&with(&format!("{key}{one}")), "cluster_key_env", part);
    }
    check(&with(KEY), "cluster_key_env", "--cluster-listen");
    let url = "cluster_url = \"http://h:1\"\n";
    check(&with(url), "cluster_url", "--cluster-listen");
}
