# The results of the tests: counts, flaky tests, slow tests and the last line. Sourced by scripts/test, `runner` and `selftest`.
# shellcheck shell=bash

# At most this many flaky tests are excused in one run.
most_flaky=2

# This many of the slowest tests are listed.
most_slow=15

# Patterns of `PACKAGE TEST` for tests that are never excused. These tests look for a crash, a wrong order or a wrong ledger
# that shows once in a hundred runs. A random history that fails is a counterexample.
never_excused=(
    '*crash*'
    '*killed*'
    '*order*'
    '*overtake*'
    'pillarbox-store *_key*'
    'pillarbox-store *lane*'
    '*ledger*'
    '*random*'
    '*histories*'
    '*property*'
    '*exactly_once*'
    'pillarbox-consume proof::*'
    'pillarbox-server adopt::faults::*'
    'shop *'
)

is_excusable() { # PACKAGE TEST
    local pattern
    for pattern in "${never_excused[@]}"; do
        # shellcheck disable=SC2053 # the pattern is meant as one
        if [[ "$1 $2" == $pattern ]]; then return 1; fi
    done
}

# The names below the last `failures:` of a test binary's output. A binary that died half-way has none.
failed_tests() { # FILE
    awk '
        /^failures:$/ { listing = 1; list = ""; next }
        listing && /^test result: / { last = list }
        listing && /^    [^ ]/ { list = list substr($0, 5) "\n"; next }
        !/^$/ { listing = 0 }
        END { printf "%s", last }' "$1"
}

# The seconds of a test binary since it began, and of each of its tests.
record_times() { # PACKAGE BINARY BEGAN FILE
    # Without the hash that cargo adds to the name.
    awk -v began="$3" -v now="$(date +%s.%N)" -v of="$1 ${2%-*}" \
        'BEGIN { printf "binary %.1f %s\n", now - began, of }'
    without_colours <"$4" | awk -v package="$1" '
        /^test .* \.\.\. [a-zA-Z]+ <[0-9.]+s>$/ {
            seconds = substr($NF, 2, length($NF) - 3)
            printf "test %.1f %s %s\n", seconds, package, $2
        }'
}

print_times() { # FILE
    [[ -s $1 ]] || return 0
    echo
    echo "seconds of each test binary:"
    awk '$1 == "binary" && $2 >= 1' "$1" | sort -k2,2nr | awk '{ printf "%8.1f  %s %s\n", $2, $3, $4 }'
    echo "slowest tests:"
    awk '$1 == "test"' "$1" | sort -k2,2nr | awk -v most="$most_slow" 'NR <= most { printf "%8.1f  %s %s\n", $2, $3, $4 }'
}

# The output of one failed test, without the frames of its backtrace.
output_of() { # FILE TEST
    awk -v begin="---- $2 stdout ----" '
        $0 == begin { inside = 1; next }
        /^---- .* stdout ----$/ || /^failures:$/ { inside = 0 }
        /^ +[0-9]+: / || /^ +at [^ ]+:[0-9]+:[0-9]+$/ { next }
        inside' "$1"
}

# The file that keeps the output of a flaky or failed test.
record_name() { echo "${1//[^A-Za-z0-9_-]/.}"; } # PACKAGE TEST

without_colours() { sed 's/\x1b\[[0-9;]*m//g'; }

passed=0
failed=0
# Failures other than tests: stages, and test binaries that died.
broken=()
# One line for each test that passed when it ran again, alone.
flaky=()
# One line for each other failed test.
failed_names=()
# This many lines of the output of a failed test are repeated at the end.
most_lines=60

# Adds up lines like `test result: ok. 3 passed; 0 failed; …`.
count() { # FILE
    local totals
    totals=$(without_colours <"$1" | awk '
        /^test result: / {
            for (i = 2; i <= NF; i++) {
                if ($i == "passed;") passed += $(i - 1)
                if ($i == "failed;") failed += $(i - 1)
            }
        }
        END { print passed + 0, failed + 0 }')
    passed=$((passed + ${totals% *}))
    failed=$((failed + ${totals#* }))
}

# Adds a stage of tests: its exit code, its output, and what the runner recorded.
# A failure without a test result (a compile error, a process that died) counts as one.
take_tests() { # STAGE CODE OUTPUT RECORDS
    local stage=$1 code=$2 before=$((failed + ${#broken[@]})) line
    count "$3"
    while IFS= read -r line; do
        case $line in
            'flaky '*)
                flaky+=("${line#flaky }")
                passed=$((passed + 1))
                failed=$((failed - 1))
                ;;
            'failed '*) failed_names+=("${line#failed }") ;;
            'died '*) broken+=("$stage: ${line#died }") ;;
        esac
    done < <(cat "$4" 2>/dev/null || true)
    if [[ $code -ne 0 && $((failed + ${#broken[@]})) -eq $before ]]; then broken+=("$stage"); fi
}

# Prints slow tests, flaky and failed tests with their output, failed stages, and the last line. Fails if anything failed.
conclude() { # FOLDER
    local test name
    print_times "$1/times"
    if [[ $((passed + failed)) -eq 0 && ${#broken[@]} -eq 0 ]]; then broken+=("tests (no test ran)"); fi
    if [[ ${#flaky[@]} -gt $most_flaky ]]; then
        broken+=("${#flaky[@]} flaky tests, at most $most_flaky are excused")
    fi
    echo
    for test in "${flaky[@]}"; do
        echo "FLAKY $test"
        cat "$1/$(record_name "$test")" 2>/dev/null || true
        echo
    done
    for test in "${failed_names[@]}"; do
        echo "FAILED $test"
        head -n "$most_lines" "$1/$(record_name "$test")" 2>/dev/null || true
        echo
    done
    for name in "${broken[@]}"; do echo "failed: $name"; done
    failed=$((failed + ${#broken[@]}))
    echo "$passed passed, $failed failed"
    [[ $failed -eq 0 && $passed -gt 0 ]]
}
