# NATS with JetStream.

# Debian installs it in /usr/sbin, which is only in root's PATH.
nats_bin() { command -v nats-server || { [[ -x /usr/sbin/nats-server ]] && echo /usr/sbin/nats-server; }; }

missing_nats() { nats_bin >/dev/null || echo nats-server; }

# The default of two seconds for the TLS handshake and for authentication is too short on a busy machine.
prepare_nats() {
    local home=$dir/nats
    choose_ports nats client
    cp "$dir/tls/server.pem" "$dir/tls/server.key" "$home/"
    make_private nats "$home/server.pem" "$home/server.key"
    cat >"$home/nats.conf" <<CONF
server_name: pillarbox-test
listen: "127.0.0.1:$(port nats client)"
max_payload: 4MB
jetstream: { store_dir: "$home/data", max_memory_store: 64MB, max_file_store: 4GB }
tls: { cert_file: "$home/server.pem", key_file: "$home/server.key", timeout: 60 }
allow_non_tls: true
${PILLARBOX_SERVICES_NATS:-$(nats_users)}
CONF
}

nats_users() {
    cat <<'CONF'
authorization: {
  timeout: 60
  users: [
    { user: anonymous, password: anonymous }
    { user: pillarbox, password: secret }
    { user: limited, password: limited, permissions: {
      publish: ["allowed.>", "$JS.API.INFO"], subscribe: ["_INBOX.>"]
    } }
  ]
}
no_auth_user: anonymous
CONF
}

spawn_nats() { spawn nats "$(nats_bin)" --config "$dir/nats/nats.conf"; }

# The server sends INFO on connect. JetStream is up before the port opens.
probe_nats() {
    perl -MSocket -e '
        alarm 5;
        socket(my $s, PF_INET, SOCK_STREAM, 0) or exit 1;
        connect($s, pack_sockaddr_in($ARGV[0], INADDR_LOOPBACK)) or exit 1;
        sysread($s, my $greeting, 4) or exit 1;
        exit($greeting eq "INFO" ? 0 : 1)' "$(port nats client)"
}

env_nats() {
    variable NATS_URL "nats://127.0.0.1:$(port nats client)"
    variable NATS_AUTH_URL "nats://pillarbox:secret@127.0.0.1:$(port nats client)"
    variable NATS_TLS_URL "tls://localhost:$(port nats client)"
}
