//! `settings.xml` of Maven.

use super::NOT_UNDERSTOOD;
use super::xml::{XmlElement, parse_xml};
use ringfence_policy::{is_host, redact_url};

/// The values that an element may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementValue {
    /// A URL; shown without its secret parts.
    Url,
    /// A name, as of a repository.
    Name,
    /// Names of repositories, separated by commas.
    Names,
    /// Host names, separated by `|`.
    Hosts,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A port.
    Port,
}
use ElementValue::{Hosts, Name, Names, OneOf, Port, Url};

const SWITCH: ElementValue = OneOf(&["true", "false"]);
const LAYOUT: ElementValue = OneOf(&["default", "legacy"]);

/// The elements that are shown, by their path below `settings`. Servers (passwords and keys),
/// properties and the local repository are not among them.
const KNOWN: &[(&str, ElementValue)] = &[
    ("interactiveMode", SWITCH),
    ("offline", SWITCH),
    ("pluginGroups/pluginGroup", Name),
    ("mirrors/mirror/id", Name),
    ("mirrors/mirror/url", Url),
    ("mirrors/mirror/mirrorOf", Names),
    ("mirrors/mirror/layout", LAYOUT),
    ("mirrors/mirror/blocked", SWITCH),
    ("proxies/proxy/id", Name),
    ("proxies/proxy/active", SWITCH),
    ("proxies/proxy/protocol", OneOf(&["http", "https"])),
    ("proxies/proxy/host", Hosts),
    ("proxies/proxy/port", Port),
    ("proxies/proxy/nonProxyHosts", Hosts),
    ("profiles/profile/id", Name),
    ("profiles/profile/activation/activeByDefault", SWITCH),
    ("profiles/profile/REPOSITORY/id", Name),
    ("profiles/profile/REPOSITORY/url", Url),
    ("profiles/profile/REPOSITORY/layout", LAYOUT),
    ("profiles/profile/REPOSITORY/releases/enabled", SWITCH),
    ("profiles/profile/REPOSITORY/releases/updatePolicy", UPDATES),
    ("profiles/profile/REPOSITORY/releases/checksumPolicy", CHECKSUMS),
    ("profiles/profile/REPOSITORY/snapshots/enabled", SWITCH),
    ("profiles/profile/REPOSITORY/snapshots/updatePolicy", UPDATES),
    ("profiles/profile/REPOSITORY/snapshots/checksumPolicy", CHECKSUMS),
    ("activeProfiles/activeProfile", Name),
];
const UPDATES: ElementValue = OneOf(&["always", "daily", "never"]);
const CHECKSUMS: ElementValue = OneOf(&["fail", "warn", "ignore"]);

/// Elements without which Maven cannot use the element around them.
const NEEDED: &[(&str, &str)] =
    &[("mirrors/mirror", "url"), ("proxies/proxy", "host"), ("profiles/profile/REPOSITORY", "url")];

const NOT_WHOLE: &str = "a mirror or a proxy cannot be shown whole";

/// The copy of a `settings.xml`; an error if the file is not understood.
pub(super) fn settings(text: &str) -> Result<Option<String>, &'static str> {
    let root = parse_xml(text).filter(|root| root.name == "settings").ok_or(NOT_UNDERSTOOD)?;
    if !root.children.iter().all(keeps_its_routes) {
        return Err(NOT_WHOLE);
    }
    let mut copy = String::new();
    for child in &root.children {
        copy.extend(shown(child, child.name, 1));
    }
    Ok((!copy.is_empty()).then(|| format!("<settings>\n{copy}</settings>\n")))
}

/// False if a mirror or proxy would lose what decides about its use: without a mirror, Maven asks the
/// public repository, where another owner may have the same names.
fn keeps_its_routes(list: &XmlElement<'_>) -> bool {
    let needed: &[&str] = match list.name {
        "mirrors" => &["url", "mirrorOf"],
        "proxies" => &["host"],
        _ => return true,
    };
    list.children.iter().all(|item| {
        let path = format!("{}/{}", list.name, item.name);
        let has = |name: &&str| {
            item.children.iter().any(|child| {
                child.name == *name && shown(child, &format!("{path}/{name}"), 1).is_some()
            })
        };
        needed.iter().all(has)
            && item.children.iter().all(|child| {
                let path = format!("{path}/{}", child.name);
                KNOWN.iter().all(|(known, _)| *known != path) || shown(child, &path, 1).is_some()
            })
    })
}

/// The part of an element that can be shown.
fn shown(element: &XmlElement<'_>, path: &str, depth: usize) -> Option<String> {
    let (name, indent) = (element.name, "  ".repeat(depth));
    if let Some((_, values)) = KNOWN.iter().find(|(known, _)| *known == path) {
        let value = values.shown(&element.text)?;
        return Some(format!("{indent}<{name}>{value}</{name}>\n"));
    }
    let mut content = String::new();
    let mut needed = NEEDED.iter().find(|(known, _)| *known == path).map(|(_, name)| *name);
    for child in &element.children {
        let step = match child.name {
            "repositories" | "pluginRepositories" => {
                content.extend(repositories(child, path, depth + 1));
                continue;
            }
            other => other,
        };
        if let Some(text) = shown(child, &format!("{path}/{step}"), depth + 1) {
            content.push_str(&text);
            needed = needed.filter(|needed| *needed != child.name);
        }
    }
    let is_whole = needed.is_none() && !content.is_empty();
    is_whole.then(|| format!("{indent}<{name}>\n{content}{indent}</{name}>\n"))
}

/// The repositories of a profile; those of plugins have the same elements.
fn repositories(list: &XmlElement<'_>, profile: &str, depth: usize) -> Option<String> {
    let (name, indent) = (list.name, "  ".repeat(depth));
    let item = if name == "repositories" { "repository" } else { "pluginRepository" };
    let path = format!("{profile}/REPOSITORY");
    let items = list.children.iter().filter(|child| child.name == item);
    let content: String = items.filter_map(|child| shown(child, &path, depth + 1)).collect();
    (!content.is_empty()).then(|| format!("{indent}<{name}>\n{content}{indent}</{name}>\n"))
}

impl ElementValue {
    /// The text without its secret parts; `None` if it may be a secret. No character of it has a
    /// meaning in XML.
    fn shown(self, text: &str) -> Option<String> {
        let is_name = |name: &str| name.len() <= 64 && !name.contains(':') && is_host(name);
        let is_accepted = match self {
            Url => return redact_url(text),
            Name => is_name(text),
            Names => text.split(',').map(str::trim).all(|name| {
                let name = name.strip_prefix('!').unwrap_or(name);
                let name = name.strip_prefix("external:").unwrap_or(name);
                is_name(name.strip_prefix("http:").unwrap_or(name))
            }),
            Hosts => text.split(['|', ',']).map(str::trim).all(is_host),
            OneOf(words) => words.contains(&text),
            Port => text.parse::<u16>().is_ok(),
        };
        is_accepted.then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPANY: &str = "\
<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<settings xmlns=\"http://maven.apache.org/SETTINGS/1.0.0\" xsi:schemaLocation=\"a b\">
  <localRepository>/data/s3cret</localRepository>
  <servers>
    <server><id>corp</id><username>me</username><password>s3cret</password></server>
    <server><id>key</id><privateKey>/home/me/s3cret</privateKey><passphrase>s3cret</passphrase></server>
  </servers>
  <mirrors>
    <!-- s3cret -->
    <mirror><id>corp</id><name>My s3cret</name><mirrorOf>*,!local,external:http:*</mirrorOf>
      <url>https://me:s3cret@maven.example.org/repository/all/</url></mirror>
  </mirrors>
  <proxies>
    <proxy><id>p</id><active>true</active><protocol>http</protocol><host>proxy.example.org</host><port>3128</port>
      <username>me</username><password>s3cret</password><nonProxyHosts>*.example.org|localhost</nonProxyHosts></proxy>
  </proxies>
  <profiles>
    <profile><id>corp</id><properties><token>s3cret</token></properties>
      <repositories><repository><id>a</id><url>https://maven.example.org/a</url><snapshots><enabled>false</enabled></snapshots></repository></repositories>
      <pluginRepositories><pluginRepository><id>b</id><url>s3cret</url></pluginRepository></pluginRepositories>
    </profile>
  </profiles>
  <activeProfiles><activeProfile>corp</activeProfile></activeProfiles>
</settings>
";

    #[test]
    fn mirrors_of_maven_pass_and_passwords_do_not() {
        let expect = "\
<settings>
  <mirrors>
    <mirror>
      <id>corp</id>
      <mirrorOf>*,!local,external:http:*</mirrorOf>
      <url>https://maven.example.org/repository/all/</url>
    </mirror>
  </mirrors>
  <proxies>
    <proxy>
      <id>p</id>
      <active>true</active>
      <protocol>http</protocol>
      <host>proxy.example.org</host>
      <port>3128</port>
      <nonProxyHosts>*.example.org|localhost</nonProxyHosts>
    </proxy>
  </proxies>
  <profiles>
    <profile>
      <id>corp</id>
      <repositories>
        <repository>
          <id>a</id>
          <url>https://maven.example.org/a</url>
          <snapshots>
            <enabled>false</enabled>
          </snapshots>
        </repository>
      </repositories>
    </profile>
  </profiles>
  <activeProfiles>
    <activeProfile>corp</activeProfile>
  </activeProfiles>
</settings>
";
        assert_eq!(settings(COMPANY), Ok(Some(expect.to_owned())));
    }

    #[test]
    fn settings_with_passwords_only_have_no_copy() {
        let servers = "<settings><servers><server><id>a</id><password>s3cret</password></server></servers></settings>";
        assert_eq!(settings(servers), Ok(None));
        let misplaced = "<settings><password>s3cret</password><url>https://a.org/</url></settings>";
        assert_eq!(settings(misplaced), Ok(None));
    }

    #[test]
    fn mirror_that_cannot_be_shown_whole_is_not_left_out_alone() {
        for part in [
            "<mirrors><mirror><mirrorOf>*</mirrorOf><url>${env.MIRROR}</url></mirror></mirrors>",
            "<mirrors><mirror><url>https://a.org/</url></mirror></mirrors>",
            "<mirrors><mirror><mirrorOf>a b</mirrorOf><url>https://a.org/</url></mirror></mirrors>",
            "<mirrors><mirror><mirrorOf>*</mirrorOf><url><x>s3cret</x></url></mirror></mirrors>",
            "<proxies><proxy><host>me:s3cret@proxy</host></proxy></proxies>",
            "<proxies><proxy><host>a.org</host><port>s3cret</port></proxy></proxies>",
        ] {
            let text = format!("<settings><offline>true</offline>{part}</settings>");
            assert_eq!(settings(&text), Err(NOT_WHOLE), "{part}");
        }
    }

    #[test]
    fn settings_that_are_not_understood_are_left_out() {
        for text in [
            "<!DOCTYPE settings><settings/>",
            "<project/>",
            "<settings>x</settings",
            "<settings><mirrors><mirror><url><![CDATA[https://a.org/]]></url></mirror></mirrors></settings>",
        ] {
            assert_eq!(settings(text), Err(NOT_UNDERSTOOD), "{text}");
        }
    }
}
