//! The plan: the steps that confine a command, as data.

use std::fmt;
use std::path::PathBuf;

use ringfence_api::Gap;
use ringfence_policy::{AbsPath, Grants, Limit, PROXY_PORT};
use serde::{Deserialize, Serialize};

use crate::gaps::missing_tripwire;
use crate::support::FuseSupport;

/// Subdirectory of a cache's store that a command sees. It never sees the store itself: there it
/// could replace the other subdirectories with symlinks.
pub const UPPER: &str = "upper";
/// Work directory of an overlay over [`UPPER`].
pub const WORK: &str = "work";
/// Subdirectory of a store with the layers of concurrent runs, each with its own [`UPPER`] and
/// [`WORK`]: two overlays over one directory lose writes.
pub const CONCURRENT: &str = "beside";

/// Steps to enforce, and gaps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Requested protections that cannot be enforced here.
    pub gaps: Vec<Gap>,
}

/// Paths owned by the sandbox: no policy rule applies there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnPlaces {
    own: Vec<AbsPath>,
    /// Host directories inside them: a home or a project below `/tmp`.
    hosts: Vec<AbsPath>,
}

impl OwnPlaces {
    /// True if `path` is in one of them.
    pub fn contains(&self, path: &AbsPath) -> bool {
        let depth = |places: &[AbsPath]| {
            places.iter().filter(|place| path.is_within(place)).map(AbsPath::depth).max()
        };
        depth(&self.own) > depth(&self.hosts)
    }

    /// True if `path` is one of them.
    pub fn is_own_path(&self, path: &AbsPath) -> bool {
        self.own.contains(path)
    }

    /// True if `path` belongs to the host but lies in a path of the sandbox: there is no tripwire
    /// there.
    pub fn is_host_path_inside(&self, path: &AbsPath) -> bool {
        !self.contains(path) && self.hosts.iter().any(|place| path.is_within(place))
    }

    /// True if host directories lie in them.
    pub fn has_host_paths(&self) -> bool {
        !self.hosts.is_empty()
    }
}

impl Plan {
    /// Directories that cannot be renamed.
    pub fn pinned_dirs(&self) -> &[PinnedDir] {
        self.steps
            .iter()
            .find_map(|step| match step {
                Step::Guards(guards) => Some(guards.as_slice()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// True if the plan has a tripwire, which reports access to paths that are not granted.
    pub fn has_tripwire(&self) -> bool {
        self.steps.contains(&Step::Tripwire)
    }

    /// Replaces a planned tripwire by a gap, since it could not be mounted.
    pub fn replace_tripwire_by_gap(&mut self) {
        if self.has_tripwire() {
            self.steps.retain(|step| *step != Step::Tripwire);
            self.gaps.push(missing_tripwire(FuseSupport::Opens));
        }
    }

    /// Paths owned by the sandbox, without policy rules.
    pub fn own_places(&self, grants: &Grants) -> OwnPlaces {
        let kernels = ["/proc", "/dev"].into_iter().filter_map(AbsPath::new);
        let made = self.steps.iter().filter_map(|step| match step {
            Step::Scratch { path } | Step::Private { path, .. } => Some(path.clone()),
            _ => None,
        });
        let hosts = self.steps.iter().filter_map(|step| match step {
            Step::Scratch { path } => Some(path),
            _ => None,
        });
        let top = |scratch: &AbsPath, path: &AbsPath| {
            path.relative_to(scratch)?.iter().next().map(|name| scratch.join(name))
        };
        let hosts = hosts.flat_map(|scratch| {
            [&grants.home, &grants.workspace].into_iter().filter_map(move |path| top(scratch, path))
        });
        OwnPlaces { own: kernels.chain(made).collect(), hosts: hosts.collect() }
    }

    /// The value of a limit; `None` is no limit.
    pub fn limit(&self, of: Limit) -> Option<u64> {
        self.steps.iter().find_map(|step| match step {
            Step::Limit { limit, most } if *limit == of => Some(*most),
            _ => None,
        })
    }

    /// True if the plan has no namespaces.
    pub fn is_restricted(&self) -> bool {
        self.steps.contains(&Step::Restrict)
    }

    /// True if the notify handler decides about every path, without mounts.
    pub fn is_mediated(&self) -> bool {
        self.steps.contains(&Step::Mediate)
    }

    /// Network namespace of the command.
    pub fn network(&self) -> NetworkNamespace {
        let is_own = self.steps.contains(&Step::Namespaces { network: NetworkNamespace::Own });
        if is_own { NetworkNamespace::Own } else { NetworkNamespace::Host }
    }

    /// User and group of the command, if the plan sets them.
    pub fn identity(&self) -> Option<&UserIds> {
        self.steps.iter().find_map(|step| match step {
            Step::Identity(identity) => Some(identity),
            _ => None,
        })
    }
}

/// One step that confines a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// No namespaces: Landlock opens the trees, and the filter closes the rest.
    Restrict,
    /// The notify handler decides about every path that is opened or changed.
    Mediate,
    /// New namespaces, owned by a user namespace that only the supervisor is in.
    Namespaces {
        /// Network namespace of the command.
        network: NetworkNamespace,
    },
    /// The user keeps uid and gid inside.
    Identity(UserIds),
    /// A symbolic link.
    Symlink {
        /// Path of the link.
        path: AbsPath,
        /// Target of the link.
        target: PathBuf,
    },
    /// A file written by ringfence.
    File {
        /// Path of the file.
        path: AbsPath,
        /// Content of the file.
        content: String,
    },
    /// An empty directory.
    Directory {
        /// Path of the directory.
        path: AbsPath,
    },
    /// A FUSE root that reports access to paths that are not granted.
    Tripwire,
    /// A bind mount of a host path at the same path.
    Bind {
        /// Path inside and outside.
        path: AbsPath,
        /// Access to the mount.
        access: MountAccess,
        /// Kind of the host path.
        kind: FileKind,
    },
    /// A writable directory private to the project.
    Private {
        /// Path inside.
        path: AbsPath,
        /// Path of its store on the host.
        store: AbsPath,
        /// Host directory below it as the lower layer, if any.
        beneath: Option<AbsPath>,
        /// Number of the extra upper layer, if another run of the project uses the store's own
        /// layer at the same time.
        beside: Option<u16>,
    },
    /// A writable tmpfs that ends with the sandbox.
    Scratch {
        /// Path inside.
        path: AbsPath,
    },
    /// `/proc` with the sandbox's own processes.
    Processes {
        /// Access to the mount.
        access: MountAccess,
    },
    /// `/dev` with the few devices that programs need.
    Devices,
    /// A mask over a path in a granted tree.
    Mask {
        /// The masked path.
        path: AbsPath,
        /// Effect of the mask.
        mask: Overmount,
    },
    /// A file of ringfence in place of the host's.
    Instead {
        /// The replaced path.
        path: AbsPath,
        /// Path of the replacement.
        with: AbsPath,
    },
    /// A denied path outside the granted trees: it exists and cannot be opened.
    Denied {
        /// The denied path.
        path: AbsPath,
        /// Kind of the denied path.
        kind: FileKind,
    },
    /// A denied directory with a granted path below it: it cannot be listed.
    Passage {
        /// The directory.
        path: AbsPath,
    },
    /// The watcher masks denied and protected names that appear later in these trees.
    Watcher {
        /// Trees in which patterns apply.
        trees: Vec<AbsPath>,
    },
    /// The root mount becomes read-only.
    Seal,
    /// A second user namespace in which every mount is locked, without any capability.
    Lock,
    /// Second layer: Landlock stops signals and abstract sockets to the outside.
    Landlock,
    /// Protected and denied names that do not exist cannot be created.
    Guards(Vec<PinnedDir>),
    /// Network access to the allowed hosts.
    Egress,
    /// A secret that stays outside is inserted into requests on the way.
    Secret {
        /// Environment variable of the secret.
        env: String,
        /// The header.
        header: String,
        /// The hosts that get it.
        hosts: Vec<String>,
    },
    /// The same hosts through a proxy, for programs that use one.
    Proxy,
    /// Successful access is reported as well.
    Observe,
    /// A resource limit.
    Limit {
        /// The resource.
        limit: Limit,
        /// Its maximum.
        most: u64,
    },
    /// The seccomp filter.
    Seccomp,
}

/// Network namespace of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkNamespace {
    /// New namespace with loopback only.
    Own,
    /// The host's.
    Host,
}

/// User and group of the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIds {
    /// User id, the same inside and outside.
    pub uid: u32,
    /// Group id, the same inside and outside.
    pub gid: u32,
}

/// Access to a bind mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountAccess {
    /// Read and execute.
    ReadOnly,
    /// Write as well.
    ReadWrite,
}

/// Effect of a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Overmount {
    /// Nothing can be opened.
    Deny(FileKind),
    /// Read-only.
    ReadOnly,
    /// Read-only, without the mounts below it.
    Shallow,
}

/// Kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// Anything else.
    File,
}

/// A directory that existed at startup and cannot be renamed: git protections apply in it, and it
/// cannot be moved away and back.
///
/// Identified by inode, not by path: a directory above it may be renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedDir {
    /// Path at startup.
    pub path: AbsPath,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Reason of the pin.
    pub kind: PinReason,
}

/// Reason why a directory is pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PinReason {
    /// Git obeys its content.
    Git,
    /// A denied or protected path is below it.
    Above,
    /// It is the top of a repository's working tree: settings that programs obey must not be
    /// created in it.
    Tree,
    /// It is a link with a denied or protected name.
    Link,
}

impl fmt::Display for Step {
    /// One line for display.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Namespaces { network: NetworkNamespace::Own } => {
                f.write_str("isolate  mounts, processes, ipc, host name, cgroup, network")
            }
            Step::Namespaces { network: NetworkNamespace::Host } => {
                f.write_str("isolate  mounts, processes, ipc, host name, cgroup")
            }
            Step::Restrict => f.write_str("restrict files by Landlock, the rest by seccomp"),
            Step::Mediate => f.write_str("mediate  every open, and every change of a file's name"),
            Step::Identity(id) => write!(f, "run as   uid {} gid {}", id.uid, id.gid),
            Step::Symlink { path, target } => write!(f, "link     {path} -> {}", target.display()),
            Step::File { path, .. } => write!(f, "write    {path}"),
            Step::Directory { path } => write!(f, "make     {path}"),
            Step::Bind { path, access: MountAccess::ReadOnly, .. } => write!(f, "read     {path}"),
            Step::Bind { path, access: MountAccess::ReadWrite, .. } => write!(f, "write    {path}"),
            Step::Private { path, store, beneath: None, .. } => {
                write!(f, "private  {path} (kept in {store})")
            }
            Step::Private { path, store, beneath: Some(_), .. } => {
                write!(f, "private  {path} overlaid on the host's (kept in {store})")
            }
            Step::Scratch { path } => write!(f, "scratch  {path}"),
            Step::Processes { access: MountAccess::ReadWrite } => f.write_str("private  /proc"),
            Step::Processes { access: MountAccess::ReadOnly } => {
                f.write_str("private  /proc (read-only)")
            }
            Step::Tripwire => f.write_str("watch    every path that is not granted"),
            Step::Devices => f.write_str("private  /dev"),
            Step::Mask { path, mask: Overmount::Deny(_) } => write!(f, "deny     {path}"),
            Step::Mask { path, mask: Overmount::ReadOnly | Overmount::Shallow } => {
                write!(f, "protect  {path}")
            }
            Step::Instead { path, with } => write!(f, "replace  {path} (by {with})"),
            Step::Denied { path, .. } => write!(f, "deny     {path}"),
            Step::Passage { path } => write!(f, "pass     {path} (cannot be listed)"),
            Step::Watcher { trees } => {
                let trees: Vec<String> = trees.iter().map(ToString::to_string).collect();
                write!(f, "mask     denied and protected names that appear in {}", trees.join(", "))
            }
            Step::Seal => f.write_str("seal     the root (read-only)"),
            Step::Lock => f.write_str("lock     mounts; drop every capability"),
            Step::Landlock => f.write_str("landlock no signals or abstract sockets out"),
            Step::Guards(guards) => {
                write!(
                    f,
                    "guard    absent protected and denied names; {} directories cannot be renamed",
                    guards.len()
                )
            }
            Step::Egress => f.write_str("reach    the hosts that the policy allows"),
            Step::Secret { env, header, hosts } => {
                write!(f, "secret   {env} is inserted into {header} for {}", hosts.join(", "))
            }
            Step::Proxy => write!(f, "proxy    the same hosts, at 127.0.0.1:{PROXY_PORT}"),
            Step::Observe => {
                f.write_str("observe  every file opened, program run and host contacted")
            }
            Step::Limit { limit, most } => {
                write!(f, "limit    {limit} to {}", limit.format_amount(*most))
            }
            Step::Seccomp => f.write_str("seccomp  refuse syscalls that a command does not need"),
        }
    }
}
