//! What clients may call.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientResult, Implementation, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ResourceContents, ServerCapabilities, ServerConfig,
    ServerRequest, Tool,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};

use crate::call::{CallEvent, ClientElicitation, InFlightCall};
use crate::questions::{ClientQuestion, PATIENCE};
use crate::reply;
use crate::request::ToolRequest;
use crate::schema::ToolFailure;
use crate::state::{ClientScope, McpState, QueuedWaiter};

/// Serves one client, or one request of one where the protocol knows no sessions.
pub(crate) struct McpHandler {
    house: Arc<McpState>,
    own: ClientScope,
}

/// From this version on a server sends no requests: what it wants to know is an answer, and the
/// call comes again with it.
const WITHOUT_REQUESTS: ProtocolVersion = ProtocolVersion::V_2026_07_28;

impl McpHandler {
    pub(crate) fn new(house: Arc<McpState>, own: ClientScope) -> Self {
        Self { house, own }
    }

    /// Begins a call, or goes on with one that had to ask.
    async fn running(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<InFlightCall, CallToolResponse> {
        if let Some(state) = &request.request_state {
            return self
                .house
                .go_on(state, request)
                .map_err(|failure| reply::failed(&failure).into());
        }
        let order = ToolRequest::read(&request.name, request.arguments.clone());
        let order = order
            .map_err(|error| reply::failed(&ToolFailure::new("input", error.message, None)))?;
        let room =
            self.own.room(&self.house, context).await.map_err(|failure| reply::failed(&failure))?;
        let Some(place) = self.house.place() else {
            let busy = ToolFailure::new(
                "busy",
                "as many calls are being served as there may be",
                Some("wait for one of them".into()),
            );
            return Err(reply::failed(&busy).into());
        };
        Ok(InFlightCall::begin(room, order, asks(context), place))
    }
}

/// Whether a client can ask people, as it says with each request or once for all.
fn asks(context: &RequestContext<RoleServer>) -> ClientElicitation {
    let elicitation =
        context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // One that says neither means forms, which came first.
    let has_forms = elicitation
        .is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none());
    if has_forms { ClientElicitation::People } else { ClientElicitation::Nobody }
}

/// Asks a client that takes requests.
async fn put(question: ClientQuestion, waiter: QueuedWaiter, context: &RequestContext<RoleServer>) {
    let request = ServerRequest::ElicitRequest(question.form());
    let options = PeerRequestOptions::with_timeout(PATIENCE);
    let said = async {
        context.peer.send_request_with_option(request, options).await?.await_response().await
    };
    let said = tokio::select! {
        said = said => said.ok(),
        () = context.ct.cancelled() => None,
        () = waiter.given_up() => None,
    };
    question.answer(match said {
        Some(ClientResult::ElicitResult(said)) => Some(said),
        _ => None,
    });
}

impl ServerHandler for McpHandler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().build())
            .with_server_info(Implementation::new("ringfence", env!("CARGO_PKG_VERSION")).with_title("ringfence"))
            .with_instructions(
                "Commands run in a sandbox: they work in the project and nowhere else. What was refused is not a mistake of the command; \
                 `denials` names the rule, and `request_permission` asks the person to open what is needed.",
            )
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.house.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.house.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let room = self
            .own
            .room(&self.house, &context)
            .await
            .map_err(|failure| ErrorData::internal_error(failure.message, None))?;
        Ok(ListResourcesResult::with_all_items(room.outputs.list()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let room = self
            .own
            .room(&self.house, &context)
            .await
            .map_err(|failure| ErrorData::internal_error(failure.message, None))?;
        let gone = || {
            ErrorData::resource_not_found(
                "there is no such output, or newer ones took its place",
                None,
            )
        };
        let text = room.outputs.read(&request.uri).ok_or_else(gone)?;
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, request.uri)]).into())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mut running = match self.running(&request, &context).await {
            Ok(running) => running,
            Err(answer) => return Ok(answer),
        };
        let is_modern =
            context.protocol_version().is_some_and(|version| version >= WITHOUT_REQUESTS);
        loop {
            match running.next(&context).await {
                CallEvent::Answer(answer) => return Ok((*answer).into()),
                // Nobody hears the question: dropped, the answer is no.
                CallEvent::Ask(question) if context.ct.is_cancelled() => drop(question),
                CallEvent::Ask(question) if is_modern => {
                    let waits = self.house.wait(running, question, &request);
                    return Ok(waits.map_or_else(
                        |failure| reply::failed(&failure).into(),
                        CallToolResponse::from,
                    ));
                }
                CallEvent::Ask(question) => {
                    put(question, self.house.waiter(&running), &context).await
                }
            }
        }
    }
}
