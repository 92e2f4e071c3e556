//! The git commands of the corpus, in the order in which one world meets them.
//!
//! Every line runs in the directory that its shape names. `$T` is the top of the work tree, `$C`
//! the directory that holds the project and its remotes, `$F` a tracked file that each branch
//! changes.

/// A name and the line of shell that it stands for.
pub(super) type CorpusLine = (&'static str, &'static str);

/// Commands that read, change and commit in one repository.
pub(super) const LOCAL: &[CorpusLine] = &[
    ("status-short", "git status --short --branch"),
    ("status-v2", "git status --porcelain=v2 --branch --show-stash --ignored"),
    ("log-stat", "git log --stat"),
    ("log-graph", "git log --graph --oneline --decorate --all"),
    ("show", "git show --stat -p HEAD"),
    ("show-file", "git show HEAD:\"$F\""),
    ("blame", "git blame \"$T/$F\""),
    ("grep", "git grep -n second -- \"$T\""),
    ("ls-files", "git ls-files -s"),
    ("ls-others", "git ls-files -o --exclude-standard"),
    ("describe", "git describe --always --tags --dirty"),
    ("reflog", "git reflog"),
    ("config-get", "git config --get user.name && git config --get core.bare"),
    ("config-list", "git config --list --local"),
    ("diff-parent", "git diff HEAD~"),
    ("diff", "echo change >> \"$T/README.md\" && git diff"),
    ("stash", "git stash"),
    ("stash-show", "git stash list && git stash show -p"),
    ("stash-pop", "git stash pop"),
    ("commit-am", "git commit -am change"),
    ("commit-amend", "echo more >> \"$T/README.md\" && git commit -a --amend -m amended"),
    (
        "add-all",
        "mkdir -p \"$T/new\" && echo n > \"$T/new/file\" && git add -A \"$T\" && git status --short",
    ),
    ("diff-cached", "git diff --cached"),
    ("commit", "git commit -m new"),
    ("mv", "git mv \"$T/src/old.txt\" \"$T/src/moved.txt\" && git status --short"),
    ("rm", "git rm \"$T/doc/guide.md\""),
    ("restore", "git restore --staged --worktree :/ && git status --short"),
    ("reset-soft", "git reset --soft HEAD~ && git status --short"),
    ("reset-hard", "git reset --hard HEAD"),
    ("clean", "echo x > \"$T/src/litter\" && git clean -nd :/ && git clean -fd \"$T/src\""),
    ("tag", "git tag light && git tag -a heavy -m heavy && git tag -n && git show heavy --stat"),
    ("notes", "git notes add -m note HEAD && git notes show HEAD && git log -1 --notes"),
    ("checkout-b", "git checkout -b work && echo w >> \"$T/src/lib.txt\" && git commit -am work"),
    ("switch", "git switch main && git switch -"),
    ("branch-m", "git branch -m work task && git branch -avv"),
    ("checkout-topic", "git checkout topic && cat \"$T/$F\" && git status --short"),
    ("checkout-back", "git checkout main && git status --short"),
    ("cherry-pick", "git cherry-pick topic"),
    ("revert", "git revert --no-edit HEAD"),
    ("reset-back", "git reset --hard HEAD~2"),
    ("merge", "git merge --no-edit topic && git log --oneline --graph"),
    ("merge-conflict", "git merge clash || { git status; git diff; git merge --abort; }"),
    ("rebase", "git switch task && git rebase main"),
    (
        "rebase-conflict",
        "git switch clash && git rebase main || { git status; git rebase --abort; }",
    ),
    ("checkout-file", "git checkout topic -- \"$T/$F\" && git status --short && git reset --hard"),
    (
        "bisect",
        "git bisect start && git bisect bad HEAD && git bisect good v1 && git bisect log; git bisect reset",
    ),
    ("archive", "git archive HEAD | tar t"),
    ("fsck", "git fsck"),
    ("gc", "git gc && git count-objects -v | grep -v size"),
    ("log-after-gc", "git log --oneline --all && git status --short"),
];

/// Commands that use remotes, other work trees, submodules and patches.
pub(super) const SHARED: &[CorpusLine] = &[
    ("remote", "git remote -v && git branch -r"),
    ("fetch", "git fetch"),
    (
        "checkout-remote",
        "git checkout feature && git status --branch --short && git config --get branch.feature.merge",
    ),
    ("branch-u", "git checkout -b mine main && git branch -u origin/feature && git branch -vv"),
    ("pull", "git switch main && git pull --no-rebase --no-edit"),
    ("pull-rebase", "git switch feature && git pull --rebase"),
    ("push", "git switch main && git push origin main"),
    (
        "push-u",
        "git checkout -b sent topic && git push -u origin sent && git status --branch --short",
    ),
    ("push-delete", "git push origin --delete sent"),
    ("branch-m-upstream", "git branch -m feature renamed && git branch -vv"),
    ("remote-add", "git remote add second \"$C/lib.git\" && git fetch second && git remote -v"),
    ("remote-remove", "git remote remove second && git remote -v"),
    (
        "clone",
        "git clone \"$T\" \"$T/copy\" && git -C \"$T/copy\" status && git -C \"$T/copy\" log --oneline",
    ),
    (
        "clone-commit",
        "cd \"$T/copy\" && echo c >> README.md && git commit -am copy && git checkout -b next && git log -2 --stat",
    ),
    (
        "clone-recursive",
        "git -c protocol.file.allow=always clone --recurse-submodules \"$C/origin.git\" \"$T/deep\" && git -C \"$T/deep\" submodule status --recursive",
    ),
    ("rm-clones", "rm -rf \"$T/copy\" \"$T/deep\" && git status --short"),
    ("worktree-add", "git worktree add -b linked \"$T/tree\" main && git worktree list"),
    (
        "worktree-commit",
        "cd \"$T/tree\" && echo t >> README.md && git commit -am tree && git status --short",
    ),
    ("worktree-remove", "git worktree remove \"$T/tree\" && git worktree list"),
    ("submodule-status", "cd \"$T\" && git submodule status --recursive"),
    (
        "submodule-update",
        "cd \"$T\" && git -c protocol.file.allow=always submodule update --init --recursive",
    ),
    (
        "submodule-add",
        "cd \"$T\" && git -c protocol.file.allow=always submodule add ../lib.git libs/extra && git commit -m extra && git submodule status",
    ),
    ("format-patch", "git format-patch -o \"$T/patches\" v1..topic"),
    (
        "apply",
        "git checkout --detach v1 && git apply --check \"$T\"/patches/0001* && git apply \"$T\"/patches/0001* && git diff --stat",
    ),
    ("am", "git reset --hard && git clean -fdq \"$T/src\" && git am \"$T\"/patches/0*"),
    ("range-diff", "git range-diff v1..HEAD v1..topic"),
    ("switch-main", "git switch main && rm -rf \"$T/patches\" && git status --short"),
    ("diff-branches", "git diff --stat main topic && git log --oneline main..origin/main"),
    ("commit-submodule", "git commit --allow-empty -m last && git log -1 --stat"),
    ("fsck-all", "git fsck --connectivity-only"),
];
