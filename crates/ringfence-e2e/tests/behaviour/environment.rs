//! Secrets of the environment stay outside.

use ringfence_testkit::{SECRET, TestOutput, each_user, needs};

use crate::project;

const SECRETS: &[&str] = &[
    "GH_TOKEN",
    "NPM_TOKEN",
    "OPENAI_API_KEY",
    "MY_KEY",
    "APP_SECRET",
    "SECRET_SAUCE",
    "DB_PASSWORD",
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "GITHUB_ACTOR",
    "GITHUB_WORKSPACE",
    "KUBERNETES_SERVICE_HOST",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "DATABASE_URL",
    "my_token",
];

/// Promise: no-secret-variables
#[test]
fn secret_variables_are_not_passed() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        for name in SECRETS {
            command.env(name, SECRET);
        }
        command.env("UNHEARD_OF", SECRET).env("SSH_AUTH_SOCK", SECRET).env("LD_PRELOAD", "");
        let said = TestOutput::run(command.args(["run", "--", "env"]), b"").ok();
        assert!(!said.contains(SECRET), "{said}");
        assert!(
            said.contains("PATH=") && said.contains("HOME=") && said.contains("LANG="),
            "{said}"
        );
        // They cannot be read from other processes either.
        let mut command = project.ringfence();
        command.env("MY_TOKEN", SECRET);
        let said = TestOutput::run(
            command.args([
                "run",
                "-c",
                "cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/*/cmdline; true",
            ]),
            b"",
        );
        assert!(!said.text().contains(SECRET), "{}", said.text());
    });
}

/// Promise: no-secret-variables
#[test]
fn variable_is_passed_or_set_by_name() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        command.env("NPM_TOKEN", "wanted").env("AWS_REGION", "unwanted");
        let words = [
            "run",
            "--env",
            "NPM_TOKEN",
            "--env",
            "NEW=a=b c",
            "--env",
            "ABSENT",
            "-c",
            "echo $NPM_TOKEN,$NEW,$AWS_REGION,${ABSENT-unset}",
        ];
        assert_eq!(TestOutput::run(command.args(words), b"").ok(), "wanted,a=b c,,unset");
    });
}

#[test]
fn full_access_passes_every_variable_with_a_warning() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        command.env("NPM_TOKEN", "kept");
        let ran = TestOutput::run(
            command.args(["run", "--mode", "full-access", "-c", "echo $NPM_TOKEN; cat .env"]),
            b"",
        );
        assert_eq!(ran.ok(), format!("kept\n{SECRET}"));
        assert!(ran.stderr_text().contains("nothing is confined"), "{}", ran.stderr_text());
    });
}

#[test]
fn only_the_standard_streams_are_open() {
    each_user(|user| {
        let project = project(user);
        assert_eq!(project.sh("ls /proc/self/fd | tr '\\n' ' '").ok(), "0 1 2 3 ");
        let line = format!(
            "exec 5</etc/passwd 9<. ; exec {} run -c 'ls /proc/self/fd | tr \"\\n\" \" \"'",
            project.binary().display()
        );
        assert_eq!(project.sh_bare(&line).ok(), "0 1 2 3 ");
    });
}

/// A shell looks up `OLDPWD` at its start, which must not count as a denial.
///
/// Promise: shell-startup
#[test]
fn oldpwd_is_passed_if_it_exists_inside() {
    each_user(|user| {
        let project = project(user);
        project.write("sub/file", "");
        let seen = |before: &std::path::Path| {
            let mut command = project.ringfence();
            command.env("OLDPWD", before).args([
                "run",
                "--json",
                "--",
                "bash",
                "-c",
                "echo ${OLDPWD-nowhere}; exit 3",
            ]);
            let outcome: serde_json::Value =
                serde_json::from_slice(&TestOutput::run(&mut command, b"").stdout)
                    .expect("an object");
            assert_eq!(
                (&outcome["blocked"], &outcome["denials"]),
                (&false.into(), &serde_json::json!([])),
                "{outcome}"
            );
            outcome["stdout"].as_str().expect("a text").trim().to_owned()
        };
        assert_eq!(seen(&project.home()), "nowhere");
        assert_eq!(seen("/nowhere".as_ref()), "nowhere");
        assert_eq!(seen(&project.at("sub")), project.at("sub").display().to_string());
    });
}

const CERTIFICATE: &str =
    "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIU\n-----END CERTIFICATE-----\n";

#[test]
fn company_registries_and_certificates_reach_the_sandbox() {
    each_user(|user| {
        let project = project(user);
        let bundle = project.home().join("company/ca.pem");
        project.write_at(&bundle, CERTIFICATE);
        let mut command = project.ringfence();
        command
            .env("SSL_CERT_FILE", &bundle)
            .env("AWS_CA_BUNDLE", &bundle)
            .env("PIP_INDEX_URL", "https://pypi.example.org/simple");
        command
            .env("GOPROXY", "https://go.example.org,direct")
            .env("npm_config_registry", "https://npm.example.org/");
        let line = "cat $SSL_CERT_FILE $AWS_CA_BUNDLE; echo $PIP_INDEX_URL $GOPROXY $npm_config_registry; echo x >> $SSL_CERT_FILE";
        let ran = TestOutput::run(command.args(["run", "-c", line]), b"");
        let expect = format!(
            "{CERTIFICATE}{CERTIFICATE}https://pypi.example.org/simple https://go.example.org,direct https://npm.example.org/"
        );
        assert_eq!(ran.text(), expect, "{user}");
        assert!(
            ran.status != 0 && std::fs::read_to_string(&bundle).unwrap() == CERTIFICATE,
            "{user}: the file is not writable"
        );
    });
}

#[test]
fn secrets_in_company_variables_stay_outside() {
    each_user(|user| {
        let project = project(user);
        let bundle = project.home().join("company/both.pem");
        project.write_at(
            &bundle,
            format!(
                "{CERTIFICATE}-----BEGIN PRIVATE KEY-----\ns3cret\n-----END PRIVATE KEY-----\n"
            ),
        );
        let with_variables = |words: &[&str]| {
            let mut command = project.ringfence();
            command
                .env("NODE_EXTRA_CA_CERTS", &bundle)
                .env("PIP_INDEX_URL", "https://me:s3cret@pypi.example.org/simple");
            TestOutput::run(command.args(words), b"")
        };
        let line = format!(
            "echo ${{NODE_EXTRA_CA_CERTS-no}} ${{PIP_INDEX_URL-no}}; cat {}",
            bundle.display()
        );
        assert_eq!(
            with_variables(&["run", "-c", &line]).text(),
            "no https://pypi.example.org/simple",
            "{user}"
        );
        let plan = with_variables(&["plan"]).ok();
        assert!(
            plan.contains("NODE_EXTRA_CA_CERTS: it does not name a readable file")
                && !plan.contains("s3cret"),
            "{user}: {plan}"
        );
        let explained = with_variables(&["explain", "env", "PIP_INDEX_URL"]).ok();
        assert!(
            explained
                .contains("without the parts that may be secret: https://pypi.example.org/simple"),
            "{user}: {explained}"
        );
    });
}

#[test]
fn tool_caches_are_in_the_private_cache() {
    each_user(|user| {
        let project = project(user);
        for (name, directory) in [
            ("pnpm_config_store_dir", "pnpm-store"),
            ("MPLCONFIGDIR", "matplotlib"),
            ("CHROME_CONFIG_HOME", "chrome-config"),
            ("JUPYTER_RUNTIME_DIR", "jupyter/runtime"),
            ("HELM_CONFIG_HOME", "helm-config"),
            ("HELM_DATA_HOME", "helm-data"),
            ("COMPOSER_HOME", "composer-home"),
            ("POETRY_CONFIG_DIR", "poetry-config"),
            ("YOLO_CONFIG_DIR", "ultralytics"),
        ] {
            let path = project.home().join(".cache").join(directory);
            let line = format!("mkdir -p ${name} && touch ${name}/x && echo ${name}");
            assert_eq!(project.sh(&line).ok(), path.display().to_string(), "{user}");
            assert!(!path.exists(), "{user}: it is the sandbox's own");
            assert_eq!(
                project
                    .run(["--env", &format!("{name}=/tmp/x"), "-c", &format!("echo ${name}")])
                    .ok(),
                "/tmp/x",
                "{user}"
            );
        }
    });
}

#[test]
fn settings_of_tools_are_kept_for_the_project_and_stay_off_the_host() {
    each_user(|user| {
        let project = project(user);
        let bare = project.home().join(".config/helm");
        project
            .sh("mkdir -p $HELM_CONFIG_HOME; echo mine > $HELM_CONFIG_HOME/repositories.yaml")
            .ok();
        assert_eq!(project.sh("cat $HELM_CONFIG_HOME/repositories.yaml").ok(), "mine", "{user}");
        project.sh("mkdir -p $(dirname $GOENV); echo GOFLAGS=-mod=mod > $GOENV").ok();
        assert!(!bare.exists() && !project.home().join(".config/go").exists(), "{user}");
        assert!(project.sh("mkdir -p ~/.config/helm").status != 0, "{user}");
        // A directory that the user opens is the one that the tool uses.
        project.write_at(&bare.join("x"), "x");
        let opened =
            project.run(["--write", "~/.config/helm", "-c", "echo ${HELM_CONFIG_HOME-unset}"]);
        assert_eq!(opened.ok(), "unset", "{user}");
    });
}

/// The workaround of `docs/known-gaps.md` for other tools.
#[test]
fn xdg_config_home_in_the_private_cache_is_writable_and_kept() {
    each_user(|user| {
        let project = project(user);
        let config = project.home().join(".cache/config");
        let variable = format!("XDG_CONFIG_HOME={}", config.display());
        let run = |line: &str| project.run(["--env", &variable, "-c", line]).ok();
        run("mkdir -p $XDG_CONFIG_HOME/configstore; echo kept > $XDG_CONFIG_HOME/configstore/x");
        assert_eq!(run("cat $XDG_CONFIG_HOME/configstore/x"), "kept", "{user}");
        assert!(!config.exists(), "{user}: it is the sandbox's own");
    });
}

/// npm warns about a variable that it does not know.
#[test]
fn pnpm_store_variable_is_set_only_in_pnpm_projects() {
    each_user(|user| {
        let project = project(user);
        let line = "echo ${npm_config_store_dir-unset}";
        let store = project.home().join(".cache/pnpm-store").display().to_string();
        project.write("package.json", r#"{"name":"a","version":"1.0.0"}"#);
        assert_eq!(project.sh(line).ok(), "unset", "{user}");
        if needs(&["npm"]) {
            let ran = project.run(["--", "npm", "config", "get", "fetch-retries"]);
            ran.ok();
            assert!(
                !ran.stderr_text().contains("Unknown env config"),
                "{user}: {}",
                ran.stderr_text()
            );
        }
        project.write("package.json", r#"{"packageManager":"pnpm@9.1.0"}"#);
        assert_eq!(project.sh(line).ok(), store, "{user}");
        project.write("package.json", "{}");
        project.write("pnpm-lock.yaml", "");
        assert_eq!(project.sh(line).ok(), store, "{user}");
    });
}
