# PgBouncer in front of this instance's PostgreSQL.

missing_pgbouncer() { have pgbouncer || [[ -x /usr/sbin/pgbouncer ]] || echo pgbouncer; }

user_pgbouncer() { echo postgres; }

prepare_pgbouncer() {
    local home=$dir/pgbouncer
    choose_ports pgbouncer sql
    cat >"$home/pgbouncer.ini" <<CONF
[databases]
* = host=127.0.0.1 port=$(port postgres sql) user=pillarbox

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $(port pgbouncer sql)
unix_socket_dir =
auth_type = any
admin_users = pillarbox
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
ignore_startup_parameters = extra_float_digits,options
CONF
}

spawn_pgbouncer() { spawn pgbouncer pgbouncer "$dir/pgbouncer/pgbouncer.ini"; }

probe_pgbouncer() { "$(pg_bin)/pg_isready" -q -h 127.0.0.1 -p "$(port pgbouncer sql)" -U pillarbox -d pillarbox; }

env_pgbouncer() { variable PGBOUNCER_URL "postgres://pillarbox@127.0.0.1:$(port pgbouncer sql)/pillarbox"; }
