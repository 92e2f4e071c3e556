//! Codex's own tool for files, which takes a patch of its own form.

use std::path::Path;

use ringfence_policy::{Access, Tool};

use super::answer::HookReply;
use super::call::HookCall;
use super::files;
use crate::error::CliError;

pub(super) fn answer(scene: &HookCall) -> Result<HookReply, CliError> {
    let patch = scene.input.text("command")?;
    let paths: Vec<&str> = paths(patch).collect();
    if paths.is_empty() {
        return Ok(HookReply::Denied {
            reason: "ringfence: no file could be found in the patch, so nothing could be checked"
                .into(),
        });
    }
    let tools = files::tools(scene)?;
    for path in paths {
        match files::told(scene, tools.judge(Tool::Edit, Path::new(path), Access::Write))? {
            HookReply::Nothing => {}
            refused => return Ok(refused),
        }
    }
    Ok(HookReply::Nothing)
}

/// The files that a patch is about. Lines of content begin with a sign of their own, so that none
/// of these can stand in one; one that does all the same is only checked as well.
fn paths(patch: &str) -> impl Iterator<Item = &str> {
    const WORDS: [&str; 4] =
        ["*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:"];
    patch
        .lines()
        .filter_map(|line| WORDS.iter().find_map(|word| line.trim_start().strip_prefix(word)))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_file_of_a_patch_is_found() {
        let patch = "*** Begin Patch\n*** Add File: a b.txt\n+x\n*** Update File: c\n*** Move to: ../d\n@@\n-x\n+y\n*** Delete File: /e\n*** End Patch";
        assert_eq!(super::paths(patch).collect::<Vec<_>>(), ["a b.txt", "c", "../d", "/e"]);
        assert_eq!(super::paths("diff --git a/x b/x").count(), 0);
    }
}
