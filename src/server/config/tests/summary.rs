//! What `check-config` prints.

use super::*;

#[test]
fn what_check_config_prints_is_a_file_with_the_same_settings() {
    for text in [
        UPSTREAM.to_owned(),
        format!("{UPSTREAM}session_store = \"memory:\"\nmax_seconds = \"90s\"\nkeep_alive = 0.5"),
        format!(
            "{UPSTREAM}tool_dispatch_url = \"http://t/run\"\ndispatch_tools = [\"*\"]\ndispatch_timeout = 7\n[[tools]]\nname = \"t\"\ndescription = \"d\"\n\
             parameters = {{ type = \"object\", properties = {{ a = {{ type = \"string\" }} }} }}"
        ),
        format!(
            "{UPSTREAM}enable_search = true\nsearch_provider = \"brave\"\n[search]\nembedding_model = \"e\""
        ),
        format!("{UPSTREAM}enable_code_execution = true\nupstream_api_key_env = \"GPU_API_KEY\""),
    ] {
        let config = load(&text).unwrap();
        let summary = config.summary();
        let again = load(summary.strip_prefix("configuration is valid\n").unwrap()).unwrap();
        assert_eq!(again.summary(), summary);
        assert_eq!(format!("{:?}", again.agent), format!("{:?}", config.agent));
        assert_eq!(format!("{:?}", again.web), format!("{:?}", config.web));
        let tools = format!("{:?}", config.tools.http_tools);
        assert_eq!(format!("{:?}", again.tools.http_tools), tools);
    }
}

#[test]
fn a_tool_without_a_url_has_the_limits_of_the_dispatch_url_unless_it_has_its_own() {
    let dispatch = "tool_dispatch_url = \"http://t/run\"\ndispatch_timeout = 7\ndispatch_max_retries = 5\ndispatch_idempotent = true";
    let tool = "[[tools]]\nname = \"t\"\ndescription = \"d\"\nmax_retries = 1";
    let config = load(&format!("{UPSTREAM}{dispatch}\n{tool}")).unwrap();
    let tool = &config.tools.http_tools[0];
    assert_eq!(tool.endpoint.url.as_str(), "http://t/run");
    assert_eq!(tool.endpoint.timeout, Duration::from_secs(7));
    assert_eq!(tool.endpoint.max_retries, 1);
    assert!(tool.idempotent);
    let summary = config.summary();
    assert!(summary.contains("\ntimeout = 7\n"), "{summary}");
}
