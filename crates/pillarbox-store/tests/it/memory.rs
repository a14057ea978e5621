//! The reference is held to what it is the reference for.

mod suite {
    pillarbox_testkit::store_suite!(pillarbox_testkit::MemoryHarness::fresh);
}
