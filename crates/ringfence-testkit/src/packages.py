"""One package called `dep` for each package manager, in the layout of its registry."""

import base64, hashlib, io, json, os, tarfile, zipfile

HOME = 'https://app.test'


def put(root, path, content):
    path = os.path.join(root, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'wb') as file:
        file.write(content.encode() if isinstance(content, str) else content)


def tarball(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode='w:gz') as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content.encode()))
    return packed.getvalue()


def npm(root):
    manifest = {'name': 'dep', 'version': '1.2.3', 'main': 'index.js'}
    packed = tarball({'package/package.json': json.dumps(manifest), 'package/index.js': 'module.exports = 42\n'})
    integrity = 'sha512-' + base64.b64encode(hashlib.sha512(packed).digest()).decode()
    dist = {'tarball': HOME + '/npm/-/dep-1.2.3.tgz', 'integrity': integrity, 'shasum': hashlib.sha1(packed).hexdigest()}
    document = {'name': 'dep', 'dist-tags': {'latest': '1.2.3'}, 'versions': {'1.2.3': dict(manifest, dist=dist)}}
    put(root, 'npm/dep', json.dumps(document))
    put(root, 'npm/-/dep-1.2.3.tgz', packed)


def pip(root):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, 'w') as archive:
        about = 'dep-1.2.3.dist-info/'
        archive.writestr('dep.py', 'ANSWER = 42\n')
        archive.writestr(about + 'METADATA', 'Metadata-Version: 2.1\nName: dep\nVersion: 1.2.3\n')
        archive.writestr(about + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
        archive.writestr(about + 'RECORD', 'dep.py,,\n%sMETADATA,,\n%sWHEEL,,\n%sRECORD,,\n' % (about, about, about))
    wheel = 'dep-1.2.3-py3-none-any.whl'
    digest = hashlib.sha256(packed.getvalue()).hexdigest()
    put(root, 'simple/dep/index.html', '<!DOCTYPE html><a href="%s/%s#sha256=%s">%s</a>' % (HOME, wheel, digest, wheel))
    put(root, wheel, packed.getvalue())


def cargo(root):
    packed = tarball({
        'dep-1.2.3/Cargo.toml': '[package]\nname = "dep"\nversion = "1.2.3"\nedition = "2021"\n',
        'dep-1.2.3/src/lib.rs': 'pub const ANSWER: u32 = 42;\n'})
    entry = {'name': 'dep', 'vers': '1.2.3', 'deps': [], 'cksum': hashlib.sha256(packed).hexdigest(), 'features': {}, 'yanked': False}
    put(root, 'index/config.json', json.dumps({'dl': HOME + '/crates/{crate}-{version}.crate'}))
    put(root, 'index/3/d/dep', json.dumps(entry) + '\n')
    put(root, 'crates/dep-1.2.3.crate', packed)


def write(root):
    for registry in npm, pip, cargo:
        registry(root)
