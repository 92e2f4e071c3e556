//! Checks Codex's `apply_patch` tool, which has its own patch format.

use std::path::Path;

use ringfence_policy::{Access, Tool};

use super::answer::HookReply;
use super::call::HookCall;
use super::files;
use crate::error::CliError;

pub(super) fn answer(hook_call: &HookCall) -> Result<HookReply, CliError> {
    let patch = hook_call.input.string_argument("command")?;
    let paths: Vec<&str> = paths(patch).collect();
    if paths.is_empty() {
        return Ok(HookReply::Denied {
            reason: "ringfence found no file in the patch, so it cannot be checked".into(),
        });
    }
    let tools = files::open_tools(hook_call)?;
    for path in paths {
        match files::decision_reply(
            hook_call,
            tools.check_call(Tool::Edit, Path::new(path), Access::Write),
        )? {
            HookReply::Nothing => {}
            refused => return Ok(refused),
        }
    }
    Ok(HookReply::Nothing)
}

/// Returns the files of a patch. A content line begins with a sign, so it cannot look like a file
/// header; an indented one that does is only checked in addition.
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
