//! Adapts the [`SandboxProvider`] of a program to the engine's protocol, so that its commands pass
//! the same pipeline as those of every other provider.

mod shell;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ringfence_api::{
    Asker, CommandRequest, Denial, Enforcement, Gap, HostFacts, Outcome, PathMap, QuarantinedFile,
    lock,
};
use ringfence_policy::{AbsPath, Grants, Limit};
use ringfence_provider::{
    Capabilities, PolicyDemand, PolicyRevision, PreparedSandbox, ProcessSpec, Provider,
    ProviderError, Sandbox, SandboxShell, SandboxedProcess, ShellSpec, Support,
};

use crate::{SandboxBackend, SandboxCreateOptions, SandboxError, SandboxProvider, block_on};
use shell::BackendShell;

/// A provider of the engine that runs commands with one of the program.
pub(crate) struct BackendProvider(pub(crate) Arc<dyn SandboxProvider>);

impl Provider for BackendProvider {
    fn name(&self) -> &str {
        self.0.provider_type()
    }

    fn capabilities(&self) -> Capabilities {
        let confines = is_confining(&*self.0);
        Capabilities {
            confinement: if confines { Support::Yes } else { Support::No },
            shells: Support::Yes,
            asks: Support::Yes,
            ..Capabilities::default()
        }
    }

    fn prepare(
        &self,
        grants: &Grants,
        _: &HostFacts,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        Ok(Box::new(DeclaredSandbox::new(self.0.clone(), grants.clone())))
    }
}

fn is_confining(provider: &dyn SandboxProvider) -> bool {
    provider.enforces().contains(&PolicyDemand::Filesystem)
}

/// A sandbox with the protections that its provider declares.
#[derive(Clone)]
struct DeclaredSandbox {
    provider: Arc<dyn SandboxProvider>,
    grants: Arc<Grants>,
    enforced: Vec<Enforcement>,
    gaps: Vec<Gap>,
    asker: Option<Arc<dyn Asker>>,
}

impl DeclaredSandbox {
    fn new(provider: Arc<dyn SandboxProvider>, grants: Grants) -> Self {
        let name = provider.provider_type();
        // The shell ends a command that takes too long.
        let demands = [provider.enforces(), &[PolicyDemand::Limit(Limit::Wall)]].concat();
        let mut gaps = PolicyDemand::gaps(&grants, name, &demands);
        for gap in &mut gaps {
            gap.hint = "accept it with `on-gap = \"run\"` in your policy file or `onGap` in \
                `providerOptions`, or use the provider `local`"
                .into();
        }
        let enforced =
            PolicyDemand::all_of(&grants).into_iter().filter(|one| demands.contains(one));
        let enforced = enforced.map(PolicyDemand::what).map(|what| {
            let text = format!("{what}, by the provider `{name}`");
            Enforcement::new(what, text)
        });
        let enforced = enforced.collect();
        Self { provider, grants: Arc::new(grants), enforced, gaps, asker: None }
    }
}

impl PreparedSandbox for DeclaredSandbox {
    fn enforced(&self) -> &[Enforcement] {
        &self.enforced
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn is_confined(&self) -> bool {
        is_confining(&*self.provider)
    }

    fn set_asker(&mut self, asker: Arc<dyn Asker>) {
        self.asker = Some(asker);
    }

    fn run(&mut self, _: &CommandRequest) -> Result<Outcome, ProviderError> {
        Err(ProviderError::NotSupported { what: "commands outside of a shell" })
    }

    fn start_sandbox(&mut self, cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError> {
        Ok(Box::new(BackendSandbox {
            declared: self.clone(),
            cwd: cwd.as_path().to_owned(),
            paths: PathMap::default(),
            backend: Mutex::default(),
        }))
    }

    fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        <_>::default()
    }
}

/// A live sandbox of the program's provider. Its shell is the backend itself.
struct BackendSandbox {
    declared: DeclaredSandbox,
    cwd: PathBuf,
    /// No path of the sandbox is known to be one of the host.
    paths: PathMap,
    /// Created with the first shell, whose environment it gets.
    backend: Mutex<Option<Arc<dyn SandboxBackend>>>,
}

impl Sandbox for BackendSandbox {
    fn enforced(&self) -> &[Enforcement] {
        &self.declared.enforced
    }

    fn gaps(&self) -> &[Gap] {
        &self.declared.gaps
    }

    fn is_confined(&self) -> bool {
        self.declared.is_confined()
    }

    fn paths(&self) -> &PathMap {
        &self.paths
    }

    fn start_shell(&self, start: &ShellSpec) -> Result<Box<dyn SandboxShell>, ProviderError> {
        let DeclaredSandbox { provider, grants, asker, .. } = &self.declared;
        let mut backend = lock(&self.backend);
        let backend = match &*backend {
            Some(backend) => backend.clone(),
            None => {
                let options = SandboxCreateOptions {
                    cwd: self.cwd.clone(),
                    shell: start.program.clone(),
                    environment: start.environment.clone(),
                    grants: grants.clone(),
                    asker: asker.clone(),
                };
                let created = block_on(provider.create(options));
                backend.insert(created.map_err(|error| not_created(error, start))?).clone()
            }
        };
        Ok(Box::new(BackendShell::new(backend, start.cwd.clone())))
    }

    fn start_process(&self, _: &ProcessSpec) -> Result<Box<dyn SandboxedProcess>, ProviderError> {
        Err(ProviderError::NotSupported { what: "processes outside of a shell" })
    }

    fn take_denials(&self) -> (Vec<Denial>, u64) {
        <_>::default()
    }

    /// Accepts changes that concern the engine only; all others need a new sandbox.
    fn apply_policy(&self, grants: &Grants) -> Result<PolicyRevision, ProviderError> {
        let mut known = Grants::clone(&self.declared.grants);
        known.commands = grants.commands.clone();
        known.audit = grants.audit.clone();
        known.sandbox = grants.sandbox.clone();
        known.warnings = grants.warnings.clone();
        (known.on_gap, known.ask) = (grants.on_gap, grants.ask);
        if known != *grants {
            return Err(ProviderError::NotSupported { what: "a policy change in a live sandbox" });
        }
        let DeclaredSandbox { enforced, gaps, .. } = self.declared.clone();
        Ok(PolicyRevision { changes: Vec::new(), enforced, gaps })
    }

    fn end(self: Box<Self>) -> Result<Vec<QuarantinedFile>, ProviderError> {
        let backend = lock(&self.backend).take();
        backend.map_or(Ok(Vec::new()), |it| block_on(it.dispose()).map_err(not_executed))
    }
}

fn not_created(error: SandboxError, start: &ShellSpec) -> ProviderError {
    ProviderError::NotStarted {
        command: start.program.to_string_lossy().into_owned(),
        hint: error.hint().unwrap_or_else(|| "check the sandbox provider of this program".into()),
        source: Box::new(error),
    }
}

fn not_executed(error: SandboxError) -> ProviderError {
    match error {
        SandboxError::Gone { .. } | SandboxError::Ended { .. } => {
            ProviderError::Gone { what: "sandbox" }
        }
        error => ProviderError::System {
            what: "use the sandbox of this program's provider",
            source: io::Error::other(error),
        },
    }
}
