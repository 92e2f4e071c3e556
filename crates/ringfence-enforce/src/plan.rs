//! The plan: what will be done to confine a command, as data.

use std::fmt;
use std::path::PathBuf;

use ringfence_api::Gap;
use ringfence_policy::{AbsPath, Grants, Limit, PROXY_PORT};
use serde::{Deserialize, Serialize};

use crate::gaps::untold;
use crate::support::FuseSupport;

/// What will be enforced, step by step, and what cannot be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// What was asked for and cannot be done here.
    pub gaps: Vec<Gap>,
}

/// Places of the sandbox's own: no rule speaks of what is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnPlaces {
    own: Vec<AbsPath>,
    /// Directories in them that are the host's: a home or a project below `/tmp`.
    hosts: Vec<AbsPath>,
}

impl OwnPlaces {
    /// True if `path` is in one.
    pub fn contain(&self, path: &AbsPath) -> bool {
        let depth = |places: &[AbsPath]| {
            places.iter().filter(|place| path.is_within(place)).map(AbsPath::depth).max()
        };
        depth(&self.own) > depth(&self.hosts)
    }

    /// True if `path` is one itself.
    pub fn are(&self, path: &AbsPath) -> bool {
        self.own.contains(path)
    }

    /// True if `path` is the host's, in a place of the sandbox's own: no tripwire lies there.
    pub fn surround(&self, path: &AbsPath) -> bool {
        !self.contain(path) && self.hosts.iter().any(|place| path.is_within(place))
    }

    /// True if something of the host lies in them.
    pub fn surround_any(&self) -> bool {
        !self.hosts.is_empty()
    }
}

impl Plan {
    /// Directories that keep their names.
    pub fn guards(&self) -> &[PinnedDir] {
        self.steps
            .iter()
            .find_map(|step| match step {
                Step::Guards(guards) => Some(guards.as_slice()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Whether the kernel tells who looks for what is not opened.
    pub fn is_wired(&self) -> bool {
        self.steps.contains(&Step::Tripwire)
    }

    /// Owns up to a tripwire that was planned and could not be had.
    pub fn unwire(&mut self) {
        if self.is_wired() {
            self.steps.retain(|step| *step != Step::Tripwire);
            self.gaps.push(untold(FuseSupport::Opens));
        }
    }

    /// Places of the sandbox's own, of which no rule speaks.
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

    /// How much of something may be used; `None` is no limit.
    pub fn most(&self, of: Limit) -> Option<u64> {
        self.steps.iter().find_map(|step| match step {
            Step::Limit { limit, most } if *limit == of => Some(*most),
            _ => None,
        })
    }

    /// Which network the command is in.
    pub fn network(&self) -> NetworkNamespace {
        let is_own = self.steps.contains(&Step::Namespaces { network: NetworkNamespace::Own });
        if is_own { NetworkNamespace::Own } else { NetworkNamespace::Host }
    }

    /// Who the command is.
    pub fn identity(&self) -> Option<&UserIds> {
        self.steps.iter().find_map(|step| match step {
            Step::Identity(identity) => Some(identity),
            _ => None,
        })
    }
}

/// One thing that is done to confine a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Namespaces of its own, owned by a user namespace that only the warden is in.
    Namespaces {
        /// Whether the network is among them.
        network: NetworkNamespace,
    },
    /// The identity inside is the user's own.
    Identity(UserIds),
    /// A symbolic link.
    Symlink {
        /// Where.
        path: AbsPath,
        /// To what.
        target: PathBuf,
    },
    /// A file that ringfence wrote.
    File {
        /// Where.
        path: AbsPath,
        /// What it says.
        content: String,
    },
    /// An empty directory.
    Directory {
        /// Where.
        path: AbsPath,
    },
    /// Whatever is not opened tells who wanted it.
    Tripwire,
    /// Something the host has, at the same path.
    Bind {
        /// Where.
        path: AbsPath,
        /// What may be done there.
        access: MountAccess,
        /// What it is.
        kind: FileKind,
    },
    /// A writable place private to the project.
    Private {
        /// Where it shows.
        path: AbsPath,
        /// Where it is kept.
        store: AbsPath,
        /// What shows through from the host.
        beneath: Option<AbsPath>,
        /// Which of the layers beside the store's own is written to: a run that goes on at the same
        /// time writes to the latter.
        beside: Option<u16>,
    },
    /// A writable place that ends with the sandbox.
    Scratch {
        /// Where.
        path: AbsPath,
    },
    /// `/proc` with the sandbox's own processes.
    Processes {
        /// What may be done there.
        access: MountAccess,
    },
    /// `/dev` with the few devices that programs need.
    Devices,
    /// A node of ours over something in an opened tree.
    Cover {
        /// Over what.
        path: AbsPath,
        /// What the cover does.
        cover: Overmount,
    },
    /// A file of ours in place of the host's.
    Instead {
        /// Where.
        path: AbsPath,
        /// Where ours stands.
        with: AbsPath,
    },
    /// Something denied outside the opened trees: it is there and cannot be opened.
    Denied {
        /// Where.
        path: AbsPath,
        /// What stands there.
        kind: FileKind,
    },
    /// A denied directory through which something opened is reached: it cannot be listed.
    Passage {
        /// Where.
        path: AbsPath,
    },
    /// What appears later in these trees is covered as well, as soon as it is seen.
    Lookout {
        /// Where patterns hold.
        trees: Vec<AbsPath>,
    },
    /// The root itself becomes read-only.
    Seal,
    /// A second user namespace in which every mount is locked, without any capability.
    Lock,
    /// A second wall: no signals and no abstract sockets out.
    Landlock,
    /// Protected and denied names cannot be made although they are absent.
    Guards(Vec<PinnedDir>),
    /// The way to some hosts.
    Egress,
    /// A value that stays outside is put into requests on the way.
    Secret {
        /// The variable.
        env: String,
        /// The header.
        header: String,
        /// The hosts that get it.
        hosts: Vec<String>,
    },
    /// The same by a proxy, for those who would rather ask one.
    Proxy,
    /// What goes through is told of.
    Observe,
    /// Only so much of something is used.
    Limit {
        /// Of what.
        limit: Limit,
        /// How much.
        most: u64,
    },
    /// System calls that are refused.
    Seccomp,
}

/// Whether a namespace is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetworkNamespace {
    /// Loopback only.
    Own,
    /// The host's.
    Host,
}

/// Who the command is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIds {
    /// User id, the same inside and outside.
    pub uid: u32,
    /// Group id, the same inside and outside.
    pub gid: u32,
}

/// What may be done with a bound tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountAccess {
    /// Read and execute.
    ReadOnly,
    /// Write as well.
    ReadWrite,
}

/// What a cover does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Overmount {
    /// Nothing can be opened.
    Deny(FileKind),
    /// It can be read, not written.
    ReadOnly,
    /// The same, but what is mounted below it is left alone.
    Shallow,
}

/// What kind of thing stands somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// Anything else.
    File,
}

/// A directory that was there when the sandbox was opened, and keeps its name: the
/// protects of git hold in it, and it cannot be moved away and back.
///
/// Known by identity, not by path: a directory above it may be renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedDir {
    /// Where it stood when the sandbox was opened.
    pub path: AbsPath,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Why it is guarded.
    pub kind: PinReason,
}

/// Why a directory is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PinReason {
    /// Git obeys what is in it.
    Git,
    /// Something denied or protected is below it.
    Above,
    /// It is the top of a repository's working tree: settings that programs obey must not be made
    /// in it.
    Tree,
    /// It is a link with a denied or protected name.
    Link,
}

impl fmt::Display for Step {
    /// One line for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Namespaces { network: NetworkNamespace::Own } => {
                f.write_str("isolate  mounts, processes, ipc, host name, cgroup, network")
            }
            Step::Namespaces { network: NetworkNamespace::Host } => {
                f.write_str("isolate  mounts, processes, ipc, host name, cgroup")
            }
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
                write!(f, "private  {path} over the host's (kept in {store})")
            }
            Step::Scratch { path } => write!(f, "scratch  {path}"),
            Step::Processes { access: MountAccess::ReadWrite } => f.write_str("private  /proc"),
            Step::Processes { access: MountAccess::ReadOnly } => {
                f.write_str("private  /proc (read-only)")
            }
            Step::Tripwire => f.write_str("watch    whatever is not opened"),
            Step::Devices => f.write_str("private  /dev"),
            Step::Cover { path, cover: Overmount::Deny(_) } => write!(f, "deny     {path}"),
            Step::Cover { path, cover: Overmount::ReadOnly | Overmount::Shallow } => {
                write!(f, "protect  {path}")
            }
            Step::Instead { path, with } => write!(f, "splice   {path} (shows {with})"),
            Step::Denied { path, .. } => write!(f, "deny     {path}"),
            Step::Passage { path } => write!(f, "pass     {path} (not listed)"),
            Step::Lookout { trees } => {
                let trees: Vec<String> = trees.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "look out for denied and protected names that appear in {}",
                    trees.join(", ")
                )
            }
            Step::Seal => f.write_str("seal     everything else"),
            Step::Lock => f.write_str("lock     mounts; drop every capability"),
            Step::Landlock => f.write_str("landlock no signals or abstract sockets out"),
            Step::Guards(guards) => {
                write!(
                    f,
                    "guard    protected and denied names while absent; {} directories keep their names",
                    guards.len()
                )
            }
            Step::Egress => f.write_str("reach    the hosts that the policy lists"),
            Step::Secret { env, header, hosts } => {
                write!(f, "secret   {env} is put into {header} for {}", hosts.join(", "))
            }
            Step::Proxy => write!(f, "proxy    the same, at 127.0.0.1:{PROXY_PORT}"),
            Step::Observe => {
                f.write_str("observe  every file opened, program started and host reached")
            }
            Step::Limit { limit, most } => write!(f, "limit    {limit} to {}", limit.show(*most)),
            Step::Seccomp => f.write_str("seccomp  refuse what a command does not need"),
        }
    }
}
