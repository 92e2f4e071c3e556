//! Detects a project's languages, and what their tools need.

use std::fs;

use ringfence_policy::AbsPath;

/// A language, or a build system.
#[derive(Debug)]
pub(super) struct ProjectLanguage {
    pub(super) name: &'static str,
    /// Files that identify it; `*.x` matches any name with that suffix.
    marks: &'static [&'static str],
    /// Its package hosts, and their purpose.
    pub(super) hosts: &'static [(&'static str, &'static str)],
    /// Commands that publish a package.
    pub(super) publishes: &'static [&'static str],
}

const LANGUAGES: &[ProjectLanguage] = &[
    ProjectLanguage {
        name: "node",
        marks: &["package.json"],
        hosts: &[
            ("registry.npmjs.org:443", "npm, pnpm: packages"),
            ("registry.yarnpkg.com:443", "yarn: packages"),
        ],
        publishes: &["npm publish:*", "pnpm publish:*", "yarn publish:*", "yarn npm publish:*"],
    },
    ProjectLanguage {
        name: "deno",
        marks: &["deno.json", "deno.jsonc"],
        hosts: &[("deno.land:443", "deno: modules"), ("jsr.io:443", "deno: packages")],
        publishes: &["deno publish:*"],
    },
    ProjectLanguage {
        name: "rust",
        marks: &["Cargo.toml"],
        hosts: &[
            ("index.crates.io:443", "cargo: the index"),
            ("static.crates.io:443", "cargo: crates"),
            ("crates.io:443", "cargo: the registry"),
        ],
        publishes: &["cargo publish:*", "cargo yank:*"],
    },
    ProjectLanguage {
        name: "python",
        marks: &["pyproject.toml", "requirements.txt", "setup.py", "Pipfile", "uv.lock"],
        hosts: &[
            ("pypi.org:443", "pip, uv: the index"),
            ("files.pythonhosted.org:443", "pip, uv: packages"),
        ],
        publishes: &["twine upload:*", "poetry publish:*", "uv publish:*"],
    },
    ProjectLanguage {
        name: "go",
        marks: &["go.mod"],
        hosts: &[("proxy.golang.org:443", "go: modules"), ("sum.golang.org:443", "go: checksums")],
        publishes: &[],
    },
    ProjectLanguage {
        name: "java",
        marks: &[
            "pom.xml",
            "build.gradle",
            "build.gradle.kts",
            "settings.gradle",
            "settings.gradle.kts",
        ],
        hosts: &[
            ("repo.maven.apache.org:443", "maven: packages"),
            ("repo1.maven.org:443", "maven, gradle: packages"),
            ("plugins.gradle.org:443", "gradle: plugins"),
            ("services.gradle.org:443", "gradle: gradle itself"),
        ],
        publishes: &["mvn deploy:*", "gradle publish:*", "./gradlew publish:*"],
    },
    ProjectLanguage {
        name: "ruby",
        marks: &["Gemfile", "*.gemspec"],
        hosts: &[
            ("rubygems.org:443", "gem, bundler: packages"),
            ("index.rubygems.org:443", "bundler: the index"),
        ],
        publishes: &["gem push:*"],
    },
    ProjectLanguage {
        name: "php",
        marks: &["composer.json"],
        hosts: &[
            ("repo.packagist.org:443", "composer: packages"),
            ("packagist.org:443", "composer: the index"),
        ],
        publishes: &[],
    },
    ProjectLanguage {
        name: "dotnet",
        marks: &["*.csproj", "*.sln", "*.fsproj"],
        hosts: &[("api.nuget.org:443", "nuget: packages")],
        publishes: &["dotnet nuget push:*"],
    },
];

/// Returns the languages with a file in the project's root directory.
pub(super) fn detect_languages(project: &AbsPath) -> Vec<&'static ProjectLanguage> {
    let names: Vec<String> = fs::read_dir(project.as_path())
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let has = |mark: &&str| match mark.strip_prefix('*') {
        Some(end) => names.iter().any(|name| name.ends_with(end)),
        None => names.iter().any(|name| name == mark),
    };
    LANGUAGES.iter().filter(|language| language.marks.iter().any(has)).collect()
}

#[cfg(test)]
mod tests {
    use ringfence_policy::HostRule;

    #[test]
    fn every_host_is_a_canonical_rule_without_wildcards() {
        for (host, what) in super::LANGUAGES.iter().flat_map(|language| language.hosts) {
            assert_eq!(
                HostRule::parse(host).map(|rule| rule.to_string()).ok().as_deref(),
                Some(*host),
                "{what}"
            );
            assert!(!host.contains('*') && host.ends_with(":443"));
        }
    }
}
