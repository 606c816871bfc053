//! The tools that a draft declares and asks for, as this server has them.

use super::super::draft::{
    CodeDraft, DraftTool, FaultScope, Faults, HostedTool, RequiredApproval, ServerDraft, TurnDraft,
    UnofferedTools,
};
use super::super::turn::{
    Availability, Capability, CodeOptions, McpServerRequest, NamedFile, RequestedTools, Route,
};
use super::offer::ServerOffer;
use super::tool_choice::MCP;
use crate::event::Notice;
use protocol::openai::request::RequestError;
use protocol::openai::tool::ToolDefinition;

/// The tools that a draft declares and asks for.
pub(super) struct AskedTools {
    pub(super) requested: RequestedTools,
    /// Stored files for the working directory.
    pub(super) files: Vec<NamedFile>,
    /// Tools that the server or the client runs.
    pub(super) functions: Vec<ToolDefinition>,
    /// Entries of hosted tools that the upstream runs, as JSON text.
    pub(super) hosted: Vec<String>,
    /// MCP servers, and about which of their calls a person is asked.
    pub(super) servers: Vec<(McpServerRequest, RequiredApproval)>,
    /// The labels of those whose calls end the turn when they wait.
    pub(super) asking_servers: Vec<String>,
    /// Notices for the client about tools that were left out.
    pub(super) left_out: Vec<Notice>,
}

impl AskedTools {
    /// Checks the tools of a draft against what the server and the upstream have.
    pub(super) fn read(
        draft: &TurnDraft,
        faults: &Faults,
        offer: &ServerOffer<'_>,
        route: &Route,
    ) -> Result<Self, RequestError> {
        faults.check(FaultScope::Request)?;
        let code = code(&draft.tools.code, faults, offer)?;
        let searches = offer.tool_for(Capability::Web).is_some();
        if searches {
            faults.check(FaultScope::Web)?;
        }
        let mut asked = Self {
            requested: RequestedTools {
                declines_code: code.is_none() && draft.tools.code.enable == Some(false),
                code,
                web: draft.tools.web.clone().filter(|_| searches),
                only_named_functions: draft.tools.of_client_machine,
            },
            files: Vec::new(),
            functions: Vec::new(),
            hosted: Vec::new(),
            servers: Vec::new(),
            asking_servers: Vec::new(),
            left_out: Vec::new(),
        };
        if asked.requested.code.is_some() {
            asked.files.clone_from(&draft.tools.code.files);
        }
        let connects = offer.connects_to_servers();
        if connects {
            faults.check(FaultScope::Servers)?;
            for tool in &draft.tools.declared {
                if let DraftTool::Server(server, _) = tool {
                    asked.server(server, draft.options.asks_client, offer)?;
                }
            }
        }
        faults.check(FaultScope::Tools)?;
        for tool in &draft.tools.declared {
            match tool {
                DraftTool::Function(definition) => asked.functions.push(definition.clone()),
                DraftTool::LeftOut(notice) => asked.left_out.push(notice.clone()),
                DraftTool::Server(..) if connects => {}
                DraftTool::Server(_, tool) | DraftTool::Hosted(tool) => {
                    asked.hosted(tool, draft.tools.unoffered, offer, route)?;
                }
            }
        }
        Ok(asked)
    }

    fn server(
        &mut self,
        server: &ServerDraft,
        asks_client: bool,
        offer: &ServerOffer<'_>,
    ) -> Result<(), RequestError> {
        let invalid = |member: &str, problem: &str| {
            RequestError::invalid(&format!("{}.{member}", server.param), problem)
        };
        if offer.has_server(&server.label) {
            let problem = "is the name of an MCP server of this server, whose tools are offered anyway; write another label, or leave the entry out";
            return Err(invalid("server_label", problem));
        }
        let url = offer.server_url(&server.url);
        let url = url.map_err(|problem| invalid("server_url", &problem))?;
        if asks_client {
            self.asking_servers.push(server.label.clone());
        }
        let request = McpServerRequest {
            label: server.label.clone(),
            url,
            headers: server.headers.clone(),
            allowed_tools: server.allowed_tools.clone(),
            allowed_read_only: server.allowed_read_only,
            description: server.description.clone(),
        };
        self.servers.push((request, server.required.clone()));
        Ok(())
    }

    /// A hosted tool: the server runs it, or the upstream, or it is left out or refused.
    fn hosted(
        &mut self,
        tool: &HostedTool,
        unoffered: UnofferedTools,
        offer: &ServerOffer<'_>,
        route: &Route,
    ) -> Result<(), RequestError> {
        let kind = &*tool.kind;
        let capability = Capability::of_type(kind);
        if capability.is_some_and(|capability| offer.tool_for(capability).is_some()) {
            return Ok(());
        }
        if route
            .quirks
            .hosted_tools
            .iter()
            .any(|hosted| hosted == kind)
        {
            self.hosted.push(tool.json.to_string());
            return Ok(());
        }
        let flag = capability.map(Capability::flag).filter(|_| kind != MCP);
        let param = &tool.param;
        match unoffered {
            UnofferedTools::Leave => Ok(()),
            UnofferedTools::RefuseUnlessIgnored if offer.settings().ignore_tools.matches(kind) => {
                self.left_out.push(Notice {
                    kind: "tool_left_out".into(),
                    message: format!(
                        "'{param}' was left out: this server does not offer the type '{kind}'"
                    ),
                });
                Ok(())
            }
            UnofferedTools::RefuseUnlessIgnored => {
                let flag = flag.map(|flag| format!("start the server with {flag}, or "));
                let message = format!(
                    "'{param}' has the type '{kind}', which this server does not offer; leave it out, or {}set \
                     `ignore_tools = [\"{kind}\"]` in the server's settings",
                    flag.unwrap_or_default()
                );
                Err(RequestError {
                    code: Some("unsupported_tool"),
                    ..RequestError::field(param, message)
                })
            }
            UnofferedTools::Refuse => {
                let flag = flag.map(|flag| format!(", or start the server with {flag}"));
                let message = format!(
                    "the hosted tool type '{kind}' is not offered by this server; leave it out of 'tools'{}",
                    flag.unwrap_or_default()
                );
                Err(RequestError::field("tools", message))
            }
        }
    }
}

/// The code execution that a draft asks for.
///
/// # Errors
/// When code execution is asked for and switched off, or files are asked for without it.
fn code(
    asked: &CodeDraft,
    faults: &Faults,
    offer: &ServerOffer<'_>,
) -> Result<Option<CodeOptions>, RequestError> {
    let availability = offer.availability(Capability::Code);
    let available = availability != Availability::Off;
    let enabled = asked.enable == Some(true);
    if enabled && !available {
        let message = "'enable_code_execution' asks for code execution, which is switched off on this server; leave the field out, or start \
             the server with --enable-code-execution";
        return Err(RequestError::field("enable_code_execution", message));
    }
    // If switched off here, the upstream may still run the hosted tool.
    if available {
        faults.check(FaultScope::Code)?;
    }
    faults.check(FaultScope::Files)?;
    let wants = asked.wanted.is_some();
    let by_files = wants && asked.enable.is_none() && availability == Availability::Always;
    let requested = enabled || (available && asked.declared) || by_files;
    if wants && !requested {
        let remedy = match available {
            true => "; send \"enable_code_execution\": true with it",
            false => ", which is switched off on this server; leave the field out",
        };
        let message = format!("'files' needs code execution{remedy}");
        return Err(RequestError::field("files", message));
    }
    let wanted = asked.wanted.clone().unwrap_or_default();
    Ok(requested.then_some(CodeOptions { wanted }))
}
