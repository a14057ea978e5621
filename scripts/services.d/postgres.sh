# PostgreSQL.

pg_bin() {
    local bin
    for bin in /usr/lib/postgresql/15/bin /usr/lib/postgresql/{18,17,16}/bin; do
        if [[ -x $bin/initdb ]]; then
            echo "$bin"
            return
        fi
    done
    return 1
}

missing_postgres() { pg_bin >/dev/null || echo postgresql-15; }

user_postgres() { echo postgres; }

prepare_postgres() {
    local home=$dir/postgres data=$dir/postgres/data bin sockets=$dir/postgres
    bin=$(pg_bin)
    choose_ports postgres sql
    cp "$dir/tls/server.pem" "$dir/tls/server.key" "$home/"
    make_private postgres "$home/server.pem" "$home/server.key"
    run_as postgres "$bin/initdb" --pgdata="$data" --username=pillarbox --auth=trust --encoding=UTF8 --locale=C.UTF-8 \
        --no-sync >"$home/initdb.out" 2>&1 || { cat "$home/initdb.out" >&2; return 1; }
    # The path of a Unix socket has at most 107 characters.
    if [[ ${#sockets} -gt 85 ]]; then sockets=; fi
    cat >>"$data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
port = $(port postgres sql)
unix_socket_directories = '$sockets'
max_connections = 300
superuser_reserved_connections = 5
shared_buffers = 256MB
dynamic_shared_memory_type = mmap   # below the data folder: a killed server leaves nothing in /dev/shm
fsync = on
wal_level = logical
max_wal_size = 4GB
max_wal_senders = 20
max_replication_slots = 40
max_prepared_transactions = 0
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%u@%d %a '
password_encryption = 'scram-sha-256'
ssl = on
ssl_cert_file = '$home/server.pem'
ssl_key_file = '$home/server.key'
${PILLARBOX_SERVICES_POSTGRES:-}
CONF
    cat >"$data/pg_hba.conf" <<'CONF'
local all,replication all                trust
host  all,replication scram 127.0.0.1/32 scram-sha-256
host  all,replication all   127.0.0.1/32 trust
CONF
}

spawn_postgres() { spawn postgres "$(pg_bin)/postgres" -D "$dir/postgres/data"; }

sql() { # DATABASE, statements on standard input
    "$(pg_bin)/psql" -X -q -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$(port postgres sql)" -U pillarbox -d "$1"
}

probe_postgres() { "$(pg_bin)/pg_isready" -q -h 127.0.0.1 -p "$(port postgres sql)" -U pillarbox -d postgres; }

initialize_postgres() {
    sql postgres <<'SQL'
create role scram login password 'secret';
create database pillarbox;
grant all on database pillarbox to scram;
SQL
}

env_postgres() {
    local at
    at=127.0.0.1:$(port postgres sql)/pillarbox
    variable POSTGRES_URL "postgres://pillarbox@$at"
    variable POSTGRES_SCRAM_URL "postgres://scram:secret@$at"
}

halt_postgres() { # [MODE]
    case ${1:-fast} in
        smart) terminate postgres TERM 60 ;;
        fast) terminate postgres INT 30 ;;
        immediate) terminate postgres QUIT 10 ;;
        *) die "unknown PostgreSQL shutdown mode: $1 (use smart, fast or immediate)" ;;
    esac
}

# Gives it five seconds to release its memory. A killed server leaves its System V segment for its next start to
# reuse, and here there is no next start.
remove_postgres() {
    terminate postgres QUIT 5
    local pidfile=$dir/postgres/data/postmaster.pid segment
    [[ -f $pidfile ]] || return 0
    segment=$(sed -n 7p "$pidfile" | awk '{ print $2 }')
    if [[ -n $segment ]] && have ipcrm; then ipcrm -m "$segment" 2>/dev/null || true; fi
}
