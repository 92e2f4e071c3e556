//! The warning that some denials are not reported on this host.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::time::{Duration, SystemTime};

use ringfence_api::{Gap, GapKind};
use ringfence_policy::AbsPath;

use crate::messages;

/// The time before the warning is repeated. Printed for every command, it would drown the
/// command's own output.
const SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The gap of a port that another program or sandbox uses. This warning is printed every time.
const PORTS: &str = "network.bind";

/// Warns if denials go unreported, at most once a day for each user.
pub(super) fn warn_once(gaps: &[Gap], state: &AbsPath) {
    for gap in gaps.iter().filter(|gap| gap.kind == GapKind::Reporting && gap.what == PORTS) {
        messages::print_warning(&format!("{}; {}", gap.why, gap.hint));
    }
    let Some(gap) = gaps.iter().find(|gap| gap.kind == GapKind::Reporting && gap.what != PORTS)
    else {
        return;
    };
    let marker = state.join("warned-of-untold");
    let warned_at = fs::symlink_metadata(marker.as_path()).and_then(|marker| marker.modified());
    let is_recent = warned_at.is_ok_and(|warned_at| {
        SystemTime::now().duration_since(warned_at).is_ok_and(|since| since < SILENCE)
    });
    // If the marker cannot be written, the warning would repeat for every command: stay silent.
    if !is_recent && mark(&marker).is_ok() {
        messages::print_warning(&format!(
            "not every denial is reported: {}; {}",
            gap.why, gap.hint
        ));
    }
}

fn mark(marker: &AbsPath) -> io::Result<()> {
    if let Some(directory) = marker.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory.as_path())?;
    }
    let _ = fs::remove_file(marker.as_path());
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(marker.as_path()).map(drop)
}
