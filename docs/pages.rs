//! Compiles the Rust blocks of the README and the pages in this folder, and checks their links.
//!
//! A block that shows part of a program hides its set-up in lines that begin with `# `. A page with a Rust block stands
//! in the list below; a test finds one that is missing.

macro_rules! compile {
    ($($page:ident = $path:literal,)*) => {
        $(#[cfg(doctest)] #[doc = include_str!($path)] mod $page {})*

        #[cfg(test)]
        const COMPILED: &[&str] = &[$($path),*];
    };
}

compile! {
    readme = "../README.md",
    consumers = "consumers.md",
    domain_events = "domain-events.md",
    embedding = "embedding.md",
    getting_started = "getting-started.md",
    inbox = "inbox.md",
    ordering = "ordering.md",
    payloads = "payloads.md",
    rust = "rust.md",
    sagas = "sagas.md",
    sinks_callback = "sinks/callback.md",
    sinks_message_format = "sinks/message-format.md",
    sinks_webhook = "sinks/webhook.md",
    sqlite = "sqlite.md",
    testing_your_code = "testing-your-code.md",
    typed_events = "typed-events.md",
    versions = "versions.md",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::COMPILED;

    fn docs() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Every Markdown file below `folder`, without build output and downloaded dependencies.
    fn markdown(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("the folder can be listed") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "node_modules" {
                    markdown(&path, found);
                }
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }

    fn pages() -> Vec<PathBuf> {
        let mut found = Vec::new();
        markdown(&docs().join(".."), &mut found);
        found
    }

    /// The lines of a page outside of its code blocks.
    fn prose(text: &str) -> impl Iterator<Item = &str> {
        let mut in_code = false;
        text.lines().filter(move |line| {
            let fence = line.trim_start().starts_with("```");
            in_code ^= fence;
            !in_code && !fence
        })
    }

    /// The anchors that GitHub gives the headings of a page.
    fn anchors(text: &str) -> BTreeSet<String> {
        let headings = prose(text).filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let title = line.trim_start_matches('#').trim().to_lowercase();
                let kept = title
                    .chars()
                    .filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
                kept.map(|char| if char == ' ' { '-' } else { char }).collect()
            })
            .collect()
    }

    /// The targets of `[text](target)`.
    fn links(text: &str) -> Vec<&str> {
        let targets = prose(text).flat_map(|line| line.split("](").skip(1));
        targets.filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
    }

    fn broken(page: &Path, link: &str) -> Option<String> {
        if link.contains("://") {
            return None;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() {
            page.to_owned()
        } else {
            page.parent().expect("a page is in a folder").join(file)
        };
        if !target.exists() {
            return Some(format!("{}: no such file: {link}", page.display()));
        }
        if anchor.is_empty() || anchors(&read(&target)).contains(anchor) {
            return None;
        }
        Some(format!("{}: no such heading: {link}", page.display()))
    }

    #[test]
    fn every_link_resolves() {
        let mut wrong = Vec::new();
        for page in pages() {
            let text = read(&page);
            wrong.extend(links(&text).into_iter().filter_map(|link| broken(&page, link)));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// A link such as [`a_claim_counts_an_attempt`](…/claiming.rs) names a function of that file.
    fn missing_function(page: &Path, text: &str, target: &str) -> Option<String> {
        let name = text.strip_prefix('`')?.strip_suffix('`')?;
        let is_name = name
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '_');
        if !is_name || !target.ends_with(".rs") {
            return None;
        }
        let file = page.parent().expect("a page is in a folder").join(target);
        let code = std::fs::read_to_string(&file).unwrap_or_default();
        let is_there = ["(", "<"]
            .iter()
            .any(|end| code.contains(&format!("fn {name}{end}")));
        (!is_there).then(|| format!("{}: no function `{name}` in {target}", page.display()))
    }

    /// The text and the target of `[text](target)`.
    fn texts_and_targets(line: &str) -> impl Iterator<Item = (&str, &str)> {
        line.split('[').filter_map(|link| {
            let (text, rest) = link.split_once("](")?;
            Some((text, rest.split_once(')')?.0))
        })
    }

    #[test]
    fn every_test_that_a_page_names_exists() {
        let mut wrong = Vec::new();
        for page in pages() {
            let text = read(&page);
            for (name, target) in prose(&text).flat_map(texts_and_targets) {
                wrong.extend(missing_function(&page, name, target));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_must_of_modkit_has_a_test() {
        let text = read(&docs().join("modkit.md"));
        let musts: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with('|') && line.contains("MUST"))
            .collect();
        assert!(musts.len() > 25, "only {} requirements are listed", musts.len());
        for line in musts {
            let proof = texts_and_targets(line)
                .find(|(name, target)| name.starts_with('`') && target.ends_with(".rs"));
            assert!(proof.is_some(), "no test is named for: {line}");
        }
    }

    #[test]
    fn a_test_that_is_gone_is_noticed() {
        let page = docs().join("modkit.md");
        let file = "../crates/pillarbox-testkit/src/store_suite/claiming.rs";
        assert_eq!(missing_function(&page, "`a_claim_counts_an_attempt`", file), None);
        assert!(missing_function(&page, "`a_claim_counts_nothing`", file).is_some());
        assert!(missing_function(&page, "`a_claim`", "../crates/gone.rs").is_some());
        assert_eq!(missing_function(&page, "the claims", file), None);
    }

    #[test]
    fn every_rust_block_is_compiled() {
        let compiled: BTreeSet<PathBuf> = COMPILED
            .iter()
            .map(|path| docs().join(path).canonicalize().expect("the page is there"))
            .collect();
        for page in pages() {
            let text = read(&page);
            let page = page.canonicalize().expect("the page is there");
            assert!(
                !text.contains("```rust") || compiled.contains(&page),
                "{} has a Rust block: add the page to docs/pages.rs",
                page.display()
            );
            assert!(
                !text.contains("```rust,ignore"),
                "{} has a block that is not compiled",
                page.display()
            );
        }
    }
}
