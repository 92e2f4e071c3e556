//! Recipes of Node.js programs: a development server and a driven browser.

use std::path::Path;

use ringfence_testkit::TestProject;

use super::{installed, recipe, works};

/// Copies packages that `.ci/clients` installed into the project, as `npm install` leaves them.
fn bring_packages(project: &TestProject, from: &Path) {
    project.sh_bare(&format!("cp -r {} node_modules", from.display())).ok();
}

#[test]
fn vite() {
    let packages = installed("vite/node_modules");
    recipe("Vite", &["npm", "node", "curl", &packages.display().to_string()], |project, lan| {
        bring_packages(project, &packages);
        project.write("package.json", r#"{"name": "app", "type": "module", "scripts": {"dev": "vite", "build": "vite build"}}"#);
        project.write(
            "index.html",
            "<title>app</title><script type=\"module\" src=\"/main.ts\"></script>\n",
        );
        project.write("main.ts", "const answer: number = 42\ndocument.title = `${answer}`\n");
        let said = works("Vite", project, lan, "");
        assert!(said.contains("/@vite/client"), "{said}");
        assert!(project.has("dist/index.html"));
    });
}

/// Opens a page that a server of the same command serves, and prints its title.
const PAGE: &str = r"
import http from 'node:http'
import { chromium } from 'playwright-core'
const server = http.createServer((_, answer) => {
  answer.setHeader('Content-Type', 'text/html')
  answer.end('<title>no</title><script>document.title = 6 * 7</script>')
})
await new Promise(done => server.listen(0, '127.0.0.1', done))
const browser = await chromium.launch({ executablePath: '/usr/bin/chromium' })
const page = await browser.newPage()
await page.goto(`http://127.0.0.1:${server.address().port}/`)
console.log(await page.title())
await browser.close()
server.close()
";

#[test]
fn playwright() {
    let packages = installed("../page-tools/node_modules");
    recipe(
        "Playwright",
        &["node", "/usr/bin/chromium", &packages.display().to_string()],
        |project, lan| {
            bring_packages(project, &packages);
            project.write("page.mjs", PAGE);
            assert!(works("Playwright", project, lan, "").ends_with("42"));
        },
    );
}
