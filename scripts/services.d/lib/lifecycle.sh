# Starts, halts and removes services.

# Waits until the service answers its probe.
await() { # SERVICE
    local deadline=$((SECONDS + start_timeout)) pid
    pid=$(cat "$dir/$1/pid") || return 1
    until "probe_$1" 2>/dev/null; do
        exists "$pid" || return 1
        [[ $SECONDS -lt $deadline ]] || return 1
        sleep 0.05
    done
}

port_was_taken() { # SERVICE
    grep -qsiE 'address (already )?in use|eaddrinuse|port_already_used|BindException' \
        "$dir/$1/$1.log" "$dir/$1/server.log" "$dir/epmd/epmd.log"
}

# Another process may take a chosen port before the server binds it. Then everything starts again with new ports.
create() { # SERVICE
    local try
    for try in 1 2 3 4 5; do
        make_service_dir "$1"
        if "prepare_$1" && "spawn_$1" && await "$1"; then
            if has_hook initialize "$1"; then "initialize_$1"; fi
            touch "$dir/$1/complete"
            return
        fi
        port_was_taken "$1" || return 1
        say "$1: another process took a port, choosing new ones (try $try of 5)"
        remove "$1"
    done
    return 1
}

halt() { # SERVICE [MODE]
    if has_hook halt "$1"; then "halt_$1" "${@:2}"; else terminate "$1" TERM 5; fi
}

# Ends the service at once and deletes its data.
remove() { # SERVICE
    if has_hook remove "$1"; then "remove_$1"; else kill_hard "$1"; fi
    rm -rf "${dir:?}/$1"
}

start_one() { # SERVICE
    local began=$EPOCHREALTIME verb=started
    if pid_of "$1" >/dev/null && [[ -e $dir/$1/complete ]]; then
        verb='already running'
    elif [[ -e $dir/$1/complete ]]; then
        "spawn_$1" && await "$1" || return 1
    else
        if [[ -e $dir/$1 ]]; then remove "$1"; fi # an earlier start was interrupted
        create "$1" || return 1
    fi
    printf '%-10s %s in %s s, %s\n' "$1" "$verb" "$(elapsed "$began")" "$(tr '\n' ' ' <"$dir/$1/ports")" >&2
}

elapsed() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'; }

show_log() { # SERVICE
    local log
    for log in "$dir/$1/$1.log" "$dir/$1/server.log"; do
        [[ -s $log ]] || continue
        say "--- $log"
        tail -n 30 "$log" >&2
    done
}

start_or_explain() { # SERVICE
    start_one "$1" && return
    say "$1 did not start (the end of its log follows)"
    show_log "$1"
    return 1
}

# PgBouncer's configuration has PostgreSQL's port, so PostgreSQL starts first. All others start in parallel.
start_in_order() { # SERVICE...
    local service
    for service in "$@"; do start_or_explain "$service" || return 1; done
}

# Sets `services`: the named ones and what they need, in starting order.
resolve_services() { # NAME...
    local name service
    services=()
    for name in "$@"; do
        [[ " ${all_services[*]} " == *" $name "* ]] || die "unknown service: $name (use ${all_services[*]})"
    done
    for service in "${all_services[@]}"; do
        if [[ " $* " == *" $service "* || ($service == postgres && " $* " == *" pgbouncer "*) ]]; then
            services+=("$service")
        fi
    done
}

# Ends the jobs that still prepare a service. Servers have their own sessions and are ended by their recorded pids.
end_jobs() {
    local job pid session members=()
    [[ ${#jobs[@]} -gt 0 ]] || return 0
    # No new step begins, but the current one may finish: an interrupted initdb leaves a memory segment behind.
    kill -STOP "${jobs[@]}" 2>/dev/null || true
    session=$(ps -o sid= -p $$)
    for job in "${jobs[@]}"; do
        for pid in $(process_tree "$job"); do
            if [[ $(ps -o sid= -p "$pid") == "$session" ]]; then members+=("$pid"); fi
        done
    done
    kill -KILL "${jobs[@]}" 2>/dev/null || true
    wait_gone 10 "${members[@]}" || kill -KILL "${members[@]}" 2>/dev/null || true
    wait "${jobs[@]}" 2>/dev/null || true
    sleep 0.2 # a spawned server may still be writing its pid file
}

# A failed start ends every process that it started and removes the folder that it made.
undo_start() {
    local code=$? service
    trap - EXIT
    trap '' INT TERM HUP
    end_jobs
    if [[ -n ${fresh:-} ]]; then
        if [[ -e $dir/.pillarbox-services ]]; then remove_all; fi
    else
        for service in "${started[@]}"; do halt "$service" immediate; done
    fi
    exit "$code"
}

remove_all() {
    local service
    for service in "${all_services[@]}"; do remove "$service"; done
    rm -rf "${dir:?}"
    if [[ -f $current && $(<"$current") == "$dir" ]]; then rm -f "$current"; fi
}
