# RabbitMQ, and the epmd that its node registers with.

missing_rabbitmq() { [[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]] || echo rabbitmq-server; }

user_rabbitmq() { echo rabbitmq; }
user_epmd() { echo rabbitmq; }

prepare_rabbitmq() {
    local home=$dir/rabbitmq
    choose_ports rabbitmq amqp amqps management dist epmd
    cp "$dir/tls/server.pem" "$dir/tls/server.key" "$home/"
    make_private rabbitmq "$home/server.pem" "$home/server.key"
    echo '[rabbitmq_management].' >"$home/enabled_plugins"
    # Quorum queues keep up to 512 MB of their log in memory, and garbage comes on top. Above the limit the broker blocks publishers.
    cat >"$home/rabbitmq.conf" <<CONF
listeners.tcp.1 = 127.0.0.1:$(port rabbitmq amqp)
listeners.ssl.1 = 127.0.0.1:$(port rabbitmq amqps)
ssl_options.cacertfile = $dir/tls/ca.pem
ssl_options.certfile = $home/server.pem
ssl_options.keyfile = $home/server.key
ssl_options.verify = verify_none
ssl_options.fail_if_no_peer_cert = false
management.tcp.ip = 127.0.0.1
management.tcp.port = $(port rabbitmq management)
load_definitions = $home/definitions.json
loopback_users.guest = true
max_message_size = 20971520
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 2GB
log.file = server.log
log.file.level = info
log.console = false
CONF
    cat >"$home/definitions.json" <<JSON
{
  "users": [
    {"name": "guest", "password_hash": "$(rabbit_hash guest)", "tags": ["administrator"]},
    {"name": "limited", "password_hash": "$(rabbit_hash limited)", "tags": []}
  ],
  "vhosts": [{"name": "/"}, {"name": "other"}],
  "permissions": [
    {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "guest", "vhost": "other", "configure": ".*", "write": ".*", "read": ".*"},
    {"user": "limited", "vhost": "other", "configure": "^$", "write": "^$", "read": "^$"}
  ]
}
JSON
    if is_root; then chown rabbitmq: "$home/"*; fi
}

# RabbitMQ's own format: base64 of a four-byte salt and sha256(salt, password).
rabbit_hash() {
    perl -MDigest::SHA=sha256 -MMIME::Base64 -e 'my $s = "salt"; print encode_base64($s . sha256($s . $ARGV[0]), "")' "$1"
}

rabbit_env() {
    local home=$dir/rabbitmq
    printf '%s\n' \
        "RABBITMQ_NODENAME=pillarbox-$(port rabbitmq dist)@localhost" \
        "RABBITMQ_DIST_PORT=$(port rabbitmq dist)" \
        "RABBITMQ_CONF_ENV_FILE=$home/rabbitmq-env.conf" \
        "RABBITMQ_CONFIG_FILE=$home/rabbitmq.conf" \
        "RABBITMQ_ADVANCED_CONFIG_FILE=$home/advanced.config" \
        "RABBITMQ_ENABLED_PLUGINS_FILE=$home/enabled_plugins" \
        "RABBITMQ_MNESIA_BASE=$home/mnesia" \
        "RABBITMQ_LOG_BASE=$home" \
        "RABBITMQ_PID_FILE=$home/node.pid" \
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}" \
        "ERL_EPMD_PORT=$(port rabbitmq epmd)" \
        "ERL_EPMD_ADDRESS=127.0.0.1" \
        "ERL_CRASH_DUMP=$home/erl_crash.dump"
}

spawn_rabbitmq() {
    local settings
    mapfile -t settings < <(rabbit_env)
    # A node that finds no epmd starts its own, which outlives the node and has no pid on record.
    if ! pid_of epmd >/dev/null; then
        make_service_dir epmd
        spawn epmd "${settings[@]}" epmd
        await epmd || return 1
    fi
    rm -f "$dir/rabbitmq/server.log"
    # RUNNING_UNDER_SYSTEMD makes the start script become the node, so that the pid on record is the node's.
    spawn rabbitmq "${settings[@]}" RUNNING_UNDER_SYSTEMD=yes /usr/lib/rabbitmq/bin/rabbitmq-server
}

probe_epmd() { (exec 7<>"/dev/tcp/127.0.0.1/$(port rabbitmq epmd)") 2>/dev/null; }

# The node has booted and answers an AMQP protocol header with a Connection.Start frame.
probe_rabbitmq() {
    grep -qs 'Server startup complete' "$dir/rabbitmq/server.log" && perl -MSocket -e '
        alarm 5;
        socket(my $s, PF_INET, SOCK_STREAM, 0) or exit 1;
        connect($s, pack_sockaddr_in($ARGV[0], INADDR_LOOPBACK)) or exit 1;
        syswrite($s, "AMQP\0\0\x09\x01") or exit 1;
        sysread($s, my $frame, 1) or exit 1;
        exit($frame eq "\x01" ? 0 : 1)' "$(port rabbitmq amqp)"
}

env_rabbitmq() {
    variable AMQP_URL "amqp://guest:guest@127.0.0.1:$(port rabbitmq amqp)/%2f"
    variable AMQPS_URL "amqps://guest:guest@localhost:$(port rabbitmq amqps)/%2f"
    variable RABBITMQ_MANAGEMENT_URL "http://guest:guest@127.0.0.1:$(port rabbitmq management)"
}

halt_rabbitmq() { terminate rabbitmq TERM 30; }

remove_rabbitmq() {
    kill_hard rabbitmq
    kill_hard epmd
    rm -rf "$dir/epmd"
}

run_rabbitmqctl() {
    local settings
    mapfile -t settings < <(rabbit_env)
    cd "$dir/rabbitmq"
    run_as rabbitmq env -i PATH="$PATH" HOME="$dir/rabbitmq" LANG=C.UTF-8 "${settings[@]}" \
        /usr/lib/rabbitmq/bin/rabbitmqctl "$@"
}
