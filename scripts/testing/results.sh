# What came of the tests: counting, flaky tests and the last line. Sourced by scripts/test, `runner` and `selftest`.
# shellcheck shell=bash

# This many flaky tests are excused in one run; one more and the run fails.
most_flaky=2

# Tests that are never excused: patterns of `PACKAGE TEST`. A crash, a wrong order or a wrong ledger that shows once in a
# hundred runs is the very bug that these tests look for. A random history that fails is a counterexample.
never_excused=(
    '*crash*'
    '*killed*'
    '* order::*'
    '*::order::*'
    '*ordering*'
    '*in_order*'
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

# What one failed test printed.
output_of() { # FILE TEST
    awk -v begin="---- $2 stdout ----" '
        $0 == begin { inside = 1; next }
        /^---- .* stdout ----$/ || /^failures:$/ { inside = 0 }
        inside' "$1"
}

# The file that keeps the output of a flaky test.
record_name() { echo "${1//[^A-Za-z0-9_-]/.}"; } # PACKAGE TEST

without_colours() { sed 's/\x1b\[[0-9;]*m//g'; }

passed=0
failed=0
# What failed and is no test: stages, and test binaries that died.
broken=()
# One line for each test that passed when it ran again, alone.
flaky=()

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

# Adds a stage of tests: its exit code, what it printed, and what the runner wrote down.
# A failure that no test result shows (it does not compile, it died) counts as one.
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
            'died '*) broken+=("$stage: ${line#died }") ;;
        esac
    done < <(cat "$4" 2>/dev/null || true)
    if [[ $code -ne 0 && $((failed + ${#broken[@]})) -eq $before ]]; then broken+=("$stage"); fi
}

# Prints flaky tests with the output of both runs, what failed, and the last line. Fails if anything failed.
conclude() { # FOLDER
    local test name
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
    for name in "${broken[@]}"; do echo "failed: $name"; done
    failed=$((failed + ${#broken[@]}))
    echo "$passed passed, $failed failed"
    [[ $failed -eq 0 && $passed -gt 0 ]]
}
