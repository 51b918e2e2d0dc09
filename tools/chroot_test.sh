#!/usr/bin/env bash
# Proves the set-up on a bare machine: a fresh Debian 12, a fresh clone, the README's commands, first
# as a normal user with sudo, then (already set up) as root. Usage: chroot_test.sh DIR
set -euo pipefail
root=$(realpath -m "$1")
here=$(cd "$(dirname "$0")/.." && pwd)

command -v debootstrap >/dev/null || apt-get -qq -y install debootstrap
if [ ! -x "$root/usr/bin/apt-get" ]; then
  debootstrap --variant=minbase bookworm "$root"
  # The same sources and trust as this machine, security updates included.
  cp -a /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/" 2>/dev/null && : >"$root/etc/apt/sources.list"
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
fi
# A network that needs a certificate of its own or a proxy needs it in there as well.
bundle=/etc/ssl/host-certificates.crt
mkdir -p "$root/etc/ssl"
cp -L /etc/ssl/certs/ca-certificates.crt "$root$bundle"
for mount in proc sys dev; do
  mountpoint -q "$root/$mount" || { mkdir -p "$root/$mount" && mount --rbind "/$mount" "$root/$mount" && mount --make-rslave "$root/$mount"; }
done
trap 'for mount in dev sys proc; do umount -R -l "$root/$mount" 2>/dev/null || true; done' EXIT

in_root() {
  # shellcheck disable=SC2046  # One word per proxy variable.
  env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb $(env | grep -iE '^(https?_proxy|no_proxy)=' || true) \
    SSL_CERT_FILE=$bundle PIP_CERT=$bundle CARGO_HTTP_CAINFO=$bundle GIT_SSL_CAINFO=$bundle chroot "$root" "$@"
}

in_root apt-get -qq update
in_root apt-get -qq -y install --no-install-recommends sudo git ca-certificates >/dev/null
in_root id builder >/dev/null 2>&1 || in_root useradd -m -s /bin/bash builder
echo 'builder ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/builder"
[ -f "$HOME/.cargo/config.toml" ] && install -D -m 644 "$HOME/.cargo/config.toml" "$root/home/builder/.cargo/config.toml"
rm -rf "$root/home/builder/heddle"
git clone -q "$here" "$root/home/builder/heddle"
in_root chown -R builder: /home/builder

in_root su builder -c 'cd && cd heddle && ./dev test'
# ./dev run, as a newcomer would: wait for the line that says ready, then the curl line it prints.
in_root su builder -c 'cd && cd heddle && { ./dev run >run.log 2>&1 & server=$!;
  for _ in $(seq 100); do grep -q "^ *curl " run.log && break; sleep 0.2; done;
  bash -c "$(grep -m 1 "^ *curl " run.log)"; status=$?; kill $server; wait $server; exit $status; }'
# And once as root, in a clone of its own.
rm -rf "$root/root/heddle"
git clone -q "$here" "$root/root/heddle"
[ -f "$HOME/.cargo/config.toml" ] && install -D -m 644 "$HOME/.cargo/config.toml" "$root/root/.cargo/config.toml"
in_root bash -c 'cd /root/heddle && ./dev build'
echo "chroot: passed"
