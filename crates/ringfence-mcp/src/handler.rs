//! The MCP methods that clients can call.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientResult, Implementation, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceContents, ServerCapabilities, ServerConfig,
    ServerRequest, Tool,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use tracing::info;

use crate::call::{CallEvent, ClientElicitation, InFlightCall};
use crate::questions::{ANSWER_TIMEOUT, ClientQuestion};
use crate::reply;
use crate::request::ToolRequest;
use crate::schema::ToolFailure;
use crate::state::{ClientScope, McpState, QueuedWaiter};

/// Serves one client, or a single request where the protocol version has no sessions.
pub(crate) struct McpHandler {
    app: Arc<McpState>,
    scope: ClientScope,
}

/// From this version on a server sends no requests: a question is returned as a result, and the
/// client repeats the call with the answer.
const NO_SERVER_REQUESTS: ProtocolVersion = ProtocolVersion::V_2026_07_28;

impl McpHandler {
    pub(crate) fn new(app: Arc<McpState>, scope: ClientScope) -> Self {
        Self { app, scope }
    }

    /// Starts a call, or resumes one that returned a question.
    async fn start_or_resume(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<InFlightCall, CallToolResponse> {
        if let Some(state) = &request.request_state {
            return self
                .app
                .resume(state, request)
                .map_err(|failure| reply::failure(&failure).into());
        }
        let tool_request = ToolRequest::parse(&request.name, request.arguments.clone());
        let tool_request = tool_request
            .map_err(|error| reply::failure(&ToolFailure::new("input", error.message, None)))?;
        let sandbox = self
            .scope
            .sandbox(&self.app, context)
            .await
            .map_err(|failure| reply::failure(&failure))?;
        let Some(permit) = self.app.take_permit() else {
            let busy = ToolFailure::new(
                "busy",
                "too many calls at once",
                Some("wait until another call has finished".into()),
            );
            return Err(reply::failure(&busy).into());
        };
        Ok(InFlightCall::begin(sandbox, tool_request, read_elicitation(context), permit))
    }
}

/// Reads the client's elicitation capability, sent with each request or once at initialization.
fn read_elicitation(context: &RequestContext<RoleServer>) -> ClientElicitation {
    let elicitation =
        context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // A client that names neither kind supports forms, the older kind.
    let has_forms = elicitation
        .is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none());
    if has_forms { ClientElicitation::Supported } else { ClientElicitation::Unsupported }
}

/// Sends the question as a request to a client that accepts requests.
async fn send_question(
    question: ClientQuestion,
    waiter: QueuedWaiter,
    context: &RequestContext<RoleServer>,
) {
    let request = ServerRequest::ElicitRequest(question.form());
    let options = PeerRequestOptions::with_timeout(ANSWER_TIMEOUT);
    let reply_result = async {
        context.peer.send_request_with_option(request, options).await?.await_response().await
    };
    let reply_result = tokio::select! {
        reply_result = reply_result => reply_result.ok(),
        () = context.ct.cancelled() => None,
        () = waiter.given_up() => None,
    };
    question.answer(match reply_result {
        Some(ClientResult::ElicitResult(reply_result)) => Some(reply_result),
        _ => None,
    });
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().build())
            .with_server_info(Implementation::new("ringfence", env!("CARGO_PKG_VERSION")).with_title("ringfence"))
            .with_instructions(
                "Commands run in a sandbox: they can change the project only. A denied access is not a bug in the command: \
                 `denials` names the rule, and `request_permission` asks the user to allow it.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.app.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.app.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let sandbox = self
            .scope
            .sandbox(&self.app, &context)
            .await
            .map_err(|failure| ErrorData::internal_error(failure.message, None))?;
        Ok(ListResourcesResult::with_all_items(sandbox.outputs.list()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let sandbox = self
            .scope
            .sandbox(&self.app, &context)
            .await
            .map_err(|failure| ErrorData::internal_error(failure.message, None))?;
        let gone = || {
            ErrorData::resource_not_found(
                "no such output: it never existed, or newer output replaced it",
                None,
            )
        };
        let text = sandbox.outputs.read(&request.uri).ok_or_else(gone)?;
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, request.uri)]).into())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        info!(target: "mcp", tool = %request.name, "call");
        let mut running = match self.start_or_resume(&request, &context).await {
            Ok(running) => running,
            Err(answer) => return Ok(answer),
        };
        let is_modern =
            context.protocol_version().is_some_and(|version| version >= NO_SERVER_REQUESTS);
        loop {
            match running.next(&context).await {
                CallEvent::Answer(answer) => return Ok((*answer).into()),
                // The client cancelled the call: dropping the question answers it with deny.
                CallEvent::Ask(question) if context.ct.is_cancelled() => drop(question),
                CallEvent::Ask(question) if is_modern => {
                    let parked = self.app.park(running, question, &request);
                    return Ok(parked.map_or_else(
                        |failure| reply::failure(&failure).into(),
                        CallToolResponse::from,
                    ));
                }
                CallEvent::Ask(question) => {
                    send_question(question, self.app.waiter(&running), &context).await
                }
            }
        }
    }
}
