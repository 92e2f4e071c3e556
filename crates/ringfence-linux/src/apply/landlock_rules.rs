//! The Landlock rule set of a plan.
//!
//! With a notify handler, each tree is opened for reading, and the handler decides about every path
//! in it.
//!
//! Without one, a tree with a denied or protected path is opened entry by entry, because a right on
//! a directory holds for everything below it. Each entry without such a path gets the rights of the
//! tree, and the directories above the path can only be listed.

use std::os::fd::{AsFd, OwnedFd};

use ringfence_plan::{MountAccess, Overmount, Plan, Step};
use ringfence_policy::AbsPath;
use ringfence_sys::landlock::{self, fs_right as right, scope};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{SetupError, SetupStep};
use crate::open::open_at;

const READ: u64 = right::EXECUTE | right::READ_FILE | right::READ_DIR;
const WRITE: u64 = READ
    | right::WRITE_FILE
    | right::REMOVE_DIR
    | right::REMOVE_FILE
    | right::MAKE_DIR
    | right::MAKE_REG
    | right::MAKE_FIFO
    | right::MAKE_SYM
    | right::REFER
    | right::TRUNCATE;
const DEVICE: u64 = right::READ_FILE | right::WRITE_FILE | right::IOCTL_DEV;
/// The rights that exist for files; the kernel rejects a rule for a file with any other.
const OF_FILES: u64 =
    right::EXECUTE | right::READ_FILE | right::WRITE_FILE | right::TRUNCATE | right::IOCTL_DEV;

/// The devices that programs need.
pub(super) const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Creates the rule set of `plan`. Paths that do not exist open nothing.
pub(super) fn create(plan: &Plan) -> Result<OwnedFd, SetupError> {
    let abi = landlock::abi().during("read the version of Landlock")?;
    let scoped = if plan.steps.contains(&Step::Landlock) {
        scope::ABSTRACT_UNIX_SOCKET | scope::SIGNAL
    } else {
        0
    };
    let known = landlock::known_fs_rights(abi);
    let rules = landlock::create_ruleset(known, scoped).during("landlock_create_ruleset")?;
    // The notify handler decides about the paths in a tree, and executes what changes them.
    let is_mediated = plan.is_mediated();
    let closed = if is_mediated { Vec::new() } else { closed_paths(plan) };
    let builder = RuleBuilder { rules, known, closed };
    for step in &plan.steps {
        match step {
            Step::Bind { path, access, .. } => {
                let is_written = *access == MountAccess::ReadWrite && !is_mediated;
                builder.open_tree(path, if is_written { WRITE } else { READ })?;
            }
            Step::Scratch { path } if is_mediated => builder.open_tree(path, READ)?,
            Step::Scratch { path } => builder.open_tree(path, WRITE)?,
            Step::Devices => builder.open_devices()?,
            _ => {}
        }
    }
    Ok(builder.rules)
}

/// The masked paths, in order.
fn closed_paths(plan: &Plan) -> Vec<(AbsPath, Overmount)> {
    let masked = plan.steps.iter().filter_map(|step| match step {
        Step::Mask { path, mask } => Some((path.clone(), *mask)),
        _ => None,
    });
    let mut closed: Vec<_> = masked.collect();
    closed.sort();
    closed
}

struct RuleBuilder {
    rules: OwnedFd,
    /// The rights that this kernel knows.
    known: u64,
    closed: Vec<(AbsPath, Overmount)>,
}

const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl RuleBuilder {
    fn open_tree(&self, path: &AbsPath, rights: u64) -> Result<(), SetupError> {
        // A link that another process made since the survey must not open its target.
        let opened = rustix::fs::openat2(
            rustix::fs::CWD,
            path.as_path(),
            PATH_FLAGS,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
        );
        match opened {
            Ok(tree) => self.open_entry(&tree, path, rights),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(()),
            Err(error) => Err(error).during(|| format!("open {path}")),
        }
    }

    /// Opens an entry: as a whole, or entry by entry.
    fn open_entry(&self, entry: &OwnedFd, path: &AbsPath, rights: u64) -> Result<(), SetupError> {
        let mut around = self.closed.iter().filter(|(closed, _)| closed.is_within(path));
        match around.find(|(closed, _)| closed == path) {
            Some((_, Overmount::Deny(_))) => return Ok(()),
            Some((_, Overmount::ReadOnly | Overmount::Shallow))
                if rights & right::WRITE_FILE != 0 =>
            {
                return self.open_entry_with(entry, path, READ);
            }
            _ => {}
        }
        self.open_entry_with(entry, path, rights)
    }

    fn open_entry_with(
        &self,
        entry: &OwnedFd,
        path: &AbsPath,
        rights: u64,
    ) -> Result<(), SetupError> {
        let kind = FileType::from_raw_mode(
            rustix::fs::fstat(entry).during(|| format!("stat {path}"))?.st_mode,
        );
        if !kind.is_dir() {
            return self.allow(entry, path, rights & OF_FILES);
        }
        // A read-only path below a tree to read changes nothing.
        let is_narrower = |mask: &Overmount| {
            matches!(mask, Overmount::Deny(_)) || rights & right::WRITE_FILE != 0
        };
        let is_split = self
            .closed
            .iter()
            .any(|(closed, mask)| closed != path && closed.is_within(path) && is_narrower(mask));
        if !is_split {
            return self.allow(entry, path, rights);
        }
        self.allow(entry, path, right::READ_DIR)?;
        let listed = open_at(entry, ".", OFlags::RDONLY | OFlags::DIRECTORY);
        let entries = match listed.and_then(rustix::fs::Dir::new) {
            Ok(entries) => entries,
            // The command cannot list it either.
            Err(Errno::ACCESS) => return Ok(()),
            Err(error) => return Err(error).during(|| format!("list {path}")),
        };
        for inner in entries {
            let inner = inner.during(|| format!("list {path}"))?;
            let name = inner.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            use std::os::unix::ffi::OsStrExt;
            let at = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            match rustix::fs::openat(entry, name, PATH_FLAGS | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(inner) => self.open_entry(&inner, &at, rights)?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error).during(|| format!("open {at}")),
            }
        }
        Ok(())
    }

    /// The devices that programs need, and the terminals that are the standard streams.
    fn open_devices(&self) -> Result<(), SetupError> {
        for name in DEVICES {
            self.open_file(&AbsPath::root().join("dev").join(name))?;
        }
        for number in 0..3 {
            let stream = AbsPath::root().join(format!("proc/self/fd/{number}"));
            let is_terminal = std::fs::read_link(stream.as_path())
                .is_ok_and(|target| target.starts_with("/dev/pts/"));
            if is_terminal {
                self.open_file(&stream)?;
            }
        }
        Ok(())
    }

    fn open_file(&self, path: &AbsPath) -> Result<(), SetupError> {
        match rustix::fs::open(path.as_path(), PATH_FLAGS, Mode::empty()) {
            Ok(device) => self.allow(&device, path, DEVICE),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error).during(|| format!("open {path}")),
        }
    }

    fn allow(&self, entry: &OwnedFd, path: &AbsPath, rights: u64) -> Result<(), SetupError> {
        let rights = rights & self.known;
        landlock::allow(self.rules.as_fd(), entry.as_fd(), rights)
            .during(|| format!("landlock_add_rule for {path}"))
    }
}
