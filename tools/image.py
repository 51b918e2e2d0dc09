#!/usr/bin/env python3
"""Makes a container image of a built heddle, without a builder or a registry: an OCI image layout in one tar file.

    tools/image.py BINARY OUTPUT

The image has the program, the libraries that it needs, certificates of authorities, a user, and the demo
models. Equal inputs give equal bytes. `skopeo copy oci-archive:OUTPUT docker://...`, `podman load`, `docker load` and
`ctr images import` take it. The time in it is SOURCE_DATE_EPOCH, else 0.
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
USER = 65532  # "nonroot" of many images; the chart runs heddle as it.
AUTHORITIES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))

PASSWD = f"root:x:0:0:root:/root:/usr/sbin/nologin\nheddle:x:{USER}:{USER}:heddle:/var/lib/heddle:/usr/sbin/nologin\n"
GROUP = f"root:x:0:\nheddle:x:{USER}:\n"
FOLDERS = ["etc", "etc/heddle", "etc/ssl", "etc/ssl/certs", "models", "run", "run/heddle", "run/heddle/certs", "tmp", "usr",
           "usr/bin", "usr/lib", "usr/lib64", "usr/share", "usr/share/doc", "usr/share/doc/heddle", "usr/share/heddle",
           "usr/share/heddle/models", "var", "var/lib", "var/lib/heddle"]
MODES = {"tmp": 0o1777}
OWNED = {"var/lib/heddle"}  # By the user.
LINKS = {"lib": "usr/lib", "lib64": "usr/lib64", "bin": "usr/bin"}


class Layer:
    """A layer: entries in order of their paths, all of one time. A path is relative to the root of the image."""

    def __init__(self):
        self.entries = {}

    def folder(self, path):
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode = tarfile.DIRTYPE, MODES.get(path, 0o755)
        entry.uid = entry.gid = USER if path in OWNED else 0
        self.entries[path] = (entry, None)

    def file(self, path, content, mode=0o644):
        for parent in list(pathlib.PurePath(path).parents)[-2::-1]:
            if str(parent) not in self.entries:
                self.folder(str(parent))
        entry = tarfile.TarInfo(path)
        entry.mode, entry.size = mode, len(content)
        self.entries[path] = (entry, content)

    def link(self, path, target):
        entry = tarfile.TarInfo(path)
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
        self.entries[path] = (entry, None)

    def tar(self):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for _, (entry, content) in sorted(self.entries.items()):
                entry.mtime = EPOCH
                archive.addfile(entry, None if content is None else io.BytesIO(content))
        return buffer.getvalue()


def libraries(binary):
    """{path in the image: file here} of all that the program is linked with, its loader included."""
    told = subprocess.run(["ldd", binary], check=True, capture_output=True, text=True).stdout
    if "not found" in told:
        sys.exit(f"{binary} lacks libraries:\n{told}")
    found = {}
    for name, path in re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", told, re.M):
        # Of a merged /usr: /lib is a link there, and here.
        folder = re.sub(r"^/(lib(?:64)?)/", r"/usr/\1/", path)
        wanted = pathlib.PurePath(folder).with_name(pathlib.PurePath(name or path).name)
        found[str(wanted)[1:]] = pathlib.Path(path).resolve()
    return found


def loaded(name):
    """{path in the image: file here} of a library that the program loads when it needs it, and of what that needs."""
    told = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    found = re.search(rf"^\s*{re.escape(name)} \(.*\) => (/\S+)$", told, re.M)
    if found is None:
        sys.exit(f"this machine has no {name}, which the program loads to fetch models")
    path = re.sub(r"^/(lib(?:64)?)/", r"/usr/\1/", found[1])
    return {path[1:]: pathlib.Path(path).resolve(), **libraries(path)}


def notices(files):
    """{path: file} of the copyright notices of the packages that these files are of, where dpkg knows."""
    if shutil.which("dpkg-query") is None:
        return {}
    # A file of a merged /usr may be known by its other name.
    names = sorted({name for file in files for name in (str(file), str(file).removeprefix("/usr"))})
    told = subprocess.run(["dpkg-query", "--search", *names], capture_output=True, text=True).stdout
    packages = {line.split(":")[0] for line in told.splitlines()}
    found = {f"usr/share/doc/{package}/copyright": pathlib.Path(f"/usr/share/doc/{package}/copyright") for package in packages}
    return {path: file for path, file in found.items() if file.exists()}


def stripped(binary):
    """The program without what only debuggers read."""
    tool = shutil.which("llvm-strip-19") or shutil.which("strip")
    if tool is None:
        sys.exit("there is neither llvm-strip-19 nor strip")
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder, "heddle")
        subprocess.run([tool, "--strip-unneeded", "-o", target, binary], check=True)
        return target.read_bytes()


def system_layer(binary):
    """What the program needs of a system, which changes seldom."""
    layer = Layer()
    for path in FOLDERS:
        layer.folder(path)
    for path, target in LINKS.items():
        layer.link(path, target)
    needed = {**libraries(binary), **loaded("libcurl.so.4")}
    for path, file in needed.items():
        layer.file(path, file.read_bytes(), 0o755)
    for path, file in notices(needed.values()).items():
        layer.file(path, file.read_bytes())
    layer.file("etc/passwd", PASSWD.encode())
    layer.file("etc/group", GROUP.encode())
    layer.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    layer.file("etc/ssl/certs/ca-certificates.crt", AUTHORITIES.read_bytes())
    return layer


def heddle_layer(binary):
    layer = Layer()
    layer.file("usr/bin/heddle", stripped(binary), 0o755)
    layer.file("etc/heddle/heddle.yaml", (ROOT / "deploy/heddle.yaml").read_bytes())
    layer.file("usr/share/heddle/heddle.schema.json", (ROOT / "schema/heddle.schema.json").read_bytes())
    layer.file("usr/share/doc/heddle/LICENSE", (ROOT / "LICENSE").read_bytes())
    for file in sorted((ROOT / "models").glob("*/*")):
        if file.name not in {"README.md", "eval.jsonl"}:
            layer.file(f"usr/share/heddle/{file.relative_to(ROOT)}", file.read_bytes())
    return layer


class Archive:
    """The layout: blobs under their digests, and what names them."""

    def __init__(self):
        self.files = {"oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode()}

    def blob(self, content, media_type):
        """Its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def write(self, path):
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for name, content in sorted(self.files.items()):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime, entry.mode = len(content), EPOCH, 0o644
                archive.addfile(entry, io.BytesIO(content))


def encoded(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def make(binary, output, version, level=6):
    """Writes the image, compressed at that level of gzip. The digest of its manifest."""
    archive, descriptors, diffs = Archive(), [], []
    for layer in (system_layer(binary), heddle_layer(binary)):
        tar = layer.tar()
        diffs.append("sha256:" + hashlib.sha256(tar).hexdigest())
        descriptors.append(archive.blob(gzip.compress(tar, level, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip"))
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    config = archive.blob(encoded({
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{USER}:{USER}",
            "ExposedPorts": {"8080/tcp": {}},
            "Env": ["PATH=/usr/bin", "HOME=/var/lib/heddle", "XDG_RUNTIME_DIR=/tmp", "HF_HOME=/models",
                    "NVIDIA_DRIVER_CAPABILITIES=compute,utility"],
            "Entrypoint": ["/usr/bin/heddle"],
            "Cmd": ["serve", "--config", "/etc/heddle/heddle.yaml", "--listen", "0.0.0.0:8080"],
            "WorkingDir": "/var/lib/heddle",
            "Labels": {"org.opencontainers.image.title": "heddle", "org.opencontainers.image.version": version,
                       "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": diffs},
        "history": [{"created": created, "created_by": f"tools/image.py: {what}"} for what in ("system", "heddle")],
    }), "application/vnd.oci.image.config.v1+json")
    manifest = archive.blob(encoded({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                                     "config": config, "layers": descriptors}), "application/vnd.oci.image.manifest.v1+json")
    manifest["annotations"] = {"org.opencontainers.image.ref.name": version,
                               "io.containerd.image.name": f"docker.io/library/heddle:{version}"}
    archive.files["index.json"] = encoded({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
                                           "manifests": [manifest]})
    # For versions of `docker load` that know no layout.
    blob_path = {each["digest"]: each["digest"].replace(":", "/") for each in [config, *descriptors]}
    archive.files["manifest.json"] = encoded([{"Config": "blobs/" + blob_path[config["digest"]],
                                               "RepoTags": [f"heddle:{version}"],
                                               "Layers": ["blobs/" + blob_path[each["digest"]] for each in descriptors]}])
    archive.write(output)
    return manifest["digest"]


def version():
    return re.search(r"project\(heddle VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    options = parser.parse_args()
    if not AUTHORITIES.exists():
        sys.exit(f"there is no {AUTHORITIES}: install ca-certificates")
    digest = make(options.binary, options.output, version())
    print(f"{options.output}: heddle:{version()}, {options.output.stat().st_size / 1e6:.1f} MB, {digest}")


if __name__ == "__main__":
    main()
