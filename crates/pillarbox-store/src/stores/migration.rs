//! A migration, the same type for every SQL store, and which of them a schema has.
//!
//! A schema that says version 1 may be that of an unreleased build, with other tables. The checksum tells them apart, so that
//! such a schema is refused at once instead of by each statement that meets the difference.

use sha2::{Digest, Sha256};

use crate::store::StoreError;

/// SQL that migrates the outbox from the previous version to this one.
///
/// A released migration never changes. The next one fixes its faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Counts from 1, without gaps.
    pub version: i32,
    /// Its name.
    pub name: &'static str,
    /// The statements.
    pub sql: &'static str,
}

impl Migration {
    /// The SHA-256 of the statements, as they are for the default schema. Line endings do not count: Git may write others into the
    /// files that a program is built from.
    pub(crate) fn checksum(&self) -> String {
        let digest = Sha256::digest(self.sql.replace("\r\n", "\n"));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// What a migration run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version before; 0 if there was no outbox.
    pub from: i32,
    /// The version now.
    pub to: i32,
}

/// The newest of these versions; 0 if there is none.
pub(crate) fn newest(migrations: &[Migration]) -> i32 {
    migrations
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0)
}

/// The version of a schema with these applied migrations, each with its checksum. A program from before checksums left none.
///
/// # Errors
/// When the schema is newer than the program, or another build applied one of the migrations.
pub(crate) fn version_of(
    applied: &[(i32, Option<String>)],
    migrations: &[Migration],
) -> Result<i32, StoreError> {
    let found = applied.iter().map(|(version, _)| *version).max().unwrap_or(0);
    let known = newest(migrations);
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    for migration in migrations {
        let own = applied.iter().find(|(version, _)| *version == migration.version);
        if let Some((version, checksum)) = own
            && checksum.as_deref() != Some(&migration.checksum())
        {
            return Err(StoreError::OtherBuild { version: *version });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [Migration; 2] = [
        Migration {
            version: 1,
            name: "one",
            sql: "create table a (b int)",
        },
        Migration {
            version: 2,
            name: "two",
            sql: "alter table a add c int",
        },
    ];

    fn applied(checksums: &[Option<&str>]) -> Vec<(i32, Option<String>)> {
        let owned = checksums.iter().map(|one| one.map(str::to_owned));
        (1..).zip(owned).collect()
    }

    #[test]
    fn a_build_from_files_with_other_line_endings_is_the_same_build() {
        let [unix, windows] = [
            "create table a (\n  b int\n)\n",
            "create table a (\r\n  b int\r\n)\r\n",
        ]
        .map(|sql| Migration { sql, ..OURS[0] }.checksum());
        assert_eq!(unix, windows);
    }

    #[test]
    fn a_schema_is_known_by_the_checksums_of_its_migrations() {
        let [one, two] = OURS.map(|migration| migration.checksum());
        assert_eq!(version_of(&[], &OURS).unwrap(), 0);
        assert_eq!(version_of(&applied(&[Some(&one)]), &OURS).unwrap(), 1);
        assert_eq!(version_of(&applied(&[Some(&one), Some(&two)]), &OURS).unwrap(), 2);
        for other in [
            applied(&[None]),
            applied(&[Some(&two)]),
            applied(&[Some("x"), Some(&two)]),
        ] {
            let error = version_of(&other, &OURS).unwrap_err();
            assert!(matches!(error, StoreError::OtherBuild { version: 1 }), "{error}");
        }
        let newer = [(3, None)];
        assert!(matches!(
            version_of(&newer, &OURS),
            Err(StoreError::Newer { found: 3, known: 2 })
        ));
    }
}
