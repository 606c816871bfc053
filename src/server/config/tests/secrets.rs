//! What is hidden in results of tools.

use super::*;

/// What is left of these words, one after another.
fn shown(text: &str, words: &[&str]) -> Vec<String> {
    let redactor = load(text).unwrap().redactor.unwrap();
    let shown = words.iter().map(|word| redactor.redact(word).into_owned());
    shown.collect()
}

fn all_hidden(text: &str, secrets: &[&str]) {
    assert_eq!(shown(text, secrets), vec!["[hidden]"; secrets.len()]);
}

fn none_hidden(text: &str, words: &[&str]) {
    assert_eq!(shown(text, words), words);
}

#[test]
fn secrets_of_every_kind_are_hidden() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "from-a-file\n").unwrap();
    let text = format!(
        "dispatch_secret_env = \"DISPATCH_SECRET\"\ntool_dispatch_url = \"http://t/run?token=of-the-url\"\n\
         dispatch_headers = {{ authorization = {{ env = \"DISPATCH_AUTHORIZATION\" }}, x-team = \"the-search-team\" }}\n\
         [[upstreams]]\nname = \"u\"\nbase_url = \"http://u/v1\"\napi_key_env = \"GPU_API_KEY\"\n\
         headers = {{ x-goog-api-key = \"in-the-file\", x-extra = {{ file = {file:?} }} }}\n\
         [search]\n[[search.providers]]\nname = \"brave\"\napi_key_env = \"BRAVE_API_KEY\"\n\
         [[api_keys]]\nname = \"alice\"\nenv = \"ALICE_API_KEY\"\n"
    );
    all_hidden(
        &text,
        &[
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "of-the-url",
            "Bearer dispatch-secret",
            "dispatch-secret",
            "gpu-secret",
            "in-the-file",
            "from-a-file",
            "brave-secret",
            "alice-0123456789abcdef",
        ],
    );
    none_hidden(&text, &["the-search-team", "upstream-secret", "Bearer"]);
}

#[test]
fn it_can_be_switched_off() {
    assert!(load(UPSTREAM).unwrap().redactor.is_some());
    let off = format!("redact_secrets = false\n{UPSTREAM}");
    assert!(load(&off).unwrap().redactor.is_none());
}

#[test]
fn files_that_are_no_secrets_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("schema.json");
    let content = "{\"type\":\"object\"}";
    std::fs::write(&schema, content).unwrap();
    let tool = format!(
        "{UPSTREAM}[[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://t/\"\nparameters_file = {schema:?}"
    );
    none_hidden(&tool, &[content]);
}

#[test]
#[cfg_attr(not(feature = "postgres"), ignore = "needs the feature")]
fn passwords_of_the_store_and_the_cluster_key_are_hidden() {
    let text = format!(
        "{UPSTREAM}session_store = \"postgres://user-of-it:of%2Dthe-store@h/db\"\nfiles_dir = \"files\"\n\
         cluster_listen = \"127.0.0.1:8081\"\ncluster_key_env = \"CLUSTER_KEY\"\n"
    );
    all_hidden(&text, &["of-the-store", "cluster-secret-0123456789"]);
    none_hidden(&text, &["user-of-it"]);
}

#[test]
#[cfg_attr(not(feature = "mcp"), ignore = "needs the feature")]
fn secrets_of_mcp_servers_are_hidden_and_their_places_and_modes_are_not() {
    let text = format!(
        "{UPSTREAM}[mcp_servers.near]\ncommand = \"run\"\n\
         args = [\"postgres://u:in-an-argument@h/d\", \"--token\", \"${{FILES_TOKEN}}\"]\n\
         env = {{ API_KEY = \"in-the-environment\", MODE = \"production\", OTHER = {{ env = \"GPU_API_KEY\" }} }}\n\
         [mcp_servers.far]\nurl = \"http://far/mcp?key=in-the-query\"\nbearer_token = \"of-the-bearer\"\n\
         headers = {{ x-region = \"eu-central-1\", x-api-key = \"in-a-header\" }}\n\
         [mcp_servers.other]\nurl = \"http://other/mcp\"\n\
         oauth = {{ client_id = \"the-client\", client_secret = \"of-the-client\", token_url = \"http://i/t\" }}\n"
    );
    all_hidden(
        &text,
        &[
            "in-an-argument",
            "files-secret",
            "in-the-environment",
            "gpu-secret",
            "in-the-query",
            "of-the-bearer",
            "in-a-header",
            "of-the-client",
        ],
    );
    none_hidden(&text, &["production", "eu-central-1", "the-client"]);
}

#[test]
#[cfg_attr(not(feature = "s3"), ignore = "needs the feature")]
fn keys_of_object_storage_are_hidden() {
    let file = TestFile::new(&format!("{UPSTREAM}files_dir = \"s3://files/a\"\n"));
    let env = |name: &str| {
        let value = match name {
            "AWS_ACCESS_KEY_ID" => "id-of-the-key",
            "AWS_SECRET_ACCESS_KEY" => "the-key-itself",
            "AWS_REGION" => "eu-central-1",
            _ => return None,
        };
        Some(value.to_owned())
    };
    let redactor = Config::load(&file.flags(), &env).unwrap().redactor.unwrap();
    assert_eq!(redactor.redact("the-key-itself"), "[hidden]");
    for word in ["id-of-the-key", "eu-central-1"] {
        assert_eq!(redactor.redact(word), word);
    }
}
