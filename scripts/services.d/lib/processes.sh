# Processes: start one with its pid on record, find it again, end it.

run_as() { # SERVICE COMMAND...
    local user
    user=$(user_of "$1")
    shift
    if [[ $user == "$(id -un)" ]]; then
        "$@"
    else
        setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups -- "$@"
    fi
}

# Starts a server with a clean environment, in its own session, and records its pid. PILLARBOX_SERVICES_DIR in its
# environment marks it as ours.
#
# The parent of each server is a small process that only reaps it. In containers the init process may be slow to reap:
# a killed PostgreSQL would stay a zombie, and the next one would believe that it still runs.
spawn() { # SERVICE COMMAND...
    local service=$1 user become=()
    shift
    local log=$dir/$service/$service.log pid=$dir/$service/pid
    user=$(user_of "$service")
    if [[ $user != "$(id -un)" ]]; then
        become=(setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups --)
    fi
    if [[ -s $log ]]; then mv -f "$log" "$log.1"; fi
    rm -f "$pid"
    (
        cd "$dir/$service"
        umask 022
        exec 8>&- 9>&- </dev/null >"$log" 2>&1
        # shellcheck disable=SC2016 # Perl's variables
        exec setsid perl -MPOSIX=setsid -e '
            my $pidfile = shift;
            defined(my $pid = fork) or die "fork: $!";
            if (!$pid) { setsid; exec { $ARGV[0] } @ARGV or die "$ARGV[0]: $!" }
            open(my $out, ">", "$pidfile.new") or die "$pidfile: $!";
            print $out "$pid\n";
            close $out;
            rename("$pidfile.new", $pidfile);
            chdir "/";
            waitpid($pid, 0)' "$pid" "${become[@]}" env -i PATH="$PATH:/usr/sbin:/sbin" HOME="$dir/$service" \
            LANG=C.UTF-8 PILLARBOX_SERVICES_DIR="$dir" "$@"
    ) &
    local tries=0
    until [[ -s $pid ]]; do
        [[ $((tries += 1)) -lt 1000 ]] || return 1
        sleep 0.01
    done
}

# Some servers overwrite their environment with a process title, others do not have the folder in their arguments.
is_ours() { # PID
    { tr '\0' '\n' <"/proc/$1/cmdline" | grep -qF -- "$dir"; } 2>/dev/null ||
        { tr '\0' '\n' <"/proc/$1/environ" | grep -qxF -- "PILLARBOX_SERVICES_DIR=$dir"; } 2>/dev/null
}

exists() { [[ -e /proc/$1 && $(sed -nE 's/^State:\s+(.).*/\1/p' "/proc/$1/status" 2>/dev/null) != Z ]]; }

# Prints the pid if that process runs and is ours.
pid_of() { # SERVICE
    local pid
    [[ -s $dir/$1/pid ]] || return 1
    pid=$(<"$dir/$1/pid")
    exists "$pid" && is_ours "$pid" || return 1
    echo "$pid"
}

# Prints the pids of a process, of its descendants and of its session.
process_tree() { # PID
    ps -e -o pid=,ppid=,sid= | awk -v top="$1" '
        { parent[$1] = $2; session[$1] = $3 }
        END {
            for (pid in parent) {
                up = pid
                while (up != top && up > 1 && up in parent) up = parent[up]
                if (up == top || session[pid] == top) print pid
            }
        }'
}

wait_gone() { # SECONDS PID...
    local deadline=$((SECONDS + $1)) pid
    shift
    for pid in "$@"; do
        while exists "$pid"; do
            [[ $SECONDS -lt $deadline ]] || return 1
            sleep 0.05
        done
    done
}

kill_hard() { # SERVICE
    local pid members
    pid=$(pid_of "$1") || return 0
    mapfile -t members < <(process_tree "$pid")
    kill -KILL "${members[@]}" 2>/dev/null || true
    wait_gone 10 "${members[@]}" || die "$1 still runs 10 s after SIGKILL (pid $pid)"
}

# Sends the signal, waits, then kills.
terminate() { # SERVICE SIGNAL SECONDS
    local pid members
    pid=$(pid_of "$1") || return 0
    mapfile -t members < <(process_tree "$pid")
    kill "-$2" "$pid" 2>/dev/null || true
    wait_gone "$3" "${members[@]}" || kill_hard "$1"
    # A server may have ended before its children.
    kill -KILL "${members[@]}" 2>/dev/null || true
}
