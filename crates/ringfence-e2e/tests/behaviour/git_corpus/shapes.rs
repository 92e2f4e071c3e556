//! Repository shapes: layouts and states that real projects have.

use super::commands::CorpusLine;

/// A kind of repository.
pub(super) struct Shape {
    /// The name of its test.
    pub(super) name: &'static str,
    /// Shell that makes the layout of the first commit.
    pub(super) layout: &'static str,
    /// Files that every commit and branch changes.
    pub(super) tracked: &'static [&'static str],
    /// Shell that brings the finished repository into its state.
    pub(super) state: &'static str,
    /// The top of the work tree, relative to the project.
    pub(super) top: &'static str,
    /// The directory in which commands run, relative to the top.
    pub(super) place: &'static str,
    /// Commands of this shape alone, which come first.
    pub(super) own: &'static [CorpusLine],
    /// The way in.
    pub(super) through: Through,
}

/// The way in which commands get inside.
#[derive(Clone, Copy)]
pub(super) enum Through {
    /// One session for all.
    Session,
    /// A run for each.
    Runs,
}

const PLAIN: Shape = Shape {
    name: "plain",
    layout: "",
    tracked: &[],
    state: "",
    top: "",
    place: "",
    own: &[],
    through: Through::Session,
};

/// Every shape.
pub(super) const SHAPES: &[Shape] = &[
    Shape { through: Through::Runs, ..PLAIN },
    Shape {
        name: "requests_sdist",
        tracked: &[
            "tests/certs/expired/server/server.key",
            "tests/certs/expired/server/server.pem",
            "tests/certs/expired/ca/ca-private.key",
            "tests/certs/mtls/client/client.pem",
            "src/requests/certs.py",
        ],
        layout: "mkdir -p tests/certs/valid && ln -s ../expired/ca tests/certs/valid/ca && fill setup.cfg && fill PKG-INFO",
        ..PLAIN
    },
    Shape { name: "tornado_sdist", tracked: &["tornado/test/test.key", "tornado/test/test.crt", "tornado/test/secrets_test.py"], ..PLAIN },
    Shape {
        name: "urllib3_sdist",
        tracked: &["dummyserver/certs/cacert.key", "dummyserver/certs/cacert.pem", "dummyserver/certs/server.combined.pem", "test/credentials.json"],
        through: Through::Runs,
        ..PLAIN
    },
    Shape { name: "jq_public_key", tracked: &["sig/jq-release-new.key", "sig/jq-release-old.key", "sig/v1.7/sha256sum.txt"], ..PLAIN },
    Shape {
        name: "rails_app",
        tracked: &[".env.development", ".env.test", "config/credentials.yml.enc", "config/database.yml"],
        layout: "fill config/initializers/secret_token.rb; printf '/config/*.key\\n/.env.local\\n/log\\n' > .gitignore; mkdir log; fill log/x.log
                 fill config/master.key; fill .env.local",
        ..PLAIN
    },
    Shape {
        name: "vite_app",
        tracked: &[".env", ".env.development", "vite.config.ts"],
        layout: "printf '*.local\\nnode_modules\\ndist\\n' > .gitignore; fill .env.local; fill .env.production.local; fill node_modules/vite/index.js
                 fill node_modules/tls/test/key.pem; fill .env.example",
        ..PLAIN
    },
    Shape {
        name: "django_app",
        tracked: &[".env.development", "app/settings.py", "app/fixtures/secrets.json"],
        layout: "printf '.env\\n__pycache__\\n*.pyc\\n' > .gitignore; fill .env; fill manage.py; fill app/__pycache__/secrets.cpython-311.pyc",
        ..PLAIN
    },
    Shape {
        name: "kubernetes_manifests",
        tracked: &["base/secret.yaml", "overlays/prod/sealed-secret.yaml", "overlays/prod/kustomization.yaml", "charts/app/templates/secrets.yaml"],
        layout: "echo '*.dec.yaml' > .gitignore; fill base/secret.dec.yaml",
        ..PLAIN
    },
    Shape {
        name: "filter_of_the_user",
        tracked: &["assets/model.bin"],
        layout: "printf '*.bin filter=turned -text\\n' > .gitattributes
                 git config --global filter.turned.clean tac
                 git config --global filter.turned.smudge tac
                 git config --global filter.turned.required true",
        own: &[
            ("filter-add", "cp \"$T/README.md\" \"$T/assets/other.bin\" && git add -A && git commit -m bin && git cat-file -p HEAD:assets/other.bin"),
            ("filter-checkout", "rm \"$T\"/assets/* && git checkout -- \"$T/assets\" && cat \"$T\"/assets/*"),
        ],
        ..PLAIN
    },
    Shape {
        name: "submodule",
        layout: "git -c protocol.file.allow=always submodule --quiet add ../lib.git vendored/lib",
        own: &[
            ("submodule-work", "cd vendored/lib && echo m >> lib.txt && git commit -am sub && cd ../.. && git status --short && git diff --submodule && git commit -am bump"),
            ("submodule-foreach", "git submodule foreach 'git log --oneline'"),
        ],
        ..PLAIN
    },
    Shape {
        name: "submodule_two_deep",
        layout: "git clone -q \"$C/lib.git\" \"$C/w\" && (cd \"$C/w\" && git init -q --bare ../inner.git && git push -q ../inner.git main
                 git -c protocol.file.allow=always submodule --quiet add ../inner.git inner && dated git commit -qm inner && git push -q origin main)
                 rm -rf \"$C/w\"; git -c protocol.file.allow=always submodule --quiet add ../lib.git lib
                 git -c protocol.file.allow=always submodule --quiet update --init --recursive",
        ..PLAIN
    },
    Shape {
        name: "submodule_not_initialised",
        layout: "git -c protocol.file.allow=always submodule --quiet add ../lib.git lib",
        state: "git submodule --quiet deinit -f lib && rm -rf .git/modules",
        through: Through::Runs,
        ..PLAIN
    },
    Shape {
        name: "bare_with_worktrees",
        state: "mv .git .bare && git -C .bare config core.bare true && find . -mindepth 1 -maxdepth 1 -not -name .bare -exec rm -rf {} + \
                && echo 'gitdir: ./.bare' > .git && git worktree add -q main main && git worktree add -q other topic",
        top: "main",
        ..PLAIN
    },
    Shape {
        name: "linked_worktree",
        state: "git checkout -q --detach && cd .. && mv app store && mkdir app && git -C store worktree add -q ../app main",
        ..PLAIN
    },
    Shape {
        name: "sparse_checkout",
        layout: "fill pkg/a/x.txt; fill pkg/b/x.txt; fill pkg/b/secret.yaml",
        state: "git sparse-checkout set --cone src doc pkg/a",
        own: &[("sparse-list", "git sparse-checkout list && git ls-files -t")],
        ..PLAIN
    },
    Shape {
        name: "monorepo_with_nested_repositories",
        tracked: &["services/api/server.pem"],
        layout: "echo /checkouts > .gitignore",
        state: "git clone -q \"$C/lib.git\" checkouts/one && git init -q checkouts/two && git clone -q --bare \"$C/lib.git\" checkouts/three.git",
        own: &[
            ("nested-commit", "cd checkouts/one && echo n >> lib.txt && git commit -am nested && git push && git log --oneline"),
            ("nested-status", "git -C checkouts/two status && git -C checkouts/three.git log --oneline"),
        ],
        ..PLAIN
    },
    Shape {
        name: "husky",
        layout: "mkdir .husky && printf '#!/bin/sh\\necho husky checks\\ngit diff --cached --check\\n' > .husky/pre-commit && chmod +x .husky/pre-commit
                 git config core.hooksPath .husky",
        ..PLAIN
    },
    Shape {
        name: "hooks",
        state: "printf '#!/bin/sh\\necho checked by pre-commit >&2\\n' > .git/hooks/pre-commit
                printf '#!/bin/sh\\necho \"signed off\" >> \"$1\"\\n' > .git/hooks/commit-msg
                printf '#!/bin/sh\\necho \"checked out $3\"\\n' > .git/hooks/post-checkout
                printf '#!/bin/sh\\ngrep -q forbidden README.md && exit 1; exit 0\\n' > .git/hooks/pre-push
                chmod +x .git/hooks/*",
        own: &[("hook-refuses", "printf '#!/bin/sh\\nexit 1\\n' > \"$T/x\"; git commit --allow-empty -m x; rm \"$T/x\"")],
        ..PLAIN
    },
    Shape {
        name: "line_ends",
        tracked: &["win.bat", "unix.sh"],
        layout: "printf '* text=auto\\n*.bat eol=crlf\\n*.sh eol=lf\\n*.png binary\\n' > .gitattributes; git config core.autocrlf input
                 sed -i 's/$/\\r/' win.bat; printf '\\0\\r\\n' > a.png",
        state: "rm win.bat && git checkout -q -- win.bat",
        ..PLAIN
    },
    Shape {
        name: "symbolic_links",
        layout: "ln -s README.md link; ln -s nowhere dangling; ln -s src directory-link; ln -s /etc/hostname absolute; ln -s .env.example env-link
                 fill .env.example",
        own: &[("link-change", "ln -sfn doc directory-link && git diff && git commit -am link && git checkout HEAD~ -- directory-link")],
        ..PLAIN
    },
    Shape {
        name: "odd_names",
        tracked: &["gr\u{fc}\u{df}e/\u{65e5}\u{672c}.txt", "with space/a b.txt", "dash/-dash.txt"],
        layout: "printf x > \"$(printf 'bytes\\377')\"; printf x > \"$(printf 'new\\nline')\"; printf x > '\"quoted\"'; printf x > 'a\\b'; printf x > '$dollar'
                 printf x > ' leading'; mkdir -p deep/$(printf 'd/%.0s' 1 2 3 4 5 6 7 8 9) && printf x > 'deep/d/*'",
        ..PLAIN
    },
    Shape {
        name: "many_files",
        layout: "for d in $(seq 16); do mkdir -p many/$d; (cd many/$d && for f in $(seq 32); do echo $d-$f > file$f.txt; done); done",
        ..PLAIN
    },
    Shape {
        name: "shallow_clone",
        state: "find . -mindepth 1 -delete; git clone -q --depth 1 \"file://$C/origin.git\" . && git remote set-url origin \"$C/origin.git\"",
        own: &[("shallow-fetch", "git rev-parse --is-shallow-repository && git fetch --depth 2 && git log --oneline")],
        ..PLAIN
    },
    Shape { name: "unborn_head", state: "rm -rf .git && git init -q .", through: Through::Runs, ..PLAIN },
    Shape { name: "detached_head", tracked: &["certs/ca.pem"], state: "git checkout -q --detach v1", ..PLAIN },
    Shape {
        name: "merge_conflict",
        tracked: &["certs/ca.pem"],
        state: "git merge clash >/dev/null || true",
        own: &[
            ("conflict-status", "git status && git diff && git ls-files -u"),
            ("conflict-resolve", "git checkout --theirs -- README.md && git add README.md && git status --short"),
            ("conflict-commit", "git commit --no-edit && git log --graph --oneline"),
        ],
        ..PLAIN
    },
    Shape {
        name: "rebase_conflict",
        tracked: &["certs/ca.pem"],
        state: "git checkout -q clash && ! git rebase main >/dev/null 2>&1",
        own: &[
            ("conflict-status", "git status && git diff"),
            ("conflict-resolve", "git checkout --ours -- README.md && echo both >> README.md && git add README.md"),
            ("rebase-continue", "git rebase --continue && git log --oneline && git switch main"),
        ],
        ..PLAIN
    },
    Shape {
        name: "stashes",
        tracked: &["certs/ca.pem"],
        state: "echo one >> README.md && dated git stash -q && echo two >> src/lib.txt && echo u > untracked && dated git stash -q -u",
        own: &[
            ("stash-list", "git stash list && git stash show -p 'stash@{1}'"),
            ("stash-apply", "git stash apply && git status --short && git stash drop"),
            ("stash-branch", "git reset -q --hard && git clean -fdq && git stash branch stashed && git commit -am stashed && git switch main"),
        ],
        ..PLAIN
    },
    Shape {
        name: "tags_and_notes",
        state: "dated git notes add -m noted HEAD~ && dated git notes --ref=review add -m reviewed && git tag v2-light HEAD~
                printf 'object %s\\ntype commit\\ntag signed\\ntagger A <a@b> 1600000000 +0000\\n\\nsigned\\n-----BEGIN SSH SIGNATURE-----\\nU1NI\\n-----END SSH SIGNATURE-----\\n' \
                $(git rev-parse HEAD) | git mktag | xargs git update-ref refs/tags/signed",
        own: &[
            ("tag-show", "git tag -n3 && git cat-file -p signed && git describe --abbrev=4 HEAD~ && git log --notes=review -2"),
            ("tag-delete", "git tag -d v2-light && git notes remove HEAD~ && git push origin signed refs/notes/review"),
        ],
        ..PLAIN
    },
    Shape { name: "sha256", layout: "rm -rf .git && git init -q --object-format=sha256 . && rm -rf \"$C/lib.git\" && git init -q --bare --object-format=sha256 \"$C/lib.git\"", ..PLAIN },
    Shape { name: "reftable", layout: "rm -rf .git && git init -q --ref-format=reftable .", ..PLAIN },
    Shape {
        name: "packed",
        tracked: &["keys/host.key"],
        state: "git pack-refs --all && git gc -q && git commit-graph write --reachable && git multi-pack-index write",
        ..PLAIN
    },
    Shape { name: "split_index", tracked: &["keys/host.key"], state: "git config core.splitIndex true && git update-index --split-index && git config core.untrackedCache true", ..PLAIN },
    Shape { name: "subdirectory", tracked: &["src/deep/down/tls.key"], place: "src/deep/down", ..PLAIN },
    Shape {
        name: "source_named_secrets",
        tracked: &["src/secrets/mod.rs", "src/credentials/store.py", "lib/secrets/index.ts", "internal/secret/secret.go"],
        layout: "fill src/secrets/tests/data.txt; fill pkg/credentials/credentials.go; fill web/src/secrets/Secrets.vue; fill docs/secrets.md",
        ..PLAIN
    },
    Shape {
        name: "committed_settings",
        tracked: &["src/settings.txt"],
        layout: "fill .vscode/settings.json; fill .claude/settings.json; fill .claude/commands/go.md; fill .mcp.json; fill .idea/workspace.xml; fill .editorconfig
                 fill CLAUDE.md; fill .github/workflows/ci.yml",
        ..PLAIN
    },
    Shape {
        name: "remote_branches",
        state: "for b in one two; do git push -q origin HEAD:refs/heads/release/$b; done; git fetch -q; git branch -q --set-upstream-to=origin/main main
                git config push.autoSetupRemote true",
        own: &[
            ("switch-guess", "git switch release/one && git status -sb && git branch -vv"),
            ("push-auto", "git switch -c automatic && git commit --allow-empty -m a && git push && git status -sb"),
            ("branch-delete", "git switch main && git branch -d release/one; git branch -D automatic && git remote prune origin"),
        ],
        ..PLAIN
    },
];
