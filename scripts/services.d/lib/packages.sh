# Installs what is missing.

as_admin() {
    if is_root; then
        "$@"
    elif have sudo && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        die "cannot install packages: not root and no sudo without password (run as root: $*)"
    fi
}

# Debian packages start their daemon on installation. A policy file that exists only meanwhile prevents it.
apt_install() {
    have apt-get || die "cannot install packages: no apt-get on this machine (install by other means: $*)"
    say "installing: $*"
    # shellcheck disable=SC2016 # expands in the inner shell
    as_admin bash -c '
        set -euo pipefail
        # Not below /tmp, where any user could put a link of this name.
        exec 8>/run/lock/pillarbox-apt.lock
        flock 8
        policy=/usr/sbin/policy-rc.d
        if [[ ! -e $policy ]]; then
            trap "rm -f $policy" EXIT
            printf "#!/bin/sh\nexit 101\n" >"$policy"
            chmod 755 "$policy"
        fi
        export DEBIAN_FRONTEND=noninteractive
        log=$(mktemp)
        apt() { apt-get -qq -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 8>&- || { tail -n 30 "$log" >&2; exit 1; }; }
        apt update
        apt install -y --no-install-recommends "$@"
        rm -f "$log"
    ' apt_install "$@" || die "cannot install packages: apt-get failed for: $*"
}

install_services() { # SERVICE...
    local missing=() name
    have openssl || missing+=(openssl)
    have ps || missing+=(procps)
    for name in "$@"; do
        mapfile -t -O "${#missing[@]}" missing < <("missing_$name")
    done
    [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}"
    for name in "$@"; do
        if has_hook fetch "$name"; then "fetch_$name"; fi
    done
}

install_build() {
    local missing=() package
    if ! have dpkg; then
        say "this is not Debian: install a C compiler, pkg-config and the headers of zlib and OpenSSL yourself"
        return
    fi
    for package in build-essential pkg-config zlib1g-dev libssl-dev libpq-dev ca-certificates; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    # The CloudEvents tests need it, even where Python itself is not from Debian.
    python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3-venv)
    [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}"
}

# promtool for the rules in deploy/, and the server for scripts/alerts.
install_prometheus() {
    if ! have promtool || ! have prometheus; then apt_install prometheus; fi
}

install_examples() { # LANGUAGE...
    local missing=() language
    for language in "$@"; do
        case $language in
            python) python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3 python3-venv) ;;
            node) have npm || missing+=(nodejs npm) ;;
            java)
                have mvn || missing+=(maven)
                have javac || missing+=(openjdk-17-jdk-headless)
                ;;
            # Debian's Go is older than the PostgreSQL driver supports.
            go) have go || die "go is missing: install Go 1.25 or newer" ;;
            *) die "no example in this language: $language (use python, node, java or go)" ;;
        esac
    done
    [[ ${#missing[@]} -eq 0 ]] || apt_install "${missing[@]}"
}
