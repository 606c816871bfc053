//! The effective settings as text for `check-config`: TOML in form, secrets left out.

use std::fmt::{self, Write};
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::{Config, WebConfig};
use crate::ids::CallIdStyle;
use crate::sandbox::settings::{InterpreterLimits, Network, Settings as Sandbox};
use crate::session::settings::{StoreUrl, beside};
use crate::tools::settings::EndpointSettings;
use crate::upstream::settings::{FinalCall, Quirks, Settings as Upstream};
use crate::web::settings::FetchSettings;

/// Writes everything.
pub(super) fn write(config: &Config) -> String {
    let mut text = "configuration is valid\n".to_owned();
    // A String takes everything, so that there is no failure to report.
    let _ = edge(&mut text, config)
        .and_then(|()| agent(&mut text, config))
        .and_then(|()| session(&mut text, config))
        .and_then(|()| upstreams(&mut text, config))
        .and_then(|()| tools(&mut text, config))
        .and_then(|()| sandbox(&mut text, config))
        .and_then(|()| search(&mut text, config))
        .and_then(|()| keys(&mut text, config));
    for notice in &config.notices {
        text.push_str("\n# note: ");
        text.push_str(notice);
    }
    text
}

fn edge(out: &mut String, config: &Config) -> fmt::Result {
    let http = &config.http;
    writeln!(out, "\nlisten = \"{}\"", http.listen)?;
    // Only with this setting may an address that the network can reach be listened on without keys.
    let open = http.api_keys.is_empty() && !http.listen.ip().to_canonical().is_loopback();
    writeln!(out, "insecure_no_auth = {open}")?;
    writeln!(out, "allowed_hosts = {:?}", http.allowed_hosts)?;
    let origins: Vec<_> = http.cors_origins.iter().map(shown).collect();
    writeln!(out, "cors_origins = {origins:?}")?;
    let headers: Vec<_> = http
        .session_headers
        .iter()
        .map(HeaderName::as_str)
        .collect();
    writeln!(out, "session_headers = {headers:?}")?;
    writeln!(out, "max_body_bytes = {}", http.max_body_bytes)?;
    writeln!(out, "max_header_bytes = {}", http.max_header_bytes)?;
    writeln!(out, "max_messages = {}", http.max_messages)?;
    time(out, "header_timeout", http.header_timeout)?;
    time(out, "body_timeout", http.body_timeout)?;
    time(out, "first_byte_wait", http.first_byte_wait)?;
    time(out, "keep_alive", http.keep_alive)?;
    time(out, "shutdown_grace", http.shutdown_grace)?;
    writeln!(out, "log_format = {:?}", config.log.format.as_str())?;
    writeln!(out, "log_level = {:?}", config.log.level)
}

fn agent(out: &mut String, config: &Config) -> fmt::Result {
    let agent = &config.agent;
    let permission = agent.permission.as_str();
    writeln!(out, "agent_permission = {permission:?}")?;
    writeln!(out, "max_tool_rounds = {}", agent.max_tool_rounds)?;
    optional(out, "max_tool_calls", agent.max_tool_calls)?;
    optional(
        out,
        "max_seconds",
        agent.max_duration.map(|time| time.as_secs_f64()),
    )?;
    optional(out, "max_total_tokens", agent.max_total_tokens)?;
    writeln!(out, "repeat_threshold = {}", agent.repeat_threshold)?;
    writeln!(
        out,
        "max_parallel_tools = {}",
        config.tools.max_parallel_tools
    )?;
    writeln!(out, "max_result_chars = {}", config.tools.max_result_chars)?;
    time(out, "tool_connect_timeout", config.tools.connect_timeout)
}

fn session(out: &mut String, config: &Config) -> fmt::Result {
    let session = &config.session;
    let store = match &session.store {
        StoreUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
        StoreUrl::Memory => "memory:".to_owned(),
    };
    writeln!(out, "session_store = {store:?}")?;
    time(out, "session_ttl", session.ttl.unwrap_or_default())?;
    writeln!(out, "session_wait_ms = {}", session.wait.as_millis())?;
    writeln!(out, "session_max_messages = {}", session.max_messages)?;
    match (&session.files_dir, &session.store) {
        (Some(path), _) => writeln!(out, "files_dir = {:?}", path.display().to_string())?,
        (None, StoreUrl::Sqlite(database)) => {
            let path = beside(database);
            writeln!(out, "files_dir = {:?}", path.display().to_string())?;
        }
        (None, StoreUrl::Memory) => writeln!(out, "# files_dir: a temporary directory")?,
    }
    writeln!(out, "max_file_bytes = {}", session.max_file_bytes)?;
    writeln!(
        out,
        "max_total_file_bytes = {}",
        session.max_total_file_bytes
    )
}

fn upstreams(out: &mut String, config: &Config) -> fmt::Result {
    writeln!(
        out,
        "\n[retry]\nmax_attempts = {}",
        config.retry.max_attempts
    )?;
    time(out, "base_delay", config.retry.base_delay)?;
    time(out, "max_delay", config.retry.max_delay)?;
    for Upstream {
        name,
        base_url,
        api_key,
        headers,
        models,
        model_map,
        connect_timeout,
        first_byte_timeout,
        idle_timeout,
        max_stream_bytes,
        quirks,
    } in &config.upstreams
    {
        writeln!(out, "\n[[upstreams]]\nname = {name:?}")?;
        writeln!(out, "base_url = \"{base_url}\"")?;
        writeln!(out, "# API key: {}", presence(api_key.is_some()))?;
        header_names(out, headers)?;
        writeln!(out, "models = {models:?}")?;
        for (from, to) in model_map {
            writeln!(out, "model_map.{from:?} = {to:?}")?;
        }
        time(out, "connect_timeout", *connect_timeout)?;
        time(out, "first_byte_timeout", *first_byte_timeout)?;
        time(out, "idle_timeout", *idle_timeout)?;
        writeln!(out, "max_stream_bytes = {max_stream_bytes}")?;
        write_quirks(out, quirks)?;
    }
    Ok(())
}

fn write_quirks(out: &mut String, quirks: &Quirks) -> fmt::Result {
    let final_call = match quirks.final_call {
        FinalCall::ToolChoiceNone => "tool_choice_none",
        FinalCall::RemoveTools => "remove_tools",
    };
    let call_ids = match quirks.call_ids {
        CallIdStyle::Standard => "standard",
        CallIdStyle::Short => "short",
    };
    writeln!(out, "quirks.streams = {}", quirks.streams)?;
    writeln!(out, "quirks.stream_options = {}", quirks.stream_options)?;
    writeln!(out, "quirks.think_tags = {}", quirks.think_tags)?;
    writeln!(out, "quirks.split_names = {}", quirks.split_names)?;
    writeln!(out, "quirks.send_reasoning = {}", quirks.send_reasoning)?;
    writeln!(out, "quirks.final_call = {final_call:?}")?;
    writeln!(out, "quirks.call_ids = {call_ids:?}")?;
    writeln!(out, "quirks.images = {}", quirks.images)?;
    writeln!(out, "quirks.hosted_tools = {:?}", quirks.hosted_tools)
}

fn tools(out: &mut String, config: &Config) -> fmt::Result {
    if let Some(dispatch) = &config.tools.dispatch {
        writeln!(
            out,
            "\n# the dispatch URL\ndispatch_tools = {:?}",
            dispatch.tools
        )?;
        writeln!(out, "dispatch_sequential = {}", dispatch.sequential)?;
        writeln!(out, "dispatch_idempotent = {}", dispatch.idempotent)?;
        endpoint(out, &dispatch.endpoint)?;
    }
    for tool in &config.tools.http_tools {
        writeln!(out, "\n[[tools]]\nname = {:?}", tool.name)?;
        writeln!(out, "description = {:?}", tool.description)?;
        writeln!(out, "# parameters: {}", tool.parameters_json)?;
        writeln!(out, "sequential = {}", tool.sequential)?;
        writeln!(out, "idempotent = {}", tool.idempotent)?;
        endpoint(out, &tool.endpoint)?;
    }
    Ok(())
}

fn search(out: &mut String, config: &Config) -> fmt::Result {
    let Some(WebConfig { web, unasked }) = &config.web else {
        return writeln!(out, "\nenable_search = false");
    };
    let search = &web.search;
    writeln!(out, "\nenable_search = {unasked}\n\n[search]")?;
    writeln!(out, "on_request = true")?;
    time(out, "timeout", search.timeout)?;
    writeln!(out, "max_retries = {}", search.max_retries)?;
    writeln!(out, "max_results = {}", search.max_results)?;
    writeln!(out, "max_pages = {}", search.max_pages)?;
    time(out, "pages_timeout", search.pages_timeout)?;
    time(out, "cache_ttl", search.cache_ttl)?;
    writeln!(out, "cache_bytes = {}", search.cache_bytes)?;
    writeln!(out, "parsers = {}", web.extractor.processes)?;
    time(out, "parser_timeout", web.extractor.timeout)?;
    writeln!(out, "parser_memory = {}", web.extractor.memory)?;
    if let Some(embeddings) = &web.embeddings {
        writeln!(out, "embedding_model = {:?}", embeddings.model)?;
        writeln!(out, "# embeddings: {}", embeddings.url)?;
        time(out, "embedding_timeout", embeddings.timeout)?;
    }
    pages(out, &web.fetch)?;
    for provider in &web.providers {
        let name = provider.kind.as_str();
        writeln!(out, "\n[[search.providers]]\nname = {name:?}")?;
        if let Some(url) = &provider.url {
            writeln!(out, "url = \"{url}\"")?;
        }
        writeln!(out, "# API key: {}", presence(provider.api_key.is_some()))?;
        let pace = provider.requests_per_minute;
        writeln!(out, "requests_per_minute = {pace}")?;
    }
    Ok(())
}

fn pages(out: &mut String, pages: &FetchSettings) -> fmt::Result {
    writeln!(out, "\n[search.pages]\nuser_agent = {:?}", pages.user_agent)?;
    time(out, "connect_timeout", pages.connect_timeout)?;
    time(out, "timeout", pages.timeout)?;
    writeln!(out, "max_bytes = {}", pages.max_bytes)?;
    writeln!(out, "max_redirects = {}", pages.max_redirects)?;
    writeln!(out, "ports = {:?}", pages.ports)?;
    writeln!(out, "allow = {:?}", pages.allow)?;
    writeln!(out, "block = {:?}", pages.block)?;
    writeln!(out, "private = {:?}", pages.private)?;
    writeln!(out, "robots = {}", pages.robots)?;
    writeln!(out, "per_host = {}", pages.per_host)?;
    time(out, "host_interval", pages.host_interval)
}

fn sandbox(out: &mut String, config: &Config) -> fmt::Result {
    let Some(settings) = &config.sandbox else {
        return writeln!(out, "\nenable_code_execution = false");
    };
    let Sandbox {
        python,
        search_path: _,
        timeout,
        require,
        network,
        command,
        limits,
        preload,
        spares,
        max_workers,
        max_waiting,
        idle_ttl,
        max_age,
        work_dir,
        temporary: _,
        // The sessions' own.
        saved_ttl: _,
        saved_size,
        uids,
        launcher: _,
    } = settings;
    let network = match network {
        Network::None => "none",
        Network::Full => "full",
    };
    writeln!(out, "\nenable_code_execution = true")?;
    time(out, "code_exec_timeout", *timeout)?;
    writeln!(out, "code_exec_python = {python:?}")?;
    writeln!(out, "\n[sandbox]\nrequire = {:?}", require.as_str())?;
    writeln!(out, "network = {network:?}")?;
    match command.first() {
        // Its arguments may hold a secret.
        Some(program) => writeln!(
            out,
            "# command: {program} (and {} arguments)",
            command.len() - 1
        )?,
        None => writeln!(out, "# command: none")?,
    }
    writeln!(out, "preload = {preload:?}")?;
    writeln!(out, "spares = {spares}")?;
    writeln!(out, "max_workers = {max_workers}")?;
    writeln!(out, "max_waiting = {max_waiting}")?;
    time(out, "idle_ttl", *idle_ttl)?;
    time(out, "max_age", *max_age)?;
    writeln!(out, "work_dir = {work_dir:?}")?;
    writeln!(out, "saved_size = {saved_size}")?;
    writeln!(out, "uids = [{}, {}]", uids.0, uids.1)?;
    sandbox_limits(out, limits)
}

fn sandbox_limits(out: &mut String, limits: &InterpreterLimits) -> fmt::Result {
    let InterpreterLimits {
        memory,
        address_space,
        processes,
        cpus,
        disk,
        tmp,
        inodes,
        file_size,
        open_files,
        output,
        output_kept,
        value,
        images,
        image_bytes,
        files,
        captured_file,
        captured_total,
    } = limits;
    writeln!(out, "\n[sandbox.limits]\nmemory = {memory}")?;
    writeln!(out, "address_space = {address_space}")?;
    writeln!(out, "processes = {processes}\ncpus = {cpus}")?;
    writeln!(out, "disk = {disk}\ntmp = {tmp}")?;
    writeln!(out, "inodes = {inodes}\nfile_size = {file_size}")?;
    writeln!(out, "open_files = {open_files}\noutput = {output}")?;
    writeln!(out, "output_kept = {output_kept}\nvalue = {value}")?;
    writeln!(out, "images = {images}\nimage_bytes = {image_bytes}")?;
    writeln!(out, "files = {files}\ncaptured_file = {captured_file}")?;
    writeln!(out, "captured_total = {captured_total}")
}

fn endpoint(out: &mut String, endpoint: &EndpointSettings) -> fmt::Result {
    writeln!(out, "url = \"{}\"", without_query(&endpoint.url))?;
    writeln!(out, "method = \"{}\"", endpoint.method)?;
    header_names(out, &endpoint.headers)?;
    writeln!(
        out,
        "# signing secret: {}",
        presence(endpoint.secret.is_some())
    )?;
    time(out, "timeout", endpoint.timeout)?;
    writeln!(out, "max_answer_bytes = {}", endpoint.max_answer_bytes)?;
    writeln!(out, "max_retries = {}", endpoint.max_retries)
}

fn keys(out: &mut String, config: &Config) -> fmt::Result {
    for key in &config.http.api_keys {
        writeln!(out, "\n[[api_keys]]\nname = {:?}", key.name)?;
    }
    Ok(())
}

fn time(out: &mut String, name: &str, time: Duration) -> fmt::Result {
    writeln!(out, "{name} = {}", time.as_secs_f64())
}

fn optional(out: &mut String, name: &str, value: Option<impl fmt::Display>) -> fmt::Result {
    match value {
        Some(value) => writeln!(out, "{name} = {value}"),
        None => writeln!(out, "# {name}: no limit"),
    }
}

fn header_names(out: &mut String, headers: &HeaderMap) -> fmt::Result {
    if headers.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    writeln!(out, "# headers: {}", names.join(", "))
}

fn shown(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn presence(set: bool) -> &'static str {
    if set { "set" } else { "none" }
}

/// A tool's query may hold a token.
fn without_query(url: &Url) -> String {
    let mut shown = url.clone();
    if shown.query().is_some() {
        shown.set_query(Some("…"));
    }
    shown.into()
}
