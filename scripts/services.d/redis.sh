# Redis.

missing_redis() { have redis-server || echo redis-server; }

prepare_redis() {
    local home=$dir/redis
    choose_ports redis plain tls
    mkdir -p "$home/data"
    cp "$dir/tls/server.pem" "$dir/tls/server.key" "$home/"
    make_private redis "$home/server.pem" "$home/server.key"
    cat >"$home/redis.conf" <<CONF
bind 127.0.0.1
port $(port redis plain)
tls-port $(port redis tls)
tls-cert-file $home/server.pem
tls-key-file $home/server.key
tls-auth-clients no
dir $home/data
appendonly yes
appendfsync always
save ""
# A process title would overwrite the environment by which `is_ours` recognises the process.
set-proc-title no
user pillarbox on >secret ~* &* +@all
user limited on >limited ~allowed:* +xadd +ping
CONF
}

spawn_redis() { spawn redis "$(command -v redis-server)" "$dir/redis/redis.conf"; }

# PING is answered with PONG. While Redis loads its data, the answer is LOADING.
probe_redis() {
    perl -MSocket -e '
        alarm 5;
        socket(my $s, PF_INET, SOCK_STREAM, 0) or exit 1;
        connect($s, pack_sockaddr_in($ARGV[0], INADDR_LOOPBACK)) or exit 1;
        syswrite($s, "PING\r\n") or exit 1;
        sysread($s, my $answer, 5) or exit 1;
        exit($answer eq "+PONG" ? 0 : 1)' "$(port redis plain)"
}

env_redis() {
    variable REDIS_URL "redis://127.0.0.1:$(port redis plain)"
    variable REDIS_AUTH_URL "redis://pillarbox:secret@127.0.0.1:$(port redis plain)"
    variable REDIS_TLS_URL "rediss://localhost:$(port redis tls)"
}
