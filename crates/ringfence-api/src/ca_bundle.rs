//! Places of the CA certificates that the system trusts.

/// System bundles: Debian, Fedora, SUSE, Alpine and the BSDs.
pub const SYSTEM_BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Environment variable with which the user selects another bundle.
pub const BUNDLE_VARIABLE: &str = "SSL_CERT_FILE";
