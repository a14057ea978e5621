# The daily commands. Each recipe is one plain command that stands in CONTRIBUTING.md too: `just` is not required.

# List the recipes
_list:
    @{{ just_executable() }} --list --unsorted

# Watch events flow, with nothing to configure
dev *ARGS:
    cargo run --release --locked -- dev {{ ARGS }}

# Build the release binary
build *ARGS:
    cargo build --release --locked {{ ARGS }}

# Compile everything, tests included, without producing binaries
check *ARGS="--workspace":
    cargo check --locked --all-targets --all-features {{ ARGS }}

# Test one crate, for example: just test pillarbox claim
test CRATE *ARGS:
    cargo test --locked -p {{ CRATE }} --all-features {{ ARGS }}

# Format the code
fmt:
    cargo fmt --all

# Run the lints of CI
clippy *ARGS="--workspace":
    cargo clippy --locked --all-targets --all-features {{ ARGS }} -- -D warnings

# Build the documentation
docs *ARGS:
    cargo doc --locked --workspace --all-features --no-deps {{ ARGS }}

# Start PostgreSQL and the brokers: eval "$(just start)"
start *NAMES:
    @scripts/services start {{ NAMES }}

# Stop them and delete their data
stop:
    scripts/services stop

# Measure, for example: just bench --quick drain
bench *ARGS:
    scripts/bench {{ ARGS }}

# List retired words that are left
words *ARGS:
    scripts/words {{ ARGS }}

# Check dependencies for advisories, licences and duplicates
deny:
    cargo deny check

# Run everything that CI runs
ci *ARGS:
    scripts/test {{ ARGS }}
