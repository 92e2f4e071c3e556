//! Recipes of Python programs that `.ci/clients` installs.

use super::{installed, recipe, works};

/// A program of the environment that `.ci/clients` makes.
fn program(name: &str) -> String {
    installed("venv/bin").join(name).display().to_string()
}

/// Serves the package of pip's recipe.
const PACKAGE: &str = "python3 -c \"import packages; packages.HOME = 'https://files.pythonhosted.org'; packages.pip('www')\"\n";

#[test]
fn uv() {
    recipe("uv", &[&program("uv")], |project, lan| {
        project.write(
            "pyproject.toml",
            "[project]\nname = \"app\"\nversion = \"1\"\nrequires-python = \">=3.9\"\ndependencies = [\"dep==1.2.3\"]\n\
             [tool.uv]\nnative-tls = true\n",
        );
        project.write("app.py", "import dep; print(dep.ANSWER)\n");
        assert!(works("uv", project, lan, PACKAGE).ends_with("42"));
    });
}

/// Poetry asks PyPI for JSON, which a plain file server does not select.
const JSON: &str = r#"python3 - <<'END'
import hashlib, json
wheel = 'dep-1.2.3-py3-none-any.whl'
sha256 = hashlib.sha256(open('www/' + wheel, 'rb').read()).hexdigest()
url = 'https://files.pythonhosted.org/' + wheel
simple = {'meta': {'api-version': '1.0'}, 'name': 'dep', 'files': [{'filename': wheel, 'url': url, 'hashes': {'sha256': sha256}}]}
release = {'filename': wheel, 'url': url, 'digests': {'sha256': sha256}, 'packagetype': 'bdist_wheel'}
info = {'name': 'dep', 'version': '1.2.3', 'summary': '', 'requires_dist': [], 'requires_python': None, 'yanked': False}
import packages
packages.put('www', 'simple/dep/index.html', json.dumps(simple))
packages.put('www', 'pypi/dep/1.2.3/json', json.dumps({'info': info, 'urls': [release]}))
END
"#;

/// Poetry trusts only the CAs of its own package `certifi`.
fn trust() -> String {
    format!(
        "mount --bind bundle {}/lib/python3.*/site-packages/certifi/cacert.pem\n",
        installed("venv").display()
    )
}

#[test]
fn poetry() {
    recipe("Poetry", &[&program("poetry")], |project, lan| {
        project.write(
            "pyproject.toml",
            "[tool.poetry]\nname = \"app\"\nversion = \"1\"\npackage-mode = false\n\
             [tool.poetry.dependencies]\npython = \">=3.9\"\ndep = \"1.2.3\"\n",
        );
        project.write("app.py", "import dep; print(dep.ANSWER)\n");
        assert!(
            works("Poetry", project, lan, &format!("{PACKAGE}{JSON}{}", trust())).ends_with("42")
        );
    });
}

#[test]
fn django() {
    recipe("Django", &[&program("django-admin"), "curl"], |project, lan| {
        project.sh_bare(&format!("{} startproject app .", program("django-admin"))).ok();
        project.write(
            "app/urls.py",
            "from django.http import HttpResponse\nfrom django.urls import path\n\
             urlpatterns = [path('', lambda request: HttpResponse('answer 42'))]\n",
        );
        project.write(
            "app/tests.py",
            "from django.contrib.auth.models import User\nfrom django.test import TestCase\n\n\
             class Answer(TestCase):\n    def test_answer(self):\n        User.objects.create(username='a')\n        \
             self.assertContains(self.client.get('/'), '42')\n",
        );
        let said = works("Django", project, lan, "");
        assert!(said.contains("answer 42"), "{said}");
        assert!(project.has("db.sqlite3"));
    });
}

#[test]
fn jupyter() {
    recipe("Jupyter", &[&program("jupyter-nbconvert")], |project, lan| {
        let cell = r#"{"cell_type": "code", "id": "a", "execution_count": null, "metadata": {}, "outputs": [], "source": "6 * 7"}"#;
        let spec = r#"{"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}"#;
        project.write(
            "analysis.ipynb",
            format!(
                r#"{{"cells": [{cell}], "metadata": {spec}, "nbformat": 4, "nbformat_minor": 5}}"#
            ),
        );
        works("Jupyter", project, lan, "");
        let notebook = project.read("analysis.ipynb").unwrap_or_default();
        assert!(notebook.contains("\"42\""), "{notebook}");
    });
}
