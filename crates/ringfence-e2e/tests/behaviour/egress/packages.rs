//! Package managers, each at a registry of its own kind.

use ringfence_testkit::{TestOutput, TestUser, python};

use super::{inside, on_a_lan};
use crate::tools::own_toolchain;

/// Promise: allowed-hosts
#[test]
fn npm_installs_from_a_registry() {
    on_a_lan(&["npm", "node"], |project, lan| {
        project.write(
            "package.json",
            r#"{"name": "app", "version": "1.0.0", "dependencies": {"dep": "^1.0.0"}}"#,
        );
        project.write(
            ".npmrc",
            "registry=https://app.test/npm/\ncafile=ca.crt\naudit=false\nfund=false\n",
        );
        let said = inside(lan, "npm install >/dev/null && node -p 'require(\"dep\")'");
        assert_eq!(said, "42");
        assert!(
            lan.server_log().contains("443 app.test GET app.test /npm/-/dep-1.2.3.tgz"),
            "{}",
            lan.server_log()
        );
    });
}

/// Promise: allowed-hosts
#[test]
fn pip_installs_from_an_index() {
    on_a_lan(&[], |_, lan| {
        let Some(python) = python() else { return };
        let line = format!(
            "PIP_CERT=ca.crt {python} -m pip --disable-pip-version-check install -q --index-url https://app.test/simple/ --target lib dep && PYTHONPATH=lib {python} -c 'import dep; print(dep.ANSWER)'"
        );
        assert_eq!(inside(lan, &line), "42");
        assert!(
            lan.server_log().contains("443 app.test GET app.test /dep-1.2.3-py3-none-any.whl"),
            "{}",
            lan.server_log()
        );
    });
}

/// Promise: allowed-hosts
#[test]
fn cargo_fetches_from_a_registry() {
    on_a_lan(&["cargo", "rustc", "jq"], |project, lan| {
        project.write(
            "Cargo.toml",
            "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ndep = { version = \"1\", registry = \"here\" }\n",
        );
        let mut command = lan.command();
        let bin = if project.user == TestUser::User && TestUser::runner_is_root() {
            project.toolchain()
        } else {
            own_toolchain(&mut command)
        };
        command
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()))
            .arg(project.binary());
        let line = "export CARGO_REGISTRIES_HERE_INDEX=sparse+https://app.test/index/ CARGO_HTTP_CAINFO=ca.crt; cargo fetch -q && cargo metadata --offline --format-version 1 | jq -r '.packages[] | .name' | sort";
        let ran =
            TestOutput::run(command.args(["run", "--allow-host", "app.test:443", "-c", line]), b"");
        assert_eq!(ran.ok(), "app\ndep");
        assert!(
            lan.server_log().contains("443 app.test GET app.test /crates/dep-1.2.3.crate"),
            "{}",
            lan.server_log()
        );
    });
}
