//! Warns that not every denial is reported here.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::time::{Duration, SystemTime};

use ringfence_api::{Gap, GapKind};
use ringfence_policy::AbsPath;

use crate::messages;

/// So long a warning is not repeated: at every command, it would stand in what is the command's
/// own.
const SILENCE: Duration = Duration::from_secs(24 * 60 * 60);

/// The gap of a port that another program or sandbox has. It is said each time.
const PORTS: &str = "network.bind";

/// Warns in one line if denials go unreported, at most once a day for each user.
pub(super) fn warn_once(gaps: &[Gap], state: &AbsPath) {
    for gap in gaps.iter().filter(|gap| gap.loss == GapKind::Telling && gap.what == PORTS) {
        messages::warning(&format!("{}; {}", gap.why, gap.hint));
    }
    let Some(gap) = gaps.iter().find(|gap| gap.loss == GapKind::Telling && gap.what != PORTS)
    else {
        return;
    };
    let marker = state.join("warned-of-untold");
    let said = fs::symlink_metadata(marker.as_path()).and_then(|marker| marker.modified());
    let is_recent = said.is_ok_and(|said| {
        SystemTime::now().duration_since(said).is_ok_and(|since| since < SILENCE)
    });
    // A warning that cannot be remembered would be repeated at every command.
    if !is_recent && mark(&marker).is_ok() {
        messages::warning(&format!("not every denial is reported: {}; {}", gap.why, gap.hint));
    }
}

fn mark(marker: &AbsPath) -> io::Result<()> {
    if let Some(directory) = marker.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory.as_path())?;
    }
    let _ = fs::remove_file(marker.as_path());
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(marker.as_path()).map(drop)
}
