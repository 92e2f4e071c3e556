//! The web page: static files compiled into the program.
//!
//! They need no token, since they contain no data; the page fetches its data from the API with the
//! token that the user entered.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringfence_audit::digest;

use crate::error::ApiError;

/// A file of the page: path, content type and content.
struct PageAsset {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// The files of the page.
macro_rules! files {
    ($($path:literal: $kind:expr,)*) => {
        &[$(PageAsset { path: $path, kind: $kind, bytes: include_bytes!(concat!("../../page/", $path)) }),*]
    };
}

const FILES: &[PageAsset] = files! {
    "index.html": "text/html; charset=utf-8",
    "style.css": STYLE,
    "views.css": STYLE,
    "icon.svg": "image/svg+xml",
    "theme.js": SCRIPT,
    "app.js": SCRIPT,
    "charts.js": SCRIPT,
    "dock.js": SCRIPT,
    "dom.js": SCRIPT,
    "figures.js": SCRIPT,
    "format.js": SCRIPT,
    "live.js": SCRIPT,
    "output.js": SCRIPT,
    "remote.js": SCRIPT,
    "shortcuts.js": SCRIPT,
    "sign-in.js": SCRIPT,
    "terminal.js": SCRIPT,
    "widgets.js": SCRIPT,
    "views/asks.js": SCRIPT,
    "views/audit.js": SCRIPT,
    "views/denials.js": SCRIPT,
    "views/executions.js": SCRIPT,
    "views/files.js": SCRIPT,
    "views/overview.js": SCRIPT,
    "views/reference.js": SCRIPT,
    "views/run.js": SCRIPT,
    "views/sandboxes.js": SCRIPT,
    "views/skills.js": SCRIPT,
    "views/tenants.js": SCRIPT,
    "views/tiles.js": SCRIPT,
    "views/tokens.js": SCRIPT,
    "views/upload.js": SCRIPT,
};

/// The ETag of each file, in the same order.
static TAGS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let tag = |file: &PageAsset| {
        HeaderValue::from_str(&format!("\"{}\"", digest(file.bytes)))
            .expect("a digest is plain text")
    };
    FILES.iter().map(tag).collect()
});

/// Serves the page itself.
pub(super) async fn index(headers: HeaderMap) -> Response {
    find("index.html", &headers)
}

/// Serves the other files of the page.
pub(super) async fn part(Path(path): Path<String>, headers: HeaderMap) -> Response {
    find(&path, &headers)
}

fn find(path: &str, headers: &HeaderMap) -> Response {
    let Some(at) = FILES.iter().position(|file| file.path == path) else {
        return ApiError::not_found("no-such-path", "no such file").into_response();
    };
    let (file, tag) = (&FILES[at], TAGS[at].clone());
    // Browsers cache the files and revalidate each time: a new service brings a new page.
    let dressed = [
        (header::ETAG, tag.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    if headers.get_all(header::IF_NONE_MATCH).iter().any(|known| known.as_bytes() == tag.as_bytes())
    {
        return (StatusCode::NOT_MODIFIED, dressed).into_response();
    }
    (dressed, [(header::CONTENT_TYPE, HeaderValue::from_static(file.kind))], file.bytes)
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_file(directory: &std::path::Path, found: &mut Vec<String>, root: &std::path::Path) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true if name == "tests" => {}
                true => every_file(&path, found, root),
                false => found.push(name),
            }
        }
    }

    #[test]
    fn every_file_of_the_page_is_served() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let mut there = Vec::new();
        every_file(&root, &mut there, &root);
        there.sort();
        let mut served: Vec<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
        served.sort();
        assert_eq!(there, served);
    }

    #[test]
    fn cached_file_is_answered_with_304() {
        let first = find("app.js", &HeaderMap::new());
        assert_eq!(
            (first.status(), &first.headers()[header::CONTENT_TYPE]),
            (StatusCode::OK, &HeaderValue::from_static(SCRIPT))
        );
        let known =
            HeaderMap::from_iter([(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone())]);
        assert_eq!(find("app.js", &known).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(find("style.css", &known).status(), StatusCode::OK);
        assert_eq!(find("../Cargo.toml", &known).status(), StatusCode::NOT_FOUND);
    }

    /// Text from the API must never become markup. The browser also enforces this, by the
    /// Content-Security-Policy of every response.
    #[test]
    fn no_script_turns_text_into_markup() {
        for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "DOMParser",
                "http://",
                "https://",
            ] {
                let is_allowed = word == "http://" && file.path == "dom.js";
                assert!(is_allowed || !text.contains(word), "{} has {word}", file.path);
            }
        }
    }
}
