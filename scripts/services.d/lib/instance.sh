# The folder of an instance: who owns what in it, its certificates, its ports and its environment.

current=$root/target/services/current

find_dir() {
    dir=${PILLARBOX_SERVICES_DIR:-}
    if [[ -z $dir && -f $current ]]; then dir=$(<"$current"); fi
    [[ -n $dir && -e $dir/.pillarbox-services ]] || return 1
    dir=$(cd "$dir" && pwd -P)
}

require_dir() { find_dir || die "no instance is started (start one with: scripts/services start)"; }

make_dir() {
    if [[ -n ${PILLARBOX_SERVICES_DIR:-} ]]; then
        dir=$PILLARBOX_SERVICES_DIR
        mkdir -p "$dir"
        dir=$(cd "$dir" && pwd -P)
        # `stop` removes the folder, so it must not contain files of others.
        [[ -z $(ls -A "$dir") ]] || die "cannot use $dir: it is not empty (choose an empty folder)"
    else
        dir=$(mktemp -d /tmp/pillarbox-services.XXXX)
        mkdir -p "$(dirname "$current")"
        echo "$dir" >"$current"
    fi
    chmod 755 "$dir" # servers that run as other users need access
    touch "$dir/.pillarbox-services"
}

# The user a service runs as. Only root can start a server as another user.
user_of() { # SERVICE
    if is_root && has_hook user "$1"; then "user_$1"; else id -un; fi
}

make_service_dir() { # SERVICE
    local user
    user=$(user_of "$1")
    mkdir -p "$dir/$1"
    if is_root; then
        chown "$user:" "$dir/$1"
        run_as "$1" test -w "$dir/$1" ||
            die "user $user has no access to $dir (choose a folder that other users can enter)"
    fi
}

make_private() { # SERVICE FILE...: only the service can read it
    local user
    user=$(user_of "$1")
    shift
    chmod 600 "$@"
    if is_root; then chown "$user:" "$@"; fi
}

make_certificates() {
    local tls=$dir/tls
    [[ ! -s $tls/server.pem ]] || return 0
    mkdir -p "$tls"
    (
        cd "$tls"
        umask 077
        key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }
        key ca.key
        openssl req -x509 -new -key ca.key -days 365 -subj '/CN=Pillarbox test CA' -out ca.pem \
            -addext 'keyUsage=critical,keyCertSign,cRLSign'
        key server.key
        openssl req -new -key server.key -subj '/CN=localhost' -out server.csr
        printf '%s\n' 'basicConstraints=critical,CA:FALSE' 'keyUsage=critical,digitalSignature' \
            'extendedKeyUsage=serverAuth' 'subjectAltName=DNS:localhost,IP:127.0.0.1' >server.ext
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 \
            -extfile server.ext -out server.pem
        rm -f server.csr server.ext
        chmod 644 ca.pem server.pem
    ) >"$dir/tls.out" 2>&1 || {
        cat "$dir/tls.out" >&2
        die "cannot make the certificates: openssl failed (its output is above)"
    }
    rm -f "$dir/tls.out"
    chmod 755 "$tls"
}

# --- ports ----------------------------------------------------------------------------------------------------

# Free ports below the range of outgoing connections: no client takes the port of a server that restarts.
choose_ports() { # SERVICE NAME...
    local service=$1 name ports
    shift
    mapfile -t ports < <(perl -MSocket -e '
        my ($low) = (`cat /proc/sys/net/ipv4/ip_local_port_range 2>/dev/null` || "32768") =~ /(\d+)/;
        $low = 32768 if $low < 15000;
        my @held;
        while (@held < $ARGV[0]) {
            my $port = 10000 + int(rand($low - 10000));
            socket(my $s, PF_INET, SOCK_STREAM, 0) or die;
            bind($s, pack_sockaddr_in($port, INADDR_ANY)) or next;
            push @held, $s;
            print "$port\n";
        }' "$#")
    local lines=()
    for name in "$@"; do
        lines+=("$name=${ports[${#lines[@]}]}")
    done
    printf '%s\n' "${lines[@]}" >"$dir/$service/ports"
}

port() { sed -n "s/^$2=//p" "$dir/$1/ports"; } # SERVICE NAME

# --- environment ----------------------------------------------------------------------------------------------

variable() { printf 'export PILLARBOX_TEST_%s=%s\n' "$1" "$2"; }

write_env() {
    local service
    {
        for service in "${all_services[@]}"; do
            if [[ -e $dir/$service/complete ]]; then "env_$service"; fi
        done
        variable CA_FILE "$dir/tls/ca.pem"
        variable SERVICES_DIR "$dir"
    } >"$dir/env.new"
    mv "$dir/env.new" "$dir/env"
}
