//! Recipes of Java's build programs.

use ringfence_testkit::TestProject;
use serde_json::Value;

use super::{recipe, works};

/// Writes the user's settings of a program, which stay denied, and checks that a run that does not
/// hide them says so.
#[track_caller]
fn write_settings(project: &TestProject, file: &str, content: &str, line: &str) {
    let path = project.home().join(file);
    project.write_at(&path, content);
    let ran = project.run(["--json", "-c", line]);
    let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(
        (&said["blocked"], &said["blockedResource"]),
        (&true.into(), &path.to_string_lossy().as_ref().into()),
        "{said}"
    );
}

/// Puts a library and a plugin into the repository that Maven uses, and its CA into Java's trust
/// store.
///
/// The plugin copies the library's file `answer` to `target/answer`.
const REPOSITORY: &str = r#"
mkdir -p classes/META-INF/maven www/maven2/dep/dep/1.2.3 www/maven2/dep/dep-maven-plugin/1.2.3
cat > Answer.java <<'END'
import java.nio.file.*;
import java.util.List;
public class Answer extends org.apache.maven.plugin.AbstractMojo {
    private List<String> classpath;
    private String directory;
    public void execute() throws org.apache.maven.plugin.MojoExecutionException {
        for (String jar : classpath) {
            if (!jar.endsWith(".jar")) continue;
            try (FileSystem files = FileSystems.newFileSystem(Path.of(jar))) {
                Files.createDirectories(Path.of(directory));
                Files.copy(files.getPath("answer"), Path.of(directory, "answer"), StandardCopyOption.REPLACE_EXISTING);
            } catch (java.io.IOException error) {
                throw new org.apache.maven.plugin.MojoExecutionException("no answer", error);
            }
        }
    }
}
END
cat > classes/META-INF/maven/plugin.xml <<'END'
<plugin><groupId>dep</groupId><artifactId>dep-maven-plugin</artifactId><version>1.2.3</version><goalPrefix>dep</goalPrefix>
<mojos><mojo><goal>answer</goal><phase>package</phase><implementation>Answer</implementation><language>java</language>
<instantiationStrategy>per-lookup</instantiationStrategy><description>copies the answer</description>
<requiresDependencyResolution>compile</requiresDependencyResolution><requiresProject>true</requiresProject>
<parameters><parameter><name>classpath</name><type>java.util.List</type></parameter>
<parameter><name>directory</name><type>java.lang.String</type></parameter></parameters>
<configuration><classpath implementation="java.util.List">${project.compileClasspathElements}</classpath>
<directory implementation="java.lang.String">${project.build.directory}</directory></configuration></mojo></mojos></plugin>
END
javac -cp '/usr/share/maven/lib/*' -d classes Answer.java
echo 42 > answer
(cd www/maven2/dep
jar cf dep/1.2.3/dep-1.2.3.jar -C ../../.. answer
jar cf dep-maven-plugin/1.2.3/dep-maven-plugin-1.2.3.jar -C ../../../classes .
for name in dep dep-maven-plugin; do
    kind=jar; [ $name = dep ] || kind=maven-plugin
    echo "<project><modelVersion>4.0.0</modelVersion><groupId>dep</groupId><artifactId>$name</artifactId><version>1.2.3</version><packaging>$kind</packaging></project>" > $name/1.2.3/$name-1.2.3.pom
    for file in $name/1.2.3/*.pom $name/1.2.3/*.jar; do sha1sum < $file | cut -c1-40 > $file.sha1; done
done)
# Maven gives this library to every plugin that does not name it.
utils=www/maven2/org/codehaus/plexus/plexus-utils/1.1
mkdir -p $utils
cp -L /usr/share/maven/lib/plexus-utils*.jar $utils/plexus-utils-1.1.jar
sha1sum < $utils/plexus-utils-1.1.jar | cut -c1-40 > $utils/plexus-utils-1.1.jar.sha1
cp -L /etc/ssl/certs/java/cacerts cacerts
keytool -importcert -noprompt -storepass changeit -keystore cacerts -alias authority -file ca.crt
mount --bind cacerts /etc/ssl/certs/java/cacerts
"#;

const POM: &str = "<project><modelVersion>4.0.0</modelVersion><groupId>app</groupId><artifactId>app</artifactId><version>1</version>
<packaging>pom</packaging><dependencies><dependency><groupId>dep</groupId><artifactId>dep</artifactId><version>1.2.3</version></dependency></dependencies>
<build><plugins><plugin><groupId>dep</groupId><artifactId>dep-maven-plugin</artifactId><version>1.2.3</version>
<executions><execution><goals><goal>answer</goal></goals></execution></executions></plugin></plugins></build></project>
";

#[test]
fn maven() {
    recipe("Maven", &["mvn", "javac", "jar", "keytool", "/usr/share/maven/lib"], |project, lan| {
        project.write("pom.xml", POM);
        write_settings(project, ".m2/settings.xml", "<settings/>", "mvn -B -o validate");
        works("Maven", project, lan, REPOSITORY);
        assert_eq!(project.read("target/answer").as_deref(), Some("42\n"));
        assert!(
            lan.server_log().contains("443 repo.maven.apache.org GET repo.maven.apache.org /maven2/dep/dep/1.2.3/dep-1.2.3.jar"),
            "{}",
            lan.server_log()
        );
    });
}

/// Compiles a program, and runs it before tests, without third-party libraries or plugins.
const BUILD: &str = "apply plugin: 'java'
task answer(type: JavaExec, dependsOn: classes) {
    classpath = sourceSets.main.runtimeClasspath
    main = 'Main'
}
test.dependsOn answer
";

#[test]
fn gradle() {
    recipe("Gradle", &["gradle", "javac"], |project, lan| {
        project.write("settings.gradle", "rootProject.name = 'app'\n");
        project.write("build.gradle", BUILD);
        project.write(
            "src/main/java/Main.java",
            "class Main { public static void main(String[] a) { System.out.println(\"answer \" + 6 * 7); } }\n",
        );
        write_settings(
            project,
            ".gradle/gradle.properties",
            "password=secret",
            "gradle --offline test",
        );
        let said = works("Gradle", project, lan, "");
        assert!(said.contains("answer 42"), "{said}");
    });
}
