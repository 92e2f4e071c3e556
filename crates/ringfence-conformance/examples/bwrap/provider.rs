//! A sandbox provider that runs each command in the program `bwrap` (bubblewrap).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::process::{self, Command};

use ringfence_api::{CommandRequest, Enforcement, Gap, HostFacts, Outcome, PathMap};
use ringfence_policy::{AbsPath, Grants, NetworkMode};
use ringfence_provider::{Capabilities, PreparedSandbox, Provider, ProviderError, Support};
use ringfence_provider::{PolicyDemand, TreeMount, find_mounts, find_program, run_program};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, MemfdFlags, access, memfd_create};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Deserializer, Value};

/// Sandboxes made by bubblewrap.
#[derive(Default)]
pub(crate) struct BwrapProvider {
    /// The path of the project in the sandbox, if it differs from the host's.
    pub(crate) workspace: Option<AbsPath>,
}

impl Provider for BwrapProvider {
    fn name(&self) -> &str {
        "bwrap"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { confinement: Support::Yes, ..Capabilities::default() }
    }

    fn prepare(
        &self,
        grants: &Grants,
        _: &HostFacts,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        let guest = self.workspace.as_ref().unwrap_or(&grants.workspace).clone();
        use PolicyDemand::{Filesystem, NoNetwork, Processes};
        let met = [&PolicyDemand::OF_REQUEST[..], &[Filesystem, Processes, NoNetwork]].concat();
        Ok(Box::new(BwrapSandbox {
            gaps: PolicyDemand::gaps(grants, self.name(), &met),
            enforced: [Enforcement::new("bwrap", "only granted paths, own network and processes")],
            paths: PathMap::identity().with(grants.workspace.clone(), guest),
            grants: grants.clone(),
        }))
    }
}

struct BwrapSandbox {
    gaps: Vec<Gap>,
    enforced: [Enforcement; 1],
    paths: PathMap,
    grants: Grants,
}

impl PreparedSandbox for BwrapSandbox {
    fn enforced(&self) -> &[Enforcement] {
        &self.enforced
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn paths(&self) -> PathMap {
        self.paths.clone()
    }

    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError> {
        let command = request.command[0].to_string_lossy().into_owned();
        let program = find_program(request, &self.grants)?;
        if let Err(error) = access(program.as_path(), Access::EXEC_OK) {
            return Err(ProviderError::NotExecuted { command, source: error.into() });
        }
        let hint = "`bwrap --unshare-user --ro-bind / / true` shows if bubblewrap works".into();
        let ran = self.run_bwrap(&program, request).map_err(io::Error::into);
        ran.map_err(|source| ProviderError::NotStarted { command, hint, source })
    }
}

/// Gives bubblewrap its options and its report as fds. `env` corrects PWD, which bubblewrap sets.
const START: &str = r#"in=$1 out=$2; shift 2; exec /usr/bin/bwrap --args 3 "$@" 3<"$in" 4>"$out""#;

impl BwrapSandbox {
    fn run_bwrap(&self, program: &AbsPath, request: &CommandRequest) -> io::Result<Outcome> {
        let options = File::from(memfd_create("options", MemfdFlags::CLOEXEC)?);
        (&options).write_all(self.nul_separated_options(request)?.as_encoded_bytes())?;
        let report = File::from(memfd_create("report", MemfdFlags::CLOEXEC)?);
        let fd = |file: &File| format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd());
        let mut sh = Command::new("/bin/sh");
        sh.env_clear().args(["-c", START, "sh", &fd(&options), &fd(&report), "/usr/bin/env"]);
        let pwd = request.variables.iter().find(|(name, _)| name == "PWD");
        sh.arg(pwd.map_or("-uPWD".into(), |(name, pwd)| [&**name, pwd].join(OsStr::new("="))));
        sh.arg(self.inside(program)).args(&request.command[1..]);
        let outcome = run_program(&mut sh, request)?;
        let reports = Deserializer::from_reader(report).into_iter();
        let reports: Vec<Value> = reports.collect::<Result<_, _>>()?;
        let report = |name| reports.iter().find_map(|report| report[name].as_i64());
        // Everything in the sandbox ends with its pid 1; bubblewrap does not wait for it.
        let init = report("child-pid").and_then(|pid| Pid::from_raw(pid as i32));
        if let Some(Ok(init)) = init.map(|init| pidfd_open(init, PidfdFlags::empty())) {
            retry_on_intr(|| poll(&mut [PollFd::new(&init, PollFlags::IN)], None))?;
        }
        if report("exit-code").is_none() && !outcome.timed_out {
            return Err(io::Error::other(String::from_utf8_lossy(&outcome.stderr.bytes())));
        }
        let enforced = self.enforced.iter().map(|one| one.text.clone()).collect();
        Ok(Outcome { enforced, gaps: self.gaps.clone(), ..outcome })
    }

    fn nul_separated_options(&self, request: &CommandRequest) -> io::Result<OsString> {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let mut options = words(
            "--unshare-user --disable-userns --unshare-pid --unshare-ipc --unshare-uts --cap-drop ALL \
            --new-session --die-with-parent --json-status-fd 4 --clearenv --tmpfs /tmp",
        );
        if self.grants.network.mode != NetworkMode::Full {
            options.push("--unshare-net".into());
        }
        for (path, mount) in find_mounts(&self.grants)? {
            let source = path.as_path().into();
            options.extend(match mount {
                TreeMount::HiddenFile => words("--ro-bind /dev/null"),
                TreeMount::HiddenDir => words("--perms 0000 --tmpfs"),
                TreeMount::ReadOnly => vec!["--ro-bind".into(), source],
                TreeMount::ReadWrite => vec!["--bind".into(), source],
                TreeMount::Private { store } => vec!["--bind".into(), store.as_path().into()],
                TreeMount::Link { target } => vec!["--symlink".into(), self.inside(&target)],
            });
            options.push(self.inside(&path));
        }
        options.extend(words("--proc /proc --dev /dev --remount-ro / --chdir"));
        options.push(self.inside(&request.cwd));
        for (name, value) in &request.variables {
            options.extend(["--setenv".into(), name.clone(), value.clone()]);
        }
        // A NUL byte in an option would begin another one.
        let is_whole = |option: &OsString| !option.as_encoded_bytes().contains(&0);
        let joined = options.iter().all(is_whole).then(|| options.join("\0".as_ref()));
        joined.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    fn inside(&self, path: &AbsPath) -> OsString {
        self.paths.to_guest(path).unwrap_or_else(|| path.clone()).as_path().into()
    }
}
