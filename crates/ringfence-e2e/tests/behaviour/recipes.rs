//! Every command of docs/recipes.md works, with registries that the test serves.

use std::path::PathBuf;

use ringfence_testkit::{TestNetwork, TestOutput, TestProject, TestUser, each_user, needs, skip};

use crate::project;
use crate::tools::own_toolchain;

mod git;
mod java;
mod node;
mod python;

const PAGE: &str = include_str!("../../../../docs/recipes.md");

/// The sections that a test below runs.
const TRIED: &[&str] = &[
    "npm",
    "pnpm",
    "Yarn",
    "Vite",
    "Playwright",
    "pip",
    "uv",
    "Poetry",
    "Django",
    "Jupyter",
    "Cargo",
    "Go",
    "CMake",
    "Java",
    "Maven",
    "Gradle",
    "PostgreSQL",
    "Redis",
    "Git over https",
    "Git push over ssh",
    "Git submodules",
    "Git LFS",
    "Corporate proxy and CA",
    "CI",
];

/// The sections of the page: title and commands.
fn sections() -> Vec<(&'static str, Vec<&'static str>)> {
    let parts = PAGE.split("\n## ").skip(1);
    let typed =
        |part: &'static str| part.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    parts.map(|part| (part.lines().next().unwrap_or_default(), typed(part))).collect()
}

/// Names of the real registries, at an address of the test network; their CA is trusted.
const NAMES: &str = "
echo '11.22.33.1 registry.npmjs.org registry.yarnpkg.com pypi.org files.pythonhosted.org index.crates.io static.crates.io github.com repo.maven.apache.org proxy.example.com' >> /etc/hosts
cat /etc/ssl/certs/ca-certificates.crt ca.crt > bundle
mount --bind bundle /etc/ssl/certs/ca-certificates.crt
";

/// Runs the commands of one section in one shell; returns their output.
#[track_caller]
fn works(title: &str, project: &TestProject, lan: &TestNetwork<'_>, serve: &str) -> String {
    let lines = sections()
        .into_iter()
        .find(|(known, _)| *known == title)
        .map(|(_, lines)| lines)
        .unwrap_or_default();
    assert!(!lines.is_empty(), "docs/recipes.md has no command under `{title}`");
    lan.run_as_server(&format!("{NAMES}{serve}")).ok();
    let mut command = lan.command();
    let bin = published(project);
    let mut path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
    if title == "Cargo" {
        let cargo = if project.user == TestUser::User && TestUser::runner_is_root() {
            project.toolchain()
        } else {
            own_toolchain(&mut command)
        };
        path = format!("{}:{path}", cargo.display());
    }
    if title == "PostgreSQL" {
        path = format!("{}:{path}", postgres().expect("looked for before"));
    }
    if ["pnpm", "Yarn"].contains(&title) {
        path = format!("{}:{path}", client("").display());
    }
    if ["uv", "Poetry", "Django", "Jupyter"].contains(&title) {
        path = format!("{}:{path}", installed("venv/bin").display());
    }
    let ran =
        TestOutput::run(command.env("PATH", path).args(["sh", "-ec", &lines.join("\n")]), b"");
    assert_eq!(
        ran.status,
        0,
        "{title}: {}\n{}\n{}",
        ran.text(),
        ran.stderr_text(),
        lan.server_log()
    );
    ran.text()
}

/// A directory in which the binary has the name that the page uses.
fn published(project: &TestProject) -> PathBuf {
    let directory = project.home().with_file_name("bin");
    project.make_directories(&directory);
    std::os::unix::fs::symlink(project.binary(), directory.join("ringfence")).expect("it is new");
    directory
}

#[track_caller]
fn recipe(title: &str, programs: &[&str], body: impl Fn(&TestProject, &TestNetwork<'_>)) {
    assert!(TRIED.contains(&title), "{title} is missing in TRIED");
    if !needs(programs) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        if let Some(lan) = project.lan() {
            body(&project, &lan);
        }
    });
}

#[test]
fn every_section_of_the_page_has_a_test() {
    let titles: Vec<&str> = sections().into_iter().map(|(title, _)| title).collect();
    assert_eq!(titles, TRIED);
    assert!(
        sections().iter().all(|(_, lines)| lines.iter().any(|line| line.contains("ringfence")))
    );
}

/// A path below the directory into which `.ci/clients` installs programs for this page.
fn installed(path: &str) -> PathBuf {
    let tools = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/recipe-tools");
    tools.canonicalize().unwrap_or(tools).join(path)
}

/// A package manager that `.ci/clients` installs.
fn client(name: &str) -> PathBuf {
    installed("bin").join(name)
}

/// Installs a node package with a dependency from this registry.
fn node_package(title: &str, program: &str, registry: &str) {
    let program =
        if program == "npm" { program.to_owned() } else { client(program).display().to_string() };
    recipe(title, &[&program, "node"], |project, lan| {
        project.write(
            "package.json",
            r#"{"name": "app", "version": "1.0.0", "dependencies": {"dep": "^1.0.0"}, "scripts": {"test": "node -p 'require(\"dep\")'"}}"#,
        );
        project.write(".npmrc", "cafile=ca.crt\naudit=false\nfund=false\n");
        let serve = format!(
            "python3 -c \"import packages; packages.HOME = 'https://{registry}'; packages.npm('www')\"; cp www/npm/dep www/dep"
        );
        let said = works(title, project, lan, &serve);
        assert!(said.lines().any(|line| line == "42"), "{said}");
        assert!(
            lan.server_log()
                .contains(&format!("443 {registry} GET {registry} /npm/-/dep-1.2.3.tgz")),
            "{}",
            lan.server_log()
        );
    });
}

#[test]
fn npm() {
    node_package("npm", "npm", "registry.npmjs.org");
}

#[test]
fn pnpm() {
    node_package("pnpm", "pnpm", "registry.npmjs.org");
}

#[test]
fn yarn() {
    node_package("Yarn", "yarn", "registry.yarnpkg.com");
}

#[test]
fn pip() {
    recipe("pip", &["/usr/bin/python3"], |project, lan| {
        project.write("requirements.txt", "dep==1.2.3\n");
        project.write("app.py", "import dep; print(dep.ANSWER)\n");
        let serve = "python3 -c \"import packages; packages.HOME = 'https://files.pythonhosted.org'; packages.pip('www')\"";
        assert!(works("pip", project, lan, serve).ends_with("42"));
    });
}

#[test]
fn cargo() {
    recipe("Cargo", &["cargo", "rustc"], |project, lan| {
        project.write("Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ndep = \"1\"\n");
        project.write("src/main.rs", "fn main() { println!(\"{}\", dep::ANSWER) }\n");
        let serve = "python3 -c \"import packages; packages.HOME = 'https://static.crates.io'; packages.cargo('www')\"; cp -r www/index/. www/";
        works("Cargo", project, lan, serve);
        assert_eq!(TestOutput::run(&mut project.command("target/debug/app"), b"").ok(), "42");
    });
}

#[test]
fn go() {
    recipe("Go", &["go"], |project, lan| {
        project.write("go.mod", "module example.org/app\n\ngo 1.18\n");
        project.write("main.go", "package main\n\nfunc answer() int { return 42 }\n\nfunc main() { println(answer()) }\n");
        let test = "package main\n\nimport \"testing\"\n\nfunc TestAnswer(t *testing.T) {\n\tif answer() != 42 {\n\t\tt.Fail()\n\t}\n}\n";
        project.write("main_test.go", test);
        works("Go", project, lan, "");
        assert!(project.has("app"));
    });
}

#[test]
fn cmake() {
    recipe("CMake", &["cmake", "make", "cc"], |project, lan| {
        project.write(
            "CMakeLists.txt",
            "cmake_minimum_required(VERSION 3.13)\nproject(app C)\nadd_executable(app main.c)\n",
        );
        project.write("main.c", "int main(void) { return 42; }\n");
        works("CMake", project, lan, "");
        project.sh("build/app").expect_status(42);
    });
}

#[test]
fn redis() {
    recipe("Redis", &["redis-server", "redis-cli"], |project, lan| {
        assert!(works("Redis", project, lan, "").contains("42"));
    });
}

#[test]
fn java() {
    recipe("Java", &["javac", "java"], |project, lan| {
        project.write(
            "Main.java",
            "class Main { public static void main(String[] a) { System.out.println(42); } }\n",
        );
        assert!(works("Java", project, lan, "").ends_with("42"));
    });
}

/// The directory of the server's programs, which Debian does not put on `PATH`.
fn postgres() -> Option<String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    versions
        .map(|version| version.path().join("bin"))
        .find(|bin| bin.join("initdb").exists())
        .map(|bin| bin.display().to_string())
}

#[test]
fn postgresql() {
    if !needs(&["psql", "/usr/lib/postgresql"]) {
        return;
    }
    // It refuses to run as root, inside and outside.
    let project = project(TestUser::User);
    let Some(lan) = project.lan() else { return };
    assert!(works("PostgreSQL", &project, &lan, "").contains("42"));
}

/// Serves a repository as `https://github.com/me/lib.git`.
const LIBRARY: &str = "mkdir -p www/me && git init -q made && cd made && echo 42 > file && git add file && \
     git -c user.name=A -c user.email=a@b commit -qm one && cd .. && git clone -q --bare made www/me/lib.git && \
     git -C www/me/lib.git update-server-info";

#[test]
fn git_over_https() {
    recipe("Git over https", &["git"], |project, lan| {
        works("Git over https", project, lan, LIBRARY);
        assert_eq!(project.read("lib/file").as_deref(), Some("42\n"));
    });
}

#[test]
fn git_push_over_ssh() {
    recipe("Git push over ssh", &["git", "ssh", "ssh-keygen", "/usr/sbin/sshd"], |project, lan| {
        if !TestUser::runner_is_root() {
            return skip("only the superuser can serve ssh");
        }
        lan.run_as_server("git init -q --bare git/x.git").ok();
        lan.bare("mkdir -p ~/.ssh && rm -f ~/.ssh/id_ed25519 && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519").ok();
        std::fs::copy(project.home().join(".ssh/id_ed25519.pub"), lan.at("authorized"))
            .expect("the key was just made");
        let host = std::fs::read_to_string(lan.at("host.pub")).expect("the server has a key");
        project.write_at(&project.home().join(".ssh/known_hosts"), format!("github.com {host}"));
        let line = format!(
            "git init -q -b main && git remote add origin ssh://root@github.com{} && echo 42 > file && git add file && git -c user.name=A -c user.email=a@b commit -qm one",
            lan.at("git/x.git").display()
        );
        project.sh_bare(&line).ok();
        works("Git push over ssh", project, lan, "");
        assert_eq!(lan.run_as_server("git -C git/x.git show main:file").ok(), "42");
    });
}

#[test]
fn corporate_proxy_and_ca() {
    recipe("Corporate proxy and CA", &["curl"], |project, lan| {
        assert!(works("Corporate proxy and CA", project, lan, "").contains("dep-1.2.3"));
        assert!(lan.server_log().contains("3128 CONNECT pypi.org:443"), "{}", lan.server_log());
    });
}

#[test]
fn ci() {
    recipe("CI", &["make"], |project, lan| {
        project.write("Makefile", "test:\n\t@echo 42\n");
        assert!(works("CI", project, lan, "").ends_with("42"));
    });
}
